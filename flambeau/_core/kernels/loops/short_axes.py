"""Maps whose innermost axis is short: vectors lie along the axis outside of it, and the axis itself becomes outputs that are joined.

A pixel repeated twice, two tensors stacked along a new last axis, pairs of neighbours: an axis of a few elements fills no vector.  The
program is written once for each place along it, as outputs that lie next to one another (`Map.joined`) and step by the axis's length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import expr as E
from ..programs import Map

if TYPE_CHECKING:
    from ..expr import Expr
    from .maps import MapLoops

LONGEST = 4  # of the axis,
LONGEST_APART = 15  # where elements that are read lie apart along it, and nearer along the axis outside
MOST_NODES = 16  # of a program: it is written so often
MOST_WRITTEN = 64  # nodes in all
LEAST = 4  # elements of the axis outside


class Spread:
    """program, domain, strides: those without the axis, whose length is `times`.  sources: for each operand of it the one it was; shifts:
    how many bytes behind that one's address it begins; moves: which operands step along the axis."""

    __slots__ = ("program", "domain", "strides", "times", "moves", "sources", "shifts")

    def __init__(self, loops: MapLoops, program: Map) -> None:
        *outer, inner = loops.axes
        self.times, self.moves = inner.size.__index__(), tuple(s != 0 for s in inner.strides)
        self.program, self.sources, places = spread(program, self.times, self.moves)
        self.shifts = [inner.strides[k] * t for k, t in zip(self.sources, places, strict=True)]
        self.domain = tuple(a.size for a in outer)
        self.strides = tuple(tuple(a.strides[k] // loops.sizes[k] for a in outer) for k in self.sources)


def spread(program: Map, times: int, moves: tuple[bool, ...]) -> tuple[Map, list[int], list[int]]:
    """The program for all places along an axis at once; for each of its operands the operand it was, and its place along the axis."""
    outs, types = len(program.outs), program.out_types + program.inputs
    sources = [(k, t) for k in range(len(types)) for t in (range(times) if k < outs or moves[k] else (0,))]
    at = {source: place - outs * times for place, source in enumerate(sources)}

    def place(t: int) -> tuple[Expr, ...]:
        return E.rebuild(program.outs, lambda e: E.input(at.get((outs + e.value, t), at[outs + e.value, 0]), e.dtype) if e.op == "input" else None)
    written = [place(t) for t in range(times)]
    made = Map(tuple(written[t][k] for k in range(outs) for t in range(times)), tuple(types[k] for k, _ in sources[outs * times:]), program.scalars,
               joined=tuple((k * times, times) for k in range(outs)))
    return made, [k for k, _ in sources], [t for _, t in sources]


def spread_of(program: Map, loops: MapLoops) -> Spread | None:
    """The launch without its innermost axis, where that is short and the outputs are dense along it and the next one."""
    if len(loops.axes) < 2:
        return None
    following, inner = loops.axes[-2:]
    apart = any(loops.sizes[k] < abs(inner.strides[k]) and abs(following.strides[k]) < abs(inner.strides[k]) for k in loops.used)
    if inner.size > (LONGEST_APART if apart else LONGEST) or inner.size < 2 or following.size < LEAST:
        return None
    found = loops.facts
    if found.gathers or found.coords or program.joined or found.operations > MOST_NODES or loops.ordered:
        return None
    if inner.size > LONGEST and inner.size * found.operations > MOST_WRITTEN:
        return None
    dense = all(inner.strides[k] == b and following.strides[k] == b * inner.size for k, b in enumerate(loops.sizes[:loops.outs]))
    if not dense or any(s % b for a in loops.axes for s, b in zip(a.strides, loops.sizes, strict=True)):
        return None
    return Spread(loops, program)
