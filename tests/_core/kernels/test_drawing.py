"""Kinds of draws: machine code against NumPy, element by element, and both streams afterwards."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

from flambeau._core import dtypes as D
from flambeau._core.drivers.cpu import draws
from flambeau._core.kernels import drawing, mersenne
from flambeau._core.kernels.interpret import load, memory, store
from flambeau._core.kernels.specs import Draw

FLOATS = (D.float32, D.float64, D.float16, D.bfloat16)
CASES = [
    ("unit", FLOATS, ()), ("uniform", FLOATS, (-2.5, 10.0, 7.5)), ("integers", (D.int64, D.int32, D.uint8, D.float32), (100.0, 0.0, 7.0)),
    ("integers", (D.int64, D.int32), (2.0 ** 28 - 1, -1.0, 2.0 ** 32 - 5)), ("integers", (D.int32,), (2.0 ** 31, 0.0, 0.0)),
    ("long integers", (D.int64, D.float64), (2.0 ** 20, 3.0, -1.0, 2.0 ** 32 - 5)), ("long integers", (D.int64,), (-2.0 ** 31, 0.0, 0.0, 0.0)),
    ("bits", (D.int64,), ()), ("bernoulli", (*FLOATS, D.bool_, D.int64), (0.3,)), ("dropout", FLOATS, (0.75, 4 / 3)), ("exponential", FLOATS, (-0.5,)),
    ("geometric", (*FLOATS, D.int64), (math.log1p(-0.25),)), ("cauchy", FLOATS, (0.5, 2.0)), ("normal", FLOATS, (0.5, 2.0)),
    ("log normal", FLOATS, (0.5, 0.25)), ("normal blocks", FLOATS, (0.5, 2.0)), ("permutation", (D.int64,), ())]


class Stream:
    def __init__(self, seed):
        self.memory = ctypes.create_string_buffer(mersenne.BYTES)
        self.address = ctypes.addressof(self.memory)
        mersenne.seed(self.address, seed)


def close(a, b, d, kind):
    """Exactly; where there are logarithms and the like, or a product and a sum rounded once, within a few units of the type's last place."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if d.kind != "f" or (kind == "uniform" and d is not D.float64) or kind in ("unit", "integers", "long integers", "bernoulli", "dropout"):
        assert np.array_equal(a, b)
    else:
        np.testing.assert_allclose(a, b, rtol=8 * float(D.finfo(d).eps), atol=8 * float(D.finfo(d).eps))


@pytest.mark.parametrize("kind,d,numbers", [(k, d, n) for k, ds, n in CASES for d in ds], ids=lambda v: str(v))
def test_machine_code_draws_what_the_kind_says(kind, d, numbers):
    for n in (1, 15, 16, 17, 31, 700, 1300):
        if kind == "normal blocks" and n < 16:
            continue
        spec = Draw(kind, d, (n,), (1,))
        ours, theirs = Stream(n), Stream(n)
        launch = draws.draw(spec)
        for _ in range(2):
            got = np.zeros(n, d.np)
            launch.entry(got.ctypes.data, ours.address, *numbers)
            want = np.zeros(n, d.np)
            store(memory(want.ctypes.data, (n,), (1,), d), drawing.drawn(spec, theirs.address, [], numbers), d)
            close(load(got, d), load(want, d), d, kind)
            a, b = ctypes.string_at(ours.address, mersenne.KEPT), ctypes.string_at(theirs.address, mersenne.KEPT)
            assert a == b
            kept = [mersenne.kept(s.address) for s in (ours, theirs)]
            assert kept[0] == kept[1] or abs(kept[0] - kept[1]) < 1e-14


@pytest.mark.parametrize("p", FLOATS, ids=str)
@pytest.mark.parametrize("steps", [(5, 1), (0, 1), (1, 4), (0, 0)])
def test_chances_of_each_element_are_read_where_they_lie(p, steps):
    spec = Draw("bernoulli each", D.float32, (4, 5), (10, 2), ((p, steps),))
    chances = np.zeros(20, p.np)
    store(chances, np.linspace(0, 1, 20), p)
    out = np.zeros((4, 10), np.float32)
    ours, theirs = Stream(2), Stream(2)
    draws.draw(spec).entry(out.ctypes.data, chances.ctypes.data, ours.address)
    given = load(memory(chances.ctypes.data, (4, 5), steps, p), p)
    assert np.array_equal(out[:, ::2], drawing.drawn(spec, theirs.address, [given], ())) and not out[:, 1::2].any()
    assert ctypes.string_at(ours.address, mersenne.KEPT) == ctypes.string_at(theirs.address, mersenne.KEPT)


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("kind,given", [
    ("poisson", ([0.0, 0.25, 3.0, 9.75, 10.0, 20.0, 1000.0, 0.0],)), ("gamma", ([0.0, 0.125, 0.5, 1.0, 3.0, 100.0, 1e4],)),
    ("binomial", ([0.0, 5.0, 30.0, 100.0, 1000.0, 40.0, 64.0], [0.25, 0.5, 0.875, 0.125, 0.75, 1.0, 0.0])), ("slopes", ([-1.0, 0.0, 2.0, -3.0],))])
def test_numbers_that_take_as_many_words_as_they_need(kind, given, d):
    n, count = 40 * len(given[0]), len(given)
    operands = [np.zeros(n, d.np) for _ in given]
    for to, values in zip(operands, given, strict=True):
        store(to, np.tile(values, 40), d)
    spec = Draw(kind, d, (n,), (1,), ((d, (1,)),) * count)
    ours, theirs = Stream(4), Stream(4)
    numbers = (0.125, 0.25) if kind == "slopes" else ()
    got, want = np.zeros(n, d.np), np.zeros(n, d.np)
    draws.draw(spec).entry(got.ctypes.data, *[x.ctypes.data for x in operands], ours.address, *numbers)
    store(want, drawing.drawn(spec, theirs.address, [load(x, d) for x in operands], numbers), d)
    close(load(got, d), load(want, d), d, "uniform" if kind in ("poisson", "binomial") and d is not D.float64 else kind)
    assert ctypes.string_at(ours.address, mersenne.KEPT) == ctypes.string_at(theirs.address, mersenne.KEPT)


@pytest.mark.parametrize("kind,given", [("gamma", (math.nan,)), ("gamma", (-1.0,)), ("binomial", (math.nan, 0.5)), ("binomial", (5.0, math.nan))])
def test_what_has_no_distribution_gives_nan_and_ends(kind, given):
    operands = [np.array([x]) for x in given]
    out, s = np.zeros(1), Stream(0)
    draws.draw(Draw(kind, D.float64, (1,), (1,), ((D.float64, (1,)),) * len(given))).entry(out.ctypes.data, *[x.ctypes.data for x in operands], s.address)
    assert np.isnan(out).all()
