"""Two results of one reduction: var_mean and std_mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

PAIRS = [(fb.var_mean, fb.var, np.var), (fb.std_mean, fb.std, np.std)]


@pytest.mark.parametrize(("both", "one", "oracle"), PAIRS, ids=["var_mean", "std_mean"])
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2)], ids=str)
def test_both_results(both: Callable[..., Any], one: Callable[..., Any], oracle: Callable[..., Any], dim: Any, device: Any) -> None:
    values = np.random.default_rng(3).normal(size=(3, 4, 5))
    x = fb.tensor(values, device=device).transpose(0, 1)
    plain = values.swapaxes(0, 1)
    for keepdim in (False, True):
        for correction in (0, 1, 2):
            spread, mean = both(x, dim, keepdim=keepdim, correction=correction)
            np.testing.assert_allclose(spread.cpu().numpy(), oracle(plain, axis=dim, keepdims=keepdim, ddof=correction), rtol=1e-12)
            np.testing.assert_allclose(mean.cpu().numpy(), plain.mean(axis=dim, keepdims=keepdim), rtol=1e-12)
            alone = one(x, dim, keepdim=keepdim, correction=correction)
            assert spread.shape == alone.shape == mean.shape and spread.stride() == alone.stride() == mean.stride() and spread.allclose(alone)


@pytest.mark.parametrize("both", [fb.var_mean, fb.std_mean], ids=["var_mean", "std_mean"])
def test_gradients_of_both_results(both: Callable[..., Any]) -> None:
    fb.manual_seed(0)
    x = fb.randn(3, 4, dtype=fb.float64, requires_grad=True)
    for dim in (None, 0, -1):
        assert gradcheck(both, (x, dim)) and gradgradcheck(both, (x, dim))
    spread, mean = both(x, 0)
    assert fb.autograd.grad(mean.sum(), x)[0].allclose(fb.full_like(x, 1 / 3))  # the other result has no gradient


@pytest.mark.parametrize("both", [fb.var_mean, fb.std_mean], ids=["var_mean", "std_mean"])
def test_pairs_of_few_values_and_narrow_types(both: Callable[..., Any]) -> None:
    spread, mean = both(fb.tensor(3.0))
    assert spread.isnan() and mean == 3.0
    spread, mean = both(fb.empty(2, 0, 3), 1)
    assert spread.shape == mean.shape == (2, 3) and spread.isnan().all() and mean.isnan().all()
    assert [t.shape for t in both(fb.empty(2, 0, 3), -1)] == [(2, 0), (2, 0)]
    spread, mean = both(fb.tensor([1.0, 2.0, 3.0], dtype=fb.bfloat16))
    assert spread.dtype == mean.dtype == fb.bfloat16 and spread == 1.0 and mean == 2.0
    spread, mean = both(fb.tensor([1 + 1j, 1 - 1j]))
    assert spread.dtype == fb.float32 and mean.dtype == fb.complex64 and mean == 1
    with pytest.raises(RuntimeError, match="floating point"):
        both(fb.ones(3, dtype=fb.int64))


def test_sums_of_what_is_known_are_of_floating_types() -> None:
    x = fb.tensor([1.0, float("nan")])
    assert fb.nansum(x).item() == 1 and fb.nansum(x, dtype=fb.float64).dtype is fb.float64 and fb.nansum(fb.tensor([1, 2]), dtype=fb.int32).item() == 3
    assert fb.nansum(x, dtype=fb.int64).item() == 1 and fb.nansum(x, 0, dtype=fb.bool).item() is True  # NaN is left out before it is an integer
    with pytest.raises(NotImplementedError, match="nansum"):
        fb.nansum(x, dtype=fb.complex64)
    for f in (fb.nansum, fb.nanmean):
        with pytest.raises(RuntimeError, match="nansum on CPU does not support complex inputs"):
            f(fb.tensor([1j]))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, 8, 17]), min_size=1, max_size=3), st.sampled_from([0, 1, 2]), st.data())
def test_any_shape_axes_and_order_are_numpys(shape: list[int], correction: int, data: Any) -> None:
    values = np.random.default_rng(7).normal(size=shape).transpose(order := data.draw(st.permutations(range(len(shape)))))
    x = fb.tensor(np.ascontiguousarray(values.transpose(np.argsort(order)))).permute(*order)
    dims = tuple(data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1)))
    if np.prod([values.shape[d] for d in dims]) <= correction:
        return  # divided by nothing: the tests of `var` tell what then
    spread, mean = fb.var_mean(x, dims, correction=correction)
    np.testing.assert_allclose(spread.numpy(), values.var(dims, ddof=correction), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(mean.numpy(), values.mean(dims), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(fb.std(x, dims, correction=correction).numpy(), values.std(dims, ddof=correction), rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", ["var", "var_mean"])
def test_gradients_of_variances_without_freedom(name):
    inf = float("inf")

    def gradient(values, **how):
        x = fb.tensor(values, requires_grad=True)
        made = getattr(fb, name)(x, **how)
        y = made[0] if name == "var_mean" else made
        (2 * y).sum().backward()
        return x.grad.tolist()
    assert gradient([1.0, 3.0], correction=2) == [inf, inf]  # of all elements: PyTorch's infinity has one sign
    assert gradient([1.0, 3.0], correction=5) == [inf, inf]
    some = gradient([1.0, 2.0, 3.0], correction=3)
    assert some[::2] == [inf, inf] and np.isnan(some[1])  # NaN at the mean
    assert gradient([1.0, 3.0], dim=0, correction=2) == [-inf, inf]
    assert gradient([1.0, 3.0], dim=0, correction=4) == [2.0, -2.0]
    assert np.isnan(gradient([2.0])).all()
