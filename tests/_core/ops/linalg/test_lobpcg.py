"""A few eigenpairs of large matrices against NumPy's of all."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck


def _symmetric(m: int, *lead: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.normal(size=(*lead, m, m)))[0]
    return (q * np.linspace(1, 50, m)) @ np.swapaxes(q, -1, -2)


@pytest.mark.parametrize("method", [None, "basic", "ortho"])
@pytest.mark.parametrize("largest", [None, True, False])
def test_extreme_pairs(largest: bool | None, method: str | None) -> None:
    fb.manual_seed(0)
    a = _symmetric(40)
    e, x = fb.lobpcg(fb.tensor(a), 3, largest=largest, method=method)
    want = np.linalg.eigvalsh(a)
    np.testing.assert_allclose(e.numpy(), want[:3] if largest is False else want[:-4:-1], rtol=1e-9)
    np.testing.assert_allclose(a @ x.numpy(), x.numpy() * e.numpy(), atol=1e-5)
    np.testing.assert_allclose((x.mT @ x).numpy(), np.eye(3), atol=1e-10)


def test_batches_singles_starts_and_preconditioners() -> None:
    fb.manual_seed(1)
    a = _symmetric(30, 2, 2)
    e, x = fb.lobpcg(fb.tensor(a), 2, largest=False)
    assert e.shape == (2, 2, 2) and x.shape == (2, 2, 30, 2)
    np.testing.assert_allclose(e.numpy(), np.linalg.eigvalsh(a)[..., :2], rtol=1e-9)
    assert [t.shape for t in fb.lobpcg(fb.ones(0, 9, 9), 2)] == [(0, 2), (0, 9, 2)]
    e, x = fb.lobpcg(fb.tensor(a[0, 0], dtype=fb.float32), X=fb.randn(30, 4), k=2)
    assert e.dtype is fb.float32 and e.shape == (2,) and x.shape == (30, 2)
    np.testing.assert_allclose(e.numpy(), np.linalg.eigvalsh(a[0, 0])[:-3:-1], rtol=1e-4)
    b = a[0, 1] + 60 * np.eye(30)
    e, x = fb.lobpcg(fb.tensor(a[0, 0]), 2, fb.tensor(b), iK=fb.tensor(np.linalg.inv(a[0, 0])), largest=False)
    want = np.sort(np.linalg.eigvals(np.linalg.solve(b, a[0, 0])).real)
    np.testing.assert_allclose(e.numpy(), want[:2], rtol=1e-8)
    np.testing.assert_allclose(a[0, 0] @ x.numpy(), b @ x.numpy() * e.numpy(), atol=1e-4)


def test_sparse_matrices_and_few_steps() -> None:
    fb.manual_seed(2)
    a = np.diag(np.arange(1.0, 101)) + np.diag(np.full(99, 0.5), 1) + np.diag(np.full(99, 0.5), -1)
    e, _ = fb.lobpcg(fb.tensor(a).to_sparse(), 2)
    np.testing.assert_allclose(e.numpy(), np.linalg.eigvalsh(a)[:-3:-1], rtol=1e-8)
    start = fb.randn(100, 2, dtype=fb.float64)
    none, few = (fb.lobpcg(fb.tensor(a), X=start, niter=n)[0] for n in (0, 3))
    assert (few > none).all() and start.norm() > 0


@pytest.mark.parametrize("largest, lead, pencil", [(True, (), False), (False, (), True), (False, (2,), False)])
def test_gradients_of_any_order(largest: bool, lead: tuple[int, ...], pencil: bool) -> None:
    fb.manual_seed(3)
    a = fb.tensor(_symmetric(9, *lead), requires_grad=True)
    b = fb.tensor(_symmetric(9, *lead, seed=1) + 40 * np.eye(9), requires_grad=True) if pencil else None
    start = fb.randn(*lead, 9, 3, dtype=fb.float64)

    def whole(a: fb.Tensor, *b: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        e, x = fb.lobpcg(a, 2, *b, X=start, largest=largest, tol=1e-11)
        return e, x * x.detach()[..., :1, :].sign()  # either sign is an eigenvector
    given = (a,) if b is None else (a, b)
    assert gradcheck(whole, given, fast_mode=bool(lead))
    if not lead:
        assert gradcheck(lambda *t: whole(*t)[0], given, fast_mode=True) and gradcheck(lambda *t: whole(*t)[1], given, fast_mode=True)
        assert gradgradcheck(whole, given, fast_mode=True)
    if not pencil:  # as those of all pairs
        want, vectors = fb.linalg.eigh((a + a.mT) / 2)
        pair = 8 if largest else 0
        one = fb.autograd.grad((want[..., pair] + vectors[..., pair].square() @ fb.arange(9.0).double()).sum(), a)[0]
        e, x = whole(a)
        np.testing.assert_allclose(fb.autograd.grad((e[..., 0] + x[..., 0].square() @ fb.arange(9.0).double()).sum(), a)[0].numpy(), one.numpy(), atol=1e-8)


def test_refusals() -> None:
    a = fb.eye(8)
    for error, text, call in ((ValueError, "smaller than 3 x the number of requested eigenpairs", lambda: fb.lobpcg(a, 3)),
                              (ValueError, "method must be 'basic' or 'ortho'", lambda: fb.lobpcg(a, method="x")),
                              (ValueError, r"A must be \(..., m, m\), got \(3, 8\)", lambda: fb.lobpcg(fb.ones(3, 8))),
                              (ValueError, "n must be at least k", lambda: fb.lobpcg(a, 2, n=1)),
                              (ValueError, r"X must be \(8, 1\)", lambda: fb.lobpcg(a, X=fb.ones(7, 1))),
                              (ValueError, "A must be float32 or float64", lambda: fb.lobpcg(fb.ones(8, 8, dtype=fb.int64))),
                              (NotImplementedError, "not implemented for sparse matrices", lambda: fb.lobpcg(a.to_sparse().requires_grad_()))):
        with pytest.raises(error, match=text):
            call()
