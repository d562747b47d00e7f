"""The recorder: `with flambeau.trace() as t:` notes the stages of what runs inside, on all threads."""

from __future__ import annotations

import os
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from .._core import forks
from .._core.drivers.collectives import meetings
from .._core.drivers.simulated.moments import Meet
from .._core.engine import fields, interpreters
from .._core.kernels.cache import making
from .._core.kernels.specs import Collective
from .._core.runtime import dispatch, gpus
from .._core.runtime.ledger import Ledger
from .._core.runtime.provenance import caller
from .._core.tensor import Tensor
from .sources import Sources
from .stages import Group, Stage, Work
from .values import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .._core.drivers.simulated.driver import SimulatedDriver
    from .._core.kernels.programs import PreparedLaunch
    from .._core.runtime.device import device

_GROUPS = frozenset(("backward", "grad"))
_UNFILLED = fields.of("unfilled")  # operations that give no values yet


class _Local(threading.local):
    """What each thread is at: its open stage, its open groups, and the work that was queued last."""

    def __init__(self) -> None:
        self.stage: Stage | None = None
        self.groups: list[Group] = []
        self.last: Work | None = None
        self.quiet = 0
        self.number: int | None = None


@cache
def _cores() -> int | None:
    """The machine's cores; asking the system takes longer than all else when a trace begins."""
    return os.cpu_count()


@cache
def _programs() -> tuple[Callable[..., Any], ...]:
    """What watches modules' calls and optimizers' steps: what a program may never need is imported by its first trace."""
    from ..nn import hooks
    from ..optim import optimizer
    return hooks.watch_calls, optimizer.register_optimizer_step_pre_hook, optimizer.register_optimizer_step_post_hook


