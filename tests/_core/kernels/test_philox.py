"""Philox as a formula: the published answers, an independent reference, and the numbers made of its words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy  # which imports its parts when they are first asked for
from hypothesis import given
from hypothesis import strategies as st

from flambeau._core.dtypes import bfloat16, float16, float32, float64, int64, uint64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret, philox
from flambeau._core.kernels.llvm import prepare
from flambeau._core.kernels.programs import Map

MASK = (1 << 32) - 1


def reference(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 in Python's integers, from the paper's description."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


@pytest.mark.parametrize("counter,key,words", [  # the known answers of the authors' Random123
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([MASK] * 4, [MASK] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0], [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1])])
def test_the_reference_gives_the_published_answers(counter, key, words):
    assert reference(counter, key) == words


def words_of(counter: int, seed: int) -> list[int]:
    found = philox.words(E.const(counter, uint64), E.const(seed, uint64))
    return [int(v) for v in interpret.evaluate(tuple(found), lambda e, a: pytest.fail("no leaf expected"))]


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))
def test_the_formula_is_the_reference(counter, seed):
    assert words_of(counter, seed) == reference([counter & MASK, counter >> 32, 0, 0], [seed & MASK, seed >> 32])


def draw(formula, d, n, seed=1, offset=0, target=prepare):
    w = philox.words(philox.counter_at(E.coord(-1), E.scalar(1, uint64)), E.scalar(0, uint64))
    program = Map((E.cast(formula(w, d), d),), (), (uint64, uint64))
    out = np.zeros(n, d.np)
    target(program, (n,), ((1,),)).entry(out.ctypes.data, seed, offset)
    return interpret.load(out, d)


@pytest.mark.parametrize("d", [float16, bfloat16, float32, float64], ids=str)
@pytest.mark.parametrize("formula", [philox.uniform, philox.normal], ids=["uniform", "normal"])
def test_machine_code_and_interpreter_draw_alike(d, formula):
    a, b = (draw(formula, d, 4099, 77, 1 << 40, target) for target in (prepare, interpret.prepare))
    if formula is philox.uniform:
        np.testing.assert_array_equal(a, b)
    else:
        np.testing.assert_allclose(a, b, rtol={float16: 2e-3, bfloat16: 1e-2, float32: 1e-4, float64: 1e-10}[d], atol=1e-6)


@pytest.mark.parametrize("d,bits", [(float16, 11), (bfloat16, 8), (float32, 24), (float64, 53)], ids=str)
def test_uniform_numbers_are_below_one_on_a_grid_of_the_types_precision(d, bits):
    u = draw(philox.uniform, d, 30_000).astype(np.float64)
    assert u.min() >= 0 and u.max() < 1
    np.testing.assert_array_equal(u * 2.0 ** bits, np.floor(u * 2.0 ** bits))
    assert scipy.stats.kstest(u + (np.arange(len(u)) % 997 + 0.5) / 997 * 2.0 ** -bits, "uniform").pvalue > 1e-4


def test_normal_numbers_are_normal_and_finite():
    for d in (float32, float64):
        z = draw(philox.normal, d, 60_000).astype(np.float64)
        assert np.isfinite(z).all() and scipy.stats.kstest(z, "norm").pvalue > 1e-4
        assert abs(scipy.stats.skew(z)) < 0.05 and abs(scipy.stats.kurtosis(z)) < 0.1
    assert math.sqrt(-2 * math.log(2.0 ** -24)) > np.abs(z).max() * 0.7


def test_a_draw_is_a_window_on_one_stream():
    whole = draw(philox.uniform, float64, 100, seed=5, offset=0)
    np.testing.assert_array_equal(draw(philox.uniform, float64, 40, seed=5, offset=60), whole[60:])
    assert (draw(philox.uniform, float64, 100, seed=6) != whole).mean() > 0.99
    top = draw(philox.uniform, float64, 4, seed=5, offset=(1 << 64) - 2)  # the counter wraps
    np.testing.assert_array_equal(top[2:], whole[:2])


def test_counters_are_64_bits_wide():
    assert words_of(1 << 32, 0) != words_of(0, 0) and words_of(0, 1 << 32) != words_of(0, 0)
    assert philox.counter_at(E.coord(-1), E.const(3, uint64)).dtype is uint64 and E.coord(-1).dtype is int64
