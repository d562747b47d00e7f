"""Fourier transforms of real numbers on the CPU: half the spectrum of real numbers, and back.

The last axis is transformed where its numbers are real, first or last of all, by transforms of half the length (`kernels.llvm.handwritten.
fourier.real`); the others as `transforms` does.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...kernels import routines
from ...kernels.llvm.handwritten.fourier import pairs, program, real
from ...kernels.llvm.handwritten.fourier.program import LOOP_SOURCE, LOOP_TARGET, MINE, NOWHERE, SOURCE, TARGET, Operation, Stage
from . import transform_rows as rows_
from .transform_rows import Numbers, column, column_bytes, move
from .transforms import IN, LONGEST, OUT, WORK, Axis, lanes_stage, lines, matrices, matrix_end, part, plane, prepared, several, together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import RealFft


def real_transform(spec: RealFft) -> PreparedLaunch | None:
    """Half the spectrum of real numbers, or back; None for some odd lengths, for some with large prime factors along other axes than the last, and
    where nothing is generated."""
    *others, last = spec.axes
    n = spec.shape[last]
    if not prod(spec.shape) or not routines.generated():
        return None
    half = list(spec.shape)
    half[last] = n if spec.whole else n // 2 + 1
    others.sort(reverse=True)
    forward = spec.kind == "r2c"
    together_last = n % 2 == 0 and last == len(half) - 1
    turned, weight = (-1.0 if spec.inverse else 1.0), (1.0 if not spec.adjoint else 2.0 if forward else 0.5)

    def to_half(x: Numbers) -> tuple[list[Stage], int] | None:
        if together_last and matrices(half, [last, *others], x, n // 2):
            rest, work = several(x, half, others[1:], spec.inverse, spec.scale, OUT, OUT)
            return [_matrix_to_half(x, spec.shape, 1.0 if rest else spec.scale, turned, weight, spec.whole), *rest], work
        near = near_axes(x)
        made = _to_half(x, Axis(spec.shape, last), turned, 1.0 if others else spec.scale, weight, spec.whole)
        if made is None:
            return None
        if not near:
            rest, work = several(x, half, others, spec.inverse, spec.scale, OUT, OUT)
            return [*made, *rest], work
        here, there = others[:near - 1], others[near - 1:]
        shape, axes = part(half, here)
        first = here[-1]
        inside = _to_half(x, Axis(spec.shape[first:], last - first), turned, 1.0, weight, spec.whole)
        more, _ = several(x, shape, axes, spec.inverse, 1.0 if there else spec.scale, OUT, OUT)
        rest, work = several(x, half, there, spec.inverse, spec.scale, OUT, OUT)
        return [plane(x, prod(half[:first]), sizes(x, first), [*(inside or ()), *more], IN), *rest], work

    def from_half(x: Numbers) -> tuple[list[Stage], int] | None:
        if together_last and matrices(half, [last, *others], x, n // 2):
            size = prod(half) * x.pair if others[1:] else 0
            rest, work = several(x, half, others[1:], spec.inverse, 1.0, IN, WORK, size)
            return [*rest, _matrix_from_half(x, spec.shape, WORK if rest else IN, spec.scale, turned, weight)], max(work, size)
        near = near_axes(x)
        here, there = (others[:near - 1], others[near - 1:]) if near else ([], others)
        size = prod(half) * x.pair if there else 0
        rest, work = several(x, half, there, spec.inverse, 1.0, IN, WORK, size)
        source = WORK if there else IN
        if not near:
            made = _from_half(x, Axis(spec.shape, last), turned, spec.scale, weight, source)
            return None if made is None else ([*rest, *made], max(work, size))
        shape, axes = part(half, here)
        first = here[-1]
        inside, _ = several(x, shape, axes, spec.inverse, 1.0, IN, WORK)
        end = _from_half(x, Axis(spec.shape[first:], last - first), turned, spec.scale, weight, WORK)
        if end is None:
            return None
        return [*rest, plane(x, prod(half[:first]), sizes(x, first)[::-1], [*inside, *end], source, prod(shape) * x.pair)], max(work, size)

    def near_axes(x: Numbers) -> int:
        return together(half, [last, *others], x.pair) if n % 2 == 0 and all(a < last for a in others) else 0

    def sizes(x: Numbers, first: int) -> tuple[int, int]:
        return prod(spec.shape[first:]) * x.d.itemsize, prod(half[first:]) * x.pair
    return prepared(spec, spec.shape, to_half if forward else from_half)


def _real_words(x: Numbers, h: int, table: int, weight: float, step: int, to_step: int) -> list[int | float]:
    return [h, table, weight, step, to_step, x.sign, *x.scale]


def _to_half(x: Numbers, a: Axis, turned: float, scale: float, weight: float, whole: bool) -> list[Stage] | None:
    """Stages from real numbers to the half of their spectrum, or all of it, conjugate where `turned` is -1, all but its ends times `weight`."""
    if a.n % 2:
        return _pairs_to_half(x.but(1.0, (scale, turned * scale)), a, weight, whole)
    h, item = a.n // 2, x.d.itemsize
    width, after = (a.n, "whole") if whole else (h + 1, "after")
    out = x.but(1.0, (scale, turned * scale))
    length, to_length = 2 * h * item, width * x.pair
    if a.inner > 1:
        if h >= LONGEST or not rows_.factors(h):
            return None
        size = column_bytes(x, h)
        step = 2 * a.inner * item
        operations = [*column(x.but(), h, ("R", (SOURCE, 0), step), ("N", (MINE, 2 * size), x.row), 0),
                      Operation(real.address(x.d, after + " I"), (MINE, 2 * size), (TARGET, 0),
                                _real_words(out, h, rows_.half_table(x, h, False), weight, x.row, a.inner * x.pair))]
        return [Stage(a.outer, -(-a.inner // x.lanes), a.inner, (IN, a.inner * length, x.lanes * item), (OUT, a.inner * to_length, x.row), 3 * size,
                      operations)]
    if rows_.rows_or_lanes(h, a.outer, x.lanes) == "lanes":
        far = 2 * column_bytes(x, width)
        mirrored = Operation(real.address(x.d, after + " S"), (MINE, far), (MINE, 0), _real_words(x, h, rows_.half_table(x, h, False), weight, x.row, x.row))
        return [lanes_stage(out, h, a.outer, (IN, length), (OUT, to_length), [], [mirrored], (h, width))]
    begin = lines(h * x.pair)
    operations, memory = rows_.row(x.but(), h, (SOURCE, 0), (MINE, 0), begin)
    operations.append(Operation(real.address(x.d, after + " row"), (MINE, 0), (TARGET, 0),
                                _real_words(out, h, rows_.half_row_table(x, h, False), weight, x.row, x.row)))
    return [Stage(a.outer, 1, x.lanes, (IN, length, 0), (OUT, to_length, 0), begin + memory, operations)]


def _from_half(x: Numbers, a: Axis, turned: float, scale: float, weight: float, source: int) -> list[Stage] | None:
    """Stages from half of a spectrum, conjugated where `turned` is -1 and all but its ends times `weight`, to the real
    numbers of its inverse."""
    if a.n % 2:
        return _pairs_from_half(x.but(turned, (scale, scale)), a, weight, source)
    h, item = a.n // 2, x.d.itemsize
    given, out = x.but(turned), x.but(1.0, (scale, scale))
    length, to_length = (h + 1) * x.pair, 2 * h * item
    if a.inner > 1:
        if h >= LONGEST or not rows_.factors(h):
            return None
        size = column_bytes(x, h)
        step = 2 * a.inner * item
        operations = [Operation(real.address(x.d, "before I"), (SOURCE, 0), (MINE, 0),
                                _real_words(given, h, rows_.half_table(x, h, True), weight, a.inner * x.pair, x.row)),
                      *column(out, h, ("S", (MINE, 0), x.row), ("R", (TARGET, 0), step), 0)]
        return [Stage(a.outer, -(-a.inner // x.lanes), a.inner, (source, a.inner * length, x.row), (OUT, a.inner * to_length, x.lanes * item), 2 * size,
                      operations)]
    if rows_.rows_or_lanes(h, a.outer, x.lanes) == "lanes":
        far = 2 * column_bytes(x, h + 1)
        before = Operation(real.address(x.d, "before S"), (MINE, 0), (MINE, far), _real_words(x, h, rows_.half_table(x, h, True), weight, x.row, x.row))
        return [lanes_stage(x.but(turned, out.scale), h, a.outer, (source, length), (OUT, to_length), [before], [], (h + 1, h))]
    begin = lines(h * x.pair)
    operations, memory = rows_.row(x.but(1.0, out.scale), h, (MINE, 0), (TARGET, 0), begin)
    operations.insert(0, Operation(real.address(x.d, "before row"), (SOURCE, 0), (MINE, 0),
                                   _real_words(given, h, rows_.half_row_table(x, h, True), weight, x.row, x.row)))
    return [Stage(a.outer, 1, x.lanes, (source, length, 0), (OUT, to_length, 0), begin + memory, operations)]


def _paired(x: Numbers, a: Axis) -> bool:
    """Whether real rows of odd length are transformed two at a time; else nothing is gained over complex ones."""
    return a.inner == 1 and (a.n > 64 or rows_.rows_or_lanes(a.n, a.outer, x.lanes) == "row")


def _pairs_stage(x: Numbers, a: Axis, source: tuple[int, int], target: tuple[int, int], memory: int, operations: list[Operation]) -> Stage:
    """A task for two rows, of which the last one may lack the second: it then has one lane.  source, target: an argument and the bytes of a row."""
    count = (a.outer + 1) // 2
    return Stage(1, count, x.lanes * count - (x.lanes - 1) * (a.outer % 2), (source[0], 0, 2 * source[1]), (target[0], 0, 2 * target[1]), memory, operations)


def _pairs_to_half(x: Numbers, a: Axis, weight: float, whole: bool) -> list[Stage] | None:
    if not _paired(x, a):
        return None
    n, one, two = a.n, (MINE, 0), (MINE, lines(a.n * x.pair))
    length, to_length = n * x.d.itemsize, (n if whole else n // 2 + 1) * x.pair
    inside, memory = rows_.row(x.but(), n, one, two, 2 * two[1])
    operations = [Operation(pairs.address(x.d, "widen"), (SOURCE, 0), one, [n, length, weight, x.sign, *x.scale]), *inside,
                  Operation(pairs.address(x.d, "mirror" if whole else "separate"), two, (TARGET, 0), [n, to_length, weight, x.sign, *x.scale])]
    return [_pairs_stage(x, a, (IN, length), (OUT, to_length), 2 * two[1] + memory, operations)]


def _pairs_from_half(x: Numbers, a: Axis, weight: float, source: int) -> list[Stage] | None:
    if not _paired(x, a):
        return None
    n, one, two = a.n, (MINE, 0), (MINE, lines(a.n * x.pair))
    length, to_length = (n // 2 + 1) * x.pair, n * x.d.itemsize
    inside, memory = rows_.row(x.but(), n, one, two, 2 * two[1])
    operations = [Operation(pairs.address(x.d, "join"), (SOURCE, 0), one, [n, length, weight, x.sign, *x.scale]), *inside,
                  Operation(pairs.address(x.d, "narrow"), two, (TARGET, 0), [n, to_length, weight, x.sign, *x.scale])]
    return [_pairs_stage(x, a, (source, length), (OUT, to_length), 2 * two[1] + memory, operations)]


def _matrix_to_half(x: Numbers, shape: Sequence[int], scale: float, turned: float, weight: float, whole: bool) -> Stage:
    """Over the last two axes, as `transforms.matrix_stage`."""
    n1, h = shape[-2], shape[-1] // 2
    width, after = (shape[-1], "whole S") if whole else (h + 1, "after S")
    blocks, room = -(-n1 // x.lanes), max(column_bytes(x, n1), column_bytes(x, width))
    step = rows_.width(n1, x.lanes) * x.row
    between = width * step
    length, to_length = 2 * h * x.d.itemsize, width * x.pair
    far = (MINE, between + 2 * room)
    first = [move(x.but(), "pack", (LOOP_SOURCE, 0), (MINE, between), h, length),
             *column(x.but(), h, ("S", (MINE, between), x.row), ("N", far, x.row), between),
             Operation(real.address(x.d, after), far, (LOOP_TARGET, 0),
                       _real_words(x, h, rows_.half_table(x, h, False), weight, x.row, step))]
    return Stage(prod(shape[:-2]), 1, 1, (IN, n1 * length, 0), (OUT, n1 * to_length, 0), between + 3 * room,
                 [program.loop(x.d, blocks, n1, (SOURCE, 0, x.lanes * length), (MINE, 0, x.row), (NOWHERE, 0, 0), first),
                  matrix_end(x.but(1.0, (scale, turned * scale)), n1, width, between)])


def _matrix_from_half(x: Numbers, shape: Sequence[int], source: int, scale: float, turned: float, weight: float) -> Stage:
    """The way back: the columns first, then as many rows at a time as there are lanes."""
    n1, h = shape[-2], shape[-1] // 2
    blocks, room = -(-(h + 1) // x.lanes), max(column_bytes(x, n1), column_bytes(x, h + 1))
    step = rows_.width(h + 1, x.lanes) * x.row
    between = n1 * step
    length, to_length = (h + 1) * x.pair, 2 * h * x.d.itemsize
    one, far = (MINE, between), (MINE, between + 2 * room)
    first = column(x.but(turned), n1, ("I", (LOOP_SOURCE, 0), length), ("N", (LOOP_TARGET, 0), step), between)
    second = [move(x, "turn", (LOOP_SOURCE, 0), one, h + 1, step),
              Operation(real.address(x.d, "before S"), one, far, _real_words(x, h, rows_.half_table(x, h, True), weight, x.row, x.row)),
              *column(x.but(), h, ("S", far, x.row), ("N", far, x.row), between),
              move(x.but(1.0, (scale, scale)), "unpack", far, (LOOP_TARGET, 0), h, to_length)]
    return Stage(prod(shape[:-2]), 1, 1, (source, n1 * length, 0), (OUT, n1 * to_length, 0), between + 3 * room,
                 [program.loop(x.d, blocks, h + 1, (SOURCE, 0, x.row), (MINE, 0, x.row), (NOWHERE, 0, 0), first),
                  program.loop(x.d, -(-n1 // x.lanes), n1, (MINE, 0, x.lanes * step), (TARGET, 0, x.lanes * to_length), (NOWHERE, 0, 0),
                               second)])
