"""Many elements reduced into one, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck


def test_reductions_without_the_old_value_and_means():
    t, i, s = fb.tensor([10.0, 20.0, 30.0]), fb.tensor([0, 0, 2]), fb.tensor([1.0, 2.0, 5.0])
    want = {"sum": ([13, 20, 35], [3, 20, 5]), "prod": ([20, 20, 150], [2, 20, 5]), "mean": ([13 / 3, 20, 17.5], [1.5, 20, 5]),
            "amax": ([10, 20, 30], [2, 20, 5]),
            "amin": ([1, 20, 5], [1, 20, 5])}
    for mode, (kept, fresh) in want.items():
        np.testing.assert_allclose(t.scatter_reduce(0, i, s, mode).numpy(), kept, rtol=1e-6)
        np.testing.assert_allclose(t.scatter_reduce(0, i, s, mode, include_self=False).numpy(), fresh, rtol=1e-6)
        if mode != "sum":
            np.testing.assert_allclose(t.index_reduce(0, i, s, mode).numpy(), kept, rtol=1e-6)
    with pytest.raises(RuntimeError, match="reduce"):
        t.scatter_reduce(0, i, s, "median")


def test_gradients_of_products_with_zeros():
    i = fb.tensor([0, 0, 1, 1, 2])
    for zero in ([0], [0, 1], [2], [0, 2, 3, 4]):
        a = np.arange(1.0, 6)
        a[zero] = 0
        s, x = fb.tensor(a, requires_grad=True), fb.tensor([2.0, 3.0, 0.0], dtype=fb.float64, requires_grad=True)
        f = lambda x, s: x.scatter_reduce(0, i, s, "prod")  # noqa: E731
        assert gradcheck(f, (x, s))
        if len(zero) == 1:
            assert gradgradcheck(f, (x, s))
        else:
            with pytest.raises(RuntimeError, match="more than one factor is 0"):
                gradgradcheck(f, (x, s))


@pytest.mark.parametrize("d", [fb.int8, fb.uint8, fb.int16, fb.int32, fb.int64], ids=str)
def test_means_of_integers_keep_their_type(d, device):
    x, at, src = fb.tensor([10, 7, 3, 9], dtype=d, device=device), fb.tensor([0, 0, 1, 0], device=device), fb.tensor([12, 20, 5, 4], dtype=d, device=device)
    with_self, without = x.scatter_reduce(0, at, src, "mean"), x.scatter_reduce(0, at, src, "mean", include_self=False)
    assert with_self.dtype is d and with_self.tolist() == [46 // 4, 6, 3, 9] and without.dtype is d and without.tolist() == [12, 5, 3, 9]
    assert x.index_reduce(0, at, src, "mean").dtype is d


def test_types_without_an_order_are_refused_in_pytorchs_words():
    i = fb.tensor([0, 0, 1, 3])
    for d, name in ((fb.complex64, "ComplexFloat"), (fb.complex128, "ComplexDouble"), (fb.bool, "Bool")):
        x = fb.ones(4).to(d)
        for how in ("amin", "amax", "mean", "prod"):
            with pytest.raises(NotImplementedError, match=f"index_func_.* not implemented for '{name}'"):
                x.index_reduce(0, i, x, how)
            with pytest.raises(NotImplementedError, match="index_reduce_func_exclude_input_init"):
                x.clone().index_reduce_(0, i, x.clone(), how, include_self=False)
        for how in ("amin", "amax") if d is not fb.bool else ("mean",):
            for form in (x.scatter_reduce, x.clone().scatter_reduce_):
                with pytest.raises(NotImplementedError, match=f"scatter_gather_tensor_cpu_reduce_{how}.* not implemented for '{name}'"):
                    form(0, i, x.clone(), how)
    with pytest.raises(RuntimeError, match="Expected reduce to be one of prod, mean, amax or amin but got sum"):
        fb.ones(4).index_reduce_(0, i, fb.ones(4), "sum")
    with pytest.raises(RuntimeError, match="either sum, prod, mean, amax or amin, got median"):
        fb.ones(4).scatter_reduce(0, i, fb.ones(4), "median")
