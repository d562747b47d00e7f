"""torch.nn.grad beside what autograd gives."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional, grad

SHAPES = [  # (axes, input, weight, options)
    (1, (2, 4, 9), (6, 4, 3), {}), (1, (3, 4, 10), (6, 2, 3), {"stride": 3, "padding": 1, "groups": 2}),
    (2, (2, 3, 8, 9), (4, 3, 3, 2), {"stride": (2, 3), "padding": (1, 0)}), (2, (1, 4, 9, 9), (4, 1, 3, 3), {"dilation": 2, "groups": 4, "stride": 2}),
    (2, (3, 7, 7), (5, 3, 3, 3), {"padding": 1}), (3, (1, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"stride": (1, 2, 3)}),
]


@pytest.mark.parametrize("n, size, kernel, options", SHAPES)
def test_gradients_of_convolutions(n: int, size, kernel, options, device) -> None:
    g = np.random.default_rng(0)
    x = torch.tensor(g.standard_normal(size), device=device, requires_grad=True)
    w = torch.tensor(g.standard_normal(kernel), device=device, requires_grad=True)
    made = getattr(functional, f"conv{n}d")(x, w, **options)
    gy = torch.tensor(g.standard_normal(made.shape), device=device)
    to_x, to_w = torch.autograd.grad(made, (x, w), gy)
    got = getattr(grad, f"conv{n}d_input")(x.shape, w.detach(), gy, **options)
    assert got.shape == x.shape
    np.testing.assert_allclose(got.cpu().numpy(), to_x.cpu().numpy(), rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        got = getattr(grad, f"conv{n}d_weight")(x, w.shape, gy, **options)
    np.testing.assert_allclose(got.cpu().numpy(), to_w.cpu().numpy(), rtol=1e-9, atol=1e-9)


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="input_size must have 3 or 4 elements, got 2"):
        grad.conv2d_input((4, 4), torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2))
    with pytest.raises(ValueError, match="no input of the size"):
        grad.conv1d_input((1, 1, 9), torch.ones(1, 1, 3), torch.ones(1, 1, 2))
