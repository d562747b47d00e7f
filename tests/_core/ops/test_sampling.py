"""The derivatives of samples in their parameters: operands of several shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb


def test_operands_of_gamma_slopes_are_broadcast() -> None:
    a, x = fb.tensor([[0.5], [3.0]]), fb.tensor([[0.1, 1.0, 4.0]])
    found = fb._standard_gamma_grad(a, x)
    whole = fb._standard_gamma_grad(a.expand(2, 3), x.expand(2, 3).clone())
    assert found.shape == (2, 3) and found.equal(whole) and np.isfinite(found.numpy()).all()
    with pytest.raises(RuntimeError, match="size of tensor a .2. must match the size of tensor b .3."):
        fb._standard_gamma_grad(fb.ones(8, 2, 1), fb.ones(1, 3, 3))
    assert fb._standard_gamma_grad(fb.ones(0, 3), fb.ones(3)).shape == (0, 3)


def test_operands_of_dirichlet_slopes_are_broadcast() -> None:
    x, alpha = fb.tensor([[0.2, 0.3, 0.5]]), fb.tensor([[1.0, 2.0, 3.0], [4.0, 1.0, 0.5]])
    total = alpha.sum(-1, keepdim=True)
    found = fb._dirichlet_grad(x, alpha, total)
    assert found.shape == (2, 3) and found.equal(fb._dirichlet_grad(x.expand(2, 3).clone(), alpha, total.expand(2, 3).clone()))
    with pytest.raises(RuntimeError, match="must match the size"):
        fb._dirichlet_grad(fb.ones(2, 3), fb.ones(4, 3), fb.ones(4, 1))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 5]), st.booleans(), st.booleans()), max_size=3))
def test_slopes_of_any_shapes_are_those_of_whole_operands(axes) -> None:
    """Of each axis either operand may have one place only."""
    whole = [n for n, _, _ in axes]
    a = fb.linspace(0.3, 7.0, max(1, int(np.prod([1 if one else n for n, one, _ in axes]))))[:int(np.prod([1 if one else n for n, one, _ in axes]))]
    x = fb.linspace(0.1, 9.0, 200)[:int(np.prod([1 if one else n for n, _, one in axes]))]
    a, x = a.reshape([1 if one else n for n, one, _ in axes]), x.reshape([1 if one else n for n, _, one in axes])
    together = fb.broadcast_shapes(a.shape, x.shape)
    found = fb._standard_gamma_grad(a, x)
    assert found.shape == together and len(together) == len(whole)
    assert found.equal(fb._standard_gamma_grad(a.expand(together).clone(), x.expand(together).clone()))


def test_gradients_of_samples_check_shapes_and_devices(sim_gpus):
    """They are given raw numbers, on which NumPy works where they lie."""
    one, three, two = fb.ones(1), fb.ones(3), fb.ones(2)
    assert fb._standard_gamma_grad(three, one).shape == fb._standard_gamma_grad(one, three).shape == (3,)
    np.testing.assert_allclose(fb._dirichlet_grad(three / 3, one, three * 3).numpy(), fb._dirichlet_grad(three / 3, three, three * 3).numpy())
    for call in (lambda: fb._standard_gamma_grad(three, two), lambda: fb._dirichlet_grad(three, one, two), lambda: fb._dirichlet_grad(two, three, three)):
        with pytest.raises(RuntimeError, match="must match the size of tensor b"):
            call()
    for call in (lambda: fb._standard_gamma_grad(three.cuda(), three), lambda: fb._dirichlet_grad(three.cuda(), three, three),
                 lambda: fb.binomial(three.cuda(), three / 3)):
        with pytest.raises(RuntimeError, match="same device"):
            call()


@pytest.mark.parametrize("d", [fb.float32, fb.float64], ids=str)
def test_parameters_out_of_range_spoil_their_own_numbers_alone(d, device) -> None:
    """On a device that draws by NumPy's generator, which refuses all of them for one, as on the CPU."""
    def t(*values: float) -> fb.Tensor:
        return fb.tensor(values, dtype=d, device=device)
    nan, inf = math.nan, math.inf
    low, none, good = fb._standard_gamma(t(-1, nan, 2)).tolist()
    assert math.isnan(low) and math.isnan(none) and good > 0
    assert all(map(math.isnan, fb._sample_dirichlet(t(-2, 2)).tolist()))
    few, below, none, huge = fb.binomial(t(5, -1, nan, 1e30), t(.5, .5, .5, .5)).tolist()
    assert 0 <= few <= 5 and below == 0 and math.isnan(none) and huge == pytest.approx(5e29)
    assert fb.binomial(t(5, 5, 5), t(-1, 2, inf)).tolist() == [0, 5, 5] and math.isnan(fb.binomial(t(5), t(nan)).item())
    assert fb.poisson(t(1e30)).item() == pytest.approx(1e30)
