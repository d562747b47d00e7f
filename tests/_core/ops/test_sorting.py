"""Sorting and order statistics against NumPy: ties, NaN, stability, any layout, gradients to the positions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy  # which imports its parts when they are first asked for
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

TYPES = [fb.float32, fb.float64, fb.float16, fb.bfloat16, fb.int64, fb.int32, fb.int16, fb.int8, fb.uint8, fb.bool]


@st.composite
def rows(draw, types=tuple(TYPES), least=0):
    shape = draw(st.lists(st.sampled_from([1, 2, 5, 30]), min_size=1, max_size=3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shape[axis] = draw(st.sampled_from([n for n in (0, 1, 2, 9, 130) if n >= least]))
    d = draw(st.sampled_from(types))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    a = rng.integers(-4 if d.is_signed else 0, 5, shape).astype(float)  # with many ties
    if d.is_floating_point and draw(st.booleans()):
        a[rng.random(shape) < 0.15] = np.nan
        a[rng.random(shape) < 0.1] = np.inf
        a[rng.random(shape) < 0.1] = -np.inf
        a[rng.random(shape) < 0.1] = -0.0
    a = a.astype(bool).astype(float) if d is fb.bool else a
    t = fb.tensor(a).to(d)
    if draw(st.booleans()):
        t = t.movedim(0, -1).contiguous().movedim(-1, 0)
    return t, a, axis, d


def plain(t):
    return t.double().numpy()


def ordered(a, axis, descending):
    """NumPy's stable order, NaN the greatest; descending keeps the order of ties too."""
    n = a.shape[axis]
    if not descending:
        return np.argsort(a, axis, kind="stable")
    return n - 1 - np.flip(np.argsort(np.flip(a, axis), axis, kind="stable"), axis)


@settings(max_examples=120, deadline=None)
@given(rows(), st.booleans(), st.booleans())
def test_sort_is_numpys_stable_sort(case, descending, stable):
    t, a, axis, d = case
    values, at = fb.sort(t, dim=axis, descending=descending, stable=stable)
    want = ordered(a, axis, descending)
    assert values.dtype is d and at.dtype is fb.int64
    np.testing.assert_array_equal(at.numpy(), want)
    np.testing.assert_array_equal(plain(values), np.take_along_axis(a, want, axis))
    np.testing.assert_array_equal(fb.argsort(t, axis, descending).numpy(), want)
    np.testing.assert_array_equal(plain(t), a)


@settings(max_examples=120, deadline=None)
@given(rows(types=tuple(d for d in TYPES if d is not fb.bool)), st.booleans(), st.data())
def test_topk_gives_the_ends_of_the_order(case, largest, data):
    t, a, axis, d = case
    k = data.draw(st.integers(0, a.shape[axis]))
    values, at = fb.topk(t, k, axis, largest)
    want = np.take_along_axis(a, ordered(a, axis, largest), axis).take(range(k), axis)
    np.testing.assert_array_equal(plain(values), want)
    np.testing.assert_array_equal(np.take_along_axis(a, at.numpy(), axis), want)
    if k:
        where = np.sort(at.numpy(), axis)
        assert (np.diff(where, axis=axis) > 0).all()  # no position twice
    loose = fb.topk(t, k, axis, largest, sorted=False).values
    np.testing.assert_array_equal(np.sort(plain(loose), axis), np.sort(want, axis))


