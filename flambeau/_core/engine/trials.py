"""Trials: a call captured on copies of its operands, and what comes of two calls compared to the bit."""

from __future__ import annotations

import contextlib
import ctypes
import time
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import collector, interrupts, layout
from ..kernels.kernel import Kernel
from ..runtime import caches, capture, versions
from ..tensor import Tensor, new
from .scripts import BLOCK, OPERAND, Constant, Drawn, Many, Place, Places, Result, Same, Script, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_Made = TypeVar("_Made")
_MOST_STEPS = 400
_MOST_CONSTANT = 1 << 12  # bytes of results that a script holds: of larger ones the launches are most of a call, and thousands of scripts are kept
refused: dict[str, str] = {}  # the last reason for which a call was not learned, by operation; for those who look into it


def attempted(name: str, dev: Any, work: Callable[[], _Made]) -> _Made | None:
    """What `work` gives; None, and the reason in `refused`, where it raises, or NumPy would warn.  What it allocates on a GPU counts for no peak.
    Our own warnings are a capture's (`capture.Warned`).
    Nobody's filters are changed meanwhile: they are the process's, and other threads warn, or learn, at the same time."""
    told: Any = {kind: "raise" for kind, how in np.geterr().items() if how == "warn"}
    try:
        # what is collected meanwhile would be given out again, and not be known as free; an interrupt would leave a capture open
        with interrupts.held(), collector.held(), _unseen(dev), versions.tracked(), np.errstate(**told):  # a replay is outside inference mode too
            return work()
    except (capture.Unrepeatable, Exception) as error:
        refused[name] = f"{type(error).__name__}: {error}"
        return None


@contextlib.contextmanager
def _unseen(dev: Any) -> Iterator[None]:
    """On a GPU: what is allocated meanwhile counts for no peak, and what was planned may hold what no launch has written, and is dropped."""
    if dev.type == "cpu":
        yield
        return
    from ..runtime import gpus
    started = time.perf_counter()
    try:
        with gpus.gpu(dev).pool.unseen():
            yield
    finally:
        caches.drop(caches.DRY)
        budget.spent += time.perf_counter() - started


class Budget:
    """The time that calls on GPUs are learned in: a share of all there is, so that who runs for a minute waits little, and who runs for long has all of
    them learned.

    spent: seconds of learning that are not made up for yet; while there are some nothing is learned.  A pause saves nothing up: kernels are compiled for
    ten seconds, or another library works, and the steps behind that would each be learning for a fifth of a second.
    """

    share = 0.05

    def __init__(self) -> None:
        self.spent = 0.0
        self._asked = time.perf_counter()

    def left(self) -> bool:
        before, self._asked = self._asked, time.perf_counter()
        self.spent = max(0.0, self.spent - self.share * (self._asked - before))
        return not self.spent


budget = Budget()


def captured(work: Callable[[list[Tensor]], Any], copies: list[Tensor], streams: int, bare: bool = False, dry: Any = None) -> tuple[capture.Capture, Any]:
    """What `work` on these asks for, and gives; streams, bare, dry: see `Capture`. Raises Unrepeatable where it is much."""
    before = [(t.meta, t.ptr, t.store) for t in copies]
    with capture.Capture(streams, bare, dry) as captured:
        made = work(copies)
    if any(t.meta is not m or t.ptr != p or t.store is not s for t, (m, p, s) in zip(copies, before, strict=True)):
        raise capture.Unrepeatable("an operand lies otherwise afterwards")  # a replay would write where the operand it is given does not reach
    if len(captured.steps) > _MOST_STEPS:
        raise capture.Unrepeatable("many launches")
    return captured, made


def script_of(places: Places, captured: capture.Capture, made: Any, copies: Sequence[Tensor]) -> Script:
    """The script of a captured call on these operands, and of what it gave. Raises Unrepeatable where there is none."""
    steps = places.steps(captured.steps)
    tree = places.tree(made, copies)
    written = {i: t.store.version for i, t in enumerate(copies) if t.store.version}
    for s in steps:
        for x in s.args[:s.outputs]:
            if isinstance(x, Place) and x.of == OPERAND and x.number not in written:
                raise capture.Unrepeatable("an operand is written and its version stays")
    return Script(steps, places.blocks, tree, written, [owner for *_, owner in captured.foreign])


