"""What a device's backend must offer: launches for specs, memory, copies, streams, events.  Everything above is written once, against this.

Devices are numbered 0, 1, ... in the driver's own (physical) order.  Stream and event handles are opaque.  Addresses
are Python ints, unique over the host and all devices of a driver, so that an address tells where it lies.  Every call
may come from any thread.  Work on one stream runs in order; streams run beside each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ..errors import AcceleratorError
from ..kernels import target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..kernels.programs import PreparedLaunch, Program
    from ..kernels.specs import Spec

NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"


def permit(graph: Any) -> None:
    """Raises AcceleratorError while a driver's graph is being captured: the host may not wait for what is not done."""
    if graph.open:
        raise AcceleratorError(NOT_PERMITTED)


class Properties:
    """What a device is.  Sizes in bytes, clocks in kHz."""

    __slots__ = ("name", "major", "minor", "total_memory", "multi_processor_count", "L2_cache_size", "uuid",
                 "warp_size", "max_threads_per_multi_processor", "regs_per_multiprocessor", "shared_memory_per_block",
                 "shared_memory_per_multiprocessor", "shared_memory_per_block_optin", "is_integrated",
                 "is_multi_gpu_board", "simulated", "pci_bus_id", "pci_device_id", "pci_domain_id")
    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    uuid: str
    simulated: bool

    def __init__(self, **values: Any) -> None:
        for name in self.__slots__:
            setattr(self, name, values.pop(name))
        if values:
            raise TypeError(f"unknown device properties: {sorted(values)}")

    def __repr__(self) -> str:
        return (f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
                f"total_memory={self.total_memory // (1 << 20)}MB, multi_processor_count={self.multi_processor_count}, "
                f"uuid={self.uuid})")


