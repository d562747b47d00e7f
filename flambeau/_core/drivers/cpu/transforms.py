"""Fourier transforms on the CPU, of complex and of real numbers, as generated code: a stage or two for each axis.

`transform_rows` says how the transforms along one axis are made; the code is in `kernels.llvm.handwritten` (`program` first).  The axes are
taken one after another, the last one of real transforms where its numbers are real.  What is added in which order follows from the sizes
alone, however many threads there are.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...kernels.llvm.handwritten.fourier import program, real
from ...kernels.llvm.handwritten.fourier.program import MINE, SOURCE, STAGES, TARGET, Operation, Stage
from ...kernels.programs import Prepared
from . import transform_rows as rows_
from .transform_rows import Numbers, column, column_bytes, move

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...kernels.specs import Fft, RealFft

_OUT, _IN, _WORK = 0, 1, 2  # the launch's arguments
_PARALLEL = 100_000.0  # operations of work that is worth handing to threads
_SHARES = 32  # pieces of a stage that threads take, at least where there are so many tasks
_PLANE = 1 << 19  # bytes of complex numbers that stay in the cache while several axes are transformed
_ALONE = 1 << 14  # from so many numbers on, few transforms are shared out each over the threads


class _Axis:
    """The transforms along one axis of packed memory: `outer` times `inner` of `n` numbers each, `inner` apart."""

    __slots__ = ("n", "outer", "inner")

    def __init__(self, shape: Sequence[int], axis: int) -> None:
        self.n, self.outer, self.inner = shape[axis], prod(shape[:axis]), prod(shape[axis + 1:])


def transform(spec: Fft) -> Prepared | None:
    """Of complex numbers, over any axes; None for more axes than there are stages."""
    axes = sorted(spec.axes, reverse=True)

    def stages(x: Numbers) -> tuple[list[Stage], int]:
        together = _together(spec.shape, axes, x.pair)
        if not together:
            return _several(x, spec.shape, axes, spec.inverse, spec.scale, _IN, _OUT)
        first, rest = axes[:together], axes[together:]
        inside, _ = _several(x, *_part(spec.shape, first), spec.inverse, 1.0 if rest else spec.scale, _IN, _OUT)
        made, work = _several(x, spec.shape, rest, spec.inverse, spec.scale, _OUT, _OUT)
        return [_plane(x, prod(spec.shape[:first[-1]]), (prod(spec.shape[first[-1]:]) * x.pair,) * 2, inside, _IN), *made], work
    return _prepared(spec, spec.shape, stages) if axes else None


def real_transform(spec: RealFft) -> Prepared | None:
    """Half the spectrum of real numbers, or back; None for odd lengths, and for some with large prime factors along other axes than the last."""
    *others, last = spec.axes
    n = spec.shape[last]
    if n % 2 or not prod(spec.shape):
        return None
    half = list(spec.shape)
    half[last] = n // 2 + 1
    others.sort(reverse=True)
    forward = spec.kind == "r2c"
    turned, weight = (-1.0 if spec.inverse == forward else 1.0), (1.0 if not spec.adjoint else 2.0 if forward else 0.5)

    def to_half(x: Numbers) -> tuple[list[Stage], int] | None:
        near = near_axes(x)
        made = _to_half(x, _Axis(spec.shape, last), turned, 1.0 if others else spec.scale, weight)
        if made is None:
            return None
        if not near:
            rest, work = _several(x, half, others, spec.inverse, spec.scale, _OUT, _OUT)
            return [*made, *rest], work
        here, there = others[:near - 1], others[near - 1:]
        shape, axes = _part(half, here)
        first = here[-1]
        inside = _to_half(x, _Axis(spec.shape[first:], last - first), turned, 1.0, weight)
        more, _ = _several(x, shape, axes, spec.inverse, 1.0 if there else spec.scale, _OUT, _OUT)
        rest, work = _several(x, half, there, spec.inverse, spec.scale, _OUT, _OUT)
        return [_plane(x, prod(half[:first]), sizes(x, first), [*(inside or ()), *more], _IN), *rest], work

    def from_half(x: Numbers) -> tuple[list[Stage], int] | None:
        near = near_axes(x)
        here, there = (others[:near - 1], others[near - 1:]) if near else ([], others)
        size = prod(half) * x.pair if there else 0
        rest, work = _several(x, half, there, spec.inverse, 1.0, _IN, _WORK, size)
        source = _WORK if there else _IN
        if not near:
            made = _from_half(x, _Axis(spec.shape, last), turned, spec.scale, weight, source)
            return None if made is None else ([*rest, *made], max(work, size))
        shape, axes = _part(half, here)
        first = here[-1]
        inside, _ = _several(x, shape, axes, spec.inverse, 1.0, _IN, _WORK)
        end = _from_half(x, _Axis(spec.shape[first:], last - first), turned, spec.scale, weight, _WORK)
        if end is None:
            return None
        return [*rest, _plane(x, prod(half[:first]), sizes(x, first)[::-1], [*inside, *end], source, prod(shape) * x.pair)], max(work, size)

    def near_axes(x: Numbers) -> int:
        return _together(half, [last, *others], x.pair) if all(a < last for a in others) else 0

    def sizes(x: Numbers, first: int) -> tuple[int, int]:
        return prod(spec.shape[first:]) * x.d.itemsize, prod(half[first:]) * x.pair
    return _prepared(spec, spec.shape, to_half if forward else from_half)


def _together(shape: Sequence[int], axes: Sequence[int], pair: int) -> int:
    """How many of these axes, from the innermost on, are transformed together, plane after plane, since a plane stays in the cache: two at least,
    or 0."""
    for k in range(len(axes), 1, -1):
        first = axes[k - 1]
        if prod(shape[first:]) * pair <= _PLANE and prod(shape[:first]) >= _SHARES:
            return k
    return 0


def _part(shape: Sequence[int], axes: Sequence[int]) -> tuple[Sequence[int], list[int]]:
    """The shape from the last of these axes on, and the axes there."""
    return shape[axes[-1]:], [a - axes[-1] for a in axes]


def _plane(x: Numbers, outer: int, sizes: tuple[int, int], stages: list[Stage], source: int, work: int = 0) -> Stage:
    """Stages over the last axes as one, a task for each of `outer` planes, whose sizes in bytes are those of what is read and written.  They read
    argument _IN and write _OUT, and have `work` bytes between them."""
    memory = max(s.memory for s in stages)
    where = {_IN: (SOURCE, 0), _OUT: (TARGET, 0), _WORK: (MINE, _lines(memory))}
    operations = [program.inner(x.d, s, where[s.source[0]], where[s.target[0]]) for s in stages]
    return Stage(outer, 1, 1, (source, sizes[0], 0), (_OUT, sizes[1], 0), _lines(memory) + work, operations)


def _prepared(spec: Fft | RealFft, shape: Sequence[int], plan: Callable[[Numbers], tuple[list[Stage], int] | None]) -> Prepared | None:
    x = Numbers(spec.dtype.to_real())
    found = plan(x)
    if found is None or len(found[0]) > STAGES:
        return None
    stages, workspace = found
    size = prod(shape)
    work = size * sum(5.0 * max(shape[a] - 1, 1).bit_length() for a in spec.axes)
    chunks = [max(1, s.outer * s.blocks // _SHARES) for s in stages]
    entry = program.entry(x.d, stages, 3 if workspace else 2, chunks, work > _PARALLEL, x.tables)
    return Prepared("fft", entry, workspace=workspace, nbytes=2 * size * spec.dtype.itemsize, flops=int(work))


def _several(x: Numbers, shape: Sequence[int], axes: Sequence[int], inverse: bool, scale: float, source: int, target: int,
             used: int = 0) -> tuple[list[Stage], int]:
    """Complex transforms over axes, the first of them from one argument to another.  used: bytes of the workspace that are taken; given back
    with what the stages need more."""
    made: list[Stage] = []
    sign = -1.0 if inverse else 1.0
    work = used
    for i, axis in enumerate(axes):
        here = scale if i == len(axes) - 1 else 1.0
        stages, more = _complex(x.but(sign, (here, sign * here)), _Axis(shape, axis), source, target, used)
        made += stages
        work = max(work, used + more)
        source = target
    return made, work


def _complex(x: Numbers, a: _Axis, source: int, target: int, used: int) -> tuple[list[Stage], int]:
    """The stages of one axis, and the bytes of workspace that they need beyond those used."""
    n, length = a.n, a.n * x.pair
    whole = a.inner * length
    if a.inner > 1 and rows_.factors(n):
        step = a.inner * x.pair
        operations = column(x, n, ("I", (SOURCE, 0), step), ("I", (TARGET, 0), step), 0)
        return [Stage(a.outer, -(-a.inner // x.lanes), a.inner, (source, whole, x.row), (target, whole, x.row), 2 * column_bytes(x, n), operations)], 0
    if a.inner > 1:
        apart = a.inner * x.pair
        inside, memory = rows_.row(x, n, (MINE, 0), (MINE, 0), _lines(length))
        operations = [move(x, "gather", (SOURCE, 0), (MINE, 0), n, step=apart), *inside, move(x, "scatter", (MINE, 0), (TARGET, 0), n, step=apart)]
        return [Stage(a.outer, a.inner, 1, (source, whole, x.pair), (target, whole, x.pair), _lines(length) + memory, operations)], 0
    if rows_.rows_or_lanes(n, a.outer, x.lanes) == "lanes":
        return [_lanes(x, n, a.outer, (source, length), (target, length), [], [])], 0
    parts = rows_.halves(n, x.lanes)
    if parts is not None and n >= _ALONE and a.outer < _SHARES:
        return _shared(x, n, parts, a.outer, source, target, used)
    operations, memory = rows_.row(x, n, (SOURCE, 0), (TARGET, 0), 0)
    return [Stage(a.outer, 1, 1, (source, length, 0), (target, length, 0), memory, operations)], 0


def _lines(size: int) -> int:
    return -(-size // 64) * 64


def _lanes(x: Numbers, n: int, rows: int, source: tuple[int, int], target: tuple[int, int], before: list[Operation], after: list[Operation],
           widths: tuple[int, int] | None = None) -> Stage:
    """Rows of n numbers, as many at a time as there are lanes.  source, target: an argument and the bytes of a row.  before, after: what is done
    with columns, from room 0 to room 2 and from room 2 to room 0; widths: how many numbers a row has there, where not n."""
    size = column_bytes(x, n + 1)
    wide, to_wide = widths or (n, n)
    plain = x.but()
    operations = [move(x.but(x.sign), "pack", (SOURCE, 0), (MINE, 0), wide, source[1]), *before,
                  *column(plain, n, ("S", (MINE, 2 * size if before else 0), x.row), ("N", (MINE, 2 * size), x.row), 0), *after,
                  move(x.but(1.0, x.scale), "unpack", (MINE, 0 if after else 2 * size), (TARGET, 0), to_wide, target[1])]
    return Stage(1, -(-rows // x.lanes), rows, (source[0], 0, x.lanes * source[1]), (target[0], 0, x.lanes * target[1]), 3 * size, operations)


def _shared(x: Numbers, n: int, parts: tuple[int, int], outer: int, source: int, target: int, used: int) -> tuple[list[Stage], int]:
    """A few long transforms, each shared out over the threads: the halves of a split are stages, with the workspace between them."""
    n1, n2 = parts
    blocks = -(-n2 // x.lanes)
    length, between = n * x.pair, n1 * blocks * x.row
    first = rows_.first_half(x, n1, n2, (SOURCE, 0), (TARGET, used), 0, 0)
    second = rows_.second_half(x, n1, n2, (SOURCE, used), (TARGET, 0), 0)
    return [Stage(outer, blocks, n2, (source, length, x.row), (_WORK, between, x.row), 2 * column_bytes(x, n1), first,
                  (rows_.turn_table(x, n1, n2), x.row)),
            Stage(outer, -(-n1 // x.lanes), n1, (_WORK, between, x.lanes * blocks * x.row), (target, length, x.row), 2 * column_bytes(x, n2),
                  second)], outer * between


def _real_words(x: Numbers, h: int, table: int, weight: float, step: int, to_step: int) -> list[int | float]:
    return [h, table, weight, step, to_step, x.sign, *x.scale]


def _to_half(x: Numbers, a: _Axis, turned: float, scale: float, weight: float) -> list[Stage] | None:
    """Stages from real numbers to the half of their spectrum, conjugate where `turned` is -1, all but its ends times `weight`."""
    h, item = a.n // 2, x.d.itemsize
    out = x.but(1.0, (scale, turned * scale))
    length, to_length = 2 * h * item, (h + 1) * x.pair
    if a.inner > 1:
        if not rows_.factors(h):
            return None
        size = column_bytes(x, h)
        step = 2 * a.inner * item
        operations = [*column(x.but(), h, ("R", (SOURCE, 0), step), ("N", (MINE, 2 * size), x.row), 0),
                      Operation(real.address(x.d, "after I"), (MINE, 2 * size), (TARGET, 0),
                                _real_words(out, h, rows_.half_table(x, h, False), weight, x.row, a.inner * x.pair))]
        return [Stage(a.outer, -(-a.inner // x.lanes), a.inner, (_IN, a.inner * length, x.lanes * item), (_OUT, a.inner * to_length, x.row), 3 * size,
                      operations)]
    if rows_.rows_or_lanes(h, a.outer, x.lanes) == "lanes":
        far = 2 * column_bytes(x, h + 1)
        after = Operation(real.address(x.d, "after S"), (MINE, far), (MINE, 0), _real_words(x, h, rows_.half_table(x, h, False), weight, x.row, x.row))
        return [_lanes(out, h, a.outer, (_IN, length), (_OUT, to_length), [], [after], (h, h + 1))]
    begin = _lines(h * x.pair)
    operations, memory = rows_.row(x.but(), h, (SOURCE, 0), (MINE, 0), begin)
    operations.append(Operation(real.address(x.d, "after row"), (MINE, 0), (TARGET, 0),
                                _real_words(out, h, rows_.half_row_table(x, h, False), weight, x.row, x.row)))
    return [Stage(a.outer, 1, x.lanes, (_IN, length, 0), (_OUT, to_length, 0), begin + memory, operations)]


def _from_half(x: Numbers, a: _Axis, turned: float, scale: float, weight: float, source: int) -> list[Stage] | None:
    """Stages from half of a spectrum, conjugated where `turned` is -1 and all but its ends times `weight`, to the real
    numbers of its inverse."""
    h, item = a.n // 2, x.d.itemsize
    given, out = x.but(turned), x.but(1.0, (scale, -scale))
    length, to_length = (h + 1) * x.pair, 2 * h * item
    if a.inner > 1:
        if not rows_.factors(h):
            return None
        size = column_bytes(x, h)
        step = 2 * a.inner * item
        operations = [Operation(real.address(x.d, "before I"), (SOURCE, 0), (MINE, 0),
                                _real_words(given, h, rows_.half_table(x, h, True), weight, a.inner * x.pair, x.row)),
                      *column(out, h, ("S", (MINE, 0), x.row), ("R", (TARGET, 0), step), 0)]
        return [Stage(a.outer, -(-a.inner // x.lanes), a.inner, (source, a.inner * length, x.row), (_OUT, a.inner * to_length, x.lanes * item), 2 * size,
                      operations)]
    if rows_.rows_or_lanes(h, a.outer, x.lanes) == "lanes":
        far = 2 * column_bytes(x, h + 1)
        before = Operation(real.address(x.d, "before S"), (MINE, 0), (MINE, far), _real_words(x, h, rows_.half_table(x, h, True), weight, x.row, x.row))
        return [_lanes(x.but(turned, out.scale), h, a.outer, (source, length), (_OUT, to_length), [before], [], (h + 1, h))]
    begin = _lines(h * x.pair)
    operations, memory = rows_.row(x.but(1.0, out.scale), h, (MINE, 0), (TARGET, 0), begin)
    operations.insert(0, Operation(real.address(x.d, "before row"), (SOURCE, 0), (MINE, 0),
                                   _real_words(given, h, rows_.half_row_table(x, h, True), weight, x.row, x.row)))
    return [Stage(a.outer, 1, x.lanes, (source, length, 0), (_OUT, to_length, 0), begin + memory, operations)]
