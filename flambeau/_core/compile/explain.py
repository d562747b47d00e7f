"""`explain`: what a captured step is made of, which of its launches became one, and why the others did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..runtime import dispatch, gpus
from ..runtime.device import CPU
from . import blocks
from .captured import given, recorded
from .check import State
from .passes import laid_out, passed
from .record import Launch, Recording, Refused, Source
from .replay import Planned, bind

if TYPE_CHECKING:
    from ..runtime.device import device
    from ..tensor import Tensor
    from .graph import Node

_TIMES = 20


class _Measured(Recording):
    """A recording that notes how many bytes of a device were in use before it (`begin`), and the most when something was launched."""

    def __init__(self, dev: device) -> None:
        super().__init__()
        self.device = dev

    def _begin(self) -> None:
        super()._begin()
        self.begin = self.most = _allocated(self.device)

    def _launched(self, *args: Any) -> Any:
        self.most = max(self.most, _allocated(self.device))
        return super()._launched(*args)


def _allocated(dev: device) -> int:
    return int(blocks.of(dev).allocated())


class Explanation:
    """What `explain` found; as text, a report.

    groups: for each launch that was made of several, their (name, line) in order.  apart: why others stayed apart, by pairs; each once, with how often.
    launches, nbytes, scratch: (as recorded, as replayed): how many, what they read and write, and memory of the step's own, in which nothing outlives it.
    peak: (by Python, as replayed): the most bytes that lived at once beyond what lived before, its results and new gradients among them.
    seconds: of a replay (as recorded, as replayed), the best of several; an optimizer's numbers are not worked out anew for it.
    breaks: of a compiled function, why calls were left to Python so far, with the line; each once, with how often.
    """

    __slots__ = ("breaks", "groups", "apart", "launches", "nbytes", "scratch", "peak", "seconds")

    def __init__(self, plan: Planned, operands: list[Tensor], most: int, lasting: int, breaks: Iterable[str] = ()) -> None:
        self.breaks = Counter(breaks)
        graph = passed(plan)
        steps = plan.steps if graph is None else laid_out(plan, graph)
        nodes: list[Node] = [] if graph is None else graph.order
        self.groups = [[(s.prepared.name, s.line) for s in n.members] for n in nodes if len(n.members) > 1]
        reasons: dict[str, int] = {}
        for why in [w for n in nodes for w in n.why] if graph is not None else ["all: memory of a step is not known"]:
            reasons[why] = reasons.get(why, 0) + 1
        self.apart = reasons
        after = [s for s in steps if isinstance(s, Launch)]
        before = plan.launches()
        self.launches = len(before), len(after)
        self.nbytes = sum(s.prepared.nbytes for s in before), sum(s.prepared.nbytes for s in after)
        self.scratch = plan.scratch, plan.scratch if plan.pool is None else plan.pool.nbytes
        self.peak = most, lasting + self.scratch[1]
        self.seconds = _best(plan, plan.steps, operands), _best(plan, steps, operands)

    def __str__(self) -> str:
        lines = [f"launches  {_both(self.launches, str)}", f"bytes     {_both(self.nbytes, _size)}", f"memory    {_both(self.scratch, _size)}",
                 f"at most   {_size(self.peak[0])} lived at once, {_size(self.peak[1])} replayed",
                 f"a replay  {_both(self.seconds, _time)}"]
        if self.groups:
            lines.append("one launch each:")
            lines += ["  " + ", ".join(f"{name} ({line})" if line else name for name, line in g) for g in self.groups]
        if self.apart:
            lines.append("apart:")
            lines += [f"  {why}" + (f" ({n} times)" if n > 1 else "") for why, n in self.apart.items()]
        if self.breaks:
            lines.append("left to Python by compile:")
            lines += [f"  {why}" + (f" ({n} times)" if n > 1 else "") for why, n in self.breaks.items()]
        return "\n".join(lines)

    __repr__ = __str__


def _both(pair: tuple[Any, Any], text: Callable[[Any], str]) -> str:
    return f"{text(pair[0])} recorded, {text(pair[1])} replayed"


def _size(n: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if n < 10240:
            return f"{n:.0f} {unit}"
        n /= 1024  # type: ignore[assignment]
    return f"{n:.0f} GiB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _best(plan: Planned, steps: list[Any], operands: list[Tensor]) -> float:
    """The seconds of a replay; what it changes is put back, and nobody is asked for numbers."""
    sources = plan.sources
    plan.sources = [Source(_again(x.values), x.values, x.ordered) for x in sources]
    state = State(plan, operands)
    versions = [(s, s.version) for s in {*plan.kept.values(), *[t.store for t in operands]}]
    best = float("inf")
    try:
        call = bind(plan, steps)
        for _ in range(_TIMES):
            since = perf_counter()
            call(*operands)
            if plan.device.type == "cuda":
                gpus.synchronize(plan.device)
            best = min(best, perf_counter() - since)
    finally:
        state.restore()
        for s, version in versions:
            s.version = version
        plan.sources = sources
    return best


def _again(values: tuple[Any, ...]) -> Callable[[], tuple[Any, ...]]:
    return lambda: values


def explain(f: Callable[..., Any]) -> Callable[..., Explanation]:
    """What `flambeau.capture(f)` makes of `f`: ``explain(f)(*args)`` gives an `Explanation`, whose text is a report.

    `f` is called twice with the arguments, as `capture` does before it replays; what the replays change that are timed is put back.

    Raises TypeError where `f` cannot be called, and RuntimeError where `capture` does, with the line.
    """
    if not callable(f):
        raise TypeError(f"explain: expected a function, got {type(f).__name__}")

    def call(*args: Any, **kwargs: Any) -> Explanation:
        seen: dict[device, None] = {}
        with dispatch.observe(lambda dev, *launch: seen.setdefault(dev)):
            f(*args, **kwargs)  # what is made at the first call is not part of the step
        dev = next(iter(seen), CPU)
        _, operands = given(args, kwargs)
        recording = _Measured(dev)
        tree, shown = recorded(lambda: f(*args, **kwargs), recording)
        lasting = _allocated(dev) - recording.begin
        try:
            plan = Planned(recording, operands, tree, shown)
        except Refused as refused:
            raise RuntimeError(f"capture: {refused.why}") from None
        state = getattr(f, "__compiled__", None)
        breaks = [why for kind in state.kinds.values() for why in kind.why] if state is not None else ()
        return Explanation(plan, operands, recording.most - recording.begin, max(lasting, 0), breaks)
    return call
