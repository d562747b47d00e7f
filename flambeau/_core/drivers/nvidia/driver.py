"""The driver of NVIDIA GPUs.

Each device's primary context is retained when something first needs it, and made current in each thread that calls.  Memory
comes in segments for the caching allocator above, from a pool of our own where the device has pools (`_Memory`).  Streams do not
wait for the legacy default stream.
"""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_right, insort
from collections import deque
from typing import TYPE_CHECKING, Any

from ... import errors
from ...kernels.specs import Loop
from ..interface import Driver, Properties, permit
from . import cuda_errors, graphs, probe, staged
from .streams import Event, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...kernels.programs import PreparedLaunch, Program
    from ...kernels.specs import Spec
    from .device_asserts import Complaints
    from .graphs import Graph

_GRAIN = 512
_END = 1 << 64
_SLEEPS, _UNTIMED = 1, 2  # flags of events: who waits sleeps until an interrupt, some 200 us on a virtual machine; no time is kept
_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def backend() -> str:
    """What the environment asks memory to come from: "native", "cudaMallocAsync", or "" where it does not say.  Raises RuntimeError
    for anything else."""
    for variable in _SETTINGS:
        for entry in os.environ.get(variable, "").split(","):
            name, _, value = entry.strip().partition(":")
            if name.strip() == "backend":
                if value.strip() not in ("native", "cudaMallocAsync"):
                    raise RuntimeError(f"{variable}: Unknown allocator backend {value.strip()!r}, options are native and cudaMallocAsync")
                return value.strip()
    return ""


class _Memory:
    """A device's pool of memory, and the stream on which it is taken and given back.

    Nothing else runs on that stream: to wait for it costs next to nothing, and after that a block is every stream's.  Giving back
    does not wait for the device, as cuMemFree does, and pages that were given back can serve another size without going to the
    system: the pool keeps all of them until `trim`.
    """

    __slots__ = ("pool", "stream")

    def __init__(self, pool: Any, stream: Any) -> None:
        self.pool, self.stream = pool, stream


class _Device:
    __slots__ = ("index", "number", "state", "context", "events", "properties", "arch", "peers", "memory")

    def __init__(self, index: int, number: Any) -> None:
        self.index, self.number, self.state = index, number, cuda_errors.State(index)
        self.context: Any = None
        self.events: tuple[deque[Any], ...] = (deque(), deque(), deque(), deque())  # unused ones, by their flags
        self.properties: Properties | None = None
        self.arch = ""
        self.peers: set[int] = set()
        self.memory: _Memory | bool = True  # True: not looked for yet; False: it has none


class _Current(threading.local):
    """Which device's context is current in a thread, as far as this driver made it so."""

    device = -1


