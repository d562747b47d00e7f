"""What a group does on one GPU: collectives on a stream of its own, as NCCL does it, with or without NCCL.

On a simulated GPU the stream's turn is when the ranks agree and communicate.  On a real one NCCL's work is queued at once, and a thread of the group
watches it: whether the ranks agree, whether NCCL says that something went wrong, whether a rank is gone or the time is up.  Then the communicator is
aborted, so that the stream goes on, and the error is raised where the host next waits for the GPU, or calls the group.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.drivers.collectives.nccl import library
from .._core.drivers.collectives.nccl.communicator import NCCLCommunicator, unique_id
from .._core.kernels.specs import Collective
from .._core.runtime import dispatch, gpus
from .._core.runtime.streams import Event, Stream
from .groups import Exchange, Job, as_told, failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._core.drivers.collectives.interface import Communicator, Request
    from .._core.dtypes import dtype
    from .._core.runtime.device import device
    from .._core.tensor import Tensor
    from .groups import ProcessGroup

    Begin = Callable[[Any, tuple[int, ...]], Request]


class GpuQueue:
    """A group's stream on a simulated GPU."""

    def __init__(self, group: ProcessGroup, dev: device) -> None:
        self.group, self.device, self.lane = group, dev, group.device
        self.stream = Stream(dev)

    def launch(self, name: str, what: str, line: str, start: Begin, memory: Sequence[Tensor], wrote: int, shared: bool = True) -> tuple[Event, Job | None]:
        """Queues what `start` begins, given a communicator and the addresses of `memory`, behind what the current stream has now; the event of its end.

        shared: all ranks of the group take part; else `start` is an `Exchange`.
        """
        self.stream.wait_stream(gpus.current_stream(self.device))
        addresses = tuple(t.data_ptr() for t in memory)
        job, carry_out = self._job(what, line, start, addresses, shared)
        made = dispatch.require(self.device, Collective(name, carry_out, wrote, sum(t.nbytes for t in memory), self.lane.comm.size,
                                                         start.nbytes if isinstance(start, Exchange) else max((t.nbytes for t in memory), default=0),
                                                         self.group.machines))
        with self.stream:  # an empty tensor has no address that a launch may have
            dispatch.bind(self.device, made)(*[a for a in addresses if a])
        for t in memory:
            t.record_stream(self.stream)
        event = Event()
        event.record(self.stream)
        self._queued(job, event)
        return event, job

    def _job(self, what: str, line: str, start: Begin, addresses: tuple[int, ...], shared: bool) -> tuple[Job | None, Callable[..., None]]:
        def carry_out(stream: Any, given: tuple[int, ...]) -> None:
            if isinstance(start, Exchange):
                self.lane.exchange(what, line, start, addresses, stream)
            else:
                self.lane.run(what, lambda comm: start(comm, addresses), None, False, line, stream)
        return None, carry_out

    def _queued(self, job: Job | None, event: Event) -> None:
        pass

    def serves(self, combined: tuple[dtype, str] | None) -> bool:
        """Whether elements of a type are combined so here; the host does what is not."""
        return True

    def close(self) -> None:
        """The group has ended, and its work is done."""


