"""Draws: distributions, and how a tensor is filled with one.

A distribution has three forms. On the CPU a generator's stream is PyTorch's: elements are drawn one after the other, by a launch of a `specs.Draw`.
On GPUs it is PyTorch's too: a stream for each thread (`thread_draws`). Of a generator that counts otherwise (`runtime.generators`), element i
comes from word i of Philox by a formula, the same on every device.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..dtypes import dtype as dtype_class
from ..dtypes import float32, float64, uint64
from ..engine import general
from ..kernels import expr as E
from ..kernels import philox
from ..kernels.drawing import BLOCK
from ..kernels.expr import Expr
from ..kernels.programs import Map
from ..kernels.specs import Draw
from ..layout import contiguous_strides, expand_strides
from ..runtime import dispatch, generators, versions
from ..tensor import Meta, Tensor, alias, meta
from . import launch, thread_draws
from .checks import same_device

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..runtime.device import device as device_class

Words = tuple[Expr, Expr, Expr, Expr]
Kind = tuple[str, tuple[float, ...]]
_programs: dict[Any, Map] = {}


class Distribution:
    """A row: `formula(words, type, *numbers, *operands)` for counters; `kind(meta, *numbers)`, which gives a kind of `kernels.drawing` and its
    numbers, for PyTorch's stream; `by_threads(block, type, *numbers, *operands)` for GPUs;
    number_type: of the numbers, where it is not the computation's; neighbours: they share a block, of one thread."""

    __slots__ = ("name", "formula", "kind", "by_threads", "number_type", "neighbours")

    def __init__(self, name: str, formula: Callable[..., Expr], kind: Callable[..., Kind], by_threads: Any, number_type: dtype_class | None = None,
                 neighbours: bool = False) -> None:
        self.name, self.formula, self.kind, self.by_threads = name, formula, kind, by_threads
        self.number_type, self.neighbours = number_type, neighbours


def generator_of(dev: device_class, given: Any) -> generators.Generator:
    if given is None:
        return generators.default(dev)
    if given.device.type != dev.type:
        raise RuntimeError(f"Expected a '{dev.type}' device type for generator but found '{given.device.type}'")
    found: generators.Generator = given
    return found


def draw(t: Tensor, what: Distribution, numbers: tuple[Any, ...] = (), generator: Any = None, inputs: tuple[Tensor, ...] = ()) -> Tensor:
    """Fills `t` with elements of a distribution.  inputs: tensors that are broadcast to t's shape.  Nothing is recorded; t's version goes up."""
    if inputs:
        same_device(what.name.removesuffix("_tensor"), t, *inputs)
    g = generator_of(t.meta.device, generator)
    if g.by_threads:
        if t.meta.numel:
            _by_threads(t, what, numbers, g, inputs)
        t.store.version += 1
        return t
    if g.counts:
        return _counted(t, what, numbers, g, inputs)
    if t.meta.numel:
        in_order(t, *what.kind(t.meta, *numbers), g, inputs)
    t.store.version += 1
    return t


def filled(t: Tensor, what: Distribution, numbers: tuple[Any, ...] = (), generator: Any = None, inputs: tuple[Tensor, ...] = ()) -> Tensor:
    """`draw` into a tensor that the call made: it is as new, and so is its version."""
    return as_new(draw(t, what, numbers, generator, inputs))


def as_new(t: Tensor) -> Tensor:
    """A tensor that the call made and filled."""
    t.store.version = versions.first()
    return t


def in_order(t: Tensor, kind: str, numbers: tuple[float, ...], g: generators.Generator, inputs: Sequence[Tensor] = ()) -> None:
    """The launch that draws the elements of `t` from a generator's stream."""
    _drawing(kind, t.meta, *[x.meta for x in inputs])(t.ptr, *[x.ptr for x in inputs], g.place(), *numbers)


@general.kept
def _drawing(kind: str, m: Meta, *inputs: Meta) -> Callable[..., None]:
    shape, strides, *given = _walked(m, [expand_strides(x.shape, x.strides, m.shape) for x in inputs])
    spec = Draw(kind, m.dtype, shape, strides, tuple([(x.dtype, steps) for x, steps in zip(inputs, given, strict=True)]))
    return dispatch.bind(m.device, dispatch.require(m.device, spec))


