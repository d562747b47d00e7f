"""Activation layers that overwrite their input give the values and gradients of those that do not."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau import nn


@pytest.mark.parametrize("name", ["ReLU", "ReLU6", "SELU", "SiLU", "Mish", "ELU", "CELU", "LeakyReLU", "Hardtanh",
                                  "Hardswish", "Hardsigmoid"])
def test_in_place_is_the_same(name):
    x = np.linspace(-4.05, 4.05, 12).reshape(3, 4)
    plain, over = (flambeau.from_numpy(x.copy()).requires_grad_() for _ in range(2))
    one, two = getattr(nn, name)(), getattr(nn, name)(inplace=True)
    given = over * 1
    out = two(given)
    assert out.data_ptr() == given.data_ptr()
    ref = one(plain * 1)
    np.testing.assert_array_equal(out.detach().numpy(), ref.detach().numpy())
    out.backward(flambeau.ones(3, 4, dtype=flambeau.float64))
    ref.backward(flambeau.ones(3, 4, dtype=flambeau.float64))
    np.testing.assert_allclose(over.grad.numpy(), plain.grad.numpy(), rtol=1e-12)


def test_prelu_is_a_method_too() -> None:
    x = flambeau.tensor([-2.0, 3.0], requires_grad=True)
    x.prelu(flambeau.tensor(0.25)).sum().backward()
    assert x.prelu(flambeau.tensor(0.25)).tolist() == [-0.5, 3.0] and x.grad is not None and x.grad.tolist() == [0.25, 1.0]
    assert flambeau.Tensor.prelu.__name__ == "prelu"
