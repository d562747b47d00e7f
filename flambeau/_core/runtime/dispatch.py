"""Dispatch: every launch and every copy that a device is asked for passes here.

A *bound* launch is what callers keep and call with addresses and numbers.  On the CPU it is the kernel's own entry, so
dispatch costs nothing; on a GPU it puts the launch on the current stream.  While somebody observes (a ledger, a trace,
a recording of a step), bound launches go past the observers.  Callers keep bound launches in caches (`caches`), which dispatch
empties when they are stale and puts aside while somebody observes.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .. import forks
from ..drivers.cpu.driver import CPU
from ..kernels import bounds
from ..kernels.programs import PreparedLaunch
from ..kernels.specs import Loop, Product
from . import caches, provenance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype
    from ..kernels.programs import Program
    from ..kernels.specs import Spec, Steps
    from .device import device

    LaunchObserver = Callable[[device, Any, PreparedLaunch, tuple[Any, ...]], Callable[[], None] | None]
    CopyObserver = Callable[["Copy"], Callable[[], None] | None]
    WaitObserver = Callable[["Wait"], None]

INSTEAD = object()  # what an observer of launches gives for one that is not to be carried out
_launch_observers: tuple[Any, ...] = ()
_copy_observers: tuple[Any, ...] = ()
_wait_observers: tuple[Any, ...] = ()
_lock = forks.lock()
ours: Any = provenance.inside.get
_UNKNOWN = None, None
_weak = weakref.ref
_tf32 = False
_timed = False
_wide: frozenset[str] = frozenset()


def changed() -> None:
    """Bound launches are stale: every registered cache is emptied."""
    caches.forget()


class observe:
    """Calls `launches(device, stream, prepared, args)` before every launch on any device and thread, `copies(Copy)`
    before every copy through dispatch, and `waits(Wait)` before the host waits for a device because the program read a
    value there; a ``with`` block, or until `close()`.  They are called in the thread that asked, below the user's line
    on the stack.  On the CPU there is no `stream` (None).  What `launches` gives, if anything, is called when the launch is done, on a GPU when
    it has been queued (`INSTEAD`: the launch is not carried out); what `copies` gives when the copy's call returns.
    """

    def __init__(self, launches: LaunchObserver | None = None, copies: CopyObserver | None = None,
                 waits: WaitObserver | None = None) -> None:
        global _launch_observers, _copy_observers, _wait_observers
        self._launches, self._copies, self._waits = launches, copies, waits
        with _lock:
            if launches is not None:
                _launch_observers += (launches,)
            if copies is not None:
                _copy_observers += (copies,)
            if waits is not None:
                _wait_observers += (waits,)
            if launches is not None:
                caches.enter(caches.OBSERVED)

    def close(self) -> None:
        """Stops observing.  Doing it again does nothing."""
        global _launch_observers, _copy_observers, _wait_observers
        launches, copies, waits = self._launches, self._copies, self._waits
        self._launches = self._copies = self._waits = None
        with _lock:
            _launch_observers = _without(_launch_observers, launches)
            _copy_observers = _without(_copy_observers, copies)
            _wait_observers = _without(_wait_observers, waits)
            if launches is not None and not _launch_observers:
                caches.enter(caches.PLAIN)  # after which nothing is bound past observers any more

    def __enter__(self) -> observe:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _without(those: tuple[Any, ...], one: Any) -> tuple[Any, ...]:
    """`those` less the first entry that is `one`: the same callback may observe twice."""
    for i, each in enumerate(those):
        if each is one:
            return those[:i] + those[i + 1:]
    return those


def bind(dev: device, prepared: PreparedLaunch) -> Callable[..., Any]:
    """What carries out `prepared` on a concrete device when called with its addresses and numbers.  While launches are observed, it goes past the
    observers: the world of `caches` decides that, which changes with the epoch, so that a plan that is kept by its epoch is of one kind.  What is given then
    has the other in its attribute `direct`, or None.

    On a GPU the call returns at once: the work is queued on the calling thread's current stream of `dev`.
    """
    launch = None if caches.world == caches.DRY and dev.type == "cuda" else direct(dev, prepared)
    if launch is not None and (caches.world == caches.PLAIN or dev.type == "meta"):
        return launch
    if dev.type == "cuda":
        from . import gpus
        current_stream: Callable[[device], Any] = gpus.current_stream
    else:
        current_stream = _nothing

    def observed(*args: Any) -> Any:
        nonlocal launch
        stream = current_stream(dev)
        after = [callback(dev, stream, prepared, args) for callback in _launch_observers]
        if INSTEAD in after:
            return None
        if launch is None:  # another thread's, which is no part of a capture
            launch = direct(dev, prepared)
        result = launch(*args)
        for done in after:
            if done is not None:
                done()
        return result
    observed.direct = launch  # type: ignore[attr-defined]
    return observed


def direct(dev: device, prepared: PreparedLaunch) -> Callable[..., Any]:
    """`bind`, past nobody who observes: for what is called in the plain world only, whichever is shown while it is made."""
    if dev.type == "cpu":
        return CPU.direct(0, prepared, None)
    if dev.type == "meta":
        return _nothing
    from . import gpus
    return gpus.launcher(dev, prepared)


def _nothing(*args: Any) -> None:
    """Carries out any launch on the meta device; the stream of a device that has none."""


def find(dev: device, spec: Spec) -> PreparedLaunch | None:
    """The launch that a device's own backend has for `spec`; None where it has none.  The meta device takes the CPU's for its sizes."""
    if dev.type != "cuda":
        return CPU.prepare(0, spec)
    from . import gpus
    return gpus.prepare(dev, spec)


def serves(dev: device, kind: type[Spec]) -> bool:
    """Whether a device's own backend has launches for specs of this kind at all."""
    if dev.type != "cuda":
        return CPU.serves(kind)
    from . import gpus
    return gpus.gpu(dev).driver.serves(kind)