def _walked(m: Meta, others: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shape and the strides with axes in the order in which PyTorch walks elements: the shortest step is innermost."""
    if m.contiguous:
        return [tuple(m.shape), tuple(m.strides), *others] if others else [(m.numel,), (1,)]
    order = list(range(len(m.shape)))[::-1]  # from the innermost axis on
    for i in range(1, len(order)):
        at = i
        for k in range(i - 1, -1, -1):
            inner, outer = order[k], order[at]
            a, b = m.strides[inner], m.strides[outer]
            if a > b or (a == b and m.shape[inner] > m.shape[outer]):
                order[k], order[at] = outer, inner
                at = k
            elif a < b:
                break
    order.reverse()
    return [tuple([x[axis] for axis in order]) for x in (m.shape, m.strides, *others)]


def _by_threads(t: Tensor, what: Distribution, numbers: tuple[Any, ...], g: generators.Generator, inputs: tuple[Tensor, ...]) -> None:
    m = t.meta
    number_type = what.number_type or (float64 if m.dtype is float64 else float32)
    given = tuple([(float if number_type.kind == "f" else int)(v) for v in numbers])
    order = _walked(m, [])
    if inputs:
        thread_draws.draw_each(t, what.name, what.by_threads, g, inputs)
        return
    if what.neighbours and thread_draws.side_by_side(order):
        width = next((w for w in (8, 4, 2) if w * m.dtype.itemsize <= 16 and m.numel % w == 0), 1)
        if width > 1:
            thread_draws.draw_neighbours(t, what.name, what.by_threads, width, given, number_type, g)
            return
    formula, each = what.by_threads, 2 if m.dtype is float64 and not what.neighbours else 4
    if number_type is dtypes.int64:
        wide = m.dtype in (dtypes.int64, dtypes.uint64, float64) if what.kind is _full else not 0 < given[1] < _NARROW
        formula, each = (thread_draws.long_integers, 2) if wide else (thread_draws.integers, 4)
    thread_draws.draw(t, f"{what.name} {each}", formula, each, given, number_type, g, order)


def _counted(t: Tensor, what: Distribution, numbers: tuple[Any, ...], g: generators.Generator, inputs: tuple[Tensor, ...]) -> Tensor:
    """Element i (row-major) from counter i of the draw."""
    m = t.meta
    n = m.numel
    seed, offset = g.take(n)
    if not n:
        return t
    number_type = what.number_type or (float64 if m.dtype is float64 else float32)
    key = (what.name, m.dtype, number_type, tuple(x.meta.dtype for x in inputs), len(m.shape) if inputs or not m.contiguous else -1)
    flat = not inputs and m.contiguous
    domain = (n,) if flat else tuple(m.shape)
    program = _programs.get(key)
    if program is None:
        index: Expr = E.coord(-1)
        scalars: list[dtype_class] = [uint64, uint64]
        if not flat:
            index = philox.position(len(domain), len(scalars))
            scalars += [dtypes.int64] * len(domain)
        w = philox.words(philox.counter_at(index, E.scalar(1, uint64)), E.scalar(0, uint64))
        values = [E.scalar(len(scalars) + i, number_type) for i in range(len(numbers))]
        scalars += [number_type] * len(numbers)
        ins = [E.input(i, x.meta.dtype) for i, x in enumerate(inputs)]
        program = _programs[key] = Map((E.cast(what.formula(w, m.dtype, *values, *ins), m.dtype),), tuple(x.meta.dtype for x in inputs),
                                       tuple(scalars))
    convert = float if number_type.kind == "f" else int
    steps: tuple[int, ...] = ()
    if not flat:
        steps = contiguous_strides(domain)
    target = t if not flat else alias(t, meta((n,), None, m.dtype, m.device), t.ptr)
    launch.run(program, domain, [target], list(inputs), numbers=(seed, offset, *steps, *[convert(v) for v in numbers]), name=what.name)
    t.store.version += 1
    return t


# ------------------------------------------------------------------------------------------------------------- formulas
def _uniform(w: Words, d: dtype_class, low: Expr, high: Expr) -> Expr:
    u = philox.uniform(w, d)
    return u * E.cast(high - low, u.dtype) + E.cast(low, u.dtype)


def _normal(w: Words, d: dtype_class, mean: Expr, std: Expr) -> Expr:
    z = philox.normal(w, d)
    return z * E.cast(std, z.dtype) + E.cast(mean, z.dtype)


def _integers(w: Words, d: dtype_class, low: Expr, span: Expr) -> Expr:
    """low + a multiple-shift of 32 bits by the span; wider spans take 64 bits modulo the span."""
    span64 = E.cast(span, uint64)
    narrow = E.make("shr", uint64, (E.make("mul", uint64, (E.cast(w[0], uint64), span64)), E.const(32, uint64)))
    return E.cast(narrow, dtypes.int64) + low


def _integers_wide(w: Words, d: dtype_class, low: Expr, span: Expr) -> Expr:
    wide = E.make("or", uint64, (E.make("shl", uint64, (E.cast(w[1], uint64), E.const(32, uint64))), E.cast(w[0], uint64)))
    return E.cast(E.make("rem", uint64, (wide, E.cast(span, uint64))), dtypes.int64) + low


def _integers_widest(w: Words, d: dtype_class, low: Expr, span: Expr) -> Expr:
    """`_integers_wide` for spans from 2**62 on: three subtractions take less time than a division."""
    wide = E.make("or", uint64, (E.make("shl", uint64, (E.cast(w[1], uint64), E.const(32, uint64))), E.cast(w[0], uint64)))
    size = E.cast(span, uint64)
    for _ in range(3):
        wide = E.where(wide >= size, wide - size, wide)
    return E.cast(wide, dtypes.int64) + low


def _open(w: Words, d: dtype_class) -> Expr:
    """Uniform on (0, 1]."""
    return 1.0 - philox.uniform(w, float64 if d is float64 else float32)


def _exponential(w: Words, d: dtype_class, rate: Expr) -> Expr:
    u = _open(w, d)
    return -E.log(u) / E.cast(rate, u.dtype)


def _cauchy(w: Words, d: dtype_class, median: Expr, sigma: Expr) -> Expr:
    u = philox.uniform(w, float64 if d is float64 else float32)
    return E.tan((u - 0.5) * math.pi) * E.cast(sigma, u.dtype) + E.cast(median, u.dtype)


def _log_normal(w: Words, d: dtype_class, mean: Expr, std: Expr) -> Expr:
    return E.exp(_normal(w, d, mean, std))


def _geometric(w: Words, d: dtype_class, p: Expr) -> Expr:
    u = _open(w, d)
    return E.maximum(E.ceil(E.log(u) / E.log1p(-E.cast(p, u.dtype))), E.const(1, u.dtype))


def _chance(w: Words, d: dtype_class, p: Expr) -> Expr:
    u = philox.uniform(w, float64 if p.dtype is float64 else float32)
    return u < E.cast(p, u.dtype)


def _kept(w: Words, d: dtype_class, p: Expr) -> Expr:
    """1 / (1 - p) with probability 1 - p, else 0."""
    u = philox.uniform(w, float64 if d is float64 else float32)
    q = E.cast(p, u.dtype)
    return E.where(u >= q, 1.0 / (1.0 - q), E.const(0, u.dtype))

# ------------------------------------------------------------------------------------------------------------------- rows
def _bounds(m: Meta, low: float, high: float) -> Kind:
    if m.dtype is float64:
        return ("unit", ()) if (low, high) == (0.0, 1.0) else ("uniform", (low, high - low, high))
    if (low, high) == (0.0, 1.0):
        return "unit", ()
    a, b = np.float32(low), np.float32(high)
    if m.dtype is float32:
        return "uniform", (float(a), float(b - a), float(b))
    return "uniform", (float(a), float(b - a), _rounded(high, m.dtype))  # what is rounded up to the end is the beginning


def _rounded(x: float, d: dtype_class) -> float:
    """A number as a 16-bit type has it."""
    from ..kernels.interpret import narrow_bfloat16, widen_bfloat16
    return float(np.float16(x)) if d is dtypes.float16 else float(widen_bfloat16(narrow_bfloat16(np.float32(x))))


def _normals(m: Meta, mean: float, std: float) -> Kind:
    return "normal blocks" if m.contiguous and m.numel >= BLOCK else "normal", (float(mean), float(std))


def _halves(x: int) -> tuple[float, float]:
    """A whole number of 64 bits in two that a double holds."""
    x = (x + (1 << 63)) % (1 << 64) - (1 << 63)
    return float(x >> 32), float(x & 0xFFFFFFFF)


_NARROW = 1 << 28  # ranges from here on take 64 bits


def _whole(m: Meta, low: int, span: int) -> Kind:
    if span <= 0:  # as 64 bits with a sign hold it; 0 is all 64 bits
        span += 1 << 64
    if span == 1 << 64:
        return "bits", ()
    return ("integers", (float(span), *_halves(low))) if span < _NARROW else ("long integers", (*_halves(span), *_halves(low)))


def _full(m: Meta, low: int, span: int) -> Kind:
    """Of `random_` without a range."""
    wide = m.dtype in (dtypes.int64, dtypes.uint64, float64)
    return ("long integers", (*_halves(span), 0.0, 0.0)) if wide else ("integers", (float(span), 0.0, 0.0))


def _scale(m: Meta, p: float) -> Kind:
    """The probability of what is kept, and what it is multiplied by, in the precision of the type's computation."""
    real = np.float64 if m.dtype is float64 else np.float32
    return "dropout", (1.0 - p, float(real(1.0) / real(1.0 - p)))


def _slopes(m: Meta, low: float, high: float) -> Kind:
    real = np.float64 if m.dtype is float64 else np.float32
    a, b = float(real(low)), float(real(high))
    return "slopes", (a, b - a)


UNIFORM = Distribution("uniform", _uniform, _bounds, thread_draws.uniform)
NORMAL = Distribution("normal", _normal, _normals, thread_draws.normal)
INTEGERS = Distribution("randint", _integers, _whole, thread_draws.integers, dtypes.int64)
WIDE_INTEGERS = Distribution("randint_wide", _integers_wide, _whole, thread_draws.integers, dtypes.int64)
WIDEST_INTEGERS = Distribution("randint_widest", _integers_widest, _whole, thread_draws.integers, dtypes.int64)
ALL_INTEGERS = Distribution("random", _integers, _full, thread_draws.integers, dtypes.int64)
ALL_WIDE_INTEGERS = Distribution("random_wide", _integers_wide, _full, thread_draws.integers, dtypes.int64)
ALL_WIDEST_INTEGERS = Distribution("random_widest", _integers_widest, _full, thread_draws.integers, dtypes.int64)
EXPONENTIAL = Distribution("exponential_", _exponential, lambda m, rate: ("exponential", (-1.0 / rate,)), thread_draws.exponential)
CAUCHY = Distribution("cauchy_", _cauchy, lambda m, median, sigma: ("cauchy", (float(median), float(sigma))), thread_draws.cauchy)
LOG_NORMAL = Distribution("log_normal_", _log_normal, lambda m, mean, std: ("log normal", (float(mean), float(std))), thread_draws.log_normal)
GEOMETRIC = Distribution("geometric_", _geometric, lambda m, p: ("geometric", (math.log1p(-p),)), thread_draws.geometric)
BERNOULLI = Distribution("bernoulli", _chance, lambda m, p: ("bernoulli", (float(p),)), thread_draws.chance)
BERNOULLI_EACH = Distribution("bernoulli_tensor", _chance, lambda m: ("bernoulli each", ()), thread_draws.chance_each)
SLOPES = Distribution("rrelu", _uniform, _slopes, thread_draws.uniform)
DROPOUT = Distribution("dropout", _kept, _scale, thread_draws.kept, neighbours=True)
