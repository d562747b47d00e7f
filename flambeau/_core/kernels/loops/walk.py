"""How a program's domain is walked, for every target: which axes merge, in which order; and what planning asks of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..expr import walk

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..programs import Program

# What work costs a thread of a CPU: nanoseconds a byte, an element's operation, an element's function.
NS_BYTE, NS_OPERATION, NS_FUNCTION = 0.08, 0.03, 0.4
FUNCTIONS = frozenset("""exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
 erf erfc lgamma pow atan2 hypot fmod rem floordiv truncdiv""".split())


class Axis:
    """One axis of the walk: its size, each operand's stride in bytes, and the domain's axis it is (None: merged)."""

    __slots__ = ("size", "strides", "source")

    def __init__(self, size: int, strides: tuple[int, ...], source: int | None) -> None:
        self.size, self.strides, self.source = size, strides, source


def step_class(step: int, size: int) -> str:
    """How an operand of elements of `size` bytes steps: "0" not at all, "1" to the neighbour, "2", "3", "4" so many elements on, "r" to the
    neighbour before, "s" by anything else."""
    times, rest = divmod(step, size)
    return "s" if rest or not -1 <= times <= 4 else "r" if times < 0 else str(times)


class Facts:
    """What planning needs to know of a program, found once.

    operations: its primitives; functions: how many of them are transcendental; coords: the axes whose coordinate it
    asks for (as written); read: for each input whether it is read at the element's own place; gathered: the inputs read elsewhere,
    gathers: whether there are any; placed: for each operand whether it has a place of its own at each element.
    """

    __slots__ = ("operations", "functions", "coords", "read", "gathered", "gathers", "placed")

    def __init__(self, program: Program) -> None:
        nodes = list(walk(program.roots()))
        operations = [e.op for e in nodes if e.args]
        self.operations = len(operations)
        self.functions = sum(op in FUNCTIONS for op in operations)
        self.coords = tuple(e.value for e in nodes if e.op == "coord")
        inputs = {e.value for e in nodes if e.op == "input"}
        self.read = tuple(k in inputs for k in range(len(program.inputs)))
        self.gathered = frozenset(e.value for e in nodes if e.op == "gather")
        self.gathers = bool(self.gathered)
        targets = getattr(program, "targets", (None,) * len(program.out_types))
        self.placed = (*(t is None for t in targets), *self.read)

    def cost(self, nbytes: int, elements: int) -> float:
        """Nanoseconds one thread takes, roughly."""
        return nbytes * NS_BYTE + elements * (self.operations * NS_OPERATION + self.functions * NS_FUNCTION)


_facts: dict[tuple[Any, ...], Facts] = {}


def facts(program: Program) -> Facts:
    found = _facts.get(program.key)
    if found is None:
        found = _facts[program.key] = Facts(program)
    return found


def walk_axes(domain: Sequence[int], strides: Sequence[Sequence[int]], itemsizes: Sequence[int],
              fixed: Collection[int] = (), reorder: bool = True) -> list[Axis]:
    """The axes to walk, outermost first: without those of size 1, sorted by the first operands' strides, and merged.

    strides: for each operand over the domain, in elements; outputs first.
    fixed: axes whose coordinate the program asks for; they are never merged.
    reorder: False where the order of the elements matters.
    """
    axes = [Axis(size, tuple(s[d] * b for s, b in zip(strides, itemsizes)), d if d in fixed else None)
            for d, size in enumerate(domain) if size != 1]
    if reorder and len(axes) > 1:
        # insertion sort: stable, and axes that no operand tells apart keep the domain's order
        for k in range(1, len(axes)):
            at = k
            while at and _inside(axes[at - 1], axes[at]):
                axes[at - 1], axes[at] = axes[at], axes[at - 1]
                at -= 1
    merged: list[Axis] = []
    for a in axes:
        last = merged[-1] if merged else None
        if (last is not None and last.source is None and a.source is None
                and all(o == a.size * i for o, i in zip(last.strides, a.strides))):
            last.size, last.strides = last.size * a.size, a.strides
        else:
            merged.append(a)
    return merged


def _inside(outer: Axis, inner: Axis) -> bool:
    """Whether `outer` should be walked inside `inner`: the first operand that steps along both decides."""
    for a, b in zip(outer.strides, inner.strides):
        if a and b and abs(a) != abs(b):
            return abs(a) < abs(b)
    return False
