"""Draws of GPUs in PyTorch's order: which thread, which block of its stream and which number of that an element takes.

Elements go round the T threads that PyTorch would start on this model of GPU: thread t has t, t + T, t + 2T, … in the order of memory, and takes
the four (of 64 bits: two) numbers of a block one after the other.  So all full rounds are one launch of four outputs, T apart, and what is
left is one row of T after the other.  Dropout and `bernoulli` of tensors give the numbers of a block to neighbours instead.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..dtypes import dtype as dtype_class
from ..dtypes import float32, float64, int64, uint64
from ..kernels import curand, philox
from ..kernels import expr as E
from ..kernels.expr import Expr
from ..kernels.programs import Map
from ..layout import contiguous_strides
from ..runtime import gpus
from ..tensor import Tensor, alias, empty, meta
from . import launch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..runtime.device import device as device_class
    from ..runtime.generators import Generator

    Formula = Callable[..., Expr]

_SEED, _OFFSET = E.scalar(0, uint64), E.scalar(1, uint64)
_FIRST = 2  # of the scalars that follow


def _threads(n: int, dev: device_class) -> int:
    p = gpus.gpu(dev).properties
    return curand.threads_of(n, p.multi_processor_count, p.max_threads_per_multi_processor)


def side_by_side(order: Sequence[Sequence[int]]) -> bool:
    """Whether the elements lie next to one another.  order: sizes and strides in the order of memory."""
    return tuple(order[1]) == contiguous_strides(tuple(order[0]))


def draw(t: Tensor, name: str, formula: Formula, each: int, numbers: tuple[Any, ...], number_type: dtype_class, g: Generator,
         order: Sequence[Sequence[int]]) -> None:
    """Fills `t` with `formula(block, type, *numbers)`.  each: numbers of a block; order: sizes and strides in the order of memory."""
    m = t.meta
    shape, strides = tuple(order[0]), tuple(order[1])
    dense = side_by_side(order)
    flat = t if dense else empty((m.numel,), m.dtype, m.device)
    n, threads = m.numel, _threads(m.numel, m.device)
    seed, offset = g.take(curand.consumed(n, threads, each))

    def fill(how: str, rows: int, columns: int, first: int) -> None:
        """Rows of elements from row `first` of all on; rounds have as many rows each as a block has numbers."""
        outs = each if how == "rounds" else 1
        program = _rows(formula, m.dtype, number_type, each, how, len(numbers))
        at = meta((rows, columns), (threads * outs, 1), m.dtype, m.device)
        targets = [alias(flat, at, flat.ptr + (first + k) * threads * m.dtype.itemsize) for k in range(outs)]
        launch.run(program, (rows, columns), targets, [], numbers=(seed, offset, first, *numbers), name=name)
    if n <= threads:
        fill("first", 1, n, 0)
    else:
        rounds = n // (each * threads)
        if rounds:
            fill("rounds", rounds, threads, 0)
        done = rounds * each
        if n // threads > done:
            fill("rows", n // threads - done, threads, done)
        if n % threads:
            fill("rows", 1, n % threads, n // threads)
    if not dense:
        there, here = [alias(x, meta(shape, steps, m.dtype, m.device), x.ptr) for x, steps in ((t, strides), (flat, None))]
        launch.run(Map((E.input(0, m.dtype),), (m.dtype,)), shape, [there], [here], name=name)


def _part(a: Expr, op: str, b: int | Expr) -> Expr:
    return E.make(op, uint64, (a, b if isinstance(b, Expr) else E.const(b, uint64)))


@functools.cache
def _rows(formula: Formula, d: dtype_class, number_type: dtype_class, each: int, how: str, numbers: int) -> Map:
    given = [E.scalar(_FIRST + 1 + k, number_type) for k in range(numbers)]
    scalars = (uint64, uint64, int64, *[number_type] * numbers)
    thread, row = E.coord(1), E.coord(0)
    if how == "first":
        blocks = [curand.Block(_SEED, _OFFSET, thread, 0, 0)]
    elif how == "rounds":
        blocks = [curand.Block(_SEED, _OFFSET, thread, row, k) for k in range(each)]
    else:
        at = E.cast(row + E.scalar(_FIRST, int64), uint64)
        blocks = [curand.Block(_SEED, _OFFSET, thread, _part(at, "shr", each.bit_length() - 1), _part(at, "and", each - 1))]
    return Map(tuple([E.cast(formula(b, d, *given), d) for b in blocks]), (), scalars)


# ------------------------------------------------------------------------------------------------------------ neighbours
def draw_neighbours(t: Tensor, name: str, formula: Formula, width: int, numbers: tuple[Any, ...], number_type: dtype_class, g: Generator) -> None:
    """Fills `t`, whose elements lie side by side in memory, where each thread has `width` neighbours at a time: eight take the numbers of two
    blocks, four those of one, and of a block two pairs take one half each, one after the other."""
    m = t.meta
    n, chunks = m.numel, m.numel // width
    most = _threads(n, m.device)
    threads = 0 if chunks <= most else most
    seed, offset = g.take(curand.consumed(n, most, 4))
    program = _neighbours(formula, m.dtype, number_type, width, bool(threads), len(numbers))
    at = meta((chunks,), (width,), m.dtype, m.device)
    targets = [alias(t, at, t.ptr + k * m.dtype.itemsize) for k in range(width)]
    launch.run(program, (chunks,), targets, [], numbers=(seed, offset, threads, *numbers), name=name)


@functools.cache
def _neighbours(formula: Formula, d: dtype_class, number_type: dtype_class, width: int, several: bool, numbers: int) -> Map:
    given = [E.scalar(_FIRST + 1 + k, number_type) for k in range(numbers)]
    thread: Expr = E.cast(E.coord(-1), uint64)
    turn: Expr = E.const(0, uint64)
    if several:
        threads = E.scalar(_FIRST, uint64)
        thread, turn = _part(thread, "rem", threads), _part(thread, "truncdiv", threads)
    found = []
    for k in range(width):
        block: Expr = turn
        lane: Expr | int = k
        if width == 8:
            block, lane = _part(_part(turn, "shl", 1), "or", k // 4), k % 4
        elif width == 2:
            block, lane = _part(turn, "shr", 1), _part(_part(_part(turn, "and", 1), "shl", 1), "or", k)
        found.append(E.cast(formula(curand.Block(_SEED, _OFFSET, thread, block, lane), d, *given), d))
    return Map(tuple(found), (), (uint64, uint64, uint64, *[number_type] * numbers), joined=((0, width),))


def first_words(n: int, dev: device_class, g: Generator) -> Tensor:
    """int64 (n,): the first word of each of n threads."""
    found = empty((n,), int64, dev)
    launch.run(_words(), (n,), [found], [], numbers=g.take(1), name="words")
    return found


@functools.cache
def _words() -> Map:
    return Map((E.cast(curand.Block(_SEED, _OFFSET, E.coord(-1), 0, 0).word(), int64),), (), (uint64, uint64))


def draw_each(t: Tensor, name: str, formula: Formula, g: Generator, inputs: Sequence[Tensor]) -> None:
    """Fills `t` by inputs, which are broadcast to it, where four neighbours (row-major) share a block, and no thread draws twice."""
    m = t.meta
    program = _each(formula, m.dtype, tuple([x.meta.dtype for x in inputs]), len(m.shape))
    launch.run(program, tuple(m.shape), [t], list(inputs), numbers=(*g.take(10), *contiguous_strides(m.shape)), name=name)


@functools.cache
def _each(formula: Formula, d: dtype_class, inputs: tuple[dtype_class, ...], rank: int) -> Map:
    at = E.cast(philox.position(rank, _FIRST), uint64)
    b = curand.Block(_SEED, _OFFSET, _part(at, "shr", 2), 0, _part(at, "and", 3))
    return Map((E.cast(formula(b, d, *[E.input(k, x) for k, x in enumerate(inputs)]), d),), inputs, (uint64, uint64, *[int64] * rank))


# -------------------------------------------------------------------------------------------------------------- formulas
def _computed(d: dtype_class) -> dtype_class:
    return float64 if d is float64 else float32


def uniform(b: curand.Block, d: dtype_class, low: Expr, high: Expr) -> Expr:
    """(0, 1] to [low, high): what comes out as `high` becomes `low`."""
    wide = _computed(d)
    low, high = E.cast(low, d), E.cast(high, d)
    span = E.cast(high - low, wide)
    y = E.cast(b.unit(wide) * span + E.cast(low, wide), d)
    return E.where(E.compare("eq", y, high), low, y)


def normal(b: curand.Block, d: dtype_class, mean: Expr, std: Expr) -> Expr:
    wide = _computed(d)
    return b.normal(wide) * E.cast(std, wide) + E.cast(mean, wide)


def integers(b: curand.Block, d: dtype_class, low: Expr, span: Expr) -> Expr:
    return E.cast(E.make("rem", uint64, (E.cast(b.word(), uint64), E.cast(span, uint64))), int64) + low


def long_integers(b: curand.Block, d: dtype_class, low: Expr, span: Expr) -> Expr:
    """Of a span of 2^64, which is 0 here, the word as it is."""
    word, size = b.long_word(), E.cast(span, uint64)
    nothing = E.compare("eq", size, E.const(0, uint64))
    return E.cast(E.where(nothing, word, E.make("rem", uint64, (word, E.where(nothing, E.const(1, uint64), size)))), int64) + low


def exponential(b: curand.Block, d: dtype_class, rate: Expr) -> Expr:
    """Near 1 the logarithm is half of the type's last place, so that no number is 0."""
    wide = _computed(d)
    u, least = b.unit(wide), dtypes.finfo(wide).eps / 2
    log = E.where(u >= 1.0 - least, E.const(-least, wide), E.log(u))
    return E.const(-1.0, wide) / E.cast(rate, wide) * log


