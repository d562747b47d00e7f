"""The functions that MPI calls for floating types, those of 16 bits beside float32 rounded once."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, float16, float32, float64
from flambeau._core.kernels.interpret import narrow_bfloat16, widen_bfloat16
from flambeau._core.kernels.llvm.handwritten.combining import OPS, combine

HOW = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}  # NumPy's extremes keep a NaN too


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("d", [bfloat16, float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 1000])
def test_beside_float32(op: str, d, n: int) -> None:
    made = np.random.default_rng(n)
    wide = [made.normal(size=n).astype(np.float32) * 10.0 ** made.integers(-3, 4, n).astype(np.float32) for _ in range(2)]
    for x, special in zip(wide, ([np.nan, np.inf, 1, -0.0], [1, -np.inf, np.nan, 0.0])):
        if n >= 4:
            x[-4:] = special
    down, up = narrow_bfloat16, widen_bfloat16
    if d is float16:
        down, up = (lambda v: v.astype(np.float16).view(np.uint16)), (lambda v: v.view(np.float16).astype(np.float32))
    with np.errstate(over="ignore", invalid="ignore"):
        a, b = (down(x) for x in wide)
        want = up(down(HOW[op](up(a), up(b)).astype(np.float32)))
    guard = np.concatenate([b, np.full(16, 0x1234, np.uint16)])  # what lies behind stays as it is
    count = ctypes.c_int(n)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(combine(op, d))(
        a.ctypes.data, guard.ctypes.data, ctypes.addressof(count), None)
    np.testing.assert_array_equal(up(guard[:n].copy()), want)
    assert (guard[n:] == 0x1234).all()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("d", [float32, float64], ids=["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 1000])
def test_wider_types(op: str, d, n: int) -> None:
    made, kind = np.random.default_rng(n), np.dtype(d.name)
    a, b = (made.normal(size=n).astype(kind) for _ in range(2))
    for x, special in zip((a, b), ([np.nan, np.inf, 1], [1, -np.inf, np.nan])):
        if n >= 3:
            x[-3:] = special
    with np.errstate(invalid="ignore"):
        want = HOW[op](a, b)
    guard = np.concatenate([b, np.full(16, 7, kind)])
    count = ctypes.c_int(n)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(combine(op, d))(
        a.ctypes.data, guard.ctypes.data, ctypes.addressof(count), None)
    np.testing.assert_array_equal(guard[:n], want)
    assert (guard[n:] == 7).all()