def order(dev: device, program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
    """What the order of the sums of a reduction or a row program on a device follows from: see `Driver.order`."""
    if dev.type != "cuda":
        return CPU.order(program, domain, strides)
    from . import gpus
    return gpus.gpu(dev).driver.order(program, domain, strides)


def contracts(dev: device) -> bool:
    """Whether a device's compiler makes one of products and additions: see `Driver.contracts`."""
    if dev.type != "cuda":
        return CPU.contracts
    from . import gpus
    return gpus.gpu(dev).driver.contracts


def near(dev: device) -> bool:
    """Whether the host reads the device's memory where it lies: what needs the values is then best done by the host."""
    if dev.type == "cpu":
        return CPU.near
    if dev.type == "meta":
        return False
    from . import gpus
    return gpus.gpu(dev).driver.near


def sorts_writes(dev: device) -> bool:
    """Whether a device sorts writes that collide, which costs more than to gather what falls on each element."""
    if dev.type != "cuda":
        return CPU.sorts_writes
    from . import gpus
    return gpus.gpu(dev).driver.sorts_writes


def launch_bytes(dev: device) -> int:
    """How many bytes a device reads or writes in the time that one more launch takes."""
    if dev.type != "cuda":
        return CPU.launch_bytes
    from . import gpus
    return gpus.gpu(dev).driver.launch_bytes


def prepare(dev: device, program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...],
            rooms: Sequence[bounds.Room]) -> PreparedLaunch:
    """A launch of a loop program: see `require`.

    rooms: how many bytes there are from each operand's address on, or before it and from it on, outputs first.  Raises RuntimeError where the launch
    would go beyond them: that is a mistake of the operation, which did not look at its arguments, and is told before anything is read or written.
    """
    bounds.hold(program, domain, strides, rooms)
    if dev.type == "meta":
        return PreparedLaunch(program.kind, _nothing, outputs=len(program.out_types), program=program, domain=domain, strides=strides)
    return require(dev, Loop(program, domain, strides))


def require(dev: device, spec: Spec) -> PreparedLaunch:
    """A launch of what `spec` names on a concrete device.  What the device has no kernel for, the host does on copies (`host_fallback`).  Raises
    NotImplementedError for what the host has none for either."""
    made = find(dev, spec)
    if made is None and dev.type == "cuda":
        made = CPU.prepare(0, spec)
    if made is None:
        raise NotImplementedError(f"there is no kernel for {spec}")
    return made


def set_tf32(allowed: bool) -> None:
    """Whether products of float32 matrices may round their elements to TF32, where a device is faster so."""
    global _tf32
    if allowed != _tf32:
        _tf32 = allowed
        changed()


