"""Draws in the order of elements: each takes its words, one or two or as many as it needs, from a stream and becomes a number.

An argument is an address or a Python float; whole numbers that a double may not hold come in two, the upper and the lower 32 bits.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from .....dtypes import bool_, float32, float64, int32, int64
from .... import mersenne as mt
from .... import native, rejection
from ....programs import size_of
from ... import libm
from ...casts import cast
from ...emit import Module, vec
from ...values import Value as Number
from ..code import Code, Value
from ..ordering import rows
from .engine import functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from .....dtypes import dtype
    from ....specs import Draw

CHUNK = 512  # elements whose words are fetched at a time
LONG = 1 << 14  # elements, of which so many are worth letting other Python threads run meanwhile
_LANES = 16
(ROWS, N, STEPS) = range(3)  # the parameter block: then each operand's step along a row in bytes, and @row's words


class Draws:
    """A kernel while it is written.  given: the types of the operands that are read."""

    def __init__(self, module: Module, d: dtype, given: tuple[dtype, ...], words: int) -> None:
        rows.write(module, 1 + len(given))
        c = self.code = Code(module, "void", "flambeau_draw", "i64", "i64", "ptr", "ptr")
        self.d, self.given, self.each = d, given, words
        _, _, self.args, self.block = c.given
        self.words = c.array("i32", CHUNK * max(words, 4))
        self.places = c.array("i64", 1 + len(given))
        self.operands = [c.address(self.args, k) for k in range(1 + len(given))]
        self.stream = c.address(self.args, 1 + len(given))
        c.function("void", "hold", self.stream)

    def number(self, k: int, lanes: int = 1) -> Number:
        """The k-th number of the call."""
        c = self.code
        return Number(c, c.broadcast((self.args + 8 * (2 + len(self.given) + k)).load("double").name, "double", lanes), float64, lanes)

    def whole(self, k: int, lanes: int = 1) -> Number:
        """The whole number of 64 bits whose halves are the numbers k and k + 1."""
        c = self.code
        high, low = (c.op(f"fptosi double {self.number(k + i).v} to i64") for i in range(2))
        both = (Value(c, "i64", high) << 32) | Value(c, "i64", low)
        return Number(c, c.broadcast(both.name, "i64", lanes), int64, lanes)

    def write(self, element: Callable[[Draws, int, Value, list[Number]], Number], dense: bool, wide: bool) -> None:
        """The loops over all elements; element(self, lanes, the address of its words, operands).  wide: it can be done in vectors."""
        c = self.code
        count = len(self.operands)
        steps = [c.number(self.block, STEPS + k) for k in range(count)]
        sizes = [self.d.itemsize, *[d.itemsize for d in self.given]]
        with c.span(0, c.number(self.block, ROWS)) as row:
            at = rows.offsets(c, row.i, self.block + 8 * (STEPS + count), self.places, count)
            n = c.number(self.block, N)
            with c.span(0, n, step=CHUNK) as part:
                many = c.least(n - part.i, CHUNK)
                if self.each:
                    c.function("void", "words", self.stream, self.words, many * self.each)
                begin: Value | int = 0
                for lanes in ((_LANES, 1) if dense and wide else (1,)):
                    end = many & -lanes if lanes > 1 else many
                    with c.span(begin, end, step=lanes) as v:
                        places = [p + (o + (part.i + v.i) * (size if lanes > 1 else step))
                                  for p, o, size, step in zip(self.operands, at, sizes, steps, strict=True)]
                        given = [Number(c, c.load(d, lanes, p.name), d, lanes) for d, p in zip(self.given, places[1:], strict=True)]
                        made = element(self, lanes, self.words + v.i * (4 * self.each), given)
                        c.store(self.d, lanes, cast(c, made.v, made.d, self.d, lanes), places[0].name)
                    begin = end
        self.finish()

    def finish(self) -> None:
        self.code.function("void", "release", self.stream)
        self.code.back()
        self.code.finish()

    # -------------------------------------------------------------------------------------------------- uniform numbers
    def fraction24(self, at: Value, lanes: int) -> Number:
        """The lower 24 bits of a word as a float32 of [0, 1)."""
        c = self.code
        return (Number(c, at.load(vec("i32", lanes)).name, int32, lanes) & 0xFFFFFF).to(float32) * 2.0 ** -24

    def fraction53(self, at: Value, lanes: int = 1) -> Number:
        """The lower 53 of the 64 bits of two words as a float64 of [0, 1).

        The first word is the upper half.  Each half becomes the low bits of a float64 of known exponent; what that adds is subtracted exactly.
        """
        c = self.code
        both = Number(c, at.load(vec("i64", lanes)).name, int64, lanes)
        low = ((both >> 32) & 0xFFFFFFFF | 0x4330000000000000).floats()  # 2**52 more
        high = (both & 0x1FFFFF | 0x4530000000000000).floats()  # 2**84 more, in units of 2**32
        return ((high - (2.0 ** 84 + 2.0 ** 52)) + low) * 2.0 ** -53

    def library(self, name: str, x: Number) -> Number:
        return x.of(libm.emit(name, x.d, x.lanes, self.code, [x.v]))


# ---------------------------------------------------------------------------------------------------------------- elements
def _unit(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    if w.d is float64:
        return w.fraction53(at, lanes)
    x = w.fraction24(at, lanes)
    return x if w.d is float32 else _open(w, x, 1.0, 0.0)


def _open(w: Draws, x: Number, end: Number | float, begin: Number | float) -> Number:
    """A number of a 16-bit type; what was rounded up to the end of the range becomes its beginning."""
    short = x.of(cast(w.code, cast(w.code, x.v, float32, w.d, x.lanes), w.d, float32, x.lanes))
    return (short >= end).pick(begin, short) if isinstance(begin, Number) else (short < end).pick(short, begin)


def _uniform(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    """x * (to - from) + from; numbers: from, to - from and to."""
    low, span = w.number(0, lanes), w.number(1, lanes)
    if w.d is float64:
        return w.fraction53(at, lanes).fma(span, low)
    x = w.fraction24(at, lanes).to(float64).fma(span, low).to(float32)
    return x if w.d is float32 else _open(w, x, w.number(2, lanes).to(float32), low.to(float32))


def _integers(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    """base + word % range; numbers: range, and base in halves.

    The quotient of two numbers of 32 bits is far enough from the next whole number for a float64 to tell.
    """
    c = w.code
    word = Number(c, at.load(vec("i32", lanes)).to("i64").name, int64, lanes)
    x, size = (word | 0x4330000000000000).floats() - 2.0 ** 52, w.number(0, lanes)
    rest = (-(x / size).trunc()).fma(size, x)
    return ((rest + 2.0 ** 52).bits() & 0xFFFFFFFF) + w.whole(1, lanes)


def _long_integers(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    """base + 64 bits % range; numbers: both in halves."""
    c = w.code
    word = _long(w, at)
    return word.of(c.op(f"urem i64 {word.v}, {w.whole(0).v}")) + w.whole(2)


def _long(w: Draws, at: Value) -> Number:
    both = at.load("i64")
    return Number(w.code, ((both << 32) | (both >> 32)).name, int64, 1)


def _bits(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    return _long(w, at)


def _bernoulli(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    found = w.fraction53(at, lanes) < w.number(0, lanes)
    return Number(w.code, found.v, bool_, lanes)


def _bernoulli_each(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    (p,) = given
    if p.d is float64:
        found = w.fraction53(at, lanes) < p
    else:
        found = w.fraction24(at, lanes) < Number(w.code, cast(w.code, p.v, p.d, float32, lanes), float32, lanes)
    return Number(w.code, found.v, bool_, lanes)


def _dropout(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    """The second number with the probability of the first, else 0."""
    kept = w.fraction53(at, lanes) < w.number(0, lanes)
    return kept.pick(w.number(1, lanes), Number(w.code, w.number(1, lanes).lift(0.0), float64, lanes))


def _exponential(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    """log1p(-u) times a number, -1 / rate."""
    return w.library("log1p", -w.fraction53(at)) * w.number(0)


def _geometric(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    """numbers: log1p(-p)."""
    ratio = w.library("log", w.fraction53(at)) / w.number(0)
    return ratio.function("ceil")


def _cauchy(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    """numbers: median, sigma."""
    return w.library("tan", (w.fraction53(at) - 0.5) * math.pi).fma(w.number(1), w.number(0))


def standard_normal(w: Draws) -> Number:
    """The second number of a pair where it is kept, else the first of a new pair, by Box and Muller's transformation."""
    c, stream = w.code, w.stream
    kept = (stream + mt.KEPT).load("i32")
    (stream + mt.KEPT).store(0, "i32")
    with c.when(kept.equals(0), (stream + mt.NORMAL).load("double")) as fresh:
        c.function("void", "words", stream, w.words, c.ints(4))
        u, v = w.fraction53(w.words), w.fraction53(w.words + 8)
        radius, angle = (w.library("log1p", -v) * -2.0).sqrt(), u * (2.0 * math.pi)
        (stream + mt.NORMAL).store(Value(c, "double", (radius * w.library("sin", angle)).v))
        (stream + mt.KEPT).store(1, "i32")
        fresh.next = [Value(c, "double", (radius * w.library("cos", angle)).v)]
    return Number(c, fresh.vars[0].name, float64, 1)


