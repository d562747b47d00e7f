"""Layers that pool over windows at random places."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import nn


def test_fractional_pooling_takes_maxima(device: str) -> None:
    torch.manual_seed(0)
    x = torch.arange(2 * 3 * 9 * 9.0, device=device).reshape(2, 3, 9, 9)
    out, at = nn.FractionalMaxPool2d(2, output_size=5, return_indices=True)(x)
    assert out.shape == (2, 3, 5, 5) and torch.equal(x.reshape(2, 3, 81).gather(2, at.reshape(2, 3, 25)), out.reshape(2, 3, 25))
    assert nn.FractionalMaxPool2d((2, 3), output_ratio=0.5)(x).shape == (2, 3, 4, 4)
    assert nn.FractionalMaxPool3d(2, output_size=(2, 3, 3))(torch.randn(1, 2, 5, 7, 7, device=device)).shape == (1, 2, 2, 3, 3)
    with pytest.raises(ValueError, match="not both"):
        nn.FractionalMaxPool2d(2)
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.FractionalMaxPool2d(2, output_ratio=1.5)
