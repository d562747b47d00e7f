"""Functions for results of 16 bits: all arguments of both types, beside the exact function rounded once.  That they compile, test_compile.py tells."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flambeau._core.dtypes import bfloat16, bool_, dtype, float16, float32
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret
from flambeau._core.kernels.cuda_c import render
from flambeau._core.kernels.cuda_c.rough import ROUGH
from flambeau._core.kernels.programs import Map, Program, Rows
from tests._core.kernels.cuda_c import host

on_host = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")


def program(op: str, d: dtype) -> Program:
    x = E.cast(E.input(0, d), float32)
    y = x / E.cast(E.input(1, d), float32) if op == "div" else E.unary(op, x)
    return Map((E.cast(y, d),), (d, d) if op == "div" else (d,))


def exactly(op: str, *x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return {"div": lambda a, b: a / b, "sqrt": np.sqrt, "rsqrt": lambda a: 1 / np.sqrt(a), "exp": np.exp, "tanh": np.tanh,
                "erf": np.vectorize(math.erf)}[op](*x)


def rounded(x: np.ndarray, d: dtype) -> np.ndarray:
    """The bits of the nearest numbers of the type."""
    with np.errstate(all="ignore"):
        if d is float16:
            return x.astype(np.float16).view(np.uint16)
        return interpret.narrow_bfloat16(x.astype(np.float32))


@on_host
@pytest.mark.parametrize("d", [float16, bfloat16], ids=str)
def test_all_arguments_of_16_bits(d: dtype) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    stored = every.view(np.float16) if d is float16 else every
    other = np.random.default_rng(3).permutation(stored)
    given = {op: [stored, other] if op == "div" else [stored] for op in ROUGH}
    kernels = {op: render(program(op, d), stored.shape, ((1,),) * (1 + len(given[op]))) for op in ROUGH}
    assert all(ROUGH[op] in k.source for op, k in kernels.items())
    batch = host.Batch(list(kernels.values()), checked=False)
    for op, kernel in kernels.items():
        found = np.zeros_like(stored)
        batch.launch(kernel, [found, *given[op]], [found.ctypes.data, *(x.ctypes.data for x in given[op])])
        with np.errstate(invalid="ignore"):
            wide = [interpret.load(x, d).astype(np.float64) for x in given[op]]
        want, bits = rounded(exactly(op, *wide), d), found.view(np.uint16)
        value, right = interpret.load(found, d), interpret.load(want.view(np.float16) if d is float16 else want, d)
        assert (np.isnan(value) == np.isnan(right)).all(), op
        numbers = ~np.isnan(right)
        assert (np.isinf(value) == np.isinf(right)).all(), op
        steps = np.abs(bits.astype(np.int64) - want)[numbers]
        assert steps.max() <= 1, (op, wide[0][numbers][steps.argmax()])
        assert (steps > 0).mean() < 1 / 500, (op, (steps > 0).mean())


def test_only_where_all_results_have_16_bits() -> None:
    x = E.input(0, bfloat16)
    wide = E.exp(E.cast(x, float32))
    both = Map((E.cast(wide, bfloat16), wide), (bfloat16,))
    single = Map((wide,), (bfloat16,))
    mask = Map((E.compare("gt", wide, E.const(1.0, float32)),), (bfloat16,))
    for p in (both, single, mask):
        assert "rough" not in render(p, (64,), ((1,),) * (len(p.out_types) + 1)).source, p.out_types
    assert mask.out_types == (bool_,)
    top = E.acc(0, float32)
    y = E.exp(E.cast(x, float32) - top)
    stages = (("reduce", "max", E.cast(x, float32)), ("reduce", "sum", y), ("map", 0, E.cast(y / E.acc(1, float32), bfloat16)))
    softmax = render(Rows(stages, (bfloat16,)), (8, 64), ((64, 1),) * 2).source
    assert "rough_exp" in softmax and "rough_div" in softmax
