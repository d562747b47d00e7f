"""Transcendental functions: errors in units of the last place, against results in more precision, and special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, dtype, float16, float32, float64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret
from flambeau._core.kernels.llvm import prepare
from flambeau._core.kernels.programs import Map

RNG = np.random.default_rng(11)
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def the_same_numbers() -> None:
    """Whatever ran before."""
    RNG.bit_generator.state = START


def apply(op: str, d: dtype, *args: np.ndarray) -> np.ndarray:
    out = np.zeros(args[0].shape, d.np)
    inputs = [E.input(k, d) for k in range(len(args))]
    e = E.unary(op, inputs[0]) if len(args) == 1 else E.binary(op, *inputs)
    p = prepare(Map((e,), (d,) * len(args)), out.shape, ((1,),) * (1 + len(args)))
    args = tuple(np.ascontiguousarray(a, d.np) for a in args)
    p.entry(*(a.ctypes.data for a in (out, *args)))
    return out


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors in units of the last place of the exact result `want` (in longer precision)."""
    with np.errstate(over="ignore"):
        near = want.astype(got.dtype)
    assert (np.isnan(near) == np.isnan(got)).all()
    finite = np.isfinite(near) & np.isfinite(got)
    # an infinity on one side only is within a rounding of the other if it is the neighbour of the largest number
    biggest = np.finfo(got.dtype).max
    for a, b in ((near, got), (got, near)):
        odd = np.isinf(a) & ~np.isnan(a) & ~np.isinf(b)
        assert (np.abs(b[odd]) == biggest).all()
    step = np.spacing(np.abs(near[finite])).astype(want.dtype)
    return np.abs(got[finite].astype(want.dtype) - want[finite]) / step


def _every(low: float, high: float, n: int = 200_000) -> np.ndarray:
    """Numbers of both signs between the magnitudes, spread evenly over the exponents."""
    x = np.exp2(RNG.uniform(math.log2(low), math.log2(high), n))
    return np.concatenate((x, -x))


def _positive(low: float, high: float) -> np.ndarray:
    return np.abs(_every(low, high))


_double = np.vectorize
TWICE: dict[str, Any] = {
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "erf": lambda x: _double(math.erf)(x), "erfc": lambda x: _double(math.erfc)(x)}
SINGLE = [
    ("exp", lambda: _every(1e-9, 110), 1.0), ("exp2", lambda: _every(1e-9, 155), 1.0), ("expm1", lambda: _every(1e-40, 95), 1.0),
    ("log", lambda: _positive(1e-45, 3e38), 1.0), ("log", lambda: 1 + _every(1e-7, 0.4), 1.0), ("log2", lambda: _positive(1e-45, 3e38), 1.0),
    ("log2", lambda: 1 + _every(1e-7, 0.4), 1.0), ("log10", lambda: _positive(1e-45, 3e38), 1.0), ("log10", lambda: 1 + _every(1e-7, 0.4), 1.0),
    ("log1p", lambda: _every(1e-40, 0.999999), 1.5), ("log1p", lambda: _positive(0.1, 3e38), 1.5), ("tanh", lambda: _every(1e-40, 12), 1.5),
    ("sin", lambda: _every(1e-40, 3e4), 1.5), ("cos", lambda: _every(1e-40, 3e4), 1.5), ("tan", lambda: _every(1e-40, 3e4), 1.2),
    ("sin", lambda: _every(3e4, 3e38, 3000), 1.5), ("cos", lambda: _every(3e4, 3e38, 3000), 1.5), ("tan", lambda: _every(3e4, 3e38, 3000), 1.5),
    ("erf", lambda: _every(1e-40, 5), 1.5), ("erfc", lambda: _every(1e-40, 10.5), 0.6), ("sinh", lambda: _every(1e-40, 95), 0.6),
    ("cosh", lambda: _every(1e-40, 95), 0.6), ("asinh", lambda: _every(1e-40, 3e38), 0.6), ("acosh", lambda: _positive(1, 3e38), 0.6),
    ("atanh", lambda: _every(1e-40, 0.9999999), 0.6), ("asin", lambda: _every(1e-40, 1), 0.65), ("acos", lambda: _every(1e-40, 1), 0.65),
    ("atan", lambda: _every(1e-40, 3e38), 1.2)]