def set_timed(timed: bool) -> None:
    """Whether products may be tried by several algorithms; it counts from the next epoch on."""
    global _timed
    _timed = timed


def set_wide(name: str, wide: bool) -> None:
    """Whether products of matrices of the 16-bit type `name` must add their partial sums in float32."""
    global _wide
    if wide != (name in _wide):
        _wide = _wide ^ {name}
        changed()


def product(dev: device, d: dtype, m: int, n: int, k: int, a: Steps, b: Steps, c: Steps, batch: int = 1, alpha: complex = 1.0,
            beta: complex = 0.0, epilogue: str = "", recorded: bool = False) -> PreparedLaunch | None:
    """A device's own launch of a `specs.Product`, as exact as this process wants it."""
    return find(dev, Product(d, m, n, k, a, b, c, batch, alpha, beta, _tf32, d.name in _wide, epilogue, recorded, _timed))


class Way:
    """What copies that are made alike have in common: see `Copy`."""

    __slots__ = ("direction", "path", "nbytes", "blocking", "source", "target", "crosses")

    def __init__(self, direction: str, path: str, nbytes: int, blocking: bool, source: device, target: device) -> None:
        self.direction, self.path, self.nbytes, self.blocking = direction, path, nbytes, blocking
        self.source, self.target, self.crosses = source, target, direction not in ("h2h", "d2d")


class Copy:
    """One copy of bytes through dispatch.

    direction: "h2d", "d2h", "d2d" (within one GPU), "peer" (between GPUs) or "h2h".
    path: "pinned" (straight from or to page-locked memory), "staged" (pageable memory through pinned buffers, packing and
        changing the type on the way), "pageable" (straight; small copies for which the host waits anyway, or that the driver reads at once), "peer" (GPU to
        GPU directly), "host" (GPU to GPU, or within the host, through the host; and what goes to the host and back because
        only the host can carry out a launch) or "d2d".
    nbytes: what crossed, in the narrower type where the type changes.
    blocking: the host waits until it is done.
    source, target: devices.  stream: the one it is queued on; None for h2h.
    owners: (storage read, storage written), each None where the bytes are not a tensor's, or once it is gone.  A
        storage's `version` counts its writes, so that an unchanged one is known; `versions` are those of both when the copy was asked for.
    place: what of the storage is read: its address, with what chooses elements there where these are not the bytes from there on.
    line: the user's line.
    seconds: how long the call kept the host; None until it has returned.
    """

    __slots__ = ("way", "stream", "seconds", "site", "read", "written", "versions", "place", "after")
    direction, path, nbytes, blocking, source, target = (
        property(attrgetter("way." + name)) for name in ("direction", "path", "nbytes", "blocking", "source", "target"))

    def __init__(self, way: Way, site: tuple[str, int] | None, stream: Any, read: Any, written: Any, place: Any) -> None:
        self.way, self.site, self.stream, self.place = way, site, stream, place
        # weakly: who keeps records keeps no memory
        self.read, self.written = None if read is None else _weak(read), None if written is None else _weak(written)
        self.versions = (0 if read is None else read.version), (0 if written is None else written.version)
        self.seconds: float | None = None
        self.after: list[Callable[[], None]] | None = None  # what observers want to be called when the copy's call returns

    @property
    def line(self) -> str | None:
        """The user's line that asked for it, as ``file:line``; None where a thread of this package did."""
        return None if self.site is None else f"{self.site[0]}:{self.site[1]}"

    @property
    def owners(self) -> tuple[Any, Any]:
        return self.read and self.read(), self.written and self.written()

    @property
    def pinned(self) -> bool:
        """Whether the program's own host memory is page-locked."""
        return self.way.path == "pinned"

    def __repr__(self) -> str:
        return (f"Copy({self.direction}, {self.path}, {self.nbytes} bytes, {self.source} to {self.target}, "
                f"{'blocking' if self.blocking else 'asynchronous'})")


class CopyScope:
    """A copy that dispatch shows and enters, as a ``with`` block around what carries it out; arguments as for `show`."""

    __slots__ = ("_what", "_record", "_since")

    def __init__(self, way: Way, stream: Any = None, read: Any = None, written: Any = None) -> None:
        self._what = way, read, written
        self._record = show(way, stream, read, written) if _copy_observers else None

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *exc: object) -> None:
        way, read, written = self._what
        made(way, time.perf_counter() - self._since, read, written, None, self._record)


