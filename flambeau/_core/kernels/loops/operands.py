"""A program's operands over its domain: what every kind of loops begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..expr import walk
from ..programs import size_of
from .walk import Axis, facts, step_class, walk_axes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ..expr import Expr
    from ..programs import Program

NARROW = 1 << 31  # places below fit into 32 bits


class Operands:
    """outs: how many operands are outputs; types, sizes: each operand's element type and its bytes; steps: its strides over the domain
    in elements, 0 where it is read or written only at offsets of its own; used: the inputs read at the element's place; gathered: the
    inputs read at offsets; coords: the axes whose coordinate the program asks for.

    Loops for machines of threads say too whether places need 64 bits (wide), into how many pieces a row is cut (pieces), and the bytes of
    workspace for the pieces' results.
    """

    wide = False
    pieces = 1
    workspace = 0

    def __init__(self, program: Program, domain: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> None:
        self.domain, self.rank, self.outs = domain, len(domain), len(program.out_types)
        self.types = program.out_types + program.inputs
        self.sizes = [d.itemsize for d in self.types]
        self.facts, rank = facts(program), self.rank
        self.coords = sorted({c % rank for c in self.facts.coords}) if rank and self.facts.coords else []
        still = (0,) * rank
        self.steps = [still if not placed else s if len(s) == rank else (*s, *still[len(s):])
                      for s, placed in zip(strides, self.facts.placed, strict=True)]
        self.used = [k for k, placed in enumerate(self.facts.placed) if placed and k >= self.outs]
        self.gathered = {self.outs + k for k in self.facts.gathered}

    def walk(self, axes: Sequence[int], reorder: bool = True, outputs_first: bool = False) -> list[Axis]:
        """These axes of the domain as they are walked.  Inputs decide the order, since they are bigger than what is made of them, unless
        outputs are to come first."""
        outs = 0 if outputs_first else self.outs
        ins = len(self.types) - outs
        steps = [[s[d] for d in axes] for s in (*self.steps[outs:], *self.steps[:outs])]
        fixed = [at for at, d in enumerate(axes) if d in self.coords] if self.coords else ()
        found = walk_axes([self.domain[d] for d in axes], steps, self.sizes[outs:] + self.sizes[:outs], fixed, reorder)
        if outs or fixed:
            return [Axis(a.size, a.strides[ins:] + a.strides[:ins], None if a.source is None else axes[a.source]) for a in found]
        return found

    def along(self, d: int) -> Axis:
        """Axis `d` of the domain as it is."""
        return Axis(self.domain[d], tuple(s[d] * b for s, b in zip(self.steps, self.sizes)), d)

    def score(self, a: Axis, operands: Iterable[int] | None = None) -> int:
        """How many operands have neighbours along the axis, less those that jump along it."""
        ks = [*self.used, *range(self.outs)] if operands is None else operands
        return sum(1 if a.strides[k] == self.sizes[k] else -1 if a.strides[k] else 0 for k in ks)

    def rows_across(self, outer: Sequence[Axis], inner: Axis, lanes: int = 0, short: int = 0) -> bool:
        """Whether lanes side by side have a row along `inner` each, since memory's neighbours lie across rows; lanes: of a vector (0: of
        threads); short: rows of so many elements or fewer have a lane each though they are read element by element."""
        if not outer or outer[-1].size < lanes:
            return False
        ks = [k for k, step in enumerate(inner.strides) if step]  # operands with one number a row do not count
        return self.score(outer[-1], ks) > self.score(inner, ks) or 0 < inner.size <= short

    def step_classes(self, a: Axis) -> tuple[str, ...]:
        """For each operand how it steps along the axis: see `step_class`."""
        return tuple(map(step_class, a.strides, self.sizes))

    def divides(self, v: int, size: int, outer: Iterable[Axis], moving: Collection[int]) -> bool:
        """Whether every line of `size` elements begins and ends between groups of `v` neighbours."""
        return size % v == 0 and self.begins(v, outer, moving)

    def begins(self, v: int, outer: Iterable[Axis], moving: Collection[int]) -> bool:
        """Whether every line begins between groups of `v` neighbours, if the first one does."""
        return all(a.strides[k] % (v * self.sizes[k]) == 0 for a in outer for k in moving)

    def is_wide(self, axes: Sequence[Axis], room: int = 0) -> bool:
        """Whether any index or byte offset over the axes needs 64 bits; room: what else is added to an index."""
        if size_of(tuple(a.size for a in axes)) + room >= NARROW or any(abs(s) >= NARROW for a in axes for s in a.strides):
            return True
        return any(sum(abs(a.strides[k]) * (a.size - 1) for a in axes) + size >= NARROW for k, size in enumerate(self.sizes))


def moving(roots: tuple[Expr, ...], rank: int, axes: Collection[int], steps: Collection[int], gathers: bool = False) -> set[Expr]:
    """The nodes whose value changes along axes of the domain; steps: the inputs, by their number, that step along them; gathers: whether
    what is read at offsets counts as changing even where the offset does not (its memory may be written meanwhile)."""
    out: set[Expr] = set()
    for e in walk(roots):
        if e.op == "input":
            moves = e.value in steps
        elif e.op == "coord":
            moves = e.value % rank in axes if rank else False
        else:
            moves = (gathers and e.op == "gather") or any(a in out for a in e.args)
        if moves:
            out.add(e)
    return out