class Trace:
    """Records what runs in a ``with`` block, stage by stage; shows it with `print()` and `save()`.

    title: what the page is called.  values: whether first values are kept.  limit: stages beyond it are counted
    (`dropped`), not kept.

    Time on simulated GPUs is predicted, from the virtual clock; on the CPU it is measured.  The trace's clock is the virtual
    clock where GPUs are simulated (time that Python spends between operations is left out, measured CPU work counts),
    else this machine's.  `findings` are what the ledger of the block says when it ends, and whatever is added: each a text,
    or anything with `kind`, `text`, `line` and `cure`.  Raises RuntimeError when entered twice.
    """

    def __init__(self, title: str = "", values: bool = True, limit: int = 100_000) -> None:
        self.title, self.limit = title, limit
        self.stages: list[Stage] = []
        self.groups: list[Group] = []
        self.findings: list[Any] = []
        self.training: list[Any] = []  # what Progress adds: tables and charts of the page
        self.models: list[Any] = []  # what trace_model adds
        self.devices: dict[str, str] = {"cpu": f"CPU, {_cores()} cores"}
        self.dropped = 0
        self.making = 0.0  # seconds for which operations made kernels: the first ones, once for each machine; no stage's cost
        self._values = values
        self._local = _Local()
        self._lock = forks.lock()
        self._open: list[Callable[[], None]] = []
        self._threads: list[threading.Thread] = []  # by their numbers
        self._system: Any = None
        self._driver: SimulatedDriver | None = None
        self._base = self._began = 0.0
        self._ledger: Ledger | None = None
        self._entered = False
        self.sources = Sources(self._moment)
        self._wall = 0.0  # the host's clock at the trace's 0, where no virtual clock counts
        self._later: dict[int, tuple[Any, Work]] = {}  # items of simulated GPUs whose moments are not known yet
        self._copies: list[tuple[Stage, Work, dispatch.Copy]] = []  # for which a real GPU's host waits

    # ---------------------------------------------------------------------------------------------------------- block
    def __enter__(self) -> Trace:
        if self._entered:
            raise RuntimeError("this trace has been used: make another with flambeau.trace()")
        self._entered = True
        watch_calls, before_step, after_step = _programs()
        self._began, self._wall = time.perf_counter(), meetings.wall()
        self._attach()
        ledger = self._ledger = Ledger()

        def launched(dev: device, stream: Any, prepared: PreparedLaunch, args: tuple[Any, ...]) -> Callable[[], None] | None:
            ledger.launches(dev, stream, prepared, args)
            return self._launched(dev, stream, prepared, args)

        def copied(copy: dispatch.Copy) -> None:
            ledger.copies(copy)
            self._copied(copy)
        self._open = [
            dispatch.observe(launched, copied, ledger.sync).close, meetings.watch(self._met), interpreters.watch(self._called).close,
            watch_calls(self._module_begins, self._module_ends), before_step(self._step_begins).remove, after_step(self._step_ends).remove,
        ]
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops recording.  Doing it again does nothing."""
        for end in reversed(self._open):
            end()
        self._open = []
        self.sources.open = False
        for stage, work, copy in self._copies:
            if work.start is not None and copy.seconds:
                stage.waits.append((work.lane[0], work.start, work.start + copy.seconds))
        self._copies = []
        self._detach()
        if self._ledger is not None:
            self.findings += self._ledger.findings()
            self._ledger = None
        while self._local.groups:
            self._end_group(self._local.groups[-1].key)
        self.groups.sort(key=lambda g: (g.start, -g.end))

    # ---------------------------------------------------------------------------------------------------------- clock
    def now(self) -> float:
        """Seconds since the trace began, as the host has it."""
        if gpus._system is not self._system:
            self._attach()
        return self._moment()

    def _moment(self) -> float:
        if self._driver is not None:
            return self._base + self._driver.host_time()
        return self._base + time.perf_counter() - self._began

    def _attach(self) -> None:
        """Takes the GPUs of the moment: their clock goes on where the one before stopped."""
        here = self._base + (self._driver.host_time() if self._driver is not None else time.perf_counter() - self._began)
        self._detach()
        system = gpus.system()
        self._system = gpus._system
        if system is None:
            self._began, self._base = time.perf_counter(), here
            return
        for index, physical in enumerate(system.physical):
            p = system.driver.properties(physical)
            self.devices[f"cuda:{index}"] = p.name + (", simulated" if p.simulated else "")
        if system.driver.simulated:
            driver: Any = system.driver
            self._driver = driver
            self._base = here - driver.host_time()
            self._unwatch = driver.watch(self._queued, self._waited)
        else:
            self._began, self._base = time.perf_counter(), here

    def _detach(self) -> None:
        if self._driver is not None:
            self._unwatch()
            self._driver = None

    def _spent(self, seconds: float) -> None:
        """The CPU was at work: what it queues now starts later."""
        if self._driver is not None:
            self._driver.host_spent(seconds)

    # ------------------------------------------------------------------------------------------------------ operations
    def _called(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        local = self._local
        if local.stage is not None or local.quiet:
            return function(*args, **kwargs)
        if name in _GROUPS:
            if any(g.name == name for g in local.groups):
                return function(*args, **kwargs)
            key = object()
            self._begin_group(name, key)
            try:
                return function(*args, **kwargs)
            finally:
                self._end_group(key)
        stage = local.stage = self._stage(name, _readable_call(name, args, kwargs))
        ins = list(_tensors((*args, *kwargs.values())))
        stage.inputs = [_described(t) for t in ins]
        stores = [t.store for t in ins]
        stage.sources = self.sources.of(stores)
        versions = [s.version for s in stores]
        made = making()
        begun = time.perf_counter()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            stage.error = f"{type(error).__name__}: {error}"
            stage.host = time.perf_counter() - begun - self._made_since(made)
            local.stage, local.last = None, None
            if not stage.works:
                self._spent(stage.host)
            stage.end = self.now()
            self._keep(stage)
            raise
        stage.host = time.perf_counter() - begun - self._made_since(made)
        local.stage, local.last = None, None
        outs = list(_tensors((result,)))
        known = {id(s) for s in stores}
        new = [t.store for t in outs if id(t.store) not in known]
        if not stage.works:
            if not new:
                return result  # a view, or a question: nothing was done
            self._spent(stage.host)
        for store in (*new, *[s for s, v in zip(stores, versions, strict=True) if s.version != v]):
            self.sources.wrote(store, stage)
        stage.outputs = [_described(t) for t in outs]
        stage.end = self.now()
        if isinstance(result, (bool, int, float, complex)):
            stage.result = f"{result:.6g}" if isinstance(result, float) else str(result)
        if self._values and name not in _UNFILLED:
            local.quiet += 1
            try:
                stage.samples = [Sample(t, _filled_by(stage, t)) for t in outs[:4]]
            finally:
                local.quiet -= 1
        self._keep(stage)
        return result

    def _stage(self, name: str, call: str) -> Stage:
        groups = tuple([g.name for g in self._local.groups])
        return Stage(name, call, caller(), self._thread(), groups, self.now())

    def _made_since(self, before: float) -> float:
        """Seconds for which this thread has made kernels since `making` said so."""
        took = making() - before
        if took:
            with self._lock:
                self.making += took
        return took

    def _thread(self) -> int:
        found = self._local.number
        if found is None:
            with self._lock:
                here, threads = threading.current_thread(), self._threads
                found = next((i for i, t in enumerate(threads) if i and not t.is_alive()), len(threads))  # one that has ended gives its lane away
                threads[found:found + 1] = [here]
                self._local.number = found
        return found

    def _keep(self, stage: Stage) -> None:
        with self._lock:
            if len(self.stages) >= self.limit:
                self.dropped += 1
                return
            stage.index = len(self.stages) + 1
            self.stages.append(stage)
            self.sources.level(stage)

    # ------------------------------------------------------------------------------------------------------------ dispatch
    def _work(self, work: Work) -> Stage | None:
        """Puts work into the open stage, or into one of its own, which is given."""
        local = self._local
        local.last = work
        if local.stage is not None:
            local.stage.works.append(work)
            return None
        stage = self._stage(work.name, work.name)
        stage.works.append(work)
        self._keep(stage)
        return stage

    def _launched(self, dev: device, stream: Any, prepared: PreparedLaunch, args: tuple[Any, ...]) -> Callable[[], None] | None:
        if self._local.quiet:
            return None
        self.now()  # looks for other GPUs
        work = Work("kernel", prepared.name, (str(dev), 0 if stream is None else stream.stream_id), prepared.nbytes, prepared.flops)
        work.collective = type(prepared.keep) is Collective
        own = self._work(work)
        if own is not None:
            _describe_launch(own, dev, prepared)
        stage = own or self._local.stage
        assert stage is not None
        read = self.sources.launched(stage, args, prepared.outputs)
        if own is not None:
            own.sources = read
        if stream is not None:
            return None
        work.start = self.now()
        begun, made = time.perf_counter(), making()

        def done() -> None:
            seconds = time.perf_counter() - begun - (making() - made if own is None else self._made_since(made))
            assert work.start is not None
            if work.collective:  # no virtual clock knows the hosts' network; what it waited is no work
                work.start = max([work.start, *[end for _, _, end in own.waits]] if own is not None else [work.start])
                seconds = max(self.now() - work.start, 0.0)
            else:
                self._spent(seconds)
            work.end = work.start + seconds
            if own is not None:
                own.host, own.end = seconds, work.end
        return done

    def _copied(self, copy: dispatch.Copy) -> None:
        if self._local.quiet:
            return
        self.now()
        stream = copy.stream
        lane = ("cpu", 0) if stream is None else (str(stream.device), stream.stream_id)
        work = Work("copy", f"copy {copy.direction}", lane, copy.nbytes)
        work.direction, work.path, work.blocking = copy.direction, copy.path, copy.blocking
        work.source, work.target = str(copy.source), str(copy.target)
        if stream is None:
            work.start = work.end = self.now()
        stage = self._work(work) or self._local.stage
        read, written = copy.owners
        assert stage is not None
        if stage.name == work.name:  # one of its own
            stage.sources = self.sources.of([read] if read is not None else [])
            if written is not None:
                self.sources.wrote(written, stage)
        if copy.blocking and stream is not None and self._driver is None:
            work.start = self.now()
            self._copies.append((stage, work, copy))

    def _waited(self, physical: int, start: float, end: float) -> None:
        """The host stood still for a GPU, on the virtual clock."""
        last = self._local.last
        numbers = self._system.physical if self._system is not None else ()
        self._stood(f"cuda:{numbers.index(physical)}" if physical in numbers else "", self._base + start, self._base + end, "synchronize",
                    last is not None and last.blocking)

    def _stood(self, whom: str, start: float, end: float, name: str, behind: bool) -> None:
        """The host stood still: in the open stage, in the last one where its work is what was waited for (`behind`), or in a stage of that name."""
        local = self._local
        if local.quiet:
            return
        stage = local.stage
        if stage is None:
            stage = self.stages[-1] if self.stages else None
            if stage is None or local.last is None or not behind or stage.works[-1:] != [local.last]:
                stage = self._stage(name, name)
                stage.start = start
                self._keep(stage)
            stage.end = end
        stage.waits.append((whom, start, end))

    def _met(self, what: str, rank: int, start: float, end: float, virtual: bool) -> None:
        """The host stood still for another process."""
        if virtual is not (self._driver is not None):
            return
        zero, name, last = self._base if virtual else -self._wall, what.partition("(")[0], self._local.last
        self._stood(f"rank {rank}" if rank >= 0 else "", zero + start, zero + end, name, last is not None and last.collective and last.name == name)

    def _queued(self, stream: Any, item: Any, engine: str, start: float | None, end: float | None) -> None:
        """The simulated driver queued something, with its predicted moments, or says them now."""
        local = self._local
        if start is not None and end is not None and (known := self._later.pop(id(item), None)) is not None:
            put_off = known[1]
            put_off.start = self._base + start if put_off.start is None else min(put_off.start, self._base + start)
            put_off.end = max(self._base + end, put_off.end or 0.0)
            if type(item) is Meet and item.last >= 0 and start - item.ready > 1e-9:
                put_off.waits = item.last, self._base + item.ready, put_off.start
            return
        if local.quiet:
            return
        work = local.last
        kind = "copy" if item.name.startswith("copy ") else "kernel"
        if work is None or work.kind != kind or work.lane[0] == "cpu" or (kind == "kernel" and work.engine):
            return  # not through dispatch
        work.predicted, work.engine = True, engine
        if start is None or end is None:
            self._later[id(item)] = item, work  # the item is kept, so that its number is its own
        else:
            if work.start is None:
                work.start = self._base + start
            work.end = max(self._base + end, work.end or 0.0)  # a staged copy is queued in pieces
        if local.stage is None and self.stages and self.stages[-1].works[-1:] == [work]:
            self.stages[-1].end = max(self.stages[-1].end, self._base + (self._driver.host_time() if self._driver else 0.0))

    # ---------------------------------------------------------------------------------------------------------- groups
    def _begin_group(self, name: str, key: Any) -> None:
        self._local.groups.append(Group(name, self._thread(), self.now(), key))

    def _end_group(self, key: Any) -> None:
        groups = self._local.groups
        if not any(g.key is key for g in groups):
            return
        while groups:
            g = groups.pop()
            g.end = self.now()
            with self._lock:
                self.groups.append(g)
            if g.key is key:
                return

    def _module_begins(self, module: Any, args: Any) -> None:
        if self._local.stage is None:
            self._begin_group(type(module).__name__, module)

    def _module_ends(self, module: Any, args: Any, output: Any) -> None:
        self._end_group(module)

    def _step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._begin_group(f"{type(optimizer).__name__}.step", optimizer)

    def _step_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._end_group(optimizer)

    # --------------------------------------------------------------------------------------------------------- results
    def transfers(self) -> list[Work]:
        """Every copy from one device to another."""
        return [w for s in self.stages for w in s.works if w.crosses]

    @property
    def predicted(self) -> bool:
        """Whether some of its times are predictions, for simulated GPUs."""
        return any(s.predicted for s in self.stages)

    def print(self, console: Any = None) -> None:
        """Prints the table of stages: operation, device, shapes, type, first values, bytes moved, time."""
        from .show import show
        show(self, console)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes a page (a name that ends in .html) or a file for Chrome's and Perfetto's viewers (.json); gives its path.

        The page is one file that needs no network.  Raises ValueError for another ending, OSError when it cannot be written;
        a file that was there stays whole until the new one is.
        """
        from .save import save
        return save(self, path)

    def _repr_html_(self) -> str:
        """In a notebook: the page, in a frame of its own, so that neither's styles reach the other."""
        if self._open:
            from html import escape
            return escape(repr(self))
        from .page import framed
        return framed(self)

    def __repr__(self) -> str:
        return f"<flambeau.trace: {len(self.stages)} stages on {', '.join(sorted({s.lane[0] for s in self.stages})) or 'no device'}>"


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for v in values:
        if isinstance(v, Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _tensors(v[:16])


def _described(t: Tensor) -> tuple[tuple[int, ...], str, str]:
    return tuple(t.meta.shape), t.meta.dtype.name, str(t.meta.device)


def _filled_by(stage: Stage, t: Tensor) -> Any:
    """The stream that will fill a CPU tensor after the call has returned, if one will."""
    if t.meta.device.type == "cpu":
        for w in reversed(stage.works):
            if w.direction == "d2h" and not w.blocking:
                return gpus.current_stream(w.source)
    return None


def _describe_launch(stage: Stage, dev: device, prepared: PreparedLaunch) -> None:
    """What is known of a launch that no operation stands for: the fused steps of a backward pass or an optimizer."""
    program = prepared.program
    if program is None:
        return
    where = str(dev)
    stage.inputs = [(prepared.domain, d.name, where) for d in program.inputs]
    if program.kind == "map":
        stage.outputs = [(prepared.domain, d.name, where) for d in program.out_types]


def _readable_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The operation with the arguments that are plain: `add(10)`, `to('cuda:0')`, `sum(dim=1)`."""
    from .._core.dtypes import dtype
    from .._core.runtime.device import device

    def text(v: Any) -> str | None:
        if v is None or v is False:
            return None
        if isinstance(v, (bool, int, float, complex)):
            return repr(v)
        if isinstance(v, str):
            return repr(v) if len(v) <= 16 else None
        if isinstance(v, dtype):
            return v.name
        if isinstance(v, device):
            return f"'{v}'"
        if isinstance(v, tuple) and len(v) <= 4 and all(isinstance(x, int) for x in v):
            return repr(tuple(v))
        return None
    shown = [t for v in args if (t := text(v)) is not None]
    shown += [f"{k}={t}" for k, v in kwargs.items() if v is not None and (t := text(v)) is not None]
    whole = f"{name}({', '.join(shown)})"
    return whole if shown and len(whole) <= 32 else name
