"""Formulas folded to one value: against NumPy in double, on every device, differentiated twice."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.kernels import expr as E
from flambeau._core.ops.elementwise import Pointwise
from flambeau._core.ops.map_reduce import fold

square = Pointwise("square_gap", lambda x, t: (x - t) * (x - t), 2)
scaled = Pointwise("scaled_gap", lambda x, t, k: E.abs_(x - t) * k, 2)
linear = Pointwise("gap", lambda x, t: x - t, 2)
own = Pointwise("exp_gap", lambda x, t: E.exp(x - t), 2)  # its gradient would be computed from its result


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize("shapes", [((3, 5), (3, 5)), ((4, 1, 3), (2, 1)), ((), ()), ((7,), ()), ((300, 1000), (300, 1000))])
def test_value_and_gradient(device: str, how: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s) for s in shapes)
    x = torch.tensor(a, device=device, requires_grad=True)
    t = torch.tensor(b, device=device, requires_grad=True)
    out = fold(square, (x, t), how)
    gap = a - b
    n = gap.size if how == "mean" else 1
    np.testing.assert_allclose(out.item(), (gap * gap).sum() / n, rtol=1e-12)
    out.backward()
    wide = 2 * gap / n

    def to(g: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        g = g.sum(tuple(range(g.ndim - len(shape))))
        return g.sum(tuple(i for i, s in enumerate(shape) if s == 1 and g.shape[i] != 1), keepdims=True) if g.ndim else g

    np.testing.assert_allclose(x.grad.cpu().numpy(), to(wide, shapes[0]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(t.grad.cpu().numpy(), to(-wide, shapes[1]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize("op", [square, linear, own])
def test_gradcheck(op: Pointwise, how: str) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    t = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, t: fold(op, (x, t), how), (x, t))
    assert torch.autograd.gradgradcheck(lambda x, t: fold(op, (x, t), how), (x, t))


def test_numbers_and_halves_and_nothing(device: str) -> None:
    x = torch.tensor([1.0, -2.0, 4.0], device=device)
    t = torch.zeros(3, device=device)
    assert fold(scaled, (x, t), "mean", (3.0,)).item() == 7.0
    half = fold(scaled, (x.half(), t.half()), "sum", (2.0,))
    assert half.dtype == torch.float16 and half.item() == 14.0
    empty = torch.empty(0, 3, device=device)
    assert fold(square, (empty, empty), "sum").item() == 0.0
    assert np.isnan(fold(square, (empty, empty), "mean").item())
    mixed = fold(square, (x, t.double()), "sum")
    assert mixed.dtype == torch.float64 and mixed.item() == 21.0


def test_a_write_to_what_was_saved_is_an_error() -> None:
    x = torch.ones(3, requires_grad=True)
    t = torch.zeros(3)
    out = fold(square, (x, t), "sum")
    t.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_the_first_gradient_is_not_changed_by_a_hook_that_writes() -> None:
    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        out = x.sum()
        out.register_hook(lambda g: g.mul_(5))
        out.backward()
        assert x.grad.tolist() == [5.0] * 3
    y = torch.ones((), requires_grad=True)
    y.backward()
    y.grad.add_(1)
    z = torch.ones((), requires_grad=True)
    z.backward()
    assert z.grad.item() == 1.0