class NCCLQueue(GpuQueue):
    """A group's communicator and stream on an NVIDIA GPU.  All ranks of the group make theirs together.

    Raises DistBackendError for what NCCL refuses: two ranks on one GPU, for example.
    """

    def __init__(self, group: ProcessGroup, dev: device, lib: Any, line: str) -> None:
        super().__init__(group, dev)
        g: Any = gpus.gpu(dev)
        self._driver = g.driver
        self._number = g.physical
        self.error: Exception | None = None
        self._told = False
        self._lock = threading.Lock()
        self._comm: NCCLCommunicator | None = None
        lane, size = self.lane, group.size()
        job = Job(f"making an NCCL communicator of {size} ranks", line, self._never)
        identity = np.zeros(128, np.uint8)
        try:
            if lane.comm.rank == 0:
                identity[:] = np.frombuffer(unique_id(lib), np.uint8)
            lane.run(job.what, lambda comm: comm.broadcast(identity.ctypes.data, 128, 0), None, False, line)
            self._driver._use(self._number)
            self._comm = NCCLCommunicator(lib, identity.tobytes(), lane.comm.rank, size)
            lane.until(job, _Ready(self._comm))
        except Exception as error:
            self.fail(told := as_told(job, error))
            raise told from None
        self._driver.after_waits += (self._tell,)

    @staticmethod
    def _never(comm: Communicator) -> Request:
        raise AssertionError("this job only has a name")

    def launch(self, name: str, what: str, line: str, start: Begin, memory: Sequence[Tensor], wrote: int, shared: bool = True) -> tuple[Event, Job | None]:
        if self.error is not None:
            self._told = True
            raise self.error
        return super().launch(name, what, line, start, memory, wrote, shared)

    def _job(self, what: str, line: str, start: Begin, addresses: tuple[int, ...], shared: bool) -> tuple[Job | None, Callable[..., None]]:
        watched = _Watched(self)
        job = Job(what, line, lambda comm: watched, None, self.fail, shared)

        def carry_out(stream: Any, given: tuple[int, ...]) -> None:
            self.lane.submit(job)  # before it is queued, which may have to wait for the other ranks
            assert self._comm is not None
            try:
                self.lane.until(job, start(self._comm.on(stream.raw), addresses))
            except Exception as error:
                self.fail(as_told(job, error))
                self._told = True
                assert self.error is not None
                raise self.error from None
        job.request = watched
        return job, carry_out

    def _queued(self, job: Job | None, event: Event) -> None:
        assert job is not None and isinstance(job.request, _Watched)
        job.request.event = event

    def fail(self, error: BaseException) -> None:
        """Communication is over; the first error is what everybody is told."""
        with self._lock:
            if self.error is not None:
                return
            self.error = error if isinstance(error, Exception) else RuntimeError(str(error))
        failed()
        if self._comm is not None:
            self._driver._use(self._number)
            self._comm.abort()

    def _tell(self, number: int) -> None:
        """The host has waited for a GPU: what was computed there since the error is worth nothing."""
        if self.error is not None and not self._told and number == self._number:
            self._told = True
            raise self.error

    def serves(self, combined: tuple[dtype, str] | None) -> bool:
        return combined is None or library.combines(*combined)

    def close(self) -> None:
        self._driver.after_waits = tuple(t for t in self._driver.after_waits if t != self._tell)
        if self._comm is not None:
            self._comm.close()


class _Ready:
    """A communicator that is being made."""

    source: int | None = None

    def __init__(self, comm: NCCLCommunicator) -> None:
        self.test = comm.ready


class _Watched:
    """Work on a stream: done when the event behind it is.  Raises what went wrong meanwhile."""

    __slots__ = ("queue", "event", "source")

    def __init__(self, queue: NCCLQueue) -> None:
        self.queue, self.source = queue, None
        self.event: Event | None = None

    def test(self) -> bool:
        queue = self.queue
        if queue.error is not None:
            raise queue.error
        assert queue._comm is not None
        try:
            queue._comm.ready()
        except Exception:
            if self._done():  # what went wrong is another's: of work that was behind this one, asked in this order, so that none comes between
                return True
            raise
        return self._done()

    def _done(self) -> bool:
        return self.event is not None and self.event.query()


def of(group: ProcessGroup, dev: device, line: str) -> GpuQueue | None:
    """The group's queue on a GPU, made at its first collective there; None where only the host can carry it: on a real GPU, for a backend other than NCCL, or
    without the library."""
    found = group.gpus.get(dev)
    if found is None:
        if gpus.gpu(dev).driver.simulated:
            found = GpuQueue(group, dev)
        elif "nccl" not in group._backend or (lib := library.load()) is None:
            return None
        else:
            found = NCCLQueue(group, dev, lib, line)
        group.gpus[dev] = found
    return found


def messages(group: ProcessGroup, dev: device) -> bool:
    """Whether messages between two ranks go by NCCL, real or simulated."""
    return dev.type == "cuda" and "nccl" in group._backend and (gpus.gpu(dev).driver.simulated or library.load() is not None)