def cauchy(b: curand.Block, d: dtype_class, median: Expr, sigma: Expr) -> Expr:
    wide = _computed(d)
    eps = dtypes.finfo(wide).eps
    u = E.minimum(E.maximum(b.unit(wide), E.const(eps, wide)), E.const(1.0 - eps, wide))
    return E.cast(median, wide) + E.cast(sigma, wide) * E.tan((u - 0.5) * math.pi)


def log_normal(b: curand.Block, d: dtype_class, mean: Expr, std: Expr) -> Expr:
    return E.exp(normal(b, d, mean, std))


def geometric(b: curand.Block, d: dtype_class, p: Expr) -> Expr:
    u = b.unit(_computed(d))
    return E.maximum(E.ceil(E.log(u) / E.log1p(-E.cast(p, u.dtype))), E.const(1, u.dtype))


def chance(b: curand.Block, d: dtype_class, p: Expr) -> Expr:
    u = b.unit(_computed(d))
    return u < E.cast(p, u.dtype)


def chance_each(b: curand.Block, d: dtype_class, p: Expr) -> Expr:
    u = b.unit(float32)
    return u <= E.cast(p, float32)


def kept(b: curand.Block, d: dtype_class, p: Expr) -> Expr:
    """1 / (1 - p) with probability 1 - p, else 0."""
    u, wide = b.unit(float32), _computed(d)
    q = 1.0 - E.cast(p, wide)
    return E.where(E.cast(u, wide) < q, 1.0 / q, E.const(0, wide))
