"""Reductions compiled by LLVM give what the NumPy interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._core.dtypes import (
    ALL,
    bfloat16,
    bool_,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret, native
from flambeau._core.kernels.llvm import prepare
from flambeau._core.kernels.programs import COMBINE, Reduce

REAL = [d for d in ALL if not d.is_complex]


def elements(a: np.ndarray) -> tuple[int, ...]:
    return tuple(s // a.itemsize for s in a.strides)


def launch(prepare_, program, domain, outs, ins, scalars=()) -> None:
    p = prepare_(program, domain, tuple(elements(a) for a in (*outs, *ins)))
    work = np.full(p.workspace, 0xFF, np.uint8)
    space = [work.ctypes.data] if p.workspace else []
    p.entry(*(a.__array_interface__["data"][0] for a in (*outs, *ins)), *space, *scalars)


def values(d: dtype, shape, rng: np.random.Generator, special: bool = False) -> np.ndarray:
    n = int(np.prod(shape))
    if d is bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if d.kind in "ui":
        info = np.iinfo(d.np)
        return rng.integers(info.min, info.max, shape, dtype=d.np, endpoint=True) if special else rng.integers(
            0, 5, shape).astype(d.np)
    out = (rng.integers(-8, 9, n) / 4).astype(np.float32)
    if special:
        at = rng.random(n) < 0.05
        out[at] = rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32), n)[at]
    out = out.reshape(shape)
    return interpret.narrow_bfloat16(out) if d is bfloat16 else out.astype(d.np)


def strided(base: np.ndarray, how: int) -> np.ndarray:
    """The same numbers behind other strides: 0 as they are, 1 with gaps, 2 permuted, 3 backwards."""
    if how == 1 and base.ndim:
        wide = np.zeros(tuple(2 * n for n in base.shape), base.dtype)
        view = wide[tuple(slice(0, 2 * n, 2) for n in base.shape)]
    elif how == 2:
        view = np.zeros(base.shape[::-1], base.dtype).transpose()
    elif how == 3 and base.ndim:
        view = np.zeros_like(base)[::-1]
    else:
        return base
    view[...] = base
    return view


def check(how: str, d: dtype, a: np.ndarray, kept: int, rtol: float = 0.0, fold=lambda x: x, out_how: int = 0) -> None:
    """`a` reduced over its axes from `kept` on, beside the interpreter."""
    e = fold(E.input(0, d))
    posts = (E.acc(0, e.dtype), E.acc(1, int64)) if how.startswith("arg") else (E.acc(0, e.dtype),)
    program = Reduce((e,), (how,), posts, (d,))
    outs = [strided(np.ones(a.shape[:kept], p.dtype.np), out_how) for p in posts]
    again = [np.ones(a.shape[:kept], p.dtype.np) for p in posts]
    launch(prepare, program, a.shape, outs, [a])
    with np.errstate(all="ignore"):
        launch(interpret.prepare, program, a.shape, again, [a])
    for got, want, p in zip(outs, again, posts, strict=True):
        np.testing.assert_allclose(interpret.load(got, p.dtype), interpret.load(want, p.dtype), rtol=rtol, atol=rtol)


SHAPES = [((5,), 0), ((1000,), 0), ((3, 7), 1), ((100, 9), 1), ((40, 300), 1), ((4, 33, 5), 2), ((6, 5, 7, 8), 2), ((), 0),
          ((1, 1), 1), ((17, 1), 1), ((1, 70), 1), ((70, 1, 3), 1)]


@pytest.mark.parametrize("how", COMBINE)
@pytest.mark.parametrize("d", REAL, ids=str)
def test_every_type(how: str, d: dtype) -> None:
    rng = np.random.default_rng(1)
    for shape, kept in SHAPES:
        special = how not in ("sum", "prod") and not (how in ("and", "or") and d.kind == "f")
        a = values(d, shape, rng, special)
        if how in ("and", "or") and d.kind == "f":
            check(how, d, a, kept, fold=lambda x: E.cast(x, bool_))
            continue
        if how == "prod" and d.kind == "f":
            a = np.where(rng.random(shape) < 0.9, d.np.type(1) if d is not bfloat16 else np.uint16(0x3F80), a).astype(d.np)
        # sums of quarters are exact in float32, and nearly so in 16 bits
        check(how, d, a, kept, {"float16": 2e-2, "bfloat16": 1e-1}.get(d.name, 1e-5 if d.kind == "f" else 0.0))


@settings(max_examples=120, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.data())
def test_any_axes_and_strides(shape: list[int], data) -> None:
    kept = data.draw(st.integers(0, len(shape)))
    how = data.draw(st.sampled_from(COMBINE))
    d = data.draw(st.sampled_from([float32, int64, uint8, float64, bool_]))
    order = data.draw(st.permutations(range(len(shape))))
    a = strided(values(d, shape, np.random.default_rng(data.draw(st.integers(0, 99)))), data.draw(st.integers(0, 3)))
    a = a.transpose(order)
    if data.draw(st.booleans()):
        a = np.broadcast_to(a[:1], a.shape)
    fold = (lambda x: E.cast(x, bool_)) if how in ("and", "or") else lambda x: x
    if how == "prod" and d.kind == "f":
        how = "sum"
    check(how, d, a, kept, fold=fold, out_how=data.draw(st.integers(0, 3)))


@pytest.mark.parametrize("how", ["sum", "max", "argmax", "argmin"])
@pytest.mark.parametrize(("shape", "kept"), [((300_000,), 0), ((3, 150_000), 1), ((40_000, 3), 0), ((2, 40_000, 5), 1),
                                             ((700, 500), 0), ((9, 300, 301), 1)])
def test_long_reductions_in_chunks(how: str, shape: tuple[int, ...], kept: int) -> None:
    rng = np.random.default_rng(2)
    a = rng.integers(-50, 51, shape).astype(np.float32)
    check(how, float32, a, kept)
    if kept == 0 and len(shape) == 2:
        check(how, float32, np.ascontiguousarray(a.T).T, kept)
    moved = np.moveaxis(np.ascontiguousarray(np.moveaxis(a, kept, -1)), -1, kept) if len(shape) > 1 else a
    check(how, float32, moved, kept)
    if len(shape) == 2:
        check(how, float32, a.T, 1)


def test_long_sums_are_accurate() -> None:
    a = np.random.default_rng(3).random(5_000_000).astype(np.float32)
    program = Reduce((E.input(0, float32),), ("sum",), (E.acc(0, float32),), (float32,))
    for shape, kept in (((5_000_000,), 0), ((5, 1_000_000), 1), ((1_000_000, 5), 0)):
        x = a.reshape(shape)
        axes = tuple(range(kept, x.ndim))
        for y, ax in ((x, axes), (x.T, (0,)) if kept else (x, axes)):
            y = y if ax == axes else np.moveaxis(y, 0, -1)
            out = np.zeros(y.shape[:kept], np.float32)
            launch(prepare, program, y.shape, [out], [y])
            want = y.sum(axes, dtype=np.float64)
            assert (np.abs(out - want) <= 3e-7 * want).all()


@pytest.mark.parametrize("d", [float16, float32, float64, bfloat16], ids=str)
def test_nan_wins_and_the_first_place_counts(d: dtype) -> None:
    for n in (5, 40, 1000, 200_000):
        for nan_at in ([], [n // 2], [n // 3, n - 1]):
            x = np.zeros(n, np.float32)
            x[n // 4] = x[-1] = 3.0
            x[nan_at] = np.nan
            a = interpret.narrow_bfloat16(x) if d is bfloat16 else x.astype(d.np)
            for how in ("max", "argmax", "argmin", "min"):
                check(how, d, a, 0)
    for v in (np.inf, -np.inf, np.nan, 7.0):
        a = np.full((33, 20), v, np.float32)
        check("argmax", float32, a, 1)
        check("argmin", float32, a.T, 1)
        check("argmax", float32, a, 0)


def test_extremes_of_integers() -> None:
    for d in (int8, int32, uint8, int64):
        info = np.iinfo(d.np)
        for v in (info.min, info.max):
            check("argmax", d, np.full((4, 50), v, d.np), 1)
            check("argmin", d, np.full((4, 50), v, d.np), 1)


def test_several_accumulators_posts_and_numbers() -> None:
    x = E.input(0, float32)
    n = E.scalar(0, float32)
    mean = E.acc(0, float32) / n
    program = Reduce((x, x * x, x), ("sum", "sum", "argmax"),
                     (mean, E.acc(1, float32) / n - mean * mean, E.acc(3, int64), E.acc(2, float32)), (float32,), (float32,))
    rng = np.random.default_rng(4)
    for shape, kept in (((20, 30), 1), ((20, 500_000 // 20), 0), ((3, 20_001, 4), 1), ((50, 7), 1)):
        a = rng.integers(-3, 4, shape).astype(np.float32)
        for y in (a, strided(a, 2)):
            outs = [np.zeros(shape[:kept], p.dtype.np) for p in program.posts]
            again = [np.zeros(shape[:kept], p.dtype.np) for p in program.posts]
            size = float(np.prod(shape[kept:]))
            launch(prepare, program, shape, outs, [y], [size])
            launch(interpret.prepare, program, shape, again, [y], [size])
            for got, want in zip(outs, again, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_coordinates_and_gathers() -> None:
    table = np.arange(100, dtype=np.float32)
    index = E.cast(E.coord(0) * 10 + E.coord(-1), int64)
    e = E.gather(1, index, float32) * E.input(0, float32)
    program = Reduce((e, E.where(E.coord(1) <= E.coord(2), E.input(0, float32), 0.0)), ("sum", "max"),
                     (E.acc(0, float32), E.acc(1, float32)), (float32, float32))
    rng = np.random.default_rng(5)
    for shape in ((4, 5, 10), (4, 40, 10), (9, 20, 3)):
        a = rng.integers(0, 9, shape).astype(np.float32)
        for y in (a, strided(a, 2), strided(a, 1)):
            for kept in (0, 1, 2):
                outs = [np.zeros(shape[:kept], np.float32) for _ in range(2)]
                again = [np.zeros(shape[:kept], np.float32) for _ in range(2)]
                nowhere = np.lib.stride_tricks.as_strided(table, shape, (0, 0, 0))
                launch(prepare, program, shape, outs, [y, nowhere])
                launch(interpret.prepare, program, shape, again, [y, nowhere])
                for got, want in zip(outs, again, strict=True):
                    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(3, 150_000), (5, 2, 70_000), (3, 20_000, 2)], ids=str)
def test_coordinates_of_kept_axes_in_chunks(shape: tuple[int, ...]) -> None:
    e = E.input(0, float32) * E.cast(E.coord(0) + 1, float32)
    program = Reduce((e,), ("sum",), (E.acc(0, float32),), (float32,))
    a = np.random.default_rng(7).integers(0, 3, shape).astype(np.float32)
    for y in (a, placed_last(a)):
        out, want = np.zeros(shape[:1], np.float32), np.zeros(shape[:1], np.float32)
        launch(prepare, program, shape, [out], [y])
        launch(interpret.prepare, program, shape, [want], [y])
        np.testing.assert_array_equal(out, want)


def placed_last(a: np.ndarray) -> np.ndarray:
    """The same numbers, neighbours along the first axis side by side in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 0, -1)), -1, 0)


