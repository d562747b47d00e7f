"""A GPU's functions give the CPU's bits: both renderers write the same formulas, and neither fuses what the other rounds."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau._core.dtypes import dtype, float32, float64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import target
from flambeau._core.kernels.cuda_c import render
from flambeau._core.kernels.cuda_c.values import device_function
from flambeau._core.kernels.programs import Map
from tests._core.kernels.cuda_c import host

SHARED = "exp exp2 expm1 log log2 log10 log1p tanh erf sin cos tan".split()
OF_SINGLES = "asin acos atan".split()  # of doubles the library has them


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
    ops = [*SHARED, *(OF_SINGLES if d is float32 else ())]
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


def test_what_the_library_serves() -> None:
    """Functions that singles have in double on the CPU are CUDA's own, and so is fmod, which is exact anyway."""
    for op in ("pow", "atan2", "sinh", "erfc", "lgamma", "fmod"):
        assert device_function(op, float32) is None
    for op in OF_SINGLES:
        assert device_function(op, float64) is None
    for op in SHARED:
        for d in (float32, float64):
            found = device_function(op, d)
            assert found is not None and found[0] in found[1]
