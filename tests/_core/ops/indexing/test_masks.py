"""Elements where a mask is true: chosen, filled, written in order."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 3, 5))


@pytest.mark.parametrize("value", [0, -3, 2.5, True, float("nan"), 300])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "uint8", "bool"])
def test_a_number_where_a_mask_is_true(name, value):
    d = getattr(fb, name)
    rng = np.random.default_rng(8)
    a, m, k = rng.integers(0, 2, (4, 5, 3)), rng.integers(0, 2, (4, 5)) > 0, rng.integers(0, 2, 3) > 0
    for index, where in (((m,), (fb.tensor(m),)), ((slice(1, 3), slice(None), k), (slice(1, 3), slice(None), fb.tensor(k)))):
        x = fb.tensor(a).to(d)
        try:
            scalar = fb.tensor(value, dtype=d)
        except (RuntimeError, OverflowError, ValueError) as error:
            with pytest.raises(type(error)):
                x[where] = value
            continue
        want = x.float().numpy().copy()
        want[index] = scalar.float().item()
        x[where] = value
        np.testing.assert_array_equal(x.float().numpy(), want)
    y = fb.tensor(a).float().requires_grad_()
    z = y * 1
    z[fb.tensor(m)] = 2
    z.sum().backward()
    np.testing.assert_array_equal(y.grad.numpy()[..., 0], (~m).astype("f4"))


@pytest.mark.parametrize("dtype", [fb.float32, fb.bfloat16, fb.complex64, fb.int64, fb.bool])
def test_small_masks_choose_as_positions_do(dtype):
    base = fb.arange(24).reshape(2, 3, 4)
    x = base % 3 == 0 if dtype is fb.bool else base.to(dtype)
    for some in (base % 5 < 2, base[0] % 5 < 2, base[:, :, 0] >= 8, base[:, 0, 0] >= 0, base < 0, base[0, 0] < 0):
        if some.shape != x.shape[:some.dim()]:
            with pytest.raises(IndexError, match="does not match the shape of the indexed tensor"):
                x[some]
            continue
        made = x[some]
        assert made.dtype is dtype and made._version == 0 and not made._is_view()
        assert made.tolist() == x[some.nonzero(as_tuple=True)].tolist()
        assert x.transpose(0, 1).contiguous().transpose(0, 1)[some].tolist() == made.tolist()  # not dense: by positions
    if dtype is fb.float32:
        w = x.clone().requires_grad_()
        w[w > 3].sum().backward()
        assert w.grad.tolist() == (x > 3).float().tolist()
        with fb.no_grad():
            assert w[w > 3].grad_fn is None


def test_masks():
    mask = A > 0.3
    t, m = fb.tensor(A), fb.tensor(mask)
    np.testing.assert_array_equal(t.masked_fill(m, -1).numpy(), np.where(mask, -1, A))
    np.testing.assert_array_equal(t.masked_fill(m[:, :1], fb.tensor(2.0)).numpy(), np.where(mask[:, :1], 2, A))
    source = np.arange(100.0)
    want = A.copy()
    want[mask] = source[:mask.sum()]
    np.testing.assert_array_equal(t.masked_scatter(m, fb.tensor(source)).numpy(), want)
    np.testing.assert_array_equal(t.masked_select(m).numpy(), A[mask])
    u = t.clone()
    assert u.masked_fill_(m, 0) is u and (u[m] == 0).all()
    for wrong in (lambda: t.masked_fill(fb.ones(4, 3, 5), 1), lambda: t.masked_fill(m, fb.ones(2)), lambda: t.masked_scatter(m, fb.zeros(1, dtype=fb.float64))):
        with pytest.raises(RuntimeError):
            wrong()


@pytest.mark.parametrize("d", [fb.float64, fb.float32, fb.bfloat16, fb.uint8, fb.complex128], ids=str)
def test_masked_scatter_of_many_and_of_any_layout(d, device):
    rng = np.random.default_rng(4)
    for shape in ((7,), (3, 5), (70, 90)):
        x, source = fb.zeros(shape, dtype=d, device=device), fb.arange(1, 1 + int(np.prod(shape)), device=device).to(d)
        a = rng.random(shape) < 0.4
        mask = fb.tensor(a).to(device)
        want = np.zeros(shape, np.complex128)
        want[a] = source.to(fb.complex128).cpu().numpy()[:a.sum()]
        for m, t in ((mask, x), (mask.t().contiguous().t() if a.ndim == 2 else mask, x), (mask, x.t().contiguous().t() if a.ndim == 2 else x)):
            np.testing.assert_array_equal(t.masked_scatter(m, source).to(fb.complex128).cpu().numpy(), want)
            np.testing.assert_array_equal(t.clone().masked_scatter_(m, source.reshape(shape)).to(fb.complex128).cpu().numpy(), want)
        if a.sum() > 1:
            with pytest.raises(RuntimeError, match="same number of elements"):
                x.masked_scatter(mask, source[:1])
        assert not x.masked_scatter(mask & False, source[:0]).to(fb.float64).any() if d is not fb.complex128 else True


def test_filling_expanded_tensors_warns_and_fills_what_any_place_chooses():
    for fill, name in ((lambda x: x.masked_fill_(fb.tensor([False, False, True]), 2.0), "masked_fill_"),
                       (lambda x: x.masked_fill_(fb.tensor([False, True, True]), fb.tensor(2)), "masked_fill_"),
                       (lambda x: x.index_fill_(0, fb.tensor([1]), 2.0), "index_fill_")):
        one = fb.ones(1)
        with pytest.warns(UserWarning, match=f"Use of {name} on expanded tensors is deprecated"):
            assert fill(one.expand(3)).tolist() == [2.0] * 3
        assert one.item() == 2.0
    one = fb.ones(1)
    with pytest.warns(UserWarning, match="expanded"):
        one.expand(3).masked_fill_(fb.zeros(3, dtype=fb.bool), 2.0)
    assert one.item() == 1.0
    with pytest.raises(RuntimeError, match="more than one element"):  # recorded, it is refused
        (fb.ones(1, requires_grad=True) * 1).expand(3).masked_fill_(fb.tensor([True, False, False]), 2.0)


def test_masked_scatter_is_dense_whatever_the_layout_of_the_mask():
    mask = fb.ones(3, 2, dtype=fb.bool).t()
    assert fb.masked_scatter(fb.zeros(1, 3), mask, fb.ones(6)).stride() == (3, 1)


def test_a_fill_by_an_element_of_the_same_tensor_takes_it_as_it_was():
    x = fb.arange(4.0)
    assert x.masked_fill_(x < 3, x[1]).tolist() == [1, 1, 1, 3]
    x = fb.arange(4.0)
    x[x > 1] = x[3]
    assert x.tolist() == [0, 1, 3, 3]
    x = fb.arange(3.0)
    assert x.index_fill_(0, fb.tensor([0, 2]), x[2]).tolist() == [2, 1, 2]
    leaf = fb.arange(4.0, requires_grad=True)
    y = leaf * 2
    y.masked_fill_(fb.tensor([True, False, True, False]), y[3])
    (y * fb.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
    assert y.tolist() == [6, 2, 6, 6] and leaf.grad.tolist() == [0, 20, 0, 2202]


def test_a_mask_chooses_by_an_operation_of_its_own_name():
    x = fb.arange(4.0, requires_grad=True)
    assert fb.masked_select(x, x > 1).grad_fn.name() == "MaskedSelectBackward0" and x[x > 1].grad_fn.name() == "IndexBackward0"
    (g,) = fb.autograd.grad(x.masked_select(x.detach() > 1).square().sum(), x)
    assert g.tolist() == [0, 0, 4, 6]


def test_masked_scatter_of_an_empty_source(device):
    """It fits no place that is true, and is in the result's history where none is."""
    mask, none = fb.tensor([True, False]).to(device), fb.zeros(3, 0).to(device)
    for t in (fb.zeros(3, 2).to(device), fb.zeros(3, 2).to(device).requires_grad_()):
        with pytest.raises(RuntimeError, match="same number of elements where mask is true"):
            t.masked_scatter(mask, none)
    source = fb.zeros(3, 0, requires_grad=True)
    made = fb.ones(2).to(device).masked_scatter(mask & False, source.to(device))
    assert made.tolist() == [1, 1] and made.requires_grad
    made.sum().backward()
    assert source.grad.shape == (3, 0)
    source = fb.ones(2, requires_grad=True)
    fb.zeros(0).masked_scatter(fb.tensor([], dtype=fb.bool), source).sum().backward()
    assert source.grad.tolist() == [0, 0]
