"""`compile`: what a function does, with its Python left out where all that it read is as it was.

The first calls of a kind are Python's.  Then one is run by a `Run`, which knows each read, and recorded. Where nothing was done that is not known,
the record is fused and kept with its guards: later calls for which all of them hold replay it.  Everything else is called as it is.
"""

from __future__ import annotations

import functools
from threading import Lock
from time import perf_counter
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import hooks
from .given import Given, countable
from .guards import watched
from .kept import MISS, Kept
from .later_numbers import plain
from .reads import Run
from .record import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

AFTER = 3  # calls of Python's
_TRIES = 3  # runs that learned nothing, or whose record was of no use, until the function is left to Python
_RECORDS = 4  # of a function: each has memory of its own
_KINDS = 64  # of calls
_IDLE = 64  # calls on end of kinds that are left to Python, after which a function of which nothing is kept is left to it altogether
_MISSES = 16  # calls on end for which a record on trial does not hold
_TIMED = 8  # replays that are held against Python's calls
_NEVER = float("inf")


def pays(replay: float, python: float, nodes: int = 0) -> bool:
    """Whether a record is worth keeping, by the best times of both.  nodes: how many of the tape one of its own stands for, through which a pass is a
    replay too, while Python's takes a microsecond and more for each."""
    return replay < python + 1e-6 * nodes


class _Trial:
    """A record that is held against Python's calls.  turn: whether it is tried at the next call, which is Python's otherwise; hits: how often it was; best:
    how long it took; misses: calls on end at which it did not hold."""

    __slots__ = ("kept", "turn", "hits", "best", "misses")

    def __init__(self, kept: Kept) -> None:
        self.kept, self.turn, self.hits, self.best, self.misses = kept, False, 0, _NEVER, 0


class _Kind:
    """Calls of one kind: how many there were; the records that are on trial, and how long Python took at best.  why: why nothing was kept, each time."""

    __slots__ = ("calls", "python", "trials", "why")

    def __init__(self) -> None:
        self.calls = 0
        self.python = _NEVER
        self.trials: list[_Trial] = []
        self.why: list[str] = []


