"""The interpreter, the oracle of every renderer, against plain Python: primitives, casts, and the four forms of program."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._core.dtypes import ALL, bfloat16, bool_, complex64, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret
from flambeau._core.kernels.programs import Map, Reduce, Rows, Scan, price

INTEGERS = [int8, int16, int32, int64, uint8, uint16, uint32, uint64]


def value(e, *inputs):
    return interpret.evaluate((e,), lambda leaf, args: np.asarray(inputs[leaf.value]))[0]


def wrapped(v, d):
    v &= (1 << d.itemsize * 8) - 1
    return v - (1 << d.itemsize * 8) if d.is_signed and v >> (d.itemsize * 8 - 1) else v


@st.composite
def integer_pairs(draw):
    d = draw(st.sampled_from(INTEGERS))
    info = np.iinfo(d.np)
    number = st.integers(int(info.min), int(info.max)) | st.integers(-3 if d.is_signed else 0, 3)
    return d, draw(number), draw(number)


@settings(max_examples=300, deadline=None)
@given(integer_pairs())
def test_integer_arithmetic_wraps_and_divides_as_python_does(case):
    d, a, b = case
    x, y = E.input(0, d), E.input(1, d)
    arrays = np.array(a, d.np), np.array(b, d.np)
    for op, want in (("add", a + b), ("sub", a - b), ("mul", a * b), ("and", a & b), ("or", a | b), ("xor", a ^ b)):
        assert int(value(E.binary(op, x, y), *arrays)) == wrapped(want, d), op
    if b:
        truncated = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        for op, want in (("floordiv", a // b), ("rem", a % b), ("truncdiv", truncated), ("fmod", a - truncated * b)):
            assert int(value(E.binary(op, x, y), *arrays)) == wrapped(want, d), op
    for op, want in (("lt", a < b), ("le", a <= b), ("eq", a == b), ("maximum", max(a, b)), ("minimum", min(a, b))):
        assert value(E.compare(op, x, y) if op in E.COMPARE else E.binary(op, x, y), *arrays) == want, op


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(-100, 100).filter(lambda b: abs(b) > 1e-3))
def test_float_division_rounds_as_pythons(a, b):
    x, y = E.input(0, float64), E.input(1, float64)
    assert value(E.rem(x, y), a, b) == pytest.approx(a % b, abs=1e-9) or abs(abs(value(E.rem(x, y), a, b) - a % b) - abs(b)) < 1e-9
    assert value(E.floordiv(x, y), a, b) == a // b and value(E.fmod(x, y), a, b) == math.fmod(a, b) and value(E.truncdiv(x, y), a, b) == math.trunc(a / b)


def test_values_at_the_edges():
    x, y = E.input(0, float32), E.input(1, float32)
    nan, inf = math.nan, math.inf
    for a, b in ((nan, 1.0), (1.0, nan)):
        assert math.isnan(value(E.maximum(x, y), a, b)) and math.isnan(value(E.minimum(x, y), a, b))
    assert value(x / y, np.float32(1), np.float32(0)) == inf and math.isnan(value(x - y, np.float32(inf), np.float32(inf)))
    assert value(E.round_(x), np.float32(2.5)) == 2 and value(E.round_(x), np.float32(-3.5)) == -4
    assert value(E.lgamma(x), np.float32(0)) == inf and value(E.lgamma(x), np.float32(-inf)) == inf and value(E.erf(x), np.float32(inf)) == 1
    i, j = E.input(0, int64), E.input(1, int64)
    assert value(E.pow_(i, j), 2, -1) == 0 and value(E.pow_(i, j), -1, -3) == -1 and value(E.pow_(i, j), 1, -5) == 1 and value(E.floordiv(i, j), 5, 0) == 0
    assert value(E.bitcast(x, int32), np.float32(1)) == 0x3F800000


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([float32, float64]), st.sampled_from(INTEGERS), st.floats(width=32))
def test_floats_become_integers_by_truncation(source, target, v):
    got = value(E.cast(E.input(0, source), target), source.np.type(v))
    if math.isfinite(v) and -(2.0 ** 63) <= v < 2.0 ** 63:
        assert int(got) == wrapped(math.trunc(v), target)
    assert bool(value(E.cast(E.input(0, source), bool_), source.np.type(v))) is (v != 0)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_casts_between_all_types_keep_small_numbers(source):
    a = np.array([0, 1, 5, 100]).astype(bool if source is bool_ else source.np if source is not bfloat16 else np.float32)
    for target in ALL:
        got = value(E.cast(E.input(0, source), target), a)
        want = a != 0 if target is bool_ else a.real.astype(np.float32 if target is bfloat16 else target.np)
        np.testing.assert_array_equal(got, want)


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_bfloat16_bits_round_to_the_nearest_even(values):
    a = np.array(values, np.float32)
    bits = interpret.narrow_bfloat16(a)
    back = interpret.widen_bfloat16(bits)
    for x, y in zip(a.tolist(), back.tolist(), strict=True):
        if math.isnan(x):
            assert math.isnan(y)
            continue
        low, high = (np.uint32(np.float32(x).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32),
                     np.uint32((int(np.float32(x).view(np.uint32)) & 0xFFFF0000) + 0x10000 & 0xFFFFFFFF).view(np.float32))
        assert y in (low, high) or math.isinf(y)
        if math.isfinite(y) and math.isfinite(float(low)) and math.isfinite(float(high)):
            assert abs(float(y) - x) <= min(abs(float(low) - x), abs(float(high) - x))


def addresses(*arrays):
    return [a.ctypes.data for a in arrays]


def steps(a):
    return tuple(s // a.itemsize for s in a.strides)


def test_maps_over_strides_with_numbers_and_coordinates():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    row = np.array([1, 2, 3, 4], np.int32)
    out = np.zeros((4, 3), np.float64).T
    e = E.cast(E.input(0, float32) * E.input(1, int32) + E.scalar(0, float32) + E.coord(0) * 100 + E.coord(-1) * 1000, float64)
    p = Map((e,), (float32, int32), (float32,))
    interpret.run(p, (3, 4), (steps(out), steps(x), (0, 1)), *addresses(out, x, row), 0.5)
    i, j = np.mgrid[:3, :4]
    np.testing.assert_array_equal(out, x * row + 0.5 + i * 100 + j * 1000)
    assert price(p, (3, 4), (steps(out), steps(x), (0, 1)))[0] == 12 * 8 + 12 * 4 + 4 * 4


def test_maps_read_everything_before_they_write():
    x = np.arange(5.0)
    p = Map((E.input(0, float64) + 1.0,), (float64,))
    interpret.run(p, (4,), ((1,), (1,)), x.ctypes.data + 8, x.ctypes.data)
    assert x.tolist() == [0, 1, 2, 3, 4]
    interpret.run(p, (0,), ((1,), (1,)), 0, 0)  # nothing to do, nothing touched


@pytest.mark.parametrize("mode,want", [("set", [3, 1, 4]), ("add", [4, 1, 4]), ("mul", [0, 0, 0]), ("max", [3, 1, 4]), ("min", [0, 0, 0])])
def test_scattered_values_collide_in_order(mode, want):
    out, source, at = np.zeros(3), np.array([1.0, 1.0, 3.0, 4.0]), np.array([0, 1, 0, 2])
    p = Map((E.input(0, float64),), (float64, int64), targets=((mode, E.input(1, int64)),))
    interpret.run(p, (4,), ((0,), (1,), (1,)), *addresses(out, source, at))
    assert out.tolist() == want


def test_gathered_elements():
    table, at, out = np.arange(10.0) * 10, np.array([3, 0, 9]), np.zeros(3)
    p = Map((E.gather(0, E.input(1, int64), float64),), (float64, int64))
    interpret.run(p, (3,), ((1,), (), (1,)), *addresses(out, table, at))
    assert out.tolist() == [30, 0, 90]


def test_reductions_and_their_empty_results():
    x = np.array([[3.0, 1.0, 3.0], [-1.0, math.nan, 5.0]])
    e = E.input(0, float64)
    cases = [("sum", [7, math.nan]), ("prod", [9, math.nan]), ("max", [3, math.nan]), ("min", [1, math.nan])]
    for how, want in cases:
        out = np.zeros(2)
        interpret.run(Reduce((e,), (how,), (E.acc(0, float64),), (float64,)), (2, 3), ((1,), (3, 1)), *addresses(out, x))
        np.testing.assert_array_equal(out, want)
    for how, want in (("argmax", [0, 1]), ("argmin", [1, 1])):
        out = np.zeros(2, np.int64)
        interpret.run(Reduce((e,), (how,), (E.acc(1, int64),), (float64,)), (2, 3), ((1,), (3, 1)), *addresses(out, x))
        assert out.tolist() == want
    for how, want in (("sum", 0), ("prod", 1), ("max", -math.inf), ("min", math.inf)):
        out = np.full(2, 9.0)
        interpret.run(Reduce((e,), (how,), (E.acc(0, float64),), (float64,)), (2, 0), ((1,), (0, 1)), *addresses(out, x))
        assert out.tolist() == [want, want]
    truth = np.array([[True, False], [True, True]])
    for how, want in (("and", [False, True]), ("or", [True, True]), ("sum", [True, True])):
        out = np.zeros(2, bool)
        interpret.run(Reduce((E.input(0, bool_),), (how,), (E.acc(0, bool_),), (bool_,)), (2, 2), ((1,), (2, 1)), *addresses(out, truth))
        assert out.tolist() == want
    out = np.zeros((), np.float64)  # several accumulators, finished together: a variance
    p = Reduce((e, e * e), ("sum", "sum"), (E.acc(1, float64) / 6.0 - E.acc(0, float64) * E.acc(0, float64) / 36.0,), (float64,))
    y = np.arange(6.0)
    interpret.run(p, (2, 3), ((), (3, 1)), *addresses(out, y))
    assert float(out) == pytest.approx(y.var())


def test_rows_are_stages_that_see_what_came_before():
    x = np.random.default_rng(0).normal(size=(3, 5))
    out, top = np.zeros((3, 5)), np.zeros(3)
    e = E.input(0, float64)
    high, total = E.acc(0, float64), E.acc(1, float64)
    p = Rows((("reduce", "max", e), ("reduce", "sum", E.exp(e - high)), ("map", 0, E.exp(e - high) / total), ("row", 1, high)), (float64,))
    interpret.run(p, (3, 5), ((5, 1), (1, 0), (5, 1)), *addresses(out, top, x))
    np.testing.assert_allclose(out, np.exp(x) / np.exp(x).sum(1, keepdims=True))
    np.testing.assert_array_equal(top, x.max(1))


@pytest.mark.parametrize("reverse", [False, True])
def test_scans(reverse):
    x = np.array([[1.0, 3.0, 3.0, 2.0], [4.0, math.nan, 5.0, 6.0]])
    rows = x[:, ::-1] if reverse else x
    for how, f in (("sum", np.cumsum), ("prod", np.cumprod), ("logsumexp", lambda a, axis: np.logaddexp.accumulate(a, axis))):
        out = np.zeros((2, 4))
        interpret.run(Scan(E.input(0, float64), how, (E.acc(0, float64),), (float64,), (), reverse), (2, 4), ((4, 1), (4, 1)), *addresses(out, x))
        with np.errstate(invalid="ignore"):
            want = f(rows, axis=1)
        np.testing.assert_allclose(out, want[:, ::-1] if reverse else want)
    out, at = np.zeros((2, 4)), np.zeros((2, 4), np.int64)
    p = Scan(E.input(0, float64), "max", (E.acc(0, float64), E.acc(1, int64)), (float64,), (), reverse)
    interpret.run(p, (2, 4), ((4, 1),) * 3, *addresses(out, at, x))
    want = np.maximum.accumulate(rows, 1)
    np.testing.assert_array_equal(out, want[:, ::-1] if reverse else want)
    assert at.tolist() == ([[1, 1, 2, 3], [1, 1, 3, 3]] if reverse else [[0, 1, 2, 2], [0, 1, 1, 1]])


def test_memory_is_seen_where_it_lies_and_kept_alive():
    a = np.arange(6, dtype=np.float16)
    seen = interpret.memory(a.ctypes.data, (2, 3), (3, 1), float16, a)
    seen[1, 2] = 50
    assert a[5] == 50 and interpret.memory(0, (0, 3), (3, 1), float32).shape == (0, 3)
    assert interpret.memory(a.ctypes.data, (2,), (1,), bfloat16).dtype == np.uint16 and complex64.np.itemsize == 8


def test_unknown_primitives_are_named():
    with pytest.raises(NotImplementedError, match="'strange'"):
        value(E.make("strange", float32, (E.input(0, float32),)), np.float32(1))
