"""Reductions, extremes, scans and softmax against NumPy; gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

ARRAYS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5), elements=st.floats(-3, 3, width=32))


def x64(shape=(3, 4), seed=0, low=-2.0, high=2.0):
    return fb.tensor(np.random.default_rng(seed).uniform(low, high, shape), dtype=fb.float64, requires_grad=True)


@settings(max_examples=80, deadline=None)
@given(st.permutations([0, 1, 2, 3]), st.tuples(*[st.integers(1, 6)] * 3), st.integers(1, 140), st.integers(1, 2), st.sets(st.integers(0, 3), min_size=1),
       st.sampled_from([np.float32, np.float64, np.int64, np.int8, np.bool_]))
def test_rows_of_any_length_and_layout_match_numpy(order, outer, length, step, axes, dtype):
    """Short rows and long ones, of one vector and several, behind outer axes that walk as one or not."""
    rng = np.random.default_rng(length)
    whole = (rng.standard_normal((outer[0] * step, *outer[1:], length)) * 5).astype(dtype)
    if whole.dtype.kind == "f" and length % 5 == 0:
        whole.flat[length // 2] = np.nan
    a, x = whole[::step].transpose(order), fb.tensor(whole)[::step].permute(order)
    axes = tuple(axes)
    wide = a.astype(np.float64) if a.dtype.kind == "f" else a
    np.testing.assert_allclose(x.sum(axes).numpy(), wide.sum(axes), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(x.amax(axes).numpy(), a.max(axes))
    np.testing.assert_array_equal(x.amin(axes).numpy(), a.min(axes))
    np.testing.assert_array_equal(x.to(fb.bool).all(axes[0]).numpy(), a.astype(bool).all(axes[0]))
    if dtype is not np.bool_:
        np.testing.assert_array_equal(x.argmax(axes[0]).numpy(), a.argmax(axes[0]))


@settings(max_examples=60, deadline=None)
@given(ARRAYS, st.data())
def test_sums_and_their_kin_match_numpy(a, data):
    axes = tuple(data.draw(st.lists(st.integers(0, a.ndim - 1), unique=True, min_size=1))) if a.ndim else ()
    keep = data.draw(st.booleans())
    t = fb.tensor(a)
    axis = axes if a.ndim else None
    dim = axes if a.ndim else None
    with np.errstate(all="ignore"):
        for ours, theirs in ((fb.sum, np.sum), (fb.mean, np.mean), (fb.any, np.any), (fb.all, np.all)):
            if theirs is np.mean and a.size == 0:
                continue
            np.testing.assert_allclose(ours(t, dim, keep).numpy(), theirs(a, axis=axis, keepdims=keep), rtol=1e-12, atol=1e-12)
        if a.size:
            np.testing.assert_array_equal(fb.amax(t, axes, keep).numpy(), np.max(a, axis=axis, keepdims=keep))
            np.testing.assert_allclose(fb.var(t, dim, keepdim=keep, correction=0).numpy(), np.var(a, axis=axis, keepdims=keep), atol=1e-12)
            np.testing.assert_allclose(fb.logsumexp(t, axes, keep).numpy(), np.log(np.sum(np.exp(a), axis=axis, keepdims=keep)), atol=1e-12)


@pytest.mark.parametrize("shape,axis", [((4, 1000), 1), ((1000, 4), 0), ((7, 9, 33), (0, 2)), ((100000,), 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.bool_])
def test_layouts_and_types(shape, axis, dtype):
    a = (np.random.default_rng(1).normal(size=shape) * 5).astype(dtype)
    t = fb.from_numpy(a)
    want = a.sum(axis, dtype=np.int64 if dtype is not np.float32 else np.float64)
    got = t.sum(axis)
    assert got.dtype is (fb.float32 if dtype is np.float32 else fb.int64)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-3)
    if dtype is not np.bool_ and isinstance(axis, int):
        np.testing.assert_array_equal(t.argmax(axis).numpy(), a.argmax(axis))
        values, at = t.min(axis)
        np.testing.assert_array_equal(values.numpy(), a.min(axis))
        np.testing.assert_array_equal(at.numpy(), a.argmin(axis))


def test_nan_wins_extremes_and_names_its_first_place():
    t = fb.tensor([1.0, float("nan"), 3.0, float("nan")])
    assert np.isnan(t.max().item()) and np.isnan(t.amin().item()) and t.argmax().item() == 1


def test_errors_say_what_is_wrong():
    with pytest.raises(IndexError, match="Dimension out of range"):
        fb.zeros(2, 3).sum(2)
    with pytest.raises(RuntimeError, match="appears multiple times"):
        fb.zeros(2, 3).sum((0, 0))
    with pytest.raises(RuntimeError, match="could not infer output dtype"):
        fb.tensor([1, 2]).mean()
    with pytest.raises(RuntimeError, match="numel\\(\\) == 0"):
        fb.zeros(0).max()
    with pytest.raises(IndexError, match="non-zero size"):
        fb.zeros(3, 0).max(1)


FORMS = {
    "sum": lambda x: x.sum((0,)), "mean": lambda x: x.mean(1), "prod": lambda x: x.prod(1), "var": lambda x: x.var(0), "std": lambda x: x.std(),
    "max": lambda x: x.max(1)[0], "amax": lambda x: x.amax(0), "logsumexp": lambda x: x.logsumexp(1), "norm2": lambda x: x.norm(dim=1),
    "norm1": lambda x: x.norm(1), "norm3": lambda x: x.norm(3, 0), "cumsum": lambda x: x.cumsum(1), "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: x.cummax(1)[0], "logcumsumexp": lambda x: x.logcumsumexp(1), "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(1), "sum_to": lambda x: x.sum_to_size(1, 4),
}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients(name):
    assert gradcheck(FORMS[name], (x64(),), check_forward_ad=True)
    assert gradgradcheck(FORMS[name], (x64(),), atol=1e-4)


def test_product_gradient_with_zeros():
    x = fb.tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0]], dtype=fb.float64, requires_grad=True)
    x.prod(1).sum().backward()
    assert x.grad.tolist() == [[6.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_scans_match_numpy():
    a = np.random.default_rng(0).normal(size=(3, 50, 4))
    t = fb.tensor(a)
    for dim in range(3):
        np.testing.assert_allclose(t.cumsum(dim).numpy(), np.cumsum(a, dim))
        np.testing.assert_allclose(t.cumprod(dim).numpy(), np.cumprod(a, dim))
        np.testing.assert_allclose(t.cummax(dim)[0].numpy(), np.maximum.accumulate(a, dim))
    assert fb.tensor([1, 2, 3], dtype=fb.int8).cumsum(0).dtype is fb.int64


@pytest.mark.parametrize("shape,dim", [((5, 10), 1), ((5, 10), 0), ((2, 3, 4, 5), 1), ((3, 1000), -1), ((1, 1), 1), ((4, 0), 1)])
def test_softmax_matches_numpy(shape, dim):
    a = (np.random.default_rng(0).normal(size=shape) * 20).astype(np.float32)
    t = fb.from_numpy(a)
    e = np.exp(a.astype(np.float64) - a.max(dim, keepdims=True)) if a.size else a
    want = e / e.sum(dim, keepdims=True) if a.size else a
    np.testing.assert_allclose(t.softmax(dim).numpy(), want, rtol=2e-5, atol=1e-7)
    if a.size:
        np.testing.assert_allclose(t.log_softmax(dim).exp().numpy(), want, rtol=2e-4, atol=1e-6)


def test_the_same_bits_on_every_device(device, request):
    """A simulated GPU's are the CPU's; a real one adds up in an order of its own, the same one each time."""
    a = np.random.default_rng(0).normal(size=(64, 333)).astype(np.float32)
    here, there = fb.from_numpy(a), fb.from_numpy(a).to(device)
    for f in (lambda t: t.sum(), lambda t: t.sum(0), lambda t: t.mean(1), lambda t: t.softmax(1), lambda t: t.argmax(1), lambda t: t.cumsum(0)):
        found = f(there).cpu().numpy()
        np.testing.assert_array_equal(found, f(there).cpu().numpy())
        if "real" in request.node.callspec.params.values():
            np.testing.assert_allclose(found, f(here).numpy(), rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(found, f(here).numpy())


@pytest.mark.parametrize("dim", [None, 0, (0, 1)])
def test_the_gradient_of_a_product_of_another_type_is_of_the_operands(dim):
    for shape in ((3, 2), (0, 2), ()):
        x = fb.ones(shape, requires_grad=True)
        if shape or dim is None:
            x.prod(**({} if dim is None else {"dim": dim if not isinstance(dim, tuple) else dim[0]}), dtype=fb.float64).sum().backward()
            assert x.grad.dtype is fb.float32 and x.grad.shape == shape


def test_out_is_of_the_type_that_is_asked_for():
    x = fb.ones(2, 3)
    for reduce in (fb.sum, fb.prod, fb.mean, fb.nansum, fb.cumsum, fb.cumprod, fb.softmax):
        shape = reduce(x, dim=0).shape
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float64, which was asked for, but got float32"):
            reduce(x, dim=0, dtype=fb.float64, out=fb.empty(shape))
        assert reduce(x, dim=0, dtype=fb.float64, out=fb.empty(shape, dtype=fb.float64)).dtype is fb.float64


@pytest.mark.parametrize("shape", [(3, 0), (2, 0, 4), (0, 3)])
def test_gradient_of_a_product_of_nothing(shape):
    for dim in range(len(shape)):
        for keepdim in (False, True):
            x = fb.ones(shape, requires_grad=True)
            x.prod(dim, keepdim).sum().backward()
            assert x.grad.shape == shape


@pytest.mark.parametrize("d", [fb.bool, fb.uint8, fb.int16, fb.int64, fb.bfloat16, fb.float32, fb.float64, fb.complex64], ids=str)
def test_truths_of_whole_vectors_of_bytes(d):
    """all and any fold many elements at once: one that differs is found wherever it lies, behind whole vectors, at ends, along either axis."""
    for rows, columns in ((1, 1), (1, 33), (3, 64), (5, 257), (70, 41)):
        for filled, other in ((1, 0), (0, 1), (1, float("nan"))):
            if other != other and d.is_floating_point is False and d is not fb.complex64:
                continue
            for at in {0, 31, 32, rows * columns // 2, rows * columns - 1} & set(range(rows * columns)):
                a = np.full(rows * columns, filled, np.complex128)
                a[at] = other
                a = a.reshape(rows, columns)
                x = fb.tensor(a.real if d is not fb.complex64 else a).to(d)
                for t, want in ((x, a), (x.t(), a.T), (x[:, ::2], a[:, ::2])):
                    assert t.all().item() == want.all() and t.any().item() == want.any()
                    for axis in (0, 1):
                        assert t.all(axis).tolist() == want.all(axis).tolist() and t.any(axis).tolist() == want.any(axis).tolist()
                assert fb.equal(x, x.clone()) == (other == other) and not fb.equal(x, fb.full_like(x, filled))
