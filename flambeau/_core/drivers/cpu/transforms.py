"""Fourier transforms on the CPU, of complex and of real numbers, as generated code: a stage or two for each axis.

`transform_rows` says how the transforms along one axis are made; the code is in `kernels.llvm.handwritten` (`program` first).  The axes are
taken one after another, the last one of real transforms where its numbers are real.  What is added in which order follows from the sizes
alone, however many threads there are.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...kernels import routines
from ...kernels.llvm.handwritten.fourier import program
from ...kernels.llvm.handwritten.fourier.program import LOOP_SOURCE, LOOP_TARGET, MINE, NOWHERE, SOURCE, STAGES, TARGET, Operation, Stage
from ...kernels.programs import PreparedLaunch
from ...layout import contiguous_strides
from . import transform_rows as rows_
from .transform_rows import Numbers, column, column_bytes, move

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...kernels.specs import Fft, RealFft

OUT, IN, WORK = 0, 1, 2  # the launch's arguments
_PARALLEL = 100_000.0  # operations of work that is worth handing to threads
_SHARES = 32  # pieces of a stage that threads take, at least where there are so many tasks
_PLANE = 1 << 19  # bytes of complex numbers that stay in the cache while several axes are transformed
_SMALL = 1 << 15  # bytes of those that are not worth sharing out over threads
LONGEST = 1 << 17  # columns of so many elements would take too much memory: their transforms are made one by one
_ALONE = 1 << 14  # from so many numbers on, few transforms are shared out each over the threads


class Axis:
    """The transforms along one axis of packed memory: `outer` times `inner` of `n` numbers each, `inner` apart."""

    __slots__ = ("n", "outer", "inner")

    def __init__(self, shape: Sequence[int], axis: int) -> None:
        self.n, self.outer, self.inner = shape[axis], prod(shape[:axis]), prod(shape[axis + 1:])


def transform(spec: Fft) -> PreparedLaunch | None:
    """Of complex numbers, over any axes; None for more axes than there are stages."""
    if not routines.generated():
        return _by_numpy(spec)
    axes = sorted(spec.axes, reverse=True)

    def stages(x: Numbers) -> tuple[list[Stage], int]:
        count = together(spec.shape, axes, x.pair)
        if not count or matrices(spec.shape, axes, x):
            return several(x, spec.shape, axes, spec.inverse, spec.scale, IN, OUT)
        first, rest = axes[:count], axes[count:]
        inside, _ = several(x, *part(spec.shape, first), spec.inverse, 1.0 if rest else spec.scale, IN, OUT)
        made, work = several(x, spec.shape, rest, spec.inverse, spec.scale, OUT, OUT)
        return [plane(x, prod(spec.shape[:first[-1]]), (prod(spec.shape[first[-1]:]) * x.pair,) * 2, inside, IN), *made], work
    return prepared(spec, spec.shape, stages) if axes else None


def _by_numpy(spec: Fft) -> PreparedLaunch:
    """The same where nothing is generated."""
    import numpy as np

    from ...kernels.interpret import memory
    shape, axes, d = spec.shape, spec.axes, spec.dtype
    strides = contiguous_strides(shape)

    def entry(to: int, source: int) -> None:
        values = memory(source, shape, strides, d)
        # "forward" norm leaves the inverse unscaled, "backward" the forward one
        made = np.fft.ifftn(values, axes=axes, norm="forward") if spec.inverse else np.fft.fftn(values, axes=axes, norm="backward")
        memory(to, shape, strides, d)[...] = made * spec.scale
    return PreparedLaunch("fft", entry, nbytes=2 * prod(shape) * d.itemsize)


def together(shape: Sequence[int], axes: Sequence[int], pair: int) -> int:
    """How many of these axes, from the innermost on, are transformed together, plane after plane, since a plane stays in the cache: two at least,
    or 0."""
    for k in range(len(axes), 1, -1):
        first = axes[k - 1]
        if prod(shape[first:]) * pair <= _PLANE and prod(shape[:first]) >= _SHARES:
            return k
    return 0


def part(shape: Sequence[int], axes: Sequence[int]) -> tuple[Sequence[int], list[int]]:
    """The shape from the last of these axes on, and the axes there."""
    return shape[axes[-1]:], [a - axes[-1] for a in axes]


def plane(x: Numbers, outer: int, sizes: tuple[int, int], stages: list[Stage], source: int, work: int = 0) -> Stage:
    """Stages over the last axes as one, a task for each of `outer` planes, whose sizes in bytes are those of what is read and written.  They read
    argument IN and write OUT, and have `work` bytes between them."""
    memory = max(s.memory for s in stages)
    where = {IN: (SOURCE, 0), OUT: (TARGET, 0), WORK: (MINE, lines(memory))}
    operations = [program.inner(x.d, s, where[s.source[0]], where[s.target[0]]) for s in stages]
    return Stage(outer, 1, 1, (source, sizes[0], 0), (OUT, sizes[1], 0), lines(memory) + work, operations)


def prepared(spec: Fft | RealFft, shape: Sequence[int], plan: Callable[[Numbers], tuple[list[Stage], int] | None]) -> PreparedLaunch | None:
    """The launch of what `plan` gives.  Those with large tables are kept here, a few of them, and by nobody else."""
    kept = _large.pop(spec, None)
    if kept is not None:
        _large[spec] = kept  # the last to go
        return kept
    x = Numbers(spec.dtype.to_real())
    found = plan(x)
    if found is None or len(found[0]) > STAGES:
        return None
    stages, workspace = found
    size = prod(shape)
    work = size * sum(5.0 * max(shape[a] - 1, 1).bit_length() for a in spec.axes)
    chunks = [max(1, s.outer * s.blocks // _SHARES) for s in stages]
    entry = program.entry(x.d, stages, 3 if workspace else 2, chunks, work > _PARALLEL, x.tables)
    made = PreparedLaunch("fft", entry, workspace=workspace, nbytes=2 * size * spec.dtype.itemsize, flops=int(work))
    if sum(table.size for table in x.tables) >= rows_.LARGE:
        made.lasting = False
        for old in list(_large)[:max(0, len(_large) + 1 - _LARGEST)]:
            _large.pop(old, None)
        _large[spec] = made
    return made


_large: dict[Fft | RealFft, PreparedLaunch] = {}  # single steps only, so that threads need no lock
_LARGEST = 8


def several(x: Numbers, shape: Sequence[int], axes: Sequence[int], inverse: bool, scale: float, source: int, target: int,
             used: int = 0) -> tuple[list[Stage], int]:
    """Complex transforms over axes, the first of them from one argument to another.  used: bytes of the workspace that are taken; given back
    with what the stages need more."""
    made: list[Stage] = []
    sign = -1.0 if inverse else 1.0
    work = used
    if matrices(shape, axes, x):
        here = scale if len(axes) == 2 else 1.0
        made.append(matrix_stage(x.but(sign, (here, sign * here)), shape, source, target))
        axes, source = axes[2:], target
    for i, axis in enumerate(axes):
        here = scale if i == len(axes) - 1 else 1.0
        stages, more = complex_(x.but(sign, (here, sign * here)), Axis(shape, axis), source, target, used)
        made += stages
        work = max(work, used + more)
        source = target
    return made, work


def matrices(shape: Sequence[int], axes: Sequence[int], x: Numbers, width: int = 0) -> bool:
    """Whether the last two axes, the first of these, are better transformed together.  width: how long the last one is for its columns, where
    not as in the shape."""
    end = len(shape) - 1
    if len(axes) < 2 or sorted(axes[:2]) != [end - 1, end]:
        return False
    n1, n2 = shape[end - 1], width or shape[end]
    size, count = n1 * shape[end] * x.pair, prod(shape[:-2])
    return bool(rows_.factors(n1)) and bool(size) and size <= _PLANE and (count >= _SHARES or size <= _SMALL) \
        and rows_.rows_or_lanes(n2, n1, x.lanes) == "lanes"


def matrix_stage(x: Numbers, shape: Sequence[int], source: int, target: int) -> Stage:
    """Transforms over the last two axes: columns made of the rows, and rows made of these."""
    n1, n2 = shape[-2:]
    blocks, room = -(-n1 // x.lanes), 2 * max(column_bytes(x, n1), column_bytes(x, n2))
    step = rows_.width(n1, x.lanes) * x.row
    between, length = n2 * step, n2 * x.pair
    first = [move(x.but(x.sign), "pack", (LOOP_SOURCE, 0), (MINE, between), n2, length),
             *column(x.but(), n2, ("S", (MINE, between), x.row), ("N", (LOOP_TARGET, 0), step), between)]
    return Stage(prod(shape[:-2]), 1, 1, (source, n1 * length, 0), (target, n1 * length, 0), between + room,
                 [program.loop(x.d, blocks, n1, (SOURCE, 0, x.lanes * length), (MINE, 0, x.row), (NOWHERE, 0, 0), first),
                  matrix_end(x, n1, n2, between)])


def matrix_end(x: Numbers, n1: int, n2: int, between: int) -> Operation:
    """The second half of that: the columns of n1 elements, of which n2 lie in the first `between` bytes of the task's memory."""
    step = rows_.width(n1, x.lanes) * x.row
    return program.loop(x.d, -(-n2 // x.lanes), n2, (MINE, 0, x.lanes * step), (TARGET, 0, x.row), (NOWHERE, 0, 0),
                        rows_.second_half(x, n2, n1, (LOOP_SOURCE, 0), (LOOP_TARGET, 0), between))


def complex_(x: Numbers, a: Axis, source: int, target: int, used: int) -> tuple[list[Stage], int]:
    """The stages of one axis, and the bytes of workspace that they need beyond those used."""
    n, length = a.n, a.n * x.pair
    whole = a.inner * length
    if a.inner > 1 and n < LONGEST and rows_.factors(n):
        step = a.inner * x.pair
        operations = column(x, n, ("I", (SOURCE, 0), step), ("I", (TARGET, 0), step), 0)
        return [Stage(a.outer, -(-a.inner // x.lanes), a.inner, (source, whole, x.row), (target, whole, x.row), 2 * column_bytes(x, n), operations)], 0
    if a.inner > 1:
        apart = a.inner * x.pair
        inside, memory = rows_.row(x, n, (MINE, 0), (MINE, 0), lines(length))
        operations = [move(x, "gather", (SOURCE, 0), (MINE, 0), n, step=apart), *inside, move(x, "scatter", (MINE, 0), (TARGET, 0), n, step=apart)]
        return [Stage(a.outer, a.inner, 1, (source, whole, x.pair), (target, whole, x.pair), lines(length) + memory, operations)], 0
    if rows_.rows_or_lanes(n, a.outer, x.lanes) == "lanes":
        return [lanes_stage(x, n, a.outer, (source, length), (target, length), [], [])], 0
    parts = rows_.halves(n, x.lanes)
    if parts is not None and n >= _ALONE and a.outer < _SHARES:
        return _shared(x, n, parts, a.outer, source, target, used)
    operations, memory = rows_.row(x, n, (SOURCE, 0), (TARGET, 0), 0)
    return [Stage(a.outer, 1, 1, (source, length, 0), (target, length, 0), memory, operations)], 0


def lines(size: int) -> int:
    return -(-size // 64) * 64


def lanes_stage(x: Numbers, n: int, rows: int, source: tuple[int, int], target: tuple[int, int], before: list[Operation], after: list[Operation],
           widths: tuple[int, int] | None = None) -> Stage:
    """Rows of n numbers, as many at a time as there are lanes.  source, target: an argument and the bytes of a row.  before, after: what is done
    with columns, from room 0 to room 2 and from room 2 to room 0; widths: how many numbers a row has there, where not n."""
    wide, to_wide = widths or (n, n)
    size = column_bytes(x, max(wide, to_wide))
    plain = x.but()
    operations = [move(x.but(x.sign), "pack", (SOURCE, 0), (MINE, 0), wide, source[1]), *before,
                  *column(plain, n, ("S", (MINE, 2 * size if before else 0), x.row), ("N", (MINE, 2 * size), x.row), 0), *after,
                  move(x.but(1.0, x.scale), "unpack", (MINE, 0 if after else 2 * size), (TARGET, 0), to_wide, target[1])]
    return Stage(1, -(-rows // x.lanes), rows, (source[0], 0, x.lanes * source[1]), (target[0], 0, x.lanes * target[1]), 3 * size, operations)


def _shared(x: Numbers, n: int, parts: tuple[int, int], outer: int, source: int, target: int, used: int) -> tuple[list[Stage], int]:
    """A few long transforms, each shared out over the threads: the halves of a split are stages, with the workspace between them."""
    n1, n2 = parts
    blocks = -(-n2 // x.lanes)
    step = rows_.width(n2, x.lanes) * x.row
    length, between = n * x.pair, n1 * step
    first = rows_.first_half(x, n1, n2, (SOURCE, 0), (TARGET, used), 0, 0)
    second = rows_.second_half(x, n1, n2, (SOURCE, used), (TARGET, 0), 0)
    return [Stage(outer, blocks, n2, (source, length, x.row), (WORK, between, x.row), 2 * column_bytes(x, n1), first,
                  (rows_.turn_table(x, n1, n2), x.row)),
            Stage(outer, -(-n1 // x.lanes), n1, (WORK, between, x.lanes * step), (target, length, x.row), 2 * column_bytes(x, n2),
                  second)], outer * between
