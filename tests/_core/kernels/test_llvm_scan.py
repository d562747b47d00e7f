"""Scans compiled by LLVM give what the NumPy interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._core.dtypes import bfloat16, bool_, dtype, float16, float32, float64, int32, int64, uint8
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret, native
from flambeau._core.kernels.llvm import prepare
from flambeau._core.kernels.programs import SCANS, Scan


def elements(a: np.ndarray) -> tuple[int, ...]:
    return tuple(s // a.itemsize for s in a.strides)


def launch(prepare_, program, domain, outs, ins, scalars=()) -> None:
    p = prepare_(program, domain, tuple(elements(a) for a in (*outs, *ins)))
    work = np.full(p.workspace, 0xFF, np.uint8)
    space = [work.ctypes.data] if p.workspace else []
    p.entry(*(a.__array_interface__["data"][0] for a in (*outs, *ins)), *space, *scalars)


def numbers(d: dtype, shape, rng: np.random.Generator) -> np.ndarray:
    if d is bool_:
        return rng.integers(0, 2, shape).astype(bool)
    a = rng.integers(0 if d is uint8 else -3, 4, shape)
    if d is bfloat16:
        return interpret.narrow_bfloat16(a.astype(np.float32))
    return a.astype(d.np)


def placed(a: np.ndarray, how: int) -> np.ndarray:
    """The same numbers behind other strides: 0 as they are, 1 with gaps, 2 permuted, 3 backwards."""
    if how == 1 and a.ndim:
        out = np.zeros(tuple(2 * n for n in a.shape), a.dtype)[tuple(slice(0, 2 * n, 2) for n in a.shape)]
    elif how == 2:
        out = np.zeros(a.shape[::-1], a.dtype).transpose()
    elif how == 3 and a.ndim:
        out = np.zeros(a.shape, a.dtype)[..., ::-1]
    else:
        return a
    out[...] = a
    return out


def check(how: str, d: dtype, a: np.ndarray, reverse: bool = False, out_how: int = 0, tolerance: float = 0.0) -> None:
    e = E.input(0, d)
    posts = (E.acc(0, d), E.acc(1, int64)) if how in ("max", "min") else (E.acc(0, d),)
    program = Scan(e, how, posts, (d,), (), reverse)
    outs = [placed(np.ones(a.shape, p.dtype.np), out_how) for p in posts]
    again = [np.ones(a.shape, p.dtype.np) for p in posts]
    launch(prepare, program, a.shape, outs, [a])
    with np.errstate(all="ignore"):
        launch(interpret.prepare, program, a.shape, again, [a])
    for got, want, p in zip(outs, again, posts, strict=True):
        np.testing.assert_allclose(interpret.load(got, p.dtype), interpret.load(want, p.dtype), rtol=tolerance, atol=tolerance)


SHAPES = [(1,), (5,), (16,), (1000,), (3, 7), (100, 9), (40, 300), (2, 33, 5), (17, 1), (1, 70)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("how", SCANS)
def test_scans(how: str, shape: tuple[int, ...], reverse: bool) -> None:
    rng = np.random.default_rng(1)
    for d in (float32, float64, int64, uint8, int32, bool_):
        if how == "logsumexp" and d.kind != "f":
            continue
        a = numbers(d, shape, rng)
        if how == "prod" and d.kind == "f":
            a = np.where(a > 2, a, 1).astype(d.np)
        check(how, d, a, reverse, tolerance={"logsumexp": 1e-5, "prod": 1e-6}.get(how, 0.0) if d.kind == "f" else 0.0)


@pytest.mark.parametrize("d", [float16, bfloat16], ids=str)
def test_scans_of_16_bits(d: dtype) -> None:
    for how in ("sum", "max", "min"):
        check(how, d, numbers(d, (6, 20), np.random.default_rng(2)))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4).filter(lambda s: np.prod(s) < 20_000), st.data())
def test_any_strides(shape: list[int], data) -> None:
    a = placed(numbers(float32, shape, np.random.default_rng(3)), data.draw(st.integers(0, 3)))
    a = a.transpose(data.draw(st.permutations(range(len(shape)))))
    if data.draw(st.booleans()):
        a = np.broadcast_to(a[:1], a.shape)
    check(data.draw(st.sampled_from(["sum", "max", "min"])), float32, a, data.draw(st.booleans()), data.draw(st.integers(0, 3)))


@pytest.mark.parametrize("length", [2, 7, 8, 13, 15, 16, 31, 32])
@pytest.mark.parametrize("how", SCANS)
def test_short_rows(how: str, length: int) -> None:
    test_scans(how, (67, length), False)
    test_scans(how, (67, length), True)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(300_000,), (3, 140_001), (5, 131_072)], ids=str)
def test_long_rows_in_pieces(shape: tuple[int, ...], reverse: bool) -> None:
    a = numbers(float32, shape, np.random.default_rng(4))
    check("sum", float32, a, reverse)
    check("sum", int64, a.astype(np.int64), reverse)
    a = np.random.default_rng(5).integers(0, 1000, shape).astype(np.int32)
    if shape != (5, 131_072):
        check("max", int32, a, reverse)
        check("min", int32, a, reverse)
    value = np.zeros(shape, np.float32)
    program = Scan(E.input(0, float32) * E.scalar(0, float32), "logsumexp", (E.acc(0, float32),), (float32,), (float32,), reverse)
    x = np.zeros(shape, np.float32)
    launch(prepare, program, shape, [value], [x], [0.0])
    want = np.log(np.arange(1, shape[-1] + 1))
    # each of the n / 16 steps to the end of a row rounds
    np.testing.assert_allclose(value, np.broadcast_to(want[::-1] if reverse else want, shape), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
def test_nan_and_infinities(reverse: bool) -> None:
    rng = np.random.default_rng(6)
    a = rng.choice(np.array([1, 2, np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32), (30, 40), p=[.3, .3, .02, .08, .1, .1, .1])
    for b in (a, placed(a, 2), a[:, :5]):
        check("max", float32, b, reverse)
        check("min", float32, b, reverse)
        check("logsumexp", float32, b, reverse, tolerance=1e-5)


def test_cumulative_sums_keep_the_sign_of_zero() -> None:
    for shape in ((40,), (30, 4)):
        a = np.full(shape, -0.0, np.float32)
        out = np.ones(shape, np.float32)
        launch(prepare, Scan(E.input(0, float32), "sum", (E.acc(0, float32),), (float32,)), shape, [out], [a])
        assert np.signbit(out).all()


def test_posts_numbers_and_coordinates() -> None:
    x = E.input(0, float32)
    e = E.cast(E.coord(-1) + E.coord(0), float32) * E.scalar(0, float32) + x
    program = Scan(e, "sum", (E.acc(0, float32) - e, E.cast(E.acc(0, float32), int64)), (float32,), (float32,))
    rng = np.random.default_rng(7)
    for shape in ((5, 50), (40, 6), (3, 150_000)):
        a = rng.integers(0, 2, shape).astype(np.float32)
        for y in (a, placed(a, 2)):
            scale = 0.0 if shape[1] > 1000 else 2.0  # so that every sum is exact
            outs = [np.zeros(shape, np.float32), np.zeros(shape, np.int64)]
            again = [np.zeros(shape, np.float32), np.zeros(shape, np.int64)]
            launch(prepare, program, shape, outs, [y], [scale])
            launch(interpret.prepare, program, shape, again, [y], [scale])
            for got, want in zip(outs, again, strict=True):
                np.testing.assert_array_equal(got, want)


def test_a_single_number() -> None:
    a, out, at = np.float32(3).reshape(()), np.zeros((), np.float32), np.ones((), np.int64)
    launch(prepare, Scan(E.input(0, float32), "max", (E.acc(0, float32), E.acc(1, int64)), (float32,)), (), [out, at], [a])
    assert (out, at) == (3, 0)


def test_nothing_to_scan() -> None:
    for shape in ((0,), (3, 0), (0, 4)):
        check("sum", float32, np.zeros(shape, np.float32))


def test_the_same_bits_whatever_the_threads() -> None:
    rng = np.random.default_rng(8)
    before = native.get_num_threads()
    program = Scan(E.input(0, float32), "sum", (E.acc(0, float32),), (float32,))
    try:
        for shape in ((400_000,), (300, 700)):
            a = rng.standard_normal(shape).astype(np.float32)
            got = []
            for threads in (1, 2, 5):
                native.set_num_threads(threads)
                out = np.zeros_like(a)
                launch(prepare, program, shape, [out], [a])
                got.append(out.tobytes())
            assert got[0] == got[1] == got[2]
            np.testing.assert_allclose(out, np.cumsum(a.astype(np.float64), -1), atol=1e-3)
    finally:
        native.set_num_threads(before)