def agree(a: Script, b: Script) -> None:
    """Raises Unrepeatable unless two calls, with operands at other addresses, did the same."""
    def said(x: Any) -> Any:
        if isinstance(x, Place):
            return "place", x.of, x.number, x.offset
        if isinstance(x, Drawn):
            return "drawn", x.number, x.part
        if isinstance(x, Result):
            return "result", said(x.place), x.meta, x.made, x.detached
        if isinstance(x, Same):
            return "same", x.number
        if isinstance(x, Constant):
            return "constant", type(x.value), repr(x.value)
        if isinstance(x, Many):
            return x.kind, [said(part) for part in x.parts]
        return type(x), repr(x) if isinstance(x, float) else x

    def launch(call: Any) -> Any:
        made = call.keep
        if isinstance(made, Kernel):  # its program is made anew in each capture
            return call.name, call.workspace, made.key, made.launches, made.arguments, made.block
        return call.name, call.workspace, call.spec, call.domain, call.strides

    def step(s: Step) -> Any:
        return launch(s.call[1]) if type(s.call) is tuple else s.call, [said(x) for x in s.args], s.outputs, s.what
    if (list(map(step, a.steps)) != list(map(step, b.steps)) or [(k.size, k.store) for k in a.blocks] != [(k.size, k.store) for k in b.blocks]
            or said(a.result) != said(b.result) or a.written != b.written):
        raise capture.Unrepeatable("the same call does something else")


def constant(script: Script, made: Any, copies: Sequence[Tensor]) -> Script:
    """The script whose results are bytes that it holds, where they are few and follow from the call's constants alone; this one where they do not.
    made: what such a call gave."""
    results, given = script.results(), tensors_of(made, copies)
    kept = [i for i, b in enumerate(script.blocks) if b.store is not None]
    work = [s for s in script.steps if s.what != "warn"]
    if (not results or any(r.place.of != BLOCK for r in results) or script.written or any(s.what for s in work)
            or any(isinstance(x, Drawn) or (isinstance(x, Place) and x.of != BLOCK) for s in work for x in s.args)
            or not sum([m.nbytes for i in kept if (m := script.blocks[i].store) is not None]) <= _MOST_CONSTANT):
        return script
    values = {r.place.number: t.store for r, t in zip(results, given, strict=True)}
    for r in results:
        r.place = Place(BLOCK, kept.index(r.place.number), r.place.offset)
    steps = [s for s in script.steps if s.what == "warn"]
    steps += [Step(None, (Place(BLOCK, k, 0), ctypes.string_at(values[i].ptr, values[i].meta.nbytes)), None, 1) for k, i in enumerate(kept)]
    return Script(steps, [script.blocks[i] for i in kept], script.result)


def tensors_of(made: Any, operands: Sequence[Tensor]) -> list[Tensor]:
    """The tensors among results that are no operands, in order."""
    if isinstance(made, Tensor):
        return [] if any(made is t for t in operands) else [made]
    return [t for part in made for t in tensors_of(part, operands)] if isinstance(made, (tuple, list)) and not isinstance(made, layout.Size) else []


def filled(m: Any, like: Tensor) -> Tensor:
    """A tensor of a layout with the values of another."""
    from ..kernels.interpret import memory
    t = new(m)
    memory(t.ptr, tuple(m.shape), m.strides, m.dtype)[...] = memory(like.ptr, tuple(m.shape), like.meta.strides, m.dtype)
    return t


def compare(a: Any, b: Any, bare: bool = False) -> None:
    """Raises Unrepeatable where two calls' results differ in anything. bare: their memory says nothing, where they begin in it does."""
    if isinstance(a, Tensor):
        if not isinstance(b, Tensor) or a.meta is not b.meta or (a.ptr - a.store.ptr != b.ptr - b.store.ptr if bare else _bytes(a) != _bytes(b)):
            raise capture.Unrepeatable("the replay's result is another one")
    elif isinstance(a, (tuple, list)):
        if type(a) is not type(b) or len(a) != len(b):
            raise capture.Unrepeatable("the replay's results are others")
        for x, y in zip(a, b, strict=True):
            compare(x, y, bare)


def _bytes(t: Tensor) -> bytes:
    from ..kernels.interpret import memory
    m = t.meta
    if m.contiguous:
        return ctypes.string_at(t.ptr, m.nbytes)
    return bytes(memory(t.ptr, tuple(m.shape), m.strides, m.dtype).tobytes())