@pytest.mark.parametrize("kind", ["ties", "ascending", "descending", "odd", "all the same"])
@pytest.mark.parametrize("d", [d for d in TYPES if d is not fb.bool], ids=str)
def test_a_handful_of_the_first(d, kind):
    """Rows around a block's length, from which few are wanted: ties stand in the order of their places."""
    rng = np.random.default_rng(0)
    for n in (24, 25, 33, 64, 255, 256, 257, 300, 513):
        a = rng.integers(0, 40, (3, n)).astype(np.float64)
        if kind in ("ascending", "descending"):
            a = np.sort(a, 1)[:, ::1 if kind == "ascending" else -1]
        elif kind == "odd" and d.is_floating_point:
            a[:, rng.integers(0, n, n // 3)] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], n // 3)
        elif kind == "all the same":
            a[:] = np.nan if d.is_floating_point else 7
        t = fb.tensor(a.copy()).to(d)
        for lying in (t, t.t().contiguous().t()):
            for k in (1, 2, 5, 8):
                for largest in (True, False):
                    values, at = lying.topk(k, 1, largest)
                    want = ordered(plain(t), 1, largest)[:, :k]
                    np.testing.assert_array_equal(at.numpy(), want)
                    np.testing.assert_array_equal(plain(values), np.take_along_axis(plain(t), want, 1))


@settings(max_examples=80, deadline=None)
@given(rows(types=tuple(d for d in TYPES if d is not fb.bool), least=1), st.booleans(), st.data())
def test_one_element_a_row(case, keepdim, data):
    t, a, axis, d = case
    n = a.shape[axis]
    ascending = np.sort(a, axis)
    k = data.draw(st.integers(1, n))

    def check(found, want):
        values, at = found
        np.testing.assert_array_equal(plain(values), want if keepdim else want.squeeze(axis))
        positions = at.numpy() if keepdim else np.expand_dims(at.numpy(), axis)
        np.testing.assert_array_equal(np.take_along_axis(a, positions, axis), want)
    check(fb.kthvalue(t, k, axis, keepdim), ascending.take([k - 1], axis))
    bad = np.isnan(a).any(axis, keepdims=True)
    check(fb.median(t, axis, keepdim), np.where(bad, np.nan, ascending.take([(n - 1) // 2], axis)))
    count = (~np.isnan(a)).sum(axis, keepdims=True)
    check(fb.nanmedian(t, axis, keepdim), np.take_along_axis(ascending, np.maximum(count - 1, 0) // 2, axis))
    if not np.isnan(a).any():
        check(fb.mode(t, axis, keepdim), scipy.stats.mode(a, axis, keepdims=True).mode)


def test_median_of_everything():
    assert fb.tensor([3, 1, 2, 4]).median().item() == 2 and np.isnan(fb.tensor([1.0, float("nan")]).median().item())
    assert fb.tensor([1.0, float("nan"), 3.0]).nanmedian().item() == 1 and np.isnan(fb.zeros(0).median().item())
    x = fb.tensor([1.0, 2.0, 2.0, 5.0], requires_grad=True)
    x.median().backward()
    assert x.grad.tolist() == [0, 0.5, 0.5, 0]


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_quantiles_are_numpys(how, axis):
    a = np.random.default_rng(0).normal(size=(6, 7))
    q = np.array([0.0, 0.1, 0.25, 0.5, 0.77, 1.0])
    np.testing.assert_allclose(fb.quantile(fb.tensor(a), fb.tensor(q), axis, interpolation=how).numpy(), np.quantile(a, q, axis, method=how))
    np.testing.assert_allclose(fb.quantile(fb.tensor(a), 0.3, axis, True, interpolation=how).numpy(), np.quantile(a, 0.3, axis, keepdims=True, method=how))
    a[0, 3] = np.nan
    np.testing.assert_allclose(fb.quantile(fb.tensor(a), 0.3, axis, interpolation=how).numpy(), np.quantile(a, 0.3, axis, method=how))
    np.testing.assert_allclose(fb.nanquantile(fb.tensor(a), fb.tensor(q), axis, interpolation=how).numpy(), np.nanquantile(a, q, axis, method=how))


def test_forms_and_scalars():
    t = fb.tensor([[3, 1, 2], [0, 5, 4]])
    assert fb.sort(t).values.tolist() == [[1, 2, 3], [0, 4, 5]] and t.sort(0, True)[0].tolist() == [[3, 5, 4], [0, 1, 2]]
    assert fb.msort(t).tolist() == t.sort(0)[0].tolist()
    assert fb.tensor(5.0).sort().indices.item() == 0 and fb.tensor(5.0).topk(1).values.item() == 5 and fb.tensor(5.0).median(0).indices.item() == 0
    values, at = fb.empty(0, dtype=fb.int64), fb.empty(0, dtype=fb.int64)
    found = fb.sort(t, out=(values, at))
    assert found.values is values and values.tolist() == [[1, 2, 3], [0, 4, 5]] and at.shape == (2, 3)
    assert repr(fb.topk(fb.tensor([1, 2]), 1)) == "torch.return_types.topk(\nvalues=tensor([2]),\nindices=tensor([1]))"
    long = np.random.default_rng(0).permutation(200_000)
    assert fb.tensor(long).sort()[0].equal(fb.arange(200_000)) and fb.tensor(long.reshape(2, -1)).topk(3)[0].numpy().tolist() == np.sort(
        long.reshape(2, -1))[:, :-4:-1].tolist()


@pytest.mark.parametrize("call,error,message", [
    (lambda t: t.sort(2), IndexError, "out of range"), (lambda t: t.topk(4), RuntimeError, "k is 4"), (lambda t: t.topk(-1), RuntimeError, "out of range"),
    (lambda t: t.kthvalue(0), RuntimeError, "out of range"), (lambda t: t.to(fb.complex64).sort(), RuntimeError, "complex"),
    (lambda t: fb.zeros(2, 0).median(1), IndexError, "non-zero size"), (lambda t: fb.zeros(2, 0).mode(1), IndexError, "non-zero size"),
    (lambda t: t.quantile(1.5), RuntimeError, r"\[0, 1\]"), (lambda t: t.long().quantile(0.5), RuntimeError, "float or double"),
    (lambda t: t.quantile(0.5, interpolation="best"), RuntimeError, "interpolation"), (lambda t: fb.zeros(0).quantile(0.5), RuntimeError, "non-empty")])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(fb.zeros(2, 3))


FORMS = {"sort": lambda x: x.sort(1).values ** 2, "descending": lambda x: x.t().sort(0, descending=True)[0] ** 2, "topk": lambda x: x.topk(2, 0)[0] ** 2,
         "kthvalue": lambda x: x.kthvalue(2, 1)[0] ** 2, "median": lambda x: x.median(1)[0] ** 2, "mode": lambda x: x.mode(0)[0] ** 2,
         "median of all": lambda x: x.median() ** 2,
         "quantile": lambda x: x.quantile(0.3, 1) ** 2, "quantiles": lambda x: x.quantile(fb.tensor([0.2, 0.9], dtype=fb.float64)) ** 2,
         "nanmedian": lambda x: x.nanmedian(0, keepdim=True)[0] ** 2, "msort": lambda x: x.msort() ** 2}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_match_finite_differences(name):
    x = fb.tensor(np.random.default_rng(5).permutation(12).reshape(3, 4) * 0.7, requires_grad=True)
    assert gradcheck(FORMS[name], (x,), check_forward_ad=True) and gradgradcheck(FORMS[name], (x,))


def test_on_every_device(device):
    a = np.random.default_rng(0).integers(0, 9, (4, 50)).astype(float)
    t = fb.tensor(a).to(device)
    values, at = t.sort(1, stable=True)
    assert str(at.device) == device
    np.testing.assert_array_equal(at.cpu().numpy(), np.argsort(a, 1, kind="stable"))
    np.testing.assert_array_equal(t.topk(5).values.cpu().numpy(), -np.sort(-a)[:, :5])
    np.testing.assert_allclose(t.quantile(0.3, 1).cpu().numpy(), np.quantile(a, 0.3, 1))


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float32, fb.float64, fb.uint8, fb.int16, fb.int64, fb.bool])
def test_few_elements_are_ordered_as_many_are(dtype):
    """NaN, both zeros and equal elements: what is done for few elements gives the positions that the way for many gives."""
    values = [3.0, float("nan"), 0.0, -0.0, 3.0, float("inf"), -2.0, float("nan"), 0.0, 3.0, -float("inf"), 1.0] if dtype.is_floating_point else [
        3, 0, 7, 3, 1, 0, 9, 9, 3, 2, 1, 1]
    row = fb.tensor(values, dtype=dtype)
    for few in (row, row.reshape(3, 4), row.reshape(2, 2, 3)):
        many = few.expand(200, *few.shape).contiguous()  # too many for the short way
        assert many.numel() > 1024
        for descending in (False, True):
            for _ in range(2):
                v, at = fb.sort(few, descending=descending)
                w, there = fb.sort(many, descending=descending)
                assert at.tolist() == there[-1].tolist() == fb.argsort(few, descending=descending).tolist()
                assert str(v.tolist()) == str(w[-1].tolist()) and v.dtype is dtype and at.dtype is fb.int64
                if dtype is not fb.bool:
                    for k in (1, 2):
                        a, b = fb.topk(few, k, largest=descending), fb.topk(many, k, largest=descending)
                        assert a[1].tolist() == b[1][-1].tolist() and str(a[0].tolist()) == str(b[0][-1].tolist())


def test_gradients_of_few_elements():
    x = fb.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]], requires_grad=True)
    for _ in range(2):
        x.grad = None
        (fb.sort(x)[0] * fb.tensor([1.0, 2.0, 3.0])).sum().backward()
        assert x.grad.tolist() == [[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]]
        x.grad = None
        fb.topk(x, 1)[0].sum().backward()
        assert x.grad.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        assert fb.sort(x)[0].grad_fn.name() == "SortBackward0" and fb.argsort(x).grad_fn is None
    with fb.no_grad():
        assert fb.sort(x)[0].grad_fn is None