class Compiled:
    """What `compile` knows of a function.

    records: what is replayed, each of which says whether it may.  on: whether anything is still looked for.
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f = f
        self.records: list[Kept] = []
        self.kinds: dict[Any, _Kind] = {}
        self.on = True
        self._idle = 0  # calls on end of kinds that are left to Python
        self._lock = Lock()
        self._seen: dict[int, set[Any]] = {}  # numbers among the arguments, by their places, few of each
        self._free: set[int] = set()  # the places where there were many
        self._moved: set[Any] = set()  # places where the function changes Python's objects

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call for which no record holds."""
        given = Given(args, kwargs)
        for place, x in enumerate(given.values):
            if place not in self._free and countable(x):
                seen = self._seen.setdefault(place, set())
                seen.add(x)
                if len(seen) > _RECORDS:
                    self._free.add(place)
        try:
            kind = self.kinds.get(key := given.key(self._free))
        except TypeError:
            return self.f(*args, **kwargs)
        if kind is None:
            kind = _Kind()
            if len(self.kinds) < _KINDS:
                self.kinds[key] = kind
        if len(kind.why) >= _TRIES or len(self.records) >= _RECORDS or len(self.kinds) >= _KINDS:
            self._idle += 1
            if not self.records and self._idle >= _IDLE:
                self.on = False
            return self.f(*args, **kwargs)
        self._idle = 0
        if watched() or not given.fit:
            return self.f(*args, **kwargs)
        kind.calls += 1
        if kind.calls <= AFTER:
            return self.f(*args, **kwargs)
        if not self._lock.acquire(False):
            return self.f(*args, **kwargs)
        try:
            made = self._tried(kind, args, kwargs)
            if made is not MISS:
                return made
            return self._captured(kind, given, args, kwargs)
        finally:
            self._lock.release()

    def _tried(self, kind: _Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call while records are on trial: each second one is Python's, and the faster of the two is kept."""
        turns = [t for t in kind.trials if t.turn]
        for t in turns:
            since = perf_counter()
            made = t.kept.call(args, kwargs)
            if made is MISS:
                t.misses += 1
                if t.misses > _MISSES:
                    kind.trials.remove(t)
                    self._failed(kind, "what it reads is another at each call")
                continue
            t.best = min(t.best, perf_counter() - since)
            t.hits, t.misses, t.turn = t.hits + 1, 0, False
            if t.hits >= _TIMED:
                kind.trials.remove(t)
                if pays(t.best, kind.python, sum(len(past.nodes) - 1 for _, past in t.kept.pasts)):
                    self.records.append(t.kept)
                    t.kept.of = ref(self)
                else:
                    self._failed(kind, "Python is as fast", _TRIES)
            return made
        if len(turns) < len(kind.trials) or len(kind.trials) + len(self.records) >= _RECORDS:
            for t in kind.trials:
                t.turn = True
            since = perf_counter()
            made = self.f(*args, **kwargs)
            kind.python = min(kind.python, perf_counter() - since)
            return made
        return MISS

    def _run(self, run: Run, given: Given, free: Collection[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        f = run.callee(self.f)
        if not run.off:
            args, kwargs = given.numbered(run.effects, free)
        return f(*args, **kwargs)

    def _failed(self, kind: _Kind, why: str, times: int = 1) -> None:
        kind.why += [why] * times

    def _captured(self, kind: _Kind, given: Given, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(kind.why) >= _TRIES:
            return self.f(*args, **kwargs)
        free = frozenset(self._free)
        run = Run(given.tensors, given.containers, self._moved)
        with run:
            result = self._run(run, given, free, args, kwargs)
        self._moved |= run.effects.moved
        kept = None
        if not run.off:
            try:
                kept = Kept(run, given, result, free)
            except (Refused, Exception) as error:  # whatever it is: the result is there, and only the record is lost
                run.taint(str(error) or type(error).__name__)
        why = run.why
        del run
        if kept is None:
            self._failed(kind, str(why))
        else:
            kept.settle()
            kind.trials.append(_Trial(kept))
        return plain(result)


_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
BACKENDS = ("inductor", "eager", "aot_eager", "cudagraphs", "onnxrt", "openxla", "tvm")
default_backend: Any = None  # what `compiler.set_default_backend` was told


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: Any = None, backend: Any = None, mode: str | None = None,  # noqa: A001
            options: Any = None, name: str | None = None, disable: bool = False, recompile_limit: int | None = None,
            isolate_recompiles: bool = False, shapes_spec: Any = None) -> Any:
    """A function that gives, changes, raises and prints what `model` does, always.  Where all that a call reads is known, and is as it was at an earlier
    call with tensors of the same layouts, Python is left out, and the launches, of the CPU or of one GPU, are fused as by `flambeau.capture`; where not,
    Python's code runs as it is.  Of a Module it gives another (an ``OptimizedModule``), whose calls are those of the Module, compiled.  Also a decorator,
    with or without options.

    fullgraph, dynamic, mode, options: accepted; every shape is served.  backend: a name of PyTorch's, or a function, which is not called; with "eager",
    or with `disable`, `model` is given back.
    Raises AssertionError for what cannot be called, RuntimeError for an unknown mode or backend, and for both a mode and options.
    """
    backend = default_backend if backend is None else backend
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if backend is not None and not callable(backend) and backend not in BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}, known are {', '.join(BACKENDS)}, and functions")
    if model is None:
        return lambda m: compile(m, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable)
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if disable or backend == "eager" or callable(backend):
        return model
    return compiled(model) if type(model) in (FunctionType, MethodType) else hooks.optimized(model)


def compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function that does what a function or method does, with Python left out where it may be."""
    if "__compiled__" in getattr(f, "__dict__", {}):
        return f
    state = Compiled(f)
    records, slow = state.records, state.call

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        for kept in records:
            made = kept.call(args, kwargs)
            if made is not MISS:
                return made
        return slow(args, kwargs) if state.on else f(*args, **kwargs)
    call.__compiled__ = state  # type: ignore[attr-defined]
    return call
