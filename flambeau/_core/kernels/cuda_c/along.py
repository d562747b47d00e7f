"""Programs that go along the last axis of their domain, row by row: how rows and the elements of one are walked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import axes as walks
from ..axes import Axis
from ..programs import size_of
from .writer import coordinates, is_wide, seen

if TYPE_CHECKING:
    from ..programs import Rows, Scan
    from .writer import Writer

# What a large GPU does, roughly, for choosing between ways.  Constants, since what a row gives must not depend on the GPU.
MULTIPROCESSORS = 132
ALONE = 30_000.0  # bytes a microsecond that one of them reads and writes
ALL = 4_000_000.0  # and that all do
LAUNCH = 3.0  # microseconds that another launch takes, with what it joins


class Along:
    """outs: how many outputs; used: the inputs that are read at the element, as operands; outer: the axes from row to row, those of
    the inputs' memory innermost; inner: the axis along the row; wide: whether places need 64 bits; t: their type.
    """

    def __init__(self, w: Writer, program: Rows | Scan, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], numbers: int) -> None:
        self.w, self.program, self.numbers = w, program, numbers
        self.rank, self.outs, self.length = len(domain), len(program.out_types), domain[-1]
        self.sizes = [d.itemsize for d in w.types]
        coords = coordinates(program, self.rank)
        own = seen(program, strides, self.rank)
        self.used = [k for k in range(self.outs, len(self.sizes)) if walks.facts(program).read[k - self.outs]]
        order = [*range(self.outs, len(own)), *range(self.outs)]
        turned, back = [own[k] for k in order], [order.index(k) for k in range(len(own))]
        found = walks.walk_axes(domain[:-1], [s[:-1] for s in turned], [self.sizes[k] for k in order],
                                  [d for d in coords if d < self.rank - 1])
        self.outer = [Axis(x.size, tuple(x.strides[k] for k in back), x.source) for x in found]
        self.inner = Axis(self.length, tuple(s[-1] * b for s, b in zip(own, self.sizes)), self.rank - 1)
        self.rows = size_of(domain[:-1])
        self.wide = is_wide([*self.outer, self.inner], self.sizes, 1 << 20)
        self.t = "long long" if self.wide else "int"

    def score(self, a: Axis) -> int:
        """How many operands are neighbours along the axis, less those that jump."""
        ks = [*self.used, *range(self.outs)]
        return sum(1 if a.strides[k] == self.sizes[k] else -1 if a.strides[k] else 0 for k in ks)
