"""Poisson, binomial and gamma numbers, which take as many words as they need: `kernels.rejection` tells the methods and has the constants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .....dtypes import float32, float64
from .... import rejection as r
from ...casts import cast
from ...emit import number
from ...values import Mask
from ...values import Value as Number
from ..code import Code, Value
from .elements import Draws, standard_normal

if TYPE_CHECKING:
    from .....dtypes import dtype
    from ...emit import Module


class Sampler(Draws):
    """A function ``double name(stream, words, parameters...)`` while it is written."""

    def __init__(self, module: Module, name: str, parameters: int) -> None:
        c = self.code = Code(module, "internal double", name, "ptr", "ptr", *["double"] * parameters)
        self.stream, self.words = c.given[:2]
        self.parameters = [Number(c, v.name, float64, 1) for v in c.given[2:]]

    def fraction(self) -> Number:
        """The next number of [0, 1)."""
        self.code.function("void", "words", self.stream, self.words, self.code.ints(2))
        return self.fraction53(self.words)

    def log(self, x: Number) -> Number:
        return self.library("log", x)

    def floor(self, x: Number) -> Number:
        return x.function("floor")

    def flag(self, mask: Mask) -> Value:
        return Value(self.code, "i1", mask.v)

    def value(self, x: Number) -> Value:
        return Value(self.code, "double", x.v)

    def call(self, name: str, *args: Number) -> Number:
        made = self.code.function("double", name, self.stream, self.words, *[self.value(x) for x in args])
        return Number(self.code, made.name, float64, 1)

    def give(self, x: Number) -> None:
        self.code.back(self.value(x))


def write_poisson(module: Module, d: dtype) -> None:
    w = Sampler(module, "poisson_few", 1)
    c, (rate,) = w.code, w.parameters
    least = w.library("exp", -rate)
    one = Value(c, "double", rate.lift(1.0))
    with c.repeat(one, Value(c, "double", rate.lift(-1.0))) as turn:
        product, count = (rate.of(v.name) for v in turn.vars)
        product = product * w.fraction()
        turn.next = [w.value(product), w.value(count + 1.0)]
        turn.more = w.flag(product > least)
    w.give(rate.of(turn.vars[1].name))
    c.finish()

    w = Sampler(module, "poisson_many", 1)
    c, (rate,) = w.code, w.parameters
    root, log_rate = rate.sqrt(), w.log(rate)
    b = root * 2.53 + 0.931
    a = b * 0.02483 + -0.059
    log_inverse, most = w.log(1.1328 / (b - 3.4) + 1.1239), 0.9277 - 3.6224 / (b - 2.0)
    with c.repeat(w.value(rate)) as turn:
        u, v = w.fraction() - 0.5, w.fraction()
        us = 0.5 - abs(u)
        k = w.floor((a * 2.0 / us + b) * u + rate + 0.43)
        soon = w.flag((us >= 0.07) & (v <= most))
        never = w.flag((k < 0.0) | ((us < 0.013) & (v > us)))
        with c.when((soon | never) ^ 1, soon) as asked:
            left = w.log(v) + log_inverse - w.log(a / (us * us) + b)
            right = -rate + k * log_rate - w.library("lgamma", k + 1.0)
            asked.next = [w.flag(left <= right)]
        turn.next, turn.more = [w.value(k)], asked.vars[0] ^ 1
    w.give(rate.of(turn.vars[0].name))
    c.finish()

    w = Sampler(module, "poisson", 1)
    c, (rate,) = w.code, w.parameters
    with c.leave_if(w.flag(rate >= 10.0)):
        w.give(w.call("poisson_many", rate))
    with c.leave_if(w.flag(rate > 0.0)):
        w.give(w.call("poisson_few", rate))
    w.give(rate)  # 0; a rate that is none has been refused
    c.finish()


def write_binomial(module: Module, d: dtype) -> None:
    module.helper("tails", f"@tails = internal constant [{len(r.TAILS)} x double] [" + ", ".join(f"double {number(x, float64)}" for x in r.TAILS) + "]")
    w = Sampler(module, "stirling_tail", 1)
    c, (k,) = w.code, w.parameters
    with c.leave_if(w.flag(k <= 9.0)):
        at = Value(c, "i64", c.op(f"fptosi double {k.v} to i64"))
        w.give(k.of((Value(c, "ptr", "@tails") + at * 8).load("double").name))
    square = (k + 1.0) * (k + 1.0)
    w.give((1.0 / 12 - (1.0 / 360 - (1.0 / 1260) / square) / square) / (k + 1.0))
    c.finish()

    w = Sampler(module, "binomial_few", 2)
    c, (count, p) = w.code, w.parameters
    log_q = w.library("log1p", -p)
    zero = Value(c, "double", count.lift(0.0))
    with c.repeat(zero, Value(c, "double", count.lift(-1.0))) as turn:
        total, times = (count.of(v.name) for v in turn.vars)
        total = total + (w.log(w.fraction()) / log_q).function("ceil")
        turn.next = [w.value(total), w.value(times + 1.0)]
        turn.more = w.flag(total > count) ^ 1
    w.give(count.of(turn.vars[1].name))
    c.finish()

    w = Sampler(module, "binomial_many", 2)
    c, (count, p) = w.code, w.parameters
    deviation = (count * p * (1.0 - p)).sqrt()
    b = deviation * 2.53 + 1.15
    a = b * 0.0248 + -0.0873 + p * 0.01
    middle, most = count * p + 0.5, 0.92 - 4.2 / b
    odds, alpha, m = p / (1.0 - p), (5.1 / b + 2.83) * deviation, w.floor((count + 1.0) * p)
    with c.repeat(w.value(count)) as turn:
        u, v = w.fraction() - 0.5, w.fraction()
        us = 0.5 - abs(u)
        k = w.floor((a * 2.0 / us + b) * u + middle)
        outside = w.flag((k < 0.0) | (k > count))
        soon = w.flag((us >= 0.07) & (v <= most)) & (outside ^ 1)
        with c.when((soon | outside) ^ 1, soon) as asked:
            left = w.log(v * alpha / (a / (us * us) + b))
            right = (m + 0.5) * w.log((m + 1.0) / (odds * (count - m + 1.0)))
            right = right + (count + 1.0) * w.log((count - m + 1.0) / (count - k + 1.0))
            right = right + (k + 0.5) * w.log(odds * (count - k + 1.0) / (k + 1.0))
            for x, sign in ((m, 1), (count - m, 1), (k, -1), (count - k, -1)):
                tail = w.call("stirling_tail", x)
                right = right + tail if sign > 0 else right - tail
            asked.next = [w.flag(left <= right)]
        turn.next, turn.more = [w.value(k)], asked.vars[0] ^ 1
    w.give(count.of(turn.vars[0].name))
    c.finish()

    w = Sampler(module, "binomial", 2)
    c, (count, p) = w.code, w.parameters
    with c.leave_if(w.flag((count <= 0.0) | (p <= 0.0))):
        w.give(count.of(count.lift(0.0)))
    for x in (count, p):
        with c.leave_if(w.flag(x.differs(x))):
            w.give(x)
    with c.leave_if(w.flag(p >= 1.0)):
        w.give(count)
    low = p <= 0.5
    q = low.pick(p, 1.0 - p)
    with c.when(w.flag(count * q >= 10.0), w.value(count)) as many:
        many.next = [w.value(w.call("binomial_many", count, q))]
    with c.when(w.flag(count * q < 10.0), many.vars[0]) as few:
        few.next = [w.value(w.call("binomial_few", count, q))]
    made = count.of(few.vars[0].name)
    w.give(low.pick(made, count - made))
    c.finish()


def write_gamma(module: Module, d: dtype) -> None:
    """A shape of another type than float64 is a float32 at first, as in PyTorch."""
    w = Sampler(module, "normal_number", 0)
    w.give(standard_normal(w))
    w.code.finish()

    w = Sampler(module, "gamma", 1)
    c, (shape,) = w.code, w.parameters
    with c.leave_if(w.flag(shape.equals(0.0))):
        w.give(shape)
    with c.leave_if(w.flag(shape > 0.0) ^ 1):
        w.give(shape.of(shape.lift(math.nan)))
    first = shape.to(float64 if d is float64 else float32)
    with c.when(w.flag(shape < 1.0), Value(c, "double", shape.lift(1.0)), Value(c, first.type, first.v)) as small:
        raised = c.call("pow", "double", ("double", (1.0 - w.fraction()).v), ("double", (1.0 / first).to(float64).v))
        small.next = [Value(c, "double", raised), Value(c, first.type, (first + 1.0).v)]
    scale, less = shape.of(small.vars[0].name), (first.of(small.vars[1].name) - r.THIRD).to(float64)
    e = 1.0 / (less * 9.0).sqrt()
    with c.repeat(w.value(less)) as turn:
        with c.repeat(w.value(less), w.value(less)) as inner:
            x = w.call("normal_number")
            y = x * e + 1.0
            inner.next, inner.more = [w.value(x), w.value(y)], w.flag(y <= 0.0)
        x, y = (shape.of(v.name) for v in inner.vars)
        v, u, square = y * y * y, 1.0 - w.fraction(), x * x
        soon = w.flag(u < 1.0 - square * r.SQUEEZE * square)
        with c.when(soon ^ 1, soon) as asked:
            asked.next = [w.flag(w.log(u) < square * 0.5 + less * (1.0 - v + w.log(v)))]
        turn.next, turn.more = [w.value(v)], asked.vars[0] ^ 1
    w.give(scale * less * shape.of(turn.vars[0].name))
    c.finish()


WRITERS = {"poisson": write_poisson, "binomial": write_binomial, "gamma": write_gamma}


def element(kind: str, w: Draws, given: list[Number]) -> Number:
    """The number of a kind for an element's operands."""
    c = w.code
    wide = [Value(c, "double", cast(c, x.v, x.d, float64, 1)) for x in given]
    made = Number(c, c.function("double", kind, w.stream, w.words, *wide).name, float64, 1)
    if kind == "gamma":  # none is 0, whatever the type
        made = (made < r.tiny(w.d)).pick(r.tiny(w.d), made)
    return made
