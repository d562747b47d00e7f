"""Initial values: their distributions, fans and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.nn import init


def _filled(fill, shape=(200, 50, 3)):
    flambeau.manual_seed(0)
    t = nn.Parameter(flambeau.zeros(*shape))
    assert fill(t) is t and t.grad_fn is None and t.requires_grad
    return t.detach().numpy().astype(np.float64)


@pytest.mark.parametrize("fill,low,high", [
    (lambda t: init.uniform_(t, -2.0, 1.0), -2.0, 1.0),
    (init.xavier_uniform_, -math.sqrt(6 / 750), math.sqrt(6 / 750)),
    (lambda t: init.kaiming_uniform_(t, a=math.sqrt(5)), -math.sqrt(1 / 150), math.sqrt(1 / 150)),
    (lambda t: init.kaiming_uniform_(t, mode="fan_out", nonlinearity="relu"), -math.sqrt(6 / 600), math.sqrt(6 / 600)),
])
def test_uniform_families(fill, low, high):
    x = _filled(fill)
    assert low <= x.min() < low + 0.01 * (high - low) and high - 0.01 * (high - low) < x.max() <= high
    assert abs(x.mean() - (low + high) / 2) < 0.01 * (high - low)


@pytest.mark.parametrize("fill,mean,std", [
    (lambda t: init.normal_(t, 1.0, 0.5), 1.0, 0.5),
    (init.xavier_normal_, 0.0, math.sqrt(2 / 750)),
    (init.kaiming_normal_, 0.0, math.sqrt(2 / 150)),
])
def test_normal_families(fill, mean, std):
    x = _filled(fill)
    assert abs(x.mean() - mean) < 0.03 * std and abs(x.std() / std - 1) < 0.02


def test_truncated_normal_stays_inside():
    x = _filled(lambda t: init.trunc_normal_(t, 0.0, 1.0, -1.0, 0.5))
    assert x.min() >= -1.0 and x.max() <= 0.5
    # mean of a standard normal cut to [-1, 0.5]
    def pdf(v): return math.exp(-v * v / 2) / math.sqrt(2 * math.pi)
    def cdf(v): return (1 + math.erf(v / math.sqrt(2))) / 2
    assert x.mean() == pytest.approx((pdf(-1) - pdf(0.5)) / (cdf(0.5) - cdf(-1)), abs=0.01)


def test_fixed_values():
    assert (_filled(init.ones_) == 1).all() and (_filled(init.zeros_) == 0).all()
    np.testing.assert_array_equal(_filled(init.eye_, (3, 4)), np.eye(3, 4))
    with pytest.raises(ValueError, match="Only tensors with 2 dimensions are supported"):
        init.eye_(flambeau.zeros(2))
    with pytest.raises(ValueError, match="Fan in and fan out can not be computed"):
        init.xavier_uniform_(flambeau.zeros(3))
    with pytest.raises(ValueError, match="Mode both not supported"):
        init.kaiming_normal_(flambeau.zeros(2, 2), mode="both")


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3)])
def test_orthogonal(shape):
    x = _filled(lambda t: init.orthogonal_(t, 2.0), shape).reshape(shape[0], -1)
    gram = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)


def test_dirac_hands_channels_through():
    w = _filled(lambda t: init.dirac_(t, 2), (4, 3, 3))
    expected = np.zeros((4, 3, 3))
    for g in range(2):
        for d in range(2):
            expected[2 * g + d, d, 1] = 1
    np.testing.assert_array_equal(w, expected)


@pytest.mark.parametrize("name,param,gain", [("linear", None, 1.0), ("tanh", None, 5 / 3), ("relu", None, math.sqrt(2)),
                                             ("leaky_relu", 0.2, math.sqrt(2 / 1.04)), ("selu", None, 0.75)])
def test_gain(name, param, gain):
    assert init.calculate_gain(name, param) == pytest.approx(gain)
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        init.calculate_gain("none")


def test_old_names_warn():
    with pytest.warns(FutureWarning, match="deprecated in favor of `nn.init.constant_`"):
        assert init.constant(flambeau.zeros(2), 3.0).tolist() == [3.0, 3.0]