@pytest.mark.parametrize(("op", "x", "limit"), SINGLE, ids=[f"{k}-{op}" for k, (op, _, _) in enumerate(SINGLE)])
def test_single(op: str, x: Callable[[], np.ndarray], limit: float) -> None:
    x = x().astype(np.float32)
    with np.errstate(all="ignore"):
        want = TWICE[op](x.astype(np.float64))
    assert ulps(apply(op, float32, x), want).max() <= limit


LONG = [
    ("exp", lambda: _every(1e-18, 800), 1.5), ("exp2", lambda: _every(1e-18, 1100), 1.5), ("expm1", lambda: _every(1e-300, 720), 1.2),
    ("log", lambda: _positive(5e-324, 1e308), 1.0), ("log", lambda: 1 + _every(1e-15, 0.4), 1.0), ("log2", lambda: _positive(5e-324, 1e308), 1.5),
    ("log2", lambda: 1 + _every(1e-15, 0.4), 1.5), ("log10", lambda: _positive(5e-324, 1e308), 1.5), ("log1p", lambda: _every(1e-300, 0.999999), 1.5),
    ("log1p", lambda: _positive(0.1, 1e300), 1.5), ("tanh", lambda: _every(1e-300, 25), 1.5), ("sin", lambda: _every(1e-300, 1e6), 1.5),
    ("cos", lambda: _every(1e-300, 1e6), 1.5), ("tan", lambda: _every(1e-300, 1e6), 1.2), ("sin", lambda: _every(1e6, 1e300, 3000), 1.5),
    ("sinh", lambda: _every(1e-300, 715), 1.2), ("cosh", lambda: _every(1e-300, 715), 1.2), ("asinh", lambda: _every(1e-300, 1e308), 1.4),
    ("asinh", lambda: RNG.uniform(-3, 3, 200_000), 1.4), ("acosh", lambda: _positive(1, 1e308), 1.2), ("acosh", lambda: 1 + _positive(1e-16, 9), 1.8),
    ("atanh", lambda: _every(1e-300, 1), 1.2), ("atanh", lambda: 1 - _positive(1e-16, 1), 1.2), ("asin", lambda: _every(1e-300, 1), 0.8),
    ("asin", lambda: RNG.uniform(-1, 1, 200_000), 0.8), ("acos", lambda: _every(1e-300, 1), 0.8), ("acos", lambda: RNG.uniform(-1, 1, 200_000), 0.8),
    ("atan", lambda: _every(1e-300, 1e300), 0.8), ("atan", lambda: RNG.uniform(-3, 3, 200_000), 0.8)]


@pytest.mark.parametrize(("op", "x", "limit"), LONG, ids=[f"{k}-{op}" for k, (op, _, _) in enumerate(LONG)])
def test_double(op: str, x: Callable[[], np.ndarray], limit: float) -> None:
    x = x()
    with np.errstate(all="ignore"):
        want = TWICE[op](x.astype(np.longdouble))
    assert ulps(apply(op, float64, x), want).max() <= limit


def test_erf_in_double() -> None:
    x = _every(1e-300, 7)
    assert ulps(apply("erf", float64, x), _double(math.erf)(x)).max() <= 2.5


def test_erfc_in_double() -> None:
    x = np.concatenate((_every(1e-300, 1, 5000), RNG.uniform(-7, 26.5, 50000)))
    want = np.array([math.erfc(v) for v in x.tolist()])
    assert ulps(apply("erfc", float64, x), want).max() <= 3  # of which the reference has two
    assert apply("erfc", float64, np.array([27.5, 1e300, np.inf, -30.0])).tolist() == [0.0, 0.0, 0.0, 2.0]


def test_lgamma_in_single_is_rounded_once() -> None:
    x = np.concatenate((_every(1e-40, 1e36, 5000), RNG.uniform(-12, 12, 20000), [1 - 6e-8, 1 + 1.2e-7, 2 - 1.2e-7, 2 + 2.4e-7, -2.5])).astype(np.float32)
    x = x[(x > 0) | (x != np.floor(x))]
    with np.errstate(over="ignore"):
        want = _double(lambda v: math.lgamma(v) if abs(v) < 1e30 else v * (math.log(v) - 1))(x.astype(np.float64))
    off = ulps(apply("lgamma", float32, x), want)
    assert off[(x > 0) | (np.abs(want) > 1e-4)].max() <= 0.6
    ends = np.array([1.0, 2.0, 0.0, -0.0, -1.0, -3.0, -4e9, np.inf, -np.inf, 3e38, np.nan], np.float32)
    np.testing.assert_array_equal(apply("lgamma", float32, ends), np.array([0, 0, *[np.inf] * 8, np.nan], np.float32))