class NvidiaDriver(Driver):
    """`compiler`: (source, architecture) -> image that the driver loads; the CUDA C renderer's own by default."""

    simulated = False
    own_visibility = True
    contracts = True

    def __init__(self, found: probe.Found, compiler: Callable[[str, str], bytes] | None = None) -> None:
        self._found, self.compiler = found, compiler
        self._count = found.count
        self._devices: list[_Device] = []
        self._current = _Current()
        self._lock = threading.RLock()
        self._owned: list[tuple[int, int, int]] = []  # (start, end, device) of all segments, sorted
        self._pinned: list[tuple[int, int]] = []  # (start, end) of page-locked blocks, sorted
        self._gone = False  # forked or closed: nothing may be called any more
        self._cu: Any = None
        self._launches: Any = None
        self._record: Callable[[int, int], int] = self._first_record
        self._external: weakref.WeakValueDictionary[tuple[int, int], Stream] = weakref.WeakValueDictionary()  # other libraries' streams, by their numbers
        self._capturing: set[Graph] = set()
        self.complaints: Complaints | None = None  # once a kernel that may complain has been prepared
        self.after_waits: tuple[Callable[[int], None], ...] = ()  # called with a device that the host has waited for; they raise what was found there
        os.register_at_fork(after_in_child=self._in_child)

    # ------------------------------------------------------------------------------------------------------ beginning
    @property
    def initialised(self) -> bool:
        return self._cu is not None or self._found.uuids is None

    def _in_child(self) -> None:
        self._gone = self._gone or self.initialised

    def _start(self) -> Any:
        """The bindings, with the driver initialised."""
        if self._gone:
            raise errors.forked()
        with self._lock:
            if self._cu is not None:
                return self._cu
            from cuda.bindings import driver as cu
            code, = cu.cuInit(0)
            count = 0
            if not code:
                code, count = cu.cuDeviceGetCount()
            if code:
                raise errors.no_gpu(f"the NVIDIA driver does not start: {cuda_errors.describe(int(code))}")
            if not count:
                raise errors.no_gpu("the NVIDIA driver sees no GPU")
            for i in range(count):
                code, number = cu.cuDeviceGet(i)
                if code:
                    raise errors.no_gpu(f"GPU {i} is not there: {cuda_errors.describe(int(code))}")
                self._devices.append(_Device(i, number))
            self._cu, self._count = cu, count
            return cu

    def _use(self, device: int) -> _Device:
        """The device, its context current in this thread."""
        cu = self._cu or self._start()
        if self._gone:
            raise errors.forked()
        d = self._devices[device]
        if d.state.first:
            raise d.state.fail(0, "")
        if self._current.device != device:
            self._enter(cu, d)
        return d

    def _enter(self, cu: Any, d: _Device) -> None:
        if d.context is None:
            with self._lock:
                if d.context is None:
                    code, context = cu.cuDevicePrimaryCtxRetain(d.number)
                    if code:
                        raise d.state.fail(code, "the first use of the device")
                    d.context = context
        code, = cu.cuCtxSetCurrent(d.context)
        if code:
            raise d.state.fail(code, "making its context current")
        self._current.device = d.index

    def _check(self, d: _Device, code: Any, what: str) -> None:
        if code:
            raise d.state.fail(code, what)

    # -------------------------------------------------------------------------------------------------------- devices
    def device_count(self) -> int:
        return self._count

    def properties(self, device: int) -> Properties:
        cu = self._start()
        d = self._devices[device]
        if d.properties is None:
            d.properties = self._ask(cu, d)
        return d.properties

    def _ask(self, cu: Any, d: _Device) -> Properties:
        a = cu.CUdevice_attribute

        def number(name: str) -> int:
            code, v = cu.cuDeviceGetAttribute(getattr(a, "CU_DEVICE_ATTRIBUTE_" + name), d.number)
            self._check(d, code, f"asking for {name.lower()}")
            return int(v)
        code, name = cu.cuDeviceGetName(256, d.number)
        self._check(d, code, "asking for its name")
        code, total = cu.cuDeviceTotalMem(d.number)
        self._check(d, code, "asking for its memory")
        code, uuid = cu.cuDeviceGetUuid(d.number)
        self._check(d, code, "asking for its identity")
        h = bytes(uuid.bytes).hex()
        return Properties(
            name=name.split(b"\0")[0].decode(), major=number("COMPUTE_CAPABILITY_MAJOR"), minor=number("COMPUTE_CAPABILITY_MINOR"),
            total_memory=int(total), multi_processor_count=number("MULTIPROCESSOR_COUNT"), L2_cache_size=number("L2_CACHE_SIZE"),
            uuid=f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:32]}", warp_size=number("WARP_SIZE"),
            max_threads_per_multi_processor=number("MAX_THREADS_PER_MULTIPROCESSOR"),
            regs_per_multiprocessor=number("MAX_REGISTERS_PER_MULTIPROCESSOR"), shared_memory_per_block=number("MAX_SHARED_MEMORY_PER_BLOCK"),
            shared_memory_per_multiprocessor=number("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            shared_memory_per_block_optin=number("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"), is_integrated=bool(number("INTEGRATED")),
            is_multi_gpu_board=bool(number("MULTI_GPU_BOARD")), simulated=False, pci_bus_id=number("PCI_BUS_ID"),
            pci_device_id=number("PCI_DEVICE_ID"), pci_domain_id=number("PCI_DOMAIN_ID"))

    def architecture(self, device: int) -> str:
        """What kernels are compiled for: "sm_90"."""
        d = self._devices[device]
        if not d.arch:
            p = self.properties(device)
            if (p.major, p.minor) < (8, 0):
                raise errors.no_gpu(f"GPU {device} ({p.name}) has compute capability {p.major}.{p.minor}; 8.0 is the least that is served")
            d.arch = f"sm_{p.major}{p.minor}"
        return d.arch

    def version(self) -> str:
        """The CUDA version of the driver."""
        return probe.text(self._found.version)

    def memory_info(self, device: int) -> tuple[int, int]:
        d = self._use(device)
        code, free, total = self._cu.cuMemGetInfo()
        self._check(d, code, "asking for its free memory")
        return int(free), int(total)

    def can_access_peer(self, device: int, peer: int) -> bool:
        if device == peer:
            return False
        cu = self._start()
        d = self._devices[device]
        code, can = cu.cuDeviceCanAccessPeer(d.number, self._devices[peer].number)
        self._check(d, code, "asking for peer access")
        return bool(can)

    def enable_peer(self, device: int, peer: int) -> None:
        other = self._use(peer)
        d = self._use(device)
        code, = self._cu.cuCtxEnablePeerAccess(other.context, 0)
        if int(code) not in (0, cuda_errors.PEER_ENABLED):
            names = [f"GPU {i} ({self.properties(i).name})" for i in (device, peer)]
            if int(code) in cuda_errors.STICKY:
                raise d.state.fail(code, "enabling peer access")
            raise RuntimeError(f"peer access is not supported between {names[0]} and {names[1]}: {cuda_errors.describe(int(code))}")
        d.peers.add(peer)
        self._let(other, d)

    def synchronize(self, device: int) -> None:
        for graph in list(self._capturing):
            if graph.device == device:
                permit(graph)
        d = self._use(device)
        code, = self._cu.cuCtxSynchronize()
        self._check(d, code, "waiting for the device")
        if self._launches is not None:
            self._launches.waited(device)
        for tell in self.after_waits:
            tell(device)
        if self.complaints is not None:
            self.complaints.done(device)

    # --------------------------------------------------------------------------------------------------------- memory
    def alloc(self, device: int, nbytes: int) -> int:
        d = self._use(device)
        size = (nbytes + _GRAIN - 1) & -_GRAIN
        memory = self._memory(d) if d.memory is True else d.memory
        if isinstance(memory, _Memory):
            code, pointer = self._cu.cuMemAllocFromPoolAsync(size, memory.pool, memory.stream)
            if not code:
                code, = self._cu.cuStreamSynchronize(memory.stream)
        else:
            code, pointer = self._cu.cuMemAlloc(size)
        if int(code) == cuda_errors.OUT_OF_MEMORY:
            return 0
        self._check(d, code, f"allocating {nbytes} bytes")
        address = int(pointer)
        with self._lock:
            insort(self._owned, (address, address + size, device))
        return address

    def free(self, device: int, address: int) -> None:
        if self._gone or self._devices[device].state.first:
            return  # the memory went with the context
        d = self._use(device)
        with self._lock:
            i = bisect_right(self._owned, (address, _END, 0)) - 1
            if i < 0 or self._owned[i][0] != address:
                raise ValueError(f"free: {address:#x} is not the start of memory of this driver")
            del self._owned[i]
        if isinstance(d.memory, _Memory):
            code, = self._cu.cuMemFreeAsync(address, d.memory.stream)
        else:
            code, = self._cu.cuMemFree(address)
        self._check(d, code, "freeing memory")

    def trim(self, device: int) -> None:
        memory = self._devices[device].memory
        if isinstance(memory, _Memory):
            d = self._use(device)
            code, = self._cu.cuStreamSynchronize(memory.stream)
            self._check(d, code, "freeing memory")
            code, = self._cu.cuMemPoolTrimTo(memory.pool, 0)
            self._check(d, code, "giving memory back to the system")

    def _memory(self, d: _Device) -> _Memory | bool:
        """The device's pool, made; False where it has none, or plain memory is asked for."""
        cu = self._cu
        with self._lock:
            if d.memory is not True:
                return d.memory
            d.memory = False
            if backend() == "native":
                return False
            code, has = cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, d.number)
            if code or not has:
                return False
            wanted = cu.CUmemPoolProps()
            wanted.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            wanted.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            wanted.location.id = int(d.number)
            code, pool = cu.cuMemPoolCreate(wanted)
            if code:
                return False
            code, = cu.cuMemPoolSetAttribute(pool, cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cu.cuuint64_t(_END - 1))
            self._check(d, code, "setting what a pool keeps")
            code, stream = cu.cuStreamCreateWithPriority(1, 0)
            self._check(d, code, "making a stream")
            d.memory = _Memory(pool, stream)
            for other in self._devices:
                if d.index in other.peers:
                    self._let(d, other)
            return d.memory

    def _let(self, d: _Device, other: _Device) -> None:
        """Lets another device reach a pool's memory: pools do not follow the contexts' peer access."""
        if isinstance(d.memory, _Memory):
            cu = self._cu
            access = cu.CUmemAccessDesc()
            access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            access.location.id = int(other.number)
            access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            code, = cu.cuMemPoolSetAccess(d.memory.pool, [access], 1)
            self._check(d, code, f"letting GPU {other.index} reach its memory")

    def owner(self, address: int) -> int:
        """The device an address lies on; -1: none of them."""
        owned = self._owned
        i = bisect_right(owned, (address, _END, 0)) - 1
        if i >= 0:
            start, end, device = owned[i]
            if start <= address < end:
                return device
        return -1

    def owns(self, device: int, address: int) -> bool:
        return self.owner(address) == device

    def host_alloc(self, nbytes: int) -> int:
        d = self._use(max(self._current.device, 0))
        portable = 1  # every context may use it
        code, address = self._cu.cuMemHostAlloc(nbytes, portable)
        if int(code) == cuda_errors.OUT_OF_MEMORY:
            return 0
        self._check(d, code, f"page-locking {nbytes} bytes")
        address = int(address)
        with self._lock:
            insort(self._pinned, (address, address + nbytes))
        return address

    def host_free(self, address: int) -> None:
        with self._lock:
            i = bisect_right(self._pinned, (address, _END)) - 1
            if i < 0 or self._pinned[i][0] != address:
                raise ValueError(f"host_free: {address:#x} is not the start of page-locked memory")
            del self._pinned[i]
        if self._gone or any(d.state.first for d in self._devices):
            return
        d = self._use(max(self._current.device, 0))
        code, = self._cu.cuMemFreeHost(address)
        self._check(d, code, "freeing page-locked memory")

    def is_pinned(self, address: int) -> bool:
        pinned = self._pinned
        i = bisect_right(pinned, (address, _END)) - 1
        return i >= 0 and address < pinned[i][1]

    # -------------------------------------------------------------------------------------------------------- streams
    def stream_create(self, device: int, priority: int = 0) -> Stream:
        return Stream(self, device, priority)

    def stream_external(self, device: int, number: int) -> Stream:
        with self._lock:
            found = self._external.get((device, number))
            if found is None:
                found = self._external[device, number] = Stream(self, device, 0)
                found.handle, found.raw = self._cu.CUstream(number), number
            return found

    def _open(self, stream: Stream) -> None:
        with self._lock:
            if stream.opened:
                return
            d = self._use(stream.device)
            code, least, greatest = self._cu.cuCtxGetStreamPriorityRange()
            self._check(d, code, "asking for the streams' priorities")
            code, handle = self._cu.cuStreamCreateWithPriority(1, max(greatest, min(least, stream.priority)))  # 1: waits for no legacy stream
            self._check(d, code, "making a stream")
            stream.handle = handle
            stream.raw = int(handle)

    def stream_destroy(self, stream: Stream) -> None:
        if self._gone or not stream.opened or self._devices[stream.device].state.first:
            return
        self.stream_synchronize(stream)
        d = self._use(stream.device)
        code, = self._cu.cuStreamDestroy(stream.handle)
        self._check(d, code, "ending a stream")
        for address, _ in stream.rooms.values():
            self.free(stream.device, address)

    def room(self, stream: Stream, whose: Any, nbytes: int) -> int:
        """Workspace of at least so many bytes for what a library does on a stream, one after another; 0 where there is no room for it.  What is captured
        has workspace of its graph's own, as replays may run on any stream."""
        graph = stream.graph
        rooms, key = (stream.rooms, whose) if graph is None else (graph.rooms, (stream, whose))
        address, size = rooms.get(key, (0, 0))
        if size < nbytes:
            with self._lock:
                made = self.alloc(stream.device, nbytes)
                if not made:
                    return 0
                if address:
                    rooms[key, address] = address, 0  # work may still use it
                rooms[key] = address, size = made, nbytes
        return address

    def stream_query(self, stream: Stream) -> bool:
        if stream.graph is not None:
            permit(stream.graph)
        d = self._use(stream.device)
        code, = self._cu.cuStreamQuery(stream.handle)
        if int(code) == cuda_errors.NOT_READY:
            return False
        self._check(d, code, "looking at a stream")
        return True

    def stream_synchronize(self, stream: Stream) -> None:
        if stream.graph is not None:
            permit(stream.graph)
        d = self._use(stream.device)
        code, = self._cu.cuStreamSynchronize(stream.handle)
        self._check(d, code, "waiting for a stream")
        if self._launches is not None:
            self._launches.waited(stream.device)
        self._waited(stream)

    def _waited(self, stream: Stream) -> None:
        """All that a stream was given is done: lets go of what copies kept, and raises what was found on the device."""
        if stream.kept:
            self._reap(stream)
        for tell in self.after_waits:
            tell(stream.device)
        if self.complaints is not None:
            self.complaints.done(stream.device, stream)

    def launch(self, stream: Stream, prepared: PreparedLaunch, args: tuple[Any, ...]) -> None:
        call = self.bind(stream.device, prepared)
        if call is None:
            raise NotImplementedError(f"launch '{prepared.name}' is of the host: no NVIDIA kernel does it")
        call(stream, args)

    def prepare(self, device: int, spec: Spec) -> PreparedLaunch | None:
        from .routines import prepare
        launches = self._programs()
        if type(spec) is not Loop:
            self._use(device)
        return prepare(launches, device, spec)

    def serves(self, kind: type[Spec]) -> bool:
        from .routines import serves
        return serves(kind)

    def order(self, program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
        from ...kernels import cuda_c
        return cuda_c.order(program, domain, strides)

    def bind(self, device: int, prepared: PreparedLaunch) -> Callable[[Any, tuple[Any, ...]], None] | None:
        return self._programs().bind(device, prepared)  # type: ignore[no-any-return]

    def direct(self, device: int, prepared: PreparedLaunch, stream: Stream) -> Callable[..., None] | None:
        return self._programs().direct(device, prepared, stream)  # type: ignore[no-any-return]

    def choose(self, stream: Stream, default: bool) -> None:
        self._programs().streams(stream.device).choose(None if default else stream.raw)

    def _programs(self) -> Any:
        if self._launches is None:
            from .launches import Launches
            self._start()
            self._launches = Launches(self)
        return self._launches

    def memcpy(self, stream: Stream, dst: int, src: int, nbytes: int, keep: Any = None) -> None:
        to, source = self.owner(dst), self.owner(src)
        if to >= 0 and source >= 0 and to != source:
            d = self._use(stream.device)
            code, = self._cu.cuMemcpyPeerAsync(dst, self._devices[to].context, src, self._devices[source].context, nbytes, stream.handle)
            self._check(d, code, f"copying {nbytes} bytes")
        else:
            direction = ("d2d" if source >= 0 else "h2d") if to >= 0 else "d2h" if source >= 0 else "any"
            self._carry(self._programs().copier(stream.device, direction, False), stream, dst, src, nbytes)
        if keep is not None or stream.kept:
            self._keep(stream, keep)

    def copier(self, device: int, direction: str, nbytes: int, wait: bool) -> Callable[..., None]:
        move, refused, keeps, waited = self._programs().copier(device, direction, wait), self._refused, self._keep, self._waited

        def copy(stream: Stream, dst: int, src: int, pinned: bool, keep: Any = None) -> None:
            code = move(stream.raw, dst, src, nbytes)
            if code:
                refused(code, move, stream, dst, src, nbytes)
            if wait:
                if stream.kept or self.after_waits:
                    waited(stream)
            elif keep is not None or stream.kept:
                keeps(stream, keep)
        return copy

    reads_at_once = 64 << 10  # they go into the device's queue with the command
    places = staged.PLACES

    def stage(self, stream: Stream, direction: str, dst: int, src: int, nbytes: int, piece: int, places: Sequence[int]) -> None:
        d, launches = self._use(stream.device), self._programs()
        unused = launches.stagers(stream.device, direction)
        try:
            stager = unused.pop()
        except IndexError:
            stager = staged.Stager(launches, stream.device, direction)
        code = stager(stream.raw, dst, src, nbytes, piece, places)
        if code:
            self._current.device = -1  # it may be what could not be made current
            raise d.state.fail(code, f"copying {nbytes} bytes")
        unused.append(stager)  # one that failed is not used again

    def _carry(self, move: Callable[[int, int, int, int], int], stream: Stream, dst: int, src: int, nbytes: int) -> None:
        code = move(stream.raw, dst, src, nbytes)
        if code:
            self._refused(code, move, stream, dst, src, nbytes)

    def _refused(self, code: int, move: Callable[[int, int, int, int], int], stream: Stream, dst: int, src: int, nbytes: int) -> None:
        """Tries a copy that failed with this code once more, where only this thread has not used the device yet, or another library made its own
        context current.  Raises for any other failure."""
        if self._gone or code in cuda_errors.ELSEWHERE:
            self._current.device = -1
            self._use(stream.device)
            code = move(stream.raw, dst, src, nbytes)
        if code:
            raise self._devices[stream.device].state.fail(abs(code), f"copying {nbytes} bytes" if code > 0 else "waiting for a stream")

    def _keep(self, stream: Stream, what: Any) -> None:
        """Lets go of what finished copies kept, and keeps something until all that the stream was given is done."""
        if stream.graph is not None:
            stream.graph.kept.append(what)
            return
        self._reap(stream)
        if what is not None:
            event = self.event_create()
            self.event_record(event, stream)
            stream.kept.append((event, what))

    def _reap(self, stream: Stream) -> None:
        """Lets go of what finished copies kept."""
        kept = stream.kept
        while kept:
            try:
                entry = kept.popleft()
            except IndexError:
                return
            if not self.event_query(entry[0]):
                kept.appendleft(entry)
                return

    # --------------------------------------------------------------------------------------------------------- events
    def event_create(self, timing: bool = False, sleeps: bool = False) -> Event:
        return Event(sleeps * _SLEEPS | (not timing) * _UNTIMED)

    def event_record(self, event: Event, stream: Stream) -> None:
        if event.device != stream.device:
            if event.pool is not None:
                event.pool.append((event.handle, event.raw))
            d = self._use(stream.device)
            pool = d.events[event.flags]
            try:
                handle, raw = pool.popleft()
            except IndexError:
                code, handle = self._cu.cuEventCreate(event.flags)
                self._check(d, code, "making an event")
                raw = int(handle)
            event.device, event.handle, event.raw, event.pool = stream.device, handle, raw, pool
        event.graph = stream.graph
        code = self._record(event.raw, stream.raw)
        if code and (self._gone or code in cuda_errors.ELSEWHERE):
            self._current.device = -1
            self._use(stream.device)
            code = self._record(event.raw, stream.raw)
        if code:
            raise self._devices[stream.device].state.fail(code, "recording an event")

    def _first_record(self, event: int, stream: int) -> int:
        self._record = self._programs().recorder()
        return self._record(event, stream)

    def stream_wait_event(self, stream: Stream, event: Event) -> None:
        if event.handle is None:
            return
        if event.graph is not None:
            if not event.graph.open:
                return  # it was of a capture that is over
            event.graph.join(stream)
        elif stream.graph is not None:
            raise errors.AcceleratorError("CUDA error: dependency created on uncaptured work in another stream")
        d = self._use(stream.device)
        code, = self._cu.cuStreamWaitEvent(stream.handle, event.handle, 0)
        self._check(d, code, "queueing a wait")

    def event_query(self, event: Event) -> bool:
        if event.graph is not None:
            permit(event.graph)
        if event.handle is None or event.graph is not None:
            return True
        d = self._use(event.device)
        code, = self._cu.cuEventQuery(event.handle)
        if int(code) == cuda_errors.NOT_READY:
            return False
        self._check(d, code, "looking at an event")
        return True

    def event_synchronize(self, event: Event) -> None:
        if event.graph is not None:
            permit(event.graph)
        if event.handle is None or event.graph is not None:
            return
        d = self._use(event.device)
        code, = self._cu.cuEventSynchronize(event.handle)
        self._check(d, code, "waiting for an event")
        for tell in self.after_waits:
            tell(event.device)

    def event_elapsed(self, start: Event, end: Event) -> float:
        if start.device != end.device:
            raise RuntimeError(f"elapsed_time: the events lie on GPU {start.device} and GPU {end.device}; both must lie on one")
        d = self._use(start.device)
        code, ms = self._cu.cuEventElapsedTime(start.handle, end.handle)
        self._check(d, code, "taking the time between events")
        return float(ms)

    # -------------------------------------------------------------------------------------------------------- graphs
    def graph_begin(self, stream: Stream) -> Graph:
        if stream.graph is not None:
            raise errors.AcceleratorError("CUDA error: the stream is being captured already")
        made = graphs.Graph(self, stream)
        made.begin()
        self._capturing.add(made)
        return made

    def graph_launched(self, graph: Graph, stream: Stream, prepared: PreparedLaunch, args: tuple[Any, ...]) -> None:
        graph.launched(stream, prepared, args)

    def graph_end(self, graph: Graph) -> None:
        self._capturing.discard(graph)
        graph.end()

    def graph_arguments(self, graph: Graph) -> list[tuple[Any, ...]]:
        graph.finish()
        return [args for _, args, _ in graph.items]

    def graph_launch(self, stream: Stream, graph: Graph, changed: dict[int, tuple[Any, ...]]) -> None:
        graph.queue(stream, changed)

    def capturing(self, stream: Stream) -> bool:
        return stream.graph is not None

    def close(self) -> None:
        if self._cu is None or self._gone:
            return
        for d in self._devices:
            if d.context is not None and not d.state.first:
                self._enter(self._cu, d)
                self._cu.cuCtxSynchronize()  # a fault now has nobody left to tell
        self._gone = True