def _normal(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    """numbers: mean, deviation."""
    return standard_normal(w).fma(w.number(1), w.number(0))


def _log_normal(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    return w.library("exp", _normal(w, lanes, at, given))


def _slopes(w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    """1, or, where the operand is 0 or less, a number of a range, which is drawn only there; numbers: from, to - from."""
    c, (x,) = w.code, given
    wide = Number(c, cast(c, x.v, x.d, float64, 1), float64, 1)
    with c.when(Value(c, "i1", (wide <= 0.0).v), Value(c, "double", wide.lift(1.0))) as there:
        c.function("void", "words", w.stream, w.words, c.ints(2))
        there.next = [Value(c, "double", (w.fraction53(w.words) * w.number(1) + w.number(0)).v)]
    return Number(c, there.vars[0].name, float64, 1)


# the element, its words (None: two for float64, else one), whether it can be done in vectors, and how many numbers a call gives
KINDS: dict[str, tuple[Any, int | None, bool, int]] = {
    "unit": (_unit, None, True, 0), "uniform": (_uniform, None, True, 3), "integers": (_integers, 1, True, 3),
    "long integers": (_long_integers, 2, False, 4), "bits": (_bits, 2, False, 0), "bernoulli": (_bernoulli, 2, True, 1),
    "dropout": (_dropout, 2, True, 2),
    "bernoulli each": (_bernoulli_each, None, True, 0), "exponential": (_exponential, 2, False, 1), "geometric": (_geometric, 2, False, 1),
    "slopes": (_slopes, 0, False, 2), "cauchy": (_cauchy, 2, False, 2), "normal": (_normal, 0, False, 2), "log normal": (_log_normal, 0, False, 2),
}


def _sampled(kind: str, w: Draws, lanes: int, at: Value, given: list[Number]) -> Number:
    from .rejection import element
    return element(kind, w, given)


def entry(spec: Draw) -> Callable[..., None]:
    """See `specs.Draw`."""
    if spec.kind in rejection.KINDS:
        row: Any = partial(_sampled, spec.kind), 0, False, 0
    else:
        row = KINDS[spec.kind]
    element, words, wide, numbers = row
    given = tuple([d for d, _ in spec.given])
    if words is None:
        words = 2 if float64 in (*given, *(() if given else (spec.dtype,))) else 1
    types = (spec.dtype, *given)
    sizes, steps = rows.merged(spec.shape, [tuple([s * d.itemsize for s in strides]) for d, strides in
                                            zip(types, (spec.strides, *[s for _, s in spec.given]), strict=True)])
    if not sizes:
        sizes, steps = (1,), [(d.itemsize,) for d in types]
    dense = all(s[-1] == d.itemsize for s, d in zip(steps, types, strict=True))

    def write(module: Module) -> None:
        if spec.kind in rejection.KINDS:
            from .rejection import WRITERS
            WRITERS[spec.kind](module, spec.dtype)
        Draws(module, spec.dtype, given, words).write(element, dense, wide)
    key = " ".join((spec.kind, *[d.name for d in types], str(dense and wide)))
    code = functions(key, ("flambeau_draw",), write)["flambeau_draw"]
    n = size_of(sizes)
    block = [n // sizes[-1], sizes[-1], *[s[-1] for s in steps], *rows.numbers(sizes[:-1], [s[:-1] for s in steps])]
    operands = 2 + len(given)
    return native.make_entry([(code, 1, 1)], block, operands + numbers, range(operands, operands + numbers), parallel=n >= LONG)