@pytest.mark.parametrize(("d", "tolerance"), [(float32, 1e-6), (float64, 1e-12)], ids=str)
def test_lgamma(d: dtype, tolerance: float) -> None:
    x = np.concatenate((_every(1e-10, 1, 5000), _positive(1, 1e4)[:5000])).astype(d.np)
    np.testing.assert_allclose(apply("lgamma", d, x), _double(math.lgamma)(x.astype(np.float64)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("d", [float32, float64], ids=str)
@pytest.mark.parametrize("op", sorted(TWICE))
def test_special_values(op: str, d: dtype) -> None:
    tiny, least, most = np.finfo(d.np).tiny, np.finfo(d.np).smallest_subnormal, np.finfo(d.np).max
    x = np.array([0.0, 1.0, np.inf, np.nan, 2.0, 0.5, tiny, least, most, 1e4], d.np)
    x = np.concatenate((x, -x)).astype(d.np)
    got = apply(op, d, x)
    with np.errstate(all="ignore"):
        if op == "erf":
            want = np.array([math.erf(v) for v in x.tolist()])
        elif op == "erfc":
            want = np.array([math.erfc(v) for v in x.tolist()])
        else:
            want = TWICE[op](x.astype(np.longdouble if d is float64 else np.float64))
        near = want.astype(d.np)
    assert (ulps(got, want) <= 2).all()
    assert (np.isinf(got) == np.isinf(near)).all()
    known = ~np.isnan(near)
    assert (np.signbit(got[known]) == np.signbit(near[known])).all(), (x[known], got[known], near[known])


PAIRS = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e30, -1e30, 1e-40, 4.0])


@pytest.mark.parametrize("d", [float32, float64], ids=str)
@pytest.mark.parametrize(("op", "reference"), [("pow", np.power), ("atan2", np.arctan2), ("hypot", np.hypot),
                                               ("fmod", np.fmod), ("copysign", np.copysign)])
def test_special_pairs(op: str, reference: Any, d: dtype) -> None:
    a, b = (v.ravel() for v in np.meshgrid(PAIRS, PAIRS))
    a, b = a.astype(d.np), b.astype(d.np)
    got = apply(op, d, a, b)
    with np.errstate(all="ignore"):
        want = reference(a.astype(np.longdouble if d is float64 else np.float64), b).astype(d.np)
    np.testing.assert_allclose(got, want, rtol=1e-6 if d is float32 else 1e-15, atol=0)
    known = ~np.isnan(want)
    assert (np.signbit(got[known]) == np.signbit(want[known])).all()


@pytest.mark.parametrize(("op", "reference"), [("pow", np.power), ("atan2", np.arctan2), ("hypot", np.hypot)])
def test_pairs_in_single(op: str, reference: Any) -> None:
    a, b = _every(1e-20, 1e20).astype(np.float32), _every(1e-20, 1e20).astype(np.float32)
    if op == "pow":
        a, b = np.abs(_every(1e-10, 1e10)).astype(np.float32), _every(1e-3, 12).astype(np.float32)
        a[:1000] = 1 + RNG.uniform(-1e-3, 1e-3, 1000)
        b[:1000] = RNG.uniform(-8e4, 8e4, 1000)
    RNG.shuffle(b)
    with np.errstate(all="ignore"):
        want = reference(a.astype(np.float64), b.astype(np.float64))
    assert ulps(apply(op, float32, a, b), want).max() <= 0.6


@pytest.mark.parametrize(("op", "reference"), [("atan2", np.arctan2), ("hypot", np.hypot)])
def test_pairs_in_double(op: str, reference: Any) -> None:
    # both far apart and near one another, whose sums and squares overflow or vanish
    a, b = _every(1e-307, 1e308), _every(1e-307, 1e308)
    RNG.shuffle(b)
    near = a * RNG.uniform(0.4, 2.1, a.size)
    for y, x in ((a, b), (a, near), (_every(1e-3, 1e3), np.roll(_every(1e-3, 1e3), 1)), (a * 2.0 ** -40, near * 2.0 ** -40)):
        with np.errstate(all="ignore"):
            want = reference(y.astype(np.longdouble), x.astype(np.longdouble))
        # what is below the normal numbers has fewer digits
        usual = np.abs(want) > np.finfo(np.float64).tiny
        assert ulps(apply(op, float64, y[usual], x[usual]), want[usual]).max() <= 1.2


