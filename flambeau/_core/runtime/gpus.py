"""The GPUs of this process: which there are, which is current, and what dispatch asks of them.

Nothing happens until a GPU is used.  A *system* is a driver with the GPUs that are visible; `simulate()` puts another
in its place, so everything here asks for the system of the moment.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Any

from .. import errors, forks
from ..errors import warn
from ..kernels.specs import Loop
from . import caches, dispatch, memory, visible_devices
from . import device as devices
from .gpu_memory import Pool
from .pinned_memory import HostPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..drivers.interface import Driver, Properties
    from ..kernels.programs import PreparedLaunch
    from ..kernels.specs import Spec
    from .device import device
    from .memory_history import History
    from .staging import Ring
    from .streams import Stream

_MOST_STREAMS = 32


class Gpu:
    """One visible GPU: its `index` here, its `physical` number in the driver, its `pool`, the pinned memory of the `host`
    and its default stream."""

    __slots__ = ("driver", "index", "physical", "device", "properties", "pool", "host", "default", "default_handle",
                 "_streams", "_made")

    def __init__(self, driver: Driver, index: int, physical: int, host: HostPool) -> None:
        from .streams import Stream
        self.driver, self.index, self.physical, self.host = driver, index, physical, host
        self.device = devices.of("cuda", index)
        self.properties: Properties = driver.properties(physical)
        self.pool = Pool(driver, physical, index, self.properties.name + (", simulated" if driver.simulated else ""))
        self.default_handle = driver.stream_create(physical)
        self.default: Stream = Stream._of(self, self.default_handle, 0, 0)
        self._streams: dict[int, list[tuple[Any, int]]] = {}
        self._made = 0

    def stream(self, priority: int) -> tuple[Any, int]:
        """A stream's handle and number.  There are 32 of a priority, given in turns: as in PyTorch, so that a program
        that makes one in each step does not pile up queues and their memory."""
        with _lock:
            those = self._streams.setdefault(priority, [])
            if len(those) < _MOST_STREAMS:
                self._made += 1
                those.append((self.driver.stream_create(self.physical, priority), self._made))
            else:
                those.append(those.pop(0))
            return those[-1]


class DriverContext:
    """A driver and its visible GPUs.  `setting` is CUDA_VISIBLE_DEVICES as it was then."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.setting = visible_devices.setting()
        count = driver.device_count()
        if driver.own_visibility:  # to ask what they are would be to begin
            self.physical = list(range(count))
        else:
            self.physical = visible_devices.visible([driver.properties(i).uuid for i in range(count)], self.setting)
        self.hidden = count - len(self.physical)
        self.gpus: list[Gpu] = []
        self.started = False
        self.warned = False
        self.elsewhere = False  # whether any thread ever made another stream than the default one current
        driver.awaited = os.environ.get("CUDA_LAUNCH_BLOCKING", "").strip() == "1"
        self.peers: dict[tuple[int, int], bool] = {}  # whether two reach each other, once asked
        self.host = HostPool(driver)
        self._ring: Ring | None = None

    @property
    def ring(self) -> Ring:
        """The staging slots, made at first use."""
        if self._ring is None:
            from .staging import Ring
            with _lock:
                if self._ring is None:
                    self._ring = Ring(self.driver)
        return self._ring

    def start(self) -> None:
        """Makes the GPUs ready: the first use of any."""
        if not self.started:
            if self.driver.own_visibility and self.physical:
                self.driver.properties(0)  # that begins, and now the driver itself says how many there are
                self.physical = list(range(self.driver.device_count()))
            self.gpus = [Gpu(self.driver, i, p, self.host) for i, p in enumerate(self.physical)]
            self.started = True
            _have(self.gpus)
            from . import ledger
            ledger.start()
            for begin in at_start:
                begin()

    def what(self) -> str:
        names = sorted({self.driver.properties(p).name for p in self.physical})
        hidden = f"; {self.hidden} hidden by {visible_devices.VARIABLE}={self.setting!r}" if self.hidden else ""
        return ("simulated " if self.driver.simulated else "") + ", ".join(names) + hidden


at_start: list[Callable[[], None]] = []  # called when GPUs have been made ready
_lock = forks.lock()
_elsewhere = False  # the system's `elsewhere`
_ready: dict[device, Gpu] = {}  # the GPUs of the system there is, once started: the short way from a concrete device
_system: DriverContext | None = None
_searched = False
_why_none = ""
_forked = False


