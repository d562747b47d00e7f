"""Masked reductions against NumPy's masked arrays."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau import masked

A = np.random.default_rng(0).standard_normal((4, 5))
M = np.random.default_rng(1).random((4, 5)) < 0.6
M[2] = False


@pytest.mark.parametrize("dim", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(("name", "empty"), [("sum", 0.0), ("prod", 1.0), ("amax", -np.inf), ("amin", np.inf), ("mean", np.nan), ("var", np.nan)])
def test_against_numpy(device: str, name: str, empty: float, dim, keepdim: bool) -> None:
    x, m = torch.tensor(A, device=device), torch.tensor(M, device=device)
    options = {"unbiased": False} if name == "var" else {}
    got = getattr(masked, name)(x, dim, keepdim=keepdim, mask=m, **options).cpu().numpy()
    held = np.ma.array(A, mask=~M)
    axis = dim if dim is not None else (0, 1)
    if name == "prod" and isinstance(axis, tuple):
        want = np.ma.array([held.prod()]).reshape((1, 1) if keepdim else ())
    else:
        want = getattr(held, {"amax": "max", "amin": "min"}.get(name, name))(axis=axis, keepdims=keepdim)
    np.testing.assert_allclose(got, np.ma.filled(want, empty), rtol=1e-12)


def test_softmax_and_the_rest(device: str) -> None:
    x, m = torch.tensor(A, device=device, requires_grad=True), torch.tensor(M, device=device)
    s = masked.softmax(x, 1, mask=m).detach().cpu().numpy()
    e = np.exp(A) * M
    with np.errstate(invalid="ignore"):
        want = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(s, want, rtol=1e-12)
    assert masked.argmax(x, 1, mask=m)[0].item() == np.ma.array(A, mask=~M).argmax(1)[0]
    np.testing.assert_allclose(masked.cumsum(x, 1, mask=m).detach().cpu().numpy(), (A * M).cumsum(1), rtol=1e-12)
    np.testing.assert_allclose(masked.norm(x, 2.0, 1, mask=m).detach().cpu().numpy(), np.sqrt((A * A * M).sum(1)), rtol=1e-12)
    np.testing.assert_allclose(masked.logsumexp(x, 0, mask=m).detach().cpu().numpy(), np.log(e.sum(0)), rtol=1e-10)
    np.testing.assert_allclose(masked.median(x, 1, mask=m).detach().cpu().numpy()[2], np.nan)
    masked.sum(x, mask=m).backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), M.astype(float))


def test_errors_and_no_mask() -> None:
    x = torch.tensor(A)
    assert masked.sum(x).item() == pytest.approx(A.sum())
    with pytest.raises(IndexError, match="broadcastable mask"):
        masked.sum(x, mask=torch.ones(1, 4, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="mean"):
        masked.mean(torch.arange(3))
    with pytest.raises(IndexError, match="out of range"):
        masked.sum(x, 2)
    assert masked.sum(torch.arange(4), mask=torch.tensor([True, False, True, True])).item() == 5
    assert masked.amax(torch.arange(4), mask=torch.zeros(4, dtype=torch.bool)).item() == torch.iinfo(torch.int64).min