class Wait:
    """The host is about to wait for a GPU because the program asks for a value: `device`, and the `reason`: "item",
    "tolist", "numpy", "print", "bool", "nonzero" or another operation's name.  The copy that brings the value follows."""

    __slots__ = ("device", "reason")

    def __init__(self, device: device, reason: str) -> None:
        self.device, self.reason = device, reason

    def __repr__(self) -> str:
        return f"Wait({self.device}, {self.reason})"


def copies_shown() -> bool:
    """Whether somebody is shown copies, and may forbid them."""
    return bool(_copy_observers)


def note_wait(dev: device, reason: str) -> None:
    """Tells the observers of a synchronisation that the program's text does not show.  Nothing for the CPU."""
    if _wait_observers and dev.type == "cuda":
        for callback in _wait_observers:
            callback(Wait(dev, reason))


_Ref = weakref.ref[Any] | None
# what the process's ledger has yet to enter: a copy's way, line, storages read and written, their versions, place and seconds
_journal: deque[tuple[Way, tuple[str, int] | None, _Ref, _Ref, int, int, Any, float]] | None = None
_enter_journal: Callable[[], Any] = deque  # what lets it do so
_LONG = 512


def keep_journal(enter: Callable[[], None]) -> deque[Any]:
    """From now on each copy that crosses is added to the list that this gives; `enter` is called when it is long, and takes them out."""
    global _journal, _enter_journal
    _enter_journal, _journal = enter, deque()
    return _journal


def _line() -> tuple[str, int] | None:
    """The user's line."""
    frame: Any = sys._getframe(2)
    while frame is not None and (mine := ours(id(code := frame.f_code), _UNKNOWN)[1]):
        frame = frame.f_back
    return None if frame is None else (code.co_filename, frame.f_lineno) if mine is False else provenance.site()


def show(way: Way, stream: Any = None, read: Any = None, written: Any = None, place: Any = None) -> Copy:
    """Shows a copy that is about to be made to the observers, who may refuse it by an error.

    read, written: the storages.  place: see `Copy`.
    """
    record = Copy(way, _line(), stream, read, written, place)
    record.after = [done for callback in _copy_observers if (done := callback(record)) is not None] or None
    return record


def made(way: Way, seconds: float, read: Any = None, written: Any = None, place: Any = None, record: Copy | None = None) -> None:
    """A copy's call returns, after so many seconds: enters it in the journal, and tells the observers to whom `record` was shown."""
    if _journal is not None and way.crosses:
        site = _line() if record is None else record.site
        _journal.append((way, site, None if read is None else _weak(read), None if written is None else _weak(written),
                         0 if read is None else read.version, 0 if written is None else written.version, place, seconds))
        if len(_journal) > _LONG:
            _enter_journal()
    if record is not None:
        record.seconds = seconds
        for done in record.after or ():
            done()


def copy(dst_device: device, dst: int, src_device: device, src: int, nbytes: int, blocking: bool = True,
         keep: Any = None, owners: tuple[Any, Any] = (None, None)) -> None:
    """Copies `nbytes` bytes from address `src` on one device to `dst` on another (or the same).

    blocking: return when the bytes have arrived.  Otherwise the copy is queued on the GPU's current stream, and only
    page-locked (pinned) host memory is read or written later: pageable memory may be reused when this returns.  Between
    GPUs the host never waits: the copy runs on the source's current stream, and the destination's waits for it.
    `keep` lives until the copy is done.  `owners` are the storages read and written, for observers.
    """
    if not nbytes:
        return
    if dst_device.type == "meta":
        return
    if src_device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if dst_device.type == src_device.type == "cpu":
        with CopyScope(Way("h2h", "host", nbytes, True, src_device, dst_device), None, *owners):
            CPU.memcpy(None, dst, src, nbytes)
        return
    from . import transfers
    transfers.plain(dst_device, src_device, nbytes, blocking)(dst, src, *owners, keep)


def synchronize(dev: device) -> None:
    """Waits until everything queued on `dev` is done, and raises what went wrong there.  Nothing to do for the CPU."""
    if dev.type == "cuda":
        from . import gpus
        gpus.synchronize(dev)