def _have(gpus: Sequence[Gpu]) -> None:
    """These are the GPUs there are."""
    _ready.clear()
    memory.takes.clear()
    for g in gpus:
        _ready[g.device] = g
        if not _elsewhere:
            memory.takes[g.device] = g.pool.taker(g.default_handle)


def record_memory(make: Callable[[int], History] | None, clear: bool = False) -> None:
    """Begins a history of each GPU's pool, as `make(index)` gives it (what was recorded before is kept unless `clear`), or ends them with None."""
    found = start().gpus
    for g in found:
        pool, before = g.pool, g.pool.history
        if before is not None:
            before.on = False
        if make is not None:
            new = make(g.index)
            if before is not None and not clear:
                new.living.update(before.living)
                new.trace.extend(before.trace)
            pool.history = new
        elif before is not None and clear:
            pool.history = None
        pool.takers.clear()
    _have(found)  # what gives out memory is asked for anew
    dispatch.changed()


class _Thread(threading.local):
    """What each thread has of its own: the current GPU and the current streams."""

    def __init__(self) -> None:
        self.index = 0
        self.streams: dict[Gpu, Stream] = {}
        self.before: list[tuple[int, Stream | None]] = []  # of the streams entered: what was current then


_thread = _Thread()


# ------------------------------------------------------------------------------------------------------- the system now
def system() -> DriverContext | None:
    """The system of the moment, made from the environment when first asked for; None: there is no GPU."""
    global _system, _searched
    if _system is None and not _searched:
        with _lock:
            if _system is None and not _searched:
                _system = _from_environment()
                _searched = True
    found = _system
    if found is not None and not found.warned and visible_devices.setting() != found.setting:
        found.warned = True
        warn(f"{visible_devices.VARIABLE} was {found.setting!r} when the GPUs were first looked for and is "
             f"{visible_devices.setting()!r} now: too late to matter. Set it before the program starts")
    return found


def _from_environment() -> DriverContext | None:
    global _why_none
    text = os.environ.get("FLAMBEAU_SIM_GPUS")
    if text is None or not text.strip():
        return _real()
    if not text.strip().isdigit():
        raise RuntimeError(f"FLAMBEAU_SIM_GPUS: expected a number of GPUs, got {text!r}")
    if not int(text):
        _why_none = "FLAMBEAU_SIM_GPUS is 0"
        return None
    get = os.environ.get
    return simulated_system(int(text), get("FLAMBEAU_SIM_MODEL", "H200"), get("FLAMBEAU_SIM_MEMORY"),
                            get("FLAMBEAU_SIM_QUEUE", "eager"), int(get("FLAMBEAU_SIM_SEED", "0")), get("FLAMBEAU_SIM_NETWORK", "NDR"))


def _real() -> DriverContext | None:
    """The NVIDIA GPUs of this machine; None, with the reason kept, where there is none to use."""
    global _why_none
    from ..drivers.nvidia import probe
    found = probe.look()
    if found.why:
        _why_none = f"{found.why}, and none is simulated"
        return None
    total, text = found.count, visible_devices.setting()
    if found.uuids is not None and text is not None and "MIG-" not in text:
        found.count = len(visible_devices.visible(found.uuids, text))
    from ..drivers.nvidia.driver import NvidiaDriver
    system = DriverContext(NvidiaDriver(found))
    system.hidden = total - found.count
    return system


def simulated_system(gpus: int, model: str | Sequence[str], memory: int | str | None, queue: str, seed: int, network: str) -> DriverContext:
    """A system of simulated GPUs; the arguments are those of `flambeau.simulate`."""
    from ..drivers.simulated.driver import SimulatedDriver
    if type(gpus) is not int or gpus < 0:
        raise ValueError(f"gpus: expected a number of GPUs (an int, 0 or more), got {gpus!r}")
    names = [model] * gpus if isinstance(model, str) else list(model)
    if len(names) != gpus:
        raise ValueError(f"model: got {len(names)} names for {gpus} GPUs; pass one name for all, or one for each")
    return DriverContext(SimulatedDriver(names, None if memory is None else parse_size(memory), queue, seed, network))


