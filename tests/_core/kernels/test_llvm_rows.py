"""Row programs compiled by LLVM give what the NumPy interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._core.dtypes import bfloat16, bool_, dtype, float16, float32, float64, int32
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret, native
from flambeau._core.kernels.llvm import prepare
from flambeau._core.kernels.loops.rows import kept_value, passes_of
from flambeau._core.kernels.programs import Rows
from tests._core.kernels.row_programs import cross_entropy, layer_norm, layer_norm_backward


def elements(a: np.ndarray) -> tuple[int, ...]:
    return tuple(s // a.itemsize for s in a.strides)


def launch(prepare_, program, domain, outs, ins, scalars=()) -> None:
    p = prepare_(program, domain, tuple(elements(a) for a in (*outs, *ins)))
    p.entry(*(a.__array_interface__["data"][0] for a in (*outs, *ins)), *scalars)


def softmax(d: dtype) -> Rows:
    x = E.cast(E.input(0, d), float32) if d.itemsize < 4 else E.input(0, d)
    e = E.exp(x - E.acc(0, x.dtype))
    return Rows((("reduce", "max", x), ("reduce", "sum", e), ("map", 0, E.cast(e / E.acc(1, x.dtype), d))), (d,))


def log_softmax(d: dtype) -> Rows:
    x = E.input(0, d)
    y = x - E.acc(0, d)
    return Rows((("reduce", "max", x), ("reduce", "sum", E.exp(y)), ("map", 0, y - E.log(E.acc(1, d)))), (d,))


def softmax_backward(d: dtype) -> Rows:
    y, g = E.input(0, d), E.input(1, d)
    return Rows((("reduce", "sum", y * g), ("map", 0, y * (g - E.acc(0, d)))), (d, d))


def numbers(d: dtype, shape, rng: np.random.Generator) -> np.ndarray:
    a = rng.standard_normal(shape).astype(np.float32)
    return interpret.narrow_bfloat16(a) if d is bfloat16 else a.astype(d.np)


def laid_out(shape: tuple[int, ...], d: np.dtype, how: int) -> np.ndarray:
    """Room for an array: 0 contiguous, 1 with gaps, 2 with the axes' strides turned round, 3 backwards."""
    if how == 1:
        return np.zeros(tuple(2 * n for n in shape), d)[tuple(slice(0, 2 * n, 2) for n in shape)]
    if how == 2:
        return np.zeros(shape[::-1], d).transpose()
    return np.zeros(shape, d)[..., ::-1] if how == 3 else np.zeros(shape, d)


def placed(a: np.ndarray, how: int) -> np.ndarray:
    out = laid_out(a.shape, a.dtype, how)
    out[...] = a
    return out


