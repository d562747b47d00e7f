"""Cutting tensors against NumPy: parts are views, errors name what is wrong, gradients come back to their places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

A = np.arange(60.0).reshape(3, 4, 5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2), st.integers(1, 6))
def test_split_and_chunk_cut_where_python_slices_would(axis, size):
    t = fb.tensor(A)
    n = A.shape[axis]
    cuts = [A.take(range(i, min(i + size, n)), axis) for i in range(0, n, size)]
    parts = t.split(size, axis)
    assert len(parts) == len(cuts)
    for p, c in zip(parts, cuts, strict=True):
        np.testing.assert_array_equal(p.numpy(), c)
        assert p.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
    step = -(-n // size)
    assert [c.shape[axis] for c in t.chunk(size, axis)] == [min(step, n - i) for i in range(0, n, step)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2), st.integers(1, 7) | st.lists(st.integers(-6, 7), max_size=4))
def test_tensor_split_is_numpys_array_split(axis, sections):
    want = np.array_split(A, sections, axis)
    got = fb.tensor(A).tensor_split(sections, axis)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g.numpy(), w)


def test_named_splits_are_numpys():
    t = fb.tensor(A.reshape(4, 3, 5).repeat(2, 1))
    for name in ("hsplit", "vsplit", "dsplit"):
        for sections in ([1, 3], 2 if name != "dsplit" else 5):
            for g, w in zip(getattr(fb, name)(t, sections), getattr(np, name)(t.numpy(), sections), strict=True):
                np.testing.assert_array_equal(g.numpy(), w)
    with pytest.raises(RuntimeError, match="not divisible by the split_size 3"):
        fb.vsplit(t, 3)
    with pytest.raises(RuntimeError, match="at least 3 dimensions"):
        fb.dsplit(fb.zeros(2, 2), 2)


def test_unbind_iterates_and_sizes_may_be_uneven():
    t = fb.tensor(A)
    assert [p.shape for p in t.unbind(1)] == [(3, 5)] * 4 and len(list(t)) == 3
    a, b, c = t.split([1, 0, 3], 1)
    assert (a.shape, b.shape, c.shape) == ((3, 1, 5), (3, 0, 5), (3, 3, 5))
    for call, error in [(lambda: t.split([1, 1], 1), "sum exactly to 4"), (lambda: t.split(-1), "non-negative"), (lambda: t.split(0), "can only be 0"),
                        (lambda: t.chunk(0), "greater than 0"), (lambda: fb.zeros(()).split(1), "at least a 1-dimensional"),
                        (lambda: t.tensor_split(0), "larger than 0"), (lambda: t.split([-1, 5], 1), "non-negative entries")]:
        with pytest.raises(RuntimeError, match=error):
            call()
    assert [p.shape for p in fb.zeros(0, 2).split(3)] == [(0, 2)] and [p.shape for p in fb.zeros(0, 2).chunk(3)] == [(0, 2)] * 3


def test_one_of_several_views_may_not_be_written_while_recording():
    x = fb.ones(4, requires_grad=True)
    part = (x * 2).split(2)[0]
    with pytest.raises(RuntimeError, match="Output 0 of SplitBackward0 is a view and is being modified inplace"):
        part.add_(1.0)
    with fb.no_grad():
        fb.ones(4).chunk(2)[0].add_(1.0)
    for parts in ((x * 2).unsafe_split(2), (x * 2).unsafe_chunk(2), fb.unsafe_split_with_sizes(x * 2, [1, 3])):
        parts[0].add_(1.0)
    t = fb.zeros(4)
    t.split(2)[1].fill_(3.0)
    assert t.tolist() == [0, 0, 3, 3]


def test_unsafe_parts_are_the_outputs_of_one_function():
    for ask, name in ((lambda t: t.unsafe_split(2), "UnsafeSplit"), (lambda t: t.unsafe_chunk(3), "UnsafeSplit"),
                      (lambda t: t.unsafe_split_with_sizes([1, 3, 2]), "UnsafeSplitWithSizes")):
        for write in (False, True):
            x = fb.arange(6.0).requires_grad_()
            for _ in range(6):  # it is learned
                parts = ask(x * 2)
                assert parts[0].grad_fn.name() == name + "Backward0"
                if write:
                    parts[0].mul_(3.0)
                loss = parts[0].sum() + 5 * parts[1].sum()
                (grad,) = fb.autograd.grad(loss, x)
                n, m = parts[0].numel(), parts[1].numel()
                assert grad.tolist() == [6.0 if write else 2.0] * n + [10.0] * m + [0.0] * (6 - n - m)
    with pytest.raises(TypeError):
        fb.ones(4).unsafe_split(2.0)


@pytest.mark.parametrize("mode", [fb.no_grad, fb.enable_grad])
def test_unsafe_parts_are_no_views_to_autograd(mode):
    x = fb.arange(6.0).requires_grad_()
    for ask in (lambda: x.unsafe_split(2), lambda: x.unsafe_chunk(3), lambda: x.unsafe_split_with_sizes([1, 3, 2])):
        for _ in range(6):  # it is learned
            with mode():
                part = ask()[0]
            assert not part._is_view() and part.requires_grad == (mode is fb.enable_grad) and part.data_ptr() == x.data_ptr()
            assert (part * 1).mul_(1)._version == 1
        with mode():
            part.mul_(2)
        assert part.requires_grad == (mode is fb.enable_grad)


def test_axes_joined_opened_and_moved():
    t = fb.tensor(A)
    assert t.flatten().shape == (60,) and t.flatten(1).shape == (3, 20) and t.flatten(0, 1).data_ptr() == t.data_ptr()
    assert fb.zeros(()).flatten().shape == (1,) and t.flatten(1, 1) is t
    assert t.unflatten(1, (2, -1)).shape == (3, 2, 2, 5) and t.ravel().data_ptr() == t.data_ptr()
    assert t.permute(2, 1, 0).ravel().tolist() == A.transpose(2, 1, 0).ravel().tolist()
    with pytest.raises(RuntimeError, match="start_dim cannot come after end_dim"):
        t.flatten(2, 1)
    with pytest.raises(RuntimeError, match="don't multiply up to the size of dim 1"):
        t.unflatten(1, (3, 2))
    for s, d in [(0, 2), ((0, 1), (2, 0)), (-1, 0), ((), ())]:
        np.testing.assert_array_equal(fb.movedim(t, s, d).numpy(), np.moveaxis(A, s, d))
    with pytest.raises(RuntimeError, match="repeated dim in `source`"):
        t.movedim((0, 0), (0, 1))
    assert [fb.atleast_1d(x).ndim for x in (fb.zeros(()), fb.zeros(2))] == [1, 1]
    for f, g in ((fb.atleast_2d, np.atleast_2d), (fb.atleast_3d, np.atleast_3d)):
        for shape in ((), (2,), (2, 3), (2, 3, 4)):
            assert f(fb.zeros(shape)).shape == g(np.zeros(shape)).shape


@settings(max_examples=40, deadline=None)
@given(st.integers(-6, 6), st.permutations(range(3)))
def test_diagonals_are_numpys(offset, axes):
    t = fb.tensor(A)
    d = t.diagonal(offset, axes[0], axes[1])
    np.testing.assert_array_equal(d.numpy(), A.diagonal(offset, axes[0], axes[1]))
    assert d._base is t


FORMS = {"split": lambda x: sum((i + 1) * p.sum(1) for i, p in enumerate((x * x).split([1, 2, 1], 1))), "unbind": lambda x: (x * x).unbind(1)[2],
         "chunk": lambda x: fb.cat(list((x * x).chunk(3, 1))[::-1], 1), "tensor_split": lambda x: (x * x).tensor_split([1], 1)[1],
         "unfold": lambda x: (x * x).unfold(1, 2, 1), "flatten": lambda x: (x * x).t().flatten(), "movedim": lambda x: (x * x).movedim(0, 1)}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_gradients_match_finite_differences(name):
    x = fb.tensor(np.random.default_rng(0).normal(size=(3, 4)), requires_grad=True)
    assert gradcheck(FORMS[name], (x,), check_forward_ad=True) and gradgradcheck(FORMS[name], (x,))


def test_parts_on_every_device(device):
    t = fb.tensor(A).to(device)
    for part, want in zip(t.split(2, 2), [A[..., :2], A[..., 2:4], A[..., 4:]], strict=True):
        assert part.device == t.device
        np.testing.assert_array_equal(part.cpu().numpy(), want)


def test_how_many_parts_is_an_integer():
    t = fb.zeros(4)
    for ask in (lambda: t.chunk(2.0), lambda: t.split(2.0), lambda: t.unsafe_chunk(1.5)):
        with pytest.raises(TypeError):
            ask()
    assert [len(p) for p in t.split(fb.tensor(3))] == [3, 1] and len(t.chunk(np.int64(2))) == 2


@pytest.mark.parametrize("ask", [lambda: fb.ones(3).tensor_split(2**32), lambda: fb.ones(3).tensor_split(2**70), lambda: fb.ones(2, 0).hsplit(2**40),
                                 lambda: fb.ones(2, 0).chunk(2**40, 1), lambda: fb.ones(1).expand(2**34).unbind(), lambda: fb.ones(1).expand(2**34).split(1)])
def test_more_views_than_a_list_holds_are_refused_at_once(ask):
    with pytest.raises(RuntimeError, match="views: at most"):
        ask()


def test_resizing_counts_as_a_write():
    x = fb.zeros(1)
    for count, shape in ((1, (1, 2)), (2, (3,)), (2, (3,)), (3, (2,))):
        x.resize_(shape)
        assert x._version == count
    x.resize_as_(fb.zeros(2))
    assert x._version == 3
