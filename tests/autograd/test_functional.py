"""Jacobians, Hessians and products against what calculus says."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import functional as F


def t(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape))


A = t(4, 3, seed=1)


def test_jacobian_of_a_linear_map() -> None:
    x = t(3)
    for kwargs in ({}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}):
        found = F.jacobian(lambda v: A @ v, x, **kwargs)
        np.testing.assert_allclose(found.numpy(), A.numpy())
        assert not found.requires_grad and x.grad is None


def test_jacobian_of_several() -> None:
    x, y = t(2), t(2, 2, seed=3)

    def f(a, b):
        return a.exp(), (a * b).sum()
    (aa, ab), (ba, bb) = F.jacobian(f, (x, y))
    np.testing.assert_allclose(aa.numpy(), np.diag(np.exp(x.numpy())))
    assert ab.shape == (2, 2, 2) and float(ab.abs().sum()) == 0
    np.testing.assert_allclose(ba.numpy(), y.sum(0).numpy())
    np.testing.assert_allclose(bb.numpy(), np.broadcast_to(x.numpy(), (2, 2)))
    forward = F.jacobian(f, (x, y), vectorize=True, strategy="forward-mode")
    for row, other in zip(forward, ((aa, ab), (ba, bb)), strict=True):
        for p, q in zip(row, other, strict=True):
            np.testing.assert_allclose(p.numpy(), q.numpy(), atol=1e-12)


def test_hessian_and_its_products() -> None:
    x, v = t(3), t(3, seed=5)
    q = A.T @ A

    def f(z):
        return 0.5 * z @ q @ z + (z ** 3).sum()
    want = q.numpy() + np.diag(6 * x.numpy())
    np.testing.assert_allclose(F.hessian(f, x).numpy(), want, rtol=1e-12)
    value, hv = F.hvp(f, x, v)
    assert float(value) == pytest.approx(float(f(x)))
    np.testing.assert_allclose(hv.numpy(), want @ v.numpy(), rtol=1e-12)
    np.testing.assert_allclose(F.vhp(f, x, v)[1].numpy(), v.numpy() @ want, rtol=1e-12)
    blocks = F.hessian(lambda a, b: (a * b * b).sum(), (x, v))
    np.testing.assert_allclose(blocks[1][1].numpy(), np.diag(2 * x.numpy()))
    np.testing.assert_allclose(blocks[0][1].numpy(), np.diag(2 * v.numpy()))
    with pytest.raises(RuntimeError, match="single element"):
        F.hessian(lambda z: z * 2, x)


def test_products_with_vectors() -> None:
    x, v, u = t(3), t(3, seed=2), t(4, seed=3)
    y, back = F.vjp(lambda z: (A @ z).exp(), x, u)
    slope = np.exp(A.numpy() @ x.numpy())[:, None] * A.numpy()
    np.testing.assert_allclose(back.numpy(), u.numpy() @ slope, rtol=1e-12)
    np.testing.assert_allclose(F.jvp(lambda z: (A @ z).exp(), x, v)[1].numpy(), slope @ v.numpy(), rtol=1e-12)
    assert not y.requires_grad
    with pytest.raises(RuntimeError, match="can only be None"):
        F.vjp(lambda z: z * 2, x)
    with pytest.raises(RuntimeError, match="v has invalid size"):
        F.vjp(lambda z: z * 2, x, u)


def test_create_graph_keeps_the_history() -> None:
    x = t(3).requires_grad_()
    F.jacobian(lambda z: z ** 3, x, create_graph=True).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * x.detach().numpy(), rtol=1e-12)


def _linear(z: torch.Tensor) -> torch.Tensor:
    return (3 * z).sum()


def _constant(z: torch.Tensor) -> torch.Tensor:
    return z.detach().sum()


def _other(z: torch.Tensor) -> torch.Tensor:
    return torch.ones(2, dtype=torch.float64).requires_grad_().sum()


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_strict_refuses_what_gives_no_derivative(name: str) -> None:
    x, function = t(2), getattr(F, name)
    more = (torch.ones(2, dtype=torch.float64),) if name in ("jvp", "hvp", "vhp") else ()
    for f, text in ((_constant, "Output 0 of the user-provided function does not require gradients"), (_other, "independent of")):
        found = function(f, x, *more)
        assert float((found[1] if isinstance(found, tuple) else found).abs().sum()) == 0
        with pytest.raises(RuntimeError, match=text):
            function(f, x, *more, strict=True)
    if name in ("hessian", "hvp", "vhp"):
        with pytest.raises(RuntimeError, match="jacobian of the user-provided function with respect to input 0 is independent"):
            function(_linear, x, *more, strict=True)
    else:
        function(_linear, x, *more, strict=True)
        with pytest.raises(RuntimeError, match="strict mode when create_graph=True"):
            function(_linear, x.requires_grad_(), *more, strict=True, create_graph=True)


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "hvp", "vhp"])
def test_outputs_must_be_tensors(name: str) -> None:
    more = (torch.ones(2, dtype=torch.float64),) if name in ("jvp", "hvp", "vhp") else ()
    with pytest.raises(TypeError, match=f"The outputs of the user-provided function given to {name} must be either a Tensor"):
        getattr(F, name)(lambda z: (z.sum(), "text"), t(2), *more)


def test_hessian_is_not_strict_and_vectorized() -> None:
    with pytest.raises(RuntimeError, match="not supported together"):
        F.hessian(lambda z: z.pow(3).sum(), t(2), strict=True, vectorize=True)


def test_bad_inputs() -> None:
    x = t(2)
    with pytest.raises(RuntimeError, match="The given v should contain a single Tensor"):
        F.vjp(lambda z: z, x, (x, x))
    with pytest.raises(TypeError, match="Tensor or a tuple"):
        F.jacobian(lambda z: z, 3.0)
    with pytest.raises(AssertionError, match="strategy"):
        F.jacobian(lambda z: z, x, strategy="sideways")


def test_columns_of_an_identity_over_the_elements_of_several():
    from flambeau.autograd.functional import _construct_standard_basis_for
    a, b = torch.ones(2, dtype=torch.float64), torch.ones(3)
    found = _construct_standard_basis_for((a, b), (2, 3))
    assert [t.dtype for t in found] == [a.dtype, b.dtype] and torch.equal(torch.cat([t.float() for t in found], 1), torch.eye(5))