def per_row(shape: tuple[int, ...], d: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Room for a number a row, and its view over the whole domain."""
    a = np.zeros(shape[:-1], d)
    return a, np.lib.stride_tricks.as_strided(a, shape, (*a.strides, 0))


def check(program: Rows, shape: tuple[int, ...], ins: list[np.ndarray], scalars=(), hows=(), tolerance=2e-6) -> None:
    rows = {s[1] for s in program.stages if s[0] == "row"}
    results = []
    for prepare_ in (prepare, interpret.prepare):
        held, given = [], []
        for k, d in enumerate(program.out_types):
            own, view = per_row(shape, d.np) if k in rows else 2 * (laid_out(shape, d.np, hows[k] if k < len(hows) else 0),)
            held.append(own)
            given.append(view)
        with np.errstate(all="ignore"):
            launch(prepare_, program, shape, given, ins, scalars)
        results.append(held)
    for got, want, d in zip(*results, program.out_types, strict=True):
        np.testing.assert_allclose(interpret.load(got, d), interpret.load(want, d), rtol=tolerance, atol=tolerance)


SHAPES = [(1,), (7,), (1000,), (5, 3), (100, 10), (33, 16), (40, 17), (6, 300), (3, 4, 50), (2, 65, 9), (1, 1), (130, 1), (70, 4096)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("d", [float32, float64, float16, bfloat16], ids=str)
def test_softmax(shape: tuple[int, ...], d: dtype) -> None:
    a = numbers(d, shape, np.random.default_rng(1))
    tolerance = {2: 1e-2, 4: 2e-6, 8: 1e-14}[d.itemsize]
    check(softmax(d), shape, [a], tolerance=tolerance)
    if d.itemsize > 2:
        check(log_softmax(d), shape, [a], tolerance=5 * tolerance)
        check(softmax_backward(d), shape, [a, numbers(d, shape, np.random.default_rng(2))], tolerance=20 * tolerance)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layer_norm(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    a, g = numbers(float32, shape, rng), numbers(float32, shape, rng)
    w, b = (np.broadcast_to(numbers(float32, shape[-1:], rng), shape) for _ in range(2))
    check(layer_norm(float32), shape, [a, w, b], [float(shape[-1])], tolerance=1e-4)
    mean, rstd = (np.broadcast_to(numbers(float32, (*shape[:-1], 1), rng), shape) for _ in range(2))
    check(layer_norm_backward(float32), shape, [g, a, mean, abs(rstd), w], [float(shape[-1])], tolerance=1e-4)


@pytest.mark.parametrize("shape", [(5, 3), (100, 10), (64, 1000), (33, 17), (1, 5)], ids=str)
def test_cross_entropy(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    a = numbers(float32, shape, rng)
    target = rng.integers(0, shape[1], shape[0])
    view = np.lib.stride_tricks.as_strided(target, shape, (8, 0))
    check(cross_entropy(float32), shape, [a, view, a], [shape[1]], tolerance=5e-6)


@pytest.mark.parametrize("shape", [(4, 64, 100), (3, 5, 7), (1, 10, 33), (2, 200, 64)], ids=str)
def test_rows_across_memory(shape: tuple[int, ...]) -> None:
    """A softmax over channels: neighbours in memory belong to different rows."""
    a = numbers(float32, shape, np.random.default_rng(5)).transpose(0, 2, 1)
    out = np.zeros(shape, np.float32)
    launch(prepare, softmax(float32), a.shape, [out.transpose(0, 2, 1)], [a])
    e = np.exp(a.astype(np.float64))
    np.testing.assert_allclose(out.transpose(0, 2, 1), e / e.sum(-1, keepdims=True), rtol=3e-6)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4).filter(lambda s: np.prod(s) < 50_000),
       st.lists(st.integers(0, 3), min_size=3, max_size=3), st.booleans())
def test_any_strides(shape: list[int], hows: list[int], broadcast: bool) -> None:
    rng = np.random.default_rng(6)
    a, g = (placed(numbers(float32, shape, rng), h) for h in hows[:2])
    if broadcast:
        g = np.broadcast_to(g[..., :1], g.shape)
    check(softmax_backward(float32), tuple(shape), [a, g], hows=hows[2:], tolerance=1e-4)
    check(softmax(float32), tuple(shape), [a], hows=hows[2:])


@pytest.mark.parametrize("shape", [(20, 100), (50, 7), (3, 4096)], ids=str)
def test_in_place(shape: tuple[int, ...]) -> None:
    a = numbers(float32, shape, np.random.default_rng(7))
    for program in (softmax(float32), log_softmax(float32)):
        want, got = np.zeros_like(a), a.copy()
        launch(prepare, program, shape, [want], [a])
        launch(prepare, program, shape, [got], [got])
        np.testing.assert_array_equal(got, want)


def test_other_types_and_several_maps() -> None:
    x = E.input(0, int32)
    most = E.acc(0, int32)
    program = Rows((("reduce", "max", x), ("reduce", "min", x), ("reduce", "or", E.compare("gt", x, E.const(90, int32))),
                    ("row", 2, E.acc(2, bool_)), ("map", 0, x - most), ("map", 1, E.compare("eq", x, E.acc(1, int32)))), (int32,))
    rng = np.random.default_rng(8)
    for shape in ((9, 50), (100, 5), (4, 16)):
        check(program, shape, [rng.integers(-100, 100, shape).astype(np.int32)])


def test_nan_spreads_over_its_row_only() -> None:
    a = numbers(float32, (40, 12), np.random.default_rng(9))
    a[3, 5] = np.nan
    for b in (a, placed(a, 2)):
        out = np.zeros_like(a)
        launch(prepare, softmax(float32), a.shape, [out], [b])
        assert np.isnan(out[3]).all() and not np.isnan(np.delete(out, 3, 0)).any()
    a = np.full((2, 20), -np.inf, np.float32)
    launch(prepare, softmax(float32), a.shape, [a], [a])
    assert np.isnan(a).all()


def test_stages_share_passes() -> None:
    assert [(p[0][0], len(p)) for p in passes_of(layer_norm_backward(float32).stages, mixed=False)] == [("reduce", 2), ("map", 1)]
    assert [(p[0][0], len(p)) for p in passes_of(layer_norm(float32).stages, mixed=False)] == [
        ("reduce", 1), ("reduce", 1), ("row", 2), ("map", 1)]


def test_costly_values_are_kept_only_where_that_is_safe() -> None:
    program = softmax(float32)
    groups = passes_of(program.stages, mixed=False)
    found = kept_value(groups, 1, (True, True))
    assert found is not None and found[:2] == (1, 0) and found[2].op == "exp"
    assert kept_value(groups, 1, (False, True)) is None
    assert kept_value(passes_of(log_softmax(float32).stages, mixed=False), 1, (True, True)) is None
    x, e = E.input(0, float32), E.exp(E.input(0, float32))
    later = Rows((("reduce", "sum", e), ("reduce", "sum", x * E.acc(0, float32)), ("map", 0, e / E.acc(1, float32))), (float32,))
    assert kept_value(passes_of(later.stages, mixed=False), 1, (True, True)) is None
    for shape in ((7, 100), (60, 7)):
        a = numbers(float32, shape, np.random.default_rng(10))
        want, got = np.zeros_like(a), a.copy()
        launch(interpret.prepare, later, shape, [want], [a])
        launch(prepare, later, shape, [got], [got])
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_big_rows_go_past_the_caches() -> None:
    a = numbers(float32, (2100, 4096), np.random.default_rng(11))
    room = np.zeros(a.size + 32, np.float32)
    for shift in (0, 1):
        first = -(room.ctypes.data // 4) % 16 + shift
        out = room[first:first + a.size].reshape(a.shape)
        launch(prepare, log_softmax(float32), a.shape, [out], [a])
        np.testing.assert_allclose(out[::100].sum(1), (a[::100] - np.log(np.exp(a[::100]).sum(1, keepdims=True))).sum(1), rtol=1e-5)


def test_no_rows_and_empty_rows() -> None:
    for shape in ((0, 5), (3, 0)):
        launch(prepare, softmax(float32), shape, [np.zeros(shape, np.float32)], [np.zeros(shape, np.float32)])
    out, view = per_row((3, 0), np.dtype(np.float32))
    out[:] = 7
    program = Rows((("reduce", "sum", E.input(0, float32)), ("row", 0, E.acc(0, float32))), (float32,))
    launch(prepare, program, (3, 0), [view], [np.zeros((3, 0), np.float32)])
    assert (out == 0).all()


def test_the_same_bits_whatever_the_threads() -> None:
    a = numbers(float32, (700, 900), np.random.default_rng(12))
    before = native.get_num_threads()
    try:
        got = []
        for threads in (1, 2, 5):
            native.set_num_threads(threads)
            out = np.zeros_like(a)
            launch(prepare, softmax(float32), a.shape, [out], [a])
            got.append(out.tobytes())
        assert got[0] == got[1] == got[2]
    finally:
        native.set_num_threads(before)


@pytest.mark.parametrize("d", [float32, float64, bfloat16], ids=str)
def test_short_rows_joined_side_by_side_have_the_bits_of_rows_alone(d: dtype) -> None:
    program = log_softmax(d) if d is not bfloat16 else softmax(d)
    for shape in ((40, 13), (200, 16), (19, 31), (3, 50, 20)):
        a = numbers(d, shape, np.random.default_rng(19))
        together, alone = np.zeros_like(a), np.zeros_like(a)
        launch(prepare, program, shape, [together], [a])
        for into, row in zip(alone.reshape(-1, 1, shape[-1]), a.reshape(-1, 1, shape[-1]), strict=True):
            launch(prepare, program, row.shape, [into], [row])
        assert together.tobytes() == alone.tobytes()