def parse_size(memory: int | str) -> int:
    """Bytes of an int, or of a string such as "8GiB" or "512 MiB".  Raises ValueError for anything else."""
    if isinstance(memory, str):
        text = memory.strip().lower().removesuffix("b").removesuffix("i")
        factor = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(text[-1:], 1)
        try:
            amount = float(text[:-1] if factor > 1 else text)
        except ValueError:
            amount = 0.0
        size = int(amount * factor) if 0 < amount < 1e15 else 0
    else:
        size = memory if type(memory) is int else 0
    if size < 1 << 20:
        raise ValueError("memory: expected at least 1 MiB, as a number of bytes or a string like '8GiB', got "
                         f"{memory!r}")
    return size


def install(new: DriverContext | None, searched: bool = True, current: int = 0) -> tuple[DriverContext | None, bool, int]:
    """Puts a system in the place of the one there is, with this thread's current GPU; gives what `install` takes to put it
    back."""
    global _system, _searched, _why_none, _elsewhere
    with _lock:
        before = _system, _searched, _thread.index
        _system, _searched, _thread.index = new, searched, current
        _elsewhere = new is not None and new.elsewhere
        _have(() if new is None else new.gpus)
        if new is None and searched:
            _why_none = "it was taken away"
    dispatch.changed()  # launches are bound to a system's streams
    return before


def require_context() -> DriverContext:
    """The system, which has a GPU.  Raises RuntimeError that says what is there when there is no GPU to use."""
    if _forked:
        raise errors.forked()
    found = system()
    if found is None or not found.physical:
        raise errors.no_gpu(why_none())
    return found


def why_none() -> str:
    """Why there is no GPU to use; empty when there is one.  Looking does not count as use."""
    found = system()
    if found is None:
        return _why_none
    if found.physical:
        return "a forked child cannot use the GPUs its parent had used" if _forked else ""
    return (f"{found.hidden} GPUs are hidden by {visible_devices.VARIABLE}={found.setting!r}" if found.hidden else "0 GPUs are simulated")


def start() -> DriverContext:
    """The system, ready for use.  Raises RuntimeError that says what is there when there is no GPU to use."""
    found = require_context()
    if not found.started:
        with _lock:
            found.start()
    return found


def started() -> bool:
    """Whether any GPU was used.  Asking does not count as use."""
    return bool(_ready)


def count() -> int:
    """How many GPUs are visible.  Looking does not count as use."""
    found = system()
    return 0 if found is None or _forked else len(found.physical)


def gpu(like: Any = None) -> Gpu:
    """The visible GPU of a device, an index or None (the current one).  Raises RuntimeError when it is not there,
    ValueError for a device of another type."""
    s = start()
    return s.gpus[_number(like, s)]


def resolve(like: Any = None) -> device:
    """The device of a GPU, as `gpu` takes it.  Naming one is not using it: nothing is started."""
    return devices.of("cuda", _number(like, require_context()))


def _number(like: Any, s: DriverContext) -> int:
    count = len(s.physical)
    if like is None:
        index: int | None = None
    elif type(like) is int:
        index = None if like == -1 else like
    else:
        d = like if isinstance(like, devices.device) else devices.device(like)
        if d.type != "cuda":
            raise ValueError(f"expected a cuda device, got {d}")
        index = d.index
    if index is None:
        index = _thread.index if _thread.index < count else 0
    if not 0 <= index < count:
        raise errors.no_such_gpu(index, count, s.what())
    return index


def concrete(dev: device) -> device:
    """The device with its index, once it is known to be there."""
    return dev if dev in _ready else resolve(dev)


def set_current(index: int) -> int:
    """Makes a GPU current in this thread; returns the one before."""
    before, _thread.index = _thread.index, gpu(index).index
    return before


def current_index() -> int:
    return gpu().index


# ----------------------------------------------------------------------------------------------- what dispatch asks for
def current_stream(dev: Any = None) -> Stream:
    """This thread's current stream of a GPU."""
    g = gpu(dev)
    return _thread.streams.get(g) or g.default


def set_stream(stream: Stream) -> None:
    """Makes a stream current in this thread for its own GPU."""
    if stream._handle is not stream._gpu.default_handle:
        leave_default()
    _thread.streams[stream._gpu] = stream
    stream._gpu.driver.choose(stream._handle, stream._handle is stream._gpu.default_handle)


def unset_stream(g: Gpu) -> None:
    """Makes a GPU's default stream current in this thread."""
    if _thread.streams.pop(g, None) is not None:
        g.driver.choose(g.default_handle, True)