@pytest.mark.parametrize("d", [float32, float64], ids=str)
def test_remainders_are_exact(d: dtype) -> None:
    a, b = _every(1e-30, 1e30).astype(d.np), _every(1e-30, 1e30).astype(d.np)
    RNG.shuffle(b)
    whole = RNG.integers(-1000, 1000, a.size).astype(d.np)
    near = np.nextafter(b * whole, np.zeros_like(b))
    tiny = (RNG.integers(-50, 50, a.size) * np.finfo(d.np).smallest_subnormal).astype(d.np)
    info = np.finfo(d.np)
    low, high = info.smallest_subnormal, info.max
    ends = np.array([low, 3 * low, 77 * low, info.tiny, 5 * info.tiny, 0.1, 1, 3, 2.0 ** 23, high / 2, high / 3, high, np.inf, np.nan, 0], d.np)
    ends, others = (e.ravel() for e in np.meshgrid(ends, np.concatenate((ends, -ends))))
    with np.errstate(all="ignore"):
        for x, y in ((a, b), (others, ends), (ends, others), (b * whole, b), (near, b),
                     (whole, RNG.uniform(0.1, 3, a.size).astype(d.np)), (tiny, np.roll(tiny, 1))):
            want = np.fmod(x, y)
            got = apply("fmod", d, x, y)
            np.testing.assert_array_equal(got, want)
            known = ~np.isnan(want)
            assert (np.signbit(got[known]) == np.signbit(want[known])).all()


@pytest.mark.parametrize("d", [float16, bfloat16], ids=str)
@pytest.mark.parametrize("op", ["exp", "log", "tanh", "sin", "erf", "sinh", "atan"])
def test_every_number_of_16_bits(op: str, d: dtype) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits if d is bfloat16 else bits.view(np.float16)
    got = interpret.load(apply(op, d, x), d)
    with np.errstate(all="ignore"):
        want = TWICE[op](interpret.load(x, d).astype(np.float64)).astype(np.float32)
        want = interpret.widen_bfloat16(interpret.narrow_bfloat16(want)) if d is bfloat16 else want.astype(np.float16)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=2 ** -7 if d is bfloat16 else 2 ** -10,
                               atol=0 if d is bfloat16 else 6e-8)


def test_monotone() -> None:
    """Neighbouring arguments never give results in the wrong order."""
    for op, low, high in (("exp", -20.0, 20.0), ("tanh", 0.5, 0.8), ("erf", 0.8, 1.1), ("log", 0.5, 2.0)):
        start = np.float32(low)
        x = np.sort(np.concatenate((np.linspace(low, high, 100_000), start + np.arange(50_000) * np.spacing(start)))
                    ).astype(np.float32)
        steps = np.diff(apply(op, float32, x).astype(np.float64))
        spacing = np.spacing(np.abs(apply(op, float32, x[:-1])))
        assert (steps >= -1.01 * spacing).all()


@pytest.mark.parametrize("d", [float32, float64], ids=str)
def test_sides_of_choices_that_no_lane_takes(d) -> None:  # type: ignore[no-untyped-def]
    x = E.input(0, d)
    inner = E.where(x < -1.0, E.expm1(x), E.sin(x) / (x + 2.0))
    program = Map((E.where(x > 0.0, x, inner), E.where(E.isnan(x), x, E.log(abs(x) + 1.0) * inner)), (d,))
    rng = np.random.default_rng(1)
    for low, high in ((0.1, 1), (-1, -0.1), (-3, -2), (-3, 3)):
        for n in (1, 16, 33, 200):
            values = rng.uniform(low, high, n).astype(d.np)
            values[n // 2] = np.nan if n == 33 else values[n // 2]
            found = []
            for prepare_ in (prepare, interpret.prepare):
                outs = [np.zeros(n, d.np), np.zeros(n, d.np)]
                prepare_(program, (n,), ((1,), (1,), (1,))).entry(*(a.ctypes.data for a in (*outs, values)))
                found.append(outs)
            for got, want in zip(*found, strict=True):
                np.testing.assert_allclose(got, want, rtol=4 * np.finfo(d.np).eps)