class Driver(ABC):
    """A set of devices of one kind.  `simulated` says whether they are GPUs played by the CPU."""

    simulated: bool = False
    near: bool = False  # whether the host reads the devices' memory where it lies, and work is done when it is asked for
    sorts_writes: bool = True  # whether colliding writes are sorted before they are made, so that it is cheaper to gather what falls on an element
    contracts: bool = False  # whether its compiler makes one of a product and an addition: in reductions and rows, and everywhere of a function's last product
    launch_bytes: int = 1 << 24  # bytes of memory that are read or written in the time that one more launch takes
    awaited: bool = False  # whether the host waits for each launch
    own_visibility: bool = False  # whether `device_count` already counts visible devices only

    @property
    def initialised(self) -> bool:
        """Whether something was begun that a forked child cannot go on with."""
        return False

    # ------------------------------------------------------------------------------------------------------- devices
    @abstractmethod
    def device_count(self) -> int:
        """How many devices there are, before any rule of visibility."""

    @abstractmethod
    def properties(self, device: int) -> Properties:
        """What a device is."""

    @abstractmethod
    def memory_info(self, device: int) -> tuple[int, int]:
        """(free, total) bytes of a device."""

    @abstractmethod
    def can_access_peer(self, device: int, peer: int) -> bool:
        """Whether kernels and copies of `device` can reach the memory of `peer` directly."""

    @abstractmethod
    def enable_peer(self, device: int, peer: int) -> None:
        """Lets `device` reach the memory of `peer`.  Raises RuntimeError where it cannot."""

    @abstractmethod
    def synchronize(self, device: int) -> None:
        """Waits for everything queued on a device; raises AcceleratorError for what went wrong there."""

    def utilization(self, device: int, seconds: float = 1.0) -> tuple[int, int]:
        """(in kernels, in kernels or copies): percents of the last `seconds`.  A real GPU's are its management library's to tell."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------------------- memory
    @abstractmethod
    def alloc(self, device: int, nbytes: int) -> int:
        """The address of `nbytes` > 0 bytes of a device, or 0 when there is no room.  At least 512-byte aligned."""

    @abstractmethod
    def free(self, device: int, address: int) -> None:
        """Gives back what `alloc` gave.  No work that uses it may be queued any more."""

    def trim(self, device: int) -> None:
        """Memory that was given back and that the driver keeps goes to the system."""
        return None

    @abstractmethod
    def host_alloc(self, nbytes: int) -> int:
        """The address of page-locked host memory, which copies read and write without the host waiting; 0: no room."""

    @abstractmethod
    def host_free(self, address: int) -> None:
        """Gives back what `host_alloc` gave."""

    @abstractmethod
    def is_pinned(self, address: int) -> bool:
        """Whether a host address lies in page-locked memory."""

    def owns(self, device: int, address: int) -> bool:
        """Whether an address may lie in the memory of this device: False where that is known to be wrong."""
        return True

    # ------------------------------------------------------------------------------------------------------- streams
    @abstractmethod
    def stream_create(self, device: int, priority: int = 0) -> Any:
        """A new stream of a device."""

    @abstractmethod
    def stream_external(self, device: int, number: int) -> Any:
        """A stream by its number, as other libraries know it; the same each time.  Who made it ends it.  Raises RuntimeError for a number of none."""

    @abstractmethod
    def stream_destroy(self, stream: Any) -> None:
        """Forgets a stream once its work is done."""

    @abstractmethod
    def stream_query(self, stream: Any) -> bool:
        """Whether everything queued so far is done."""

    @abstractmethod
    def stream_synchronize(self, stream: Any) -> None:
        """Waits for everything queued so far; raises AcceleratorError for what went wrong on its device."""

    @abstractmethod
    def launch(self, stream: Any, prepared: PreparedLaunch, args: tuple[Any, ...]) -> None:
        """Queues ``prepared.entry(*args)``.  Returns at once; an error shows at a later synchronisation."""

    @abstractmethod
    def prepare(self, device: int, spec: Spec) -> PreparedLaunch | None:
        """A launch of what a spec names (a loop program, a product, a sort, a convolution) by the backend's own kernels or libraries; None
        where it has none for this."""

    @abstractmethod
    def serves(self, kind: type[Spec]) -> bool:
        """Whether `prepare` has launches for specs of this kind at all."""

    def order(self, program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
        """What the order of the sums of a reduction or a row program follows from: two launches that sum the same elements and agree in it give the
        same bits. None where that is not known."""
        return target.order(program, domain, strides)

    def bind(self, device: int, prepared: PreparedLaunch) -> Callable[[Any, tuple[Any, ...]], None] | None:
        """What queues `prepared` when called with a stream and the arguments; None where only the host can carry it out."""
        def call(stream: Any, args: tuple[Any, ...]) -> None:
            self.launch(stream, prepared, args)
        return call

    def direct(self, device: int, prepared: PreparedLaunch, stream: Any) -> Callable[..., None] | None:
        """The same for the stream that the calling thread chose last (`choose`), or `stream` where it chose none, called with the arguments alone;
        None where `bind` must do."""
        return None

    def choose(self, stream: Any, default: bool) -> None:  # noqa: B027  # a driver without `direct` has nothing to do
        """A thread's launches on the stream's device go there from now on, as far as `direct` made them.  default: whether it is the stream
        that `direct` was given."""

    @abstractmethod
    def memcpy(self, stream: Any, dst: int, src: int, nbytes: int, keep: Any = None) -> None:
        """Queues a copy between any two addresses (host or any device).  `keep` lives until it is done.  Memory of a
        device without peer access is reached through the host."""

    def copier(self, device: int, direction: str, nbytes: int, wait: bool) -> Callable[..., None]:
        """What queues copies of so many bytes between the host and a device: called with a stream, the addresses to write and to read,
        whether the host's memory is page-locked, and `keep`.

        direction: "h2d" or "d2h".  wait: it returns when the bytes have arrived, and raises what `stream_synchronize` would.
        """
        def copy(stream: Any, dst: int, src: int, pinned: bool, keep: Any = None) -> None:
            self.memcpy(stream, dst, src, nbytes, keep)
            if wait:
                self.stream_synchronize(stream)
        return copy

    reads_at_once: int = 0  # bytes of pageable memory up to which `copier` has read them when it returns, whether or not it waits
    places: int = 0  # how many page-locked places `stage` can use; 0: there is no `stage`

    def stage(self, stream: Any, direction: str, dst: int, src: int, nbytes: int, piece: int, places: Sequence[int]) -> None:
        """Copies plain bytes between the host's pageable memory and a device by several threads, each of which fills or empties a place of `piece`
        bytes while other pieces cross.

        direction: "h2d" (the source has been read when this returns) or "d2h" (the target has been written).  places: addresses, two for each thread.
        """
        raise NotImplementedError

    def host_moved(self, nbytes: int) -> float:
        """The host's threads copied so many bytes to or from page-locked memory; gives the seconds that a predicted clock
        went on for it."""
        return 0.0

    def peek(self, stream: Any, dst: int, src: int, nbytes: int, keep: Any) -> Callable[[], None]:
        """Queues a small copy to the host on behalf of an onlooker (a trace), not of the program; `keep` lives until
        it is done.  Gives what waits for it."""
        self.memcpy(stream, dst, src, nbytes, keep)
        return lambda: self.stream_synchronize(stream)

    # -------------------------------------------------------------------------------------------------------- events
    @abstractmethod
    def event_create(self, timing: bool = False, sleeps: bool = False) -> Any:
        """A new event, not recorded yet: it counts as done.  sleeps: who waits for it leaves the processor to others, and hears of it later."""

    @abstractmethod
    def event_record(self, event: Any, stream: Any) -> None:
        """The event is done when everything queued on the stream so far is."""

    @abstractmethod
    def stream_wait_event(self, stream: Any, event: Any) -> None:
        """Later work of the stream waits for the event as it is recorded now; the host does not wait."""

    @abstractmethod
    def event_query(self, event: Any) -> bool:
        """Whether the event is done."""

    @abstractmethod
    def event_synchronize(self, event: Any) -> None:
        """Waits until the event is done."""

    @abstractmethod
    def event_elapsed(self, start: Any, end: Any) -> float:
        """Milliseconds between two recorded events."""

    # -------------------------------------------------------------------------------------------------------- graphs
    def graph_begin(self, stream: Any) -> Any:
        """Captures what the stream is given from now on, instead of doing it; a graph.  Streams that wait for an event recorded meanwhile are captured
        with it.  What would make the host wait for captured work raises AcceleratorError."""
        raise RuntimeError(f"{type(self).__name__} does not capture graphs")

    def graph_launched(self, graph: Any, stream: Any, prepared: PreparedLaunch, args: tuple[Any, ...]) -> None:  # noqa: B027
        """What was launched on a stream just now, as dispatch showed it: for drivers whose launches go past them."""

    def graph_end(self, graph: Any) -> None:
        """Ends the capture of a graph, one that failed too."""
        raise NotImplementedError

    def graph_arguments(self, graph: Any) -> list[tuple[Any, ...]]:
        """Makes a graph whose capture has ended ready to be queued.  The arguments of each of its items that is a launch; () for the others.  Raises
        AcceleratorError where the capture failed."""
        raise NotImplementedError

    def graph_launch(self, stream: Any, graph: Any, changed: dict[int, tuple[Any, ...]]) -> None:
        """Queues a graph on a stream.  changed: arguments, by the place among the items, that are others this time."""
        raise NotImplementedError

    def capturing(self, stream: Any) -> bool:
        """Whether what the stream is given is being captured."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Finishes what is queued and ends the driver's threads.  Memory stays valid while the driver is referenced."""