def leave_default() -> None:
    """From now on launches and requests for memory ask which stream is current."""
    global _elsewhere
    if not _elsewhere:
        with _lock:
            _elsewhere = True
            if _system is not None:
                _system.elsewhere = True
            memory.takes.clear()
        dispatch.changed()  # what was bound so far goes to the default streams alone


def launcher(dev: device, prepared: PreparedLaunch) -> Callable[..., None]:
    """What queues `prepared` on the current stream of `dev` when called with its arguments."""
    launch = _launcher(gpu(dev), prepared)
    if prepared.note is not None:
        launch = _noting(dev, launch, prepared.note)
    if _system is None or not _system.driver.awaited:
        return launch

    def launch_and_wait(*args: Any) -> None:
        launch(*args)
        stream = current_stream(dev)
        if not stream._gpu.driver.capturing(stream._handle):
            stream.synchronize()
    return launch_and_wait


def _noting(dev: device, launch: Callable[..., None], note: Callable[[Any], None]) -> Callable[..., None]:
    """The same launch, which is noted first."""
    def noted(*args: Any) -> None:
        note(current_stream(dev)._handle)
        launch(*args)
    return noted


def _launcher(g: Gpu, prepared: PreparedLaunch) -> Callable[..., None]:
    default, thread = g.default_handle, _thread
    made = g.driver.direct(g.physical, prepared, default)
    if made is not None:
        return made
    call = g.driver.bind(g.physical, prepared)
    if call is None:
        from . import host_fallback
        return host_fallback.launcher(g, prepared)
    if not _elsewhere:
        def by_default(*args: Any) -> None:
            call(default, args)
        return by_default

    def enqueue(*args: Any) -> None:
        stream = thread.streams.get(g)
        call(default if stream is None else stream._handle, args)
    return enqueue


_settling: dict[tuple[device, Spec], PreparedLaunch] = {}  # what settles when it first runs is one launch in all worlds of plans
caches.on_forget(_settling.clear)


def prepare(dev: device, spec: Spec) -> PreparedLaunch | None:
    """A launch by the GPU's backend; None where it has none for this."""
    g = _ready.get(dev) or gpu(dev)
    if _settling and type(spec) is not Loop and (found := _settling.get((dev, spec))) is not None:
        return found
    made = g.driver.prepare(g.physical, spec)
    if made is not None and made.settling:
        _settling[dev, spec] = made
    return made


def device_and_stream(dev: device) -> tuple[Gpu, Stream]:
    """The GPU of a concrete device, and this thread's current stream of it."""
    g = _ready.get(dev) or gpu(dev)
    return g, _thread.streams.get(g) or g.default


def block(dev: device, nbytes: int) -> tuple[int, Any]:
    """Memory of a GPU for work of its current stream; see `memory.block`."""
    g = _ready.get(dev) or gpu(dev)
    stream = _thread.streams.get(g)
    return g.pool.take(g.default_handle if stream is None else stream._handle, nbytes)


def enable_peer(a: Gpu, b: Gpu) -> bool:
    """Lets two GPUs reach each other directly, where they can; whether they can."""
    s = start()
    found = s.peers.get((a.index, b.index))
    if found is None:
        found = a.driver.can_access_peer(a.physical, b.physical)
        if found:
            a.driver.enable_peer(a.physical, b.physical)
            a.driver.enable_peer(b.physical, a.physical)
        s.peers[a.index, b.index] = s.peers[b.index, a.index] = found
    return found


def synchronize(dev: Any = None) -> None:
    """Waits for all work of a GPU."""
    g = gpu(dev)
    g.driver.synchronize(g.physical)


# -------------------------------------------------------------------------------------------------------- pinned memory
def pinned_block(nbytes: int) -> tuple[int, Any]:
    """Page-locked host memory, which copies read and write asynchronously, and what gives it back.

    Raises RuntimeError where there is no GPU to pin it for, or no memory.
    """
    return start().host.block(nbytes)


def is_pinned(address: int) -> bool:
    """Whether a host address lies in page-locked memory of the system there is."""
    s = _system
    return s is not None and s.started and not _forked and s.driver.is_pinned(address)


# -------------------------------------------------------------------------------------------------- forks and endings
def _in_child() -> None:
    global _forked
    if _system is not None and (_system.started or _system.driver.initialised):
        _forked = True
        _have(())
        dispatch.changed()


def _at_exit() -> None:
    if _system is not None and not _forked:
        _system.driver.close()


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
