"""A GPU's functions give the CPU's bits: both renderers write the same formulas, and neither fuses what the other rounds."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, dtype, float16, float32, float64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret, target
from flambeau._core.kernels.cuda_c import render
from flambeau._core.kernels.cuda_c.values import device_function
from flambeau._core.kernels.formulas import plain
from flambeau._core.kernels.programs import Map
from flambeau._core.ops.special import _polygamma
from tests._core.kernels.cuda_c import host

SHARED = "exp exp2 expm1 log log2 log10 log1p tanh erf sin cos tan asin acos atan".split()
OF_DOUBLES = "sinh cosh asinh acosh atanh erfc".split()  # of singles the library has them


def arguments(d: dtype) -> np.ndarray:
    """Numbers of every size, both signs, and what is no number."""
    rng = np.random.default_rng(11)
    near, far = rng.standard_normal(2000) * 4, rng.standard_normal(500) * 10.0 ** rng.integers(-40, 3, 500)
    odd = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 88.7, -103.9, 709.7, -745.1, 1e-310, 0.5, 2.0, 9.999, 25000.0]
    with np.errstate(over="ignore"):
        return np.concatenate([near, far, odd, np.linspace(-120, 120, 400)]).astype(d.np)


@pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
@pytest.mark.parametrize("d", [float32, float64], ids=str)
def test_the_same_bits_as_on_the_cpu(d: dtype) -> None:
    x = arguments(d)
    ops = [*SHARED, *(OF_DOUBLES if d is float64 else ())]
    programs = [Map((E.unary(op, E.input(0, d)),), (d,)) for op in ops]
    kernels = [render(p, x.shape, ((1,), (1,))) for p in programs]
    batch = host.Batch(kernels, checked=False)
    bits = f"i{d.itemsize}"
    for op, program, kernel in zip(ops, programs, kernels, strict=True):
        there, here = np.zeros_like(x), np.zeros_like(x)
        batch.launch(kernel, [there, x], [there.ctypes.data, x.ctypes.data])
        target.prepare(program, x.shape, ((1,), (1,))).entry(here.ctypes.data, x.ctypes.data)
        nan = np.isnan(here)
        assert (np.isnan(there) == nan).all(), op
        differ = np.flatnonzero((here.view(bits) != there.view(bits)) & ~nan)
        assert not differ.size, (op, x[differ[:5]], here[differ[:5]], there[differ[:5]])


@pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
@pytest.mark.parametrize("d", [float16, bfloat16, float32], ids=str)
def test_polygamma(d: dtype) -> None:
    """From the smallest numbers to the largest, at poles and between them."""
    sp = pytest.importorskip("scipy.special")
    rng = np.random.default_rng(5)
    given = np.concatenate([10.0 ** rng.uniform(-12, 5, 500), -10.0 ** rng.uniform(-4, 2, 100), np.arange(-8.0, 9.0)]).astype(np.float32)
    given = given[given < 6e4]
    x = interpret.narrow_bfloat16(given) if d is bfloat16 else given.astype(d.np)
    exact = (interpret.widen_bfloat16(x) if d is bfloat16 else x).astype(np.float64)
    orders = (0, 1, 2, 3, 8, 13, 30)
    kernels = [render(Map(plain((_polygamma(E.input(0, d), n),)), (d,)), x.shape, ((1,), (1,))) for n in orders]
    batch = host.Batch(kernels, checked=False)
    limits = {"float16": (65504.0, 2.0 ** -11, 2.0 ** -24), "bfloat16": (3.3895e38, 2.0 ** -8, 1e-40), "float32": (3.4028e38, 2.0 ** -23, 2e-45)}
    most, unit, least = limits[d.name]
    for n, kernel in zip(orders, kernels, strict=True):
        made = np.zeros_like(x)
        batch.launch(kernel, [made, x], [made.ctypes.data, x.ctypes.data])
        found = (interpret.widen_bfloat16(made) if d is bfloat16 else made).astype(np.float64)
        poles = (exact <= 0) & (exact == np.floor(exact))
        if n:
            assert (found[poles] == (np.inf if n % 2 else -np.inf)).all(), n
        known = exact > 0  # SciPy's zeta has nothing between the poles
        with np.errstate(over="ignore"):
            want = sp.polygamma(n, exact[known])
        want = np.where(np.abs(want) > most, np.copysign(np.inf, want), want)
        np.testing.assert_allclose(found[known], want, rtol=2 * unit, atol=least, err_msg=str(n))


def test_what_the_library_serves() -> None:
    """Functions that singles have in double on the CPU are CUDA's own, and so are those of two operands, of which fmod is exact anyway."""
    for op in ("pow", "atan2", "hypot", "lgamma", "fmod", *OF_DOUBLES):
        assert device_function(op, float32) is None
    for op in ("pow", "atan2", "hypot", "lgamma", "fmod"):
        assert device_function(op, float64) is None
    for op in SHARED:
        for d in (float32, float64):
            found = device_function(op, d)
            assert found is not None and found[0] in found[1]
