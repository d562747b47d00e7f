"""Common divisors and incomplete gamma functions in CUDA C, carried out on the CPU: against Python's own and SciPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.dtypes import ALL, dtype, float32, float64
from flambeau._core.kernels.cuda_c.handwritten import stepwise
from tests._core.kernels.cuda_c import host
from tests.late import Late

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
sp = Late("scipy.special")
INTEGERS = [d for d in ALL if d.kind in "iu"]


def carried_out(jobs: list[tuple[str, dtype, np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    kernels = [stepwise.kernel(name, d, a.size) for name, d, a, _ in jobs]
    batch, results = host.Batch(kernels), []
    for kernel, (_, _, a, b) in zip(kernels, jobs):
        out = np.full(a.shape, 77, a.dtype)
        batch.launch(kernel, [out, a, b], [v.ctypes.data for v in (out, a, b)])
        results.append(out)
    return results


def test_divisors_of_every_type() -> None:
    rng, jobs = np.random.default_rng(1), []
    for d in INTEGERS:
        info = np.iinfo(d.np)
        a = np.concatenate([rng.integers(info.min, info.max, 300, d.np, endpoint=True), rng.integers(0, 100, 300).astype(d.np)])
        a[:3], b = (0, info.min, info.max), rng.permutation(a)
        b[:3] = (0, info.min, 7)
        jobs += [("gcd", d, a, b), ("lcm", d, a, b)]
    for (name, d, a, b), out in zip(jobs, carried_out(jobs)):
        bits = 8 * d.itemsize
        for x, y, z in zip(a.tolist(), b.tolist(), out.tolist()):
            want = math.gcd(x, y) if name == "gcd" else math.lcm(x, y)
            assert (z - want) % (1 << bits) == 0, (name, d, x, y, z, want)


@pytest.mark.parametrize("d", [float32, float64])
def test_incomplete_gamma(d: dtype) -> None:
    rng = np.random.default_rng(2)
    a = np.concatenate([rng.uniform(0.01, 5, 400), 10 ** rng.uniform(-3, 3, 400), 10 ** rng.uniform(6.1, 8, 100)]).astype(d.np)
    x = np.concatenate([rng.uniform(0.01, 8, 400), a[400:800] * 10 ** rng.uniform(-1.5, 1, 400), a[800:] + np.sqrt(a[800:]) * rng.uniform(-5, 5, 100)])
    x = x.astype(d.np)
    rtol, atol = (3e-7, 1e-40) if d is float32 else (2e-10, 1e-290)
    found = carried_out([("igamma", d, a, x), ("igammac", d, a, x)])
    for got, oracle, here in zip(found, (sp.gammainc, sp.gammaincc), (torch.igamma, torch.igammac), strict=True):
        np.testing.assert_allclose(got[:800], oracle(a[:800].astype(float), x[:800].astype(float)), rtol=rtol, atol=atol)
        # SciPy's are wrong from the second digit on in the tails of such a
        np.testing.assert_allclose(got[800:], here(torch.from_numpy(a[800:]), torch.from_numpy(x[800:])).numpy(), rtol=10 * rtol)


def test_incomplete_gamma_at_the_edges() -> None:
    inf, nan = math.inf, math.nan
    pairs = [(0.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 0.0, nan), (inf, 1.0, 0.0), (1.0, inf, 1.0), (inf, inf, nan), (-1.0, 1.0, nan), (1.0, -1.0, nan),
             (nan, 1.0, nan), (1.0, nan, nan)]
    a, x, want = (np.array(v) for v in zip(*pairs))
    low, high = carried_out([("igamma", float64, a, x), ("igammac", float64, a, x)])
    np.testing.assert_array_equal(low, want)
    np.testing.assert_array_equal(high, 1 - want)


def test_more_elements_than_a_launch_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "_AT_ONCE", 2)
    a = np.arange(1, 1301, dtype=np.int32)
    (out,) = carried_out([("gcd", ALL[[d.name for d in ALL].index("int32")], a, np.full_like(a, 60))])
    np.testing.assert_array_equal(out, np.gcd(a, 60))