@pytest.mark.parametrize("how", COMBINE)
def test_nothing_to_reduce(how: str) -> None:
    d = bool_ if how in ("and", "or") else float32
    for shape, kept in (((0,), 0), ((3, 0), 1), ((0, 3), 1), ((2, 0, 4), 1)):
        check(how, d, np.zeros(shape, d.np), kept)


def test_the_same_bits_whatever_the_threads() -> None:
    a = np.random.default_rng(6).standard_normal((1500, 1700)).astype(np.float32)
    program = Reduce((E.input(0, float32),), ("sum",), (E.acc(0, float32),), (float32,))
    before = native.get_num_threads()
    try:
        for kept, y in ((0, a), (1, a), (1, a.T)):
            got = []
            for threads in (1, 2, 5):
                native.set_num_threads(threads)
                out = np.zeros(y.shape[:kept], np.float32)
                launch(prepare, program, y.shape, [out], [y])
                got.append(out.tobytes())
            assert got[0] == got[1] == got[2]
    finally:
        native.set_num_threads(before)


@pytest.mark.parametrize("how", ["sum", "max", "argmin"])
@pytest.mark.parametrize("d", [float32, float64, int64, bfloat16], ids=str)
def test_short_rows_joined_side_by_side_have_the_bits_of_rows_alone(how: str, d: dtype) -> None:
    rng = np.random.default_rng(17)
    x = E.cast(E.input(0, d), float32) if d is bfloat16 else E.input(0, d)
    acc = E.acc(1 if how.startswith("arg") else 0, int64 if how.startswith("arg") else x.dtype)
    program = Reduce((x,), (how,), (acc,), (d,))
    for rows, length in ((17, 11), (300, 16), (41, 30)):
        a = rng.standard_normal((rows, length)).astype(np.float32)
        a = interpret.narrow_bfloat16(a) if d is bfloat16 else (a * 1000).astype(d.np)
        a[5, length // 2] = a[5, 0]
        together, alone = np.zeros(rows, acc.dtype.np), np.zeros(rows, acc.dtype.np)
        launch(prepare, program, a.shape, [together], [a])
        for k in range(rows):
            launch(prepare, program, (1, length), [alone[k:k + 1]], [a[k:k + 1]])
        assert together.tobytes() == alone.tobytes()


def test_gaps_between_elements_of_short_rows() -> None:
    rng = np.random.default_rng(18)
    for step, d in ((2, float32), (3, float64), (4, int32), (2, int8)):
        a = values(d, (50, 9 * step), rng)[:, ::step]
        program = Reduce((E.cast(E.input(0, d), float64),), ("sum",), (E.acc(0, float64),), (d,))
        out = np.zeros(50)
        launch(prepare, program, a.shape, [out], [a])
        np.testing.assert_allclose(out, a.astype(np.float64).sum(1), rtol=1e-12)
