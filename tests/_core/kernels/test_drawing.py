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
