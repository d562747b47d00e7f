"""Copies between layouts, types and devices; clones and contiguous copies; what they do to storages and versions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

KINDS = ["dense", "transposed", "every second", "inner slice", "permuted 3"]


def laid_out(kind, shape, d, fill):
    """An array of a shape and the same elements as a tensor in one of the layouts, with canaries around it."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 100, shape).astype(d.np) if fill else np.zeros(shape, d.np)
    if kind == "dense":
        return a, fb.tensor(a), None
    if kind == "transposed":
        base = fb.full(shape[::-1], 1, dtype=d)
        view = base.permute(*range(len(shape) - 1, -1, -1))
    elif kind == "every second":
        base = fb.full([2 * n for n in shape], 1, dtype=d)
        view = base[tuple(slice(0, 2 * n, 2) for n in shape)]
    elif kind == "inner slice":
        base = fb.full([n + 2 for n in shape], 1, dtype=d)
        view = base[tuple(slice(1, n + 1) for n in shape)]
    else:
        order = list(range(len(shape)))
        order = order[1:] + order[:1]
        base = fb.full([shape[i] for i in order], 1, dtype=d)
        view = base.permute(*np.argsort(order).tolist())
    view.copy_(fb.tensor(a))
    return a, view, base


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.lists(st.sampled_from([0, 1, 2, 5, 17, 33]), min_size=1, max_size=3).map(tuple),
       st.sampled_from([fb.float32, fb.int64, fb.uint8, fb.float64, fb.complex128, fb.bool]), st.sampled_from([fb.float32, fb.int16, fb.complex64, fb.float64]))
def test_a_copy_between_any_two_layouts_and_types(from_kind, to_kind, shape, source, target):
    a, t, _ = laid_out(from_kind, shape, source, True)
    _, out, base = laid_out(to_kind, shape, target, False)
    before = None if base is None else base.sum().item()
    assert out.copy_(t) is out
    want = (a.real if source.is_complex and not target.is_complex else a).astype(target.np)
    np.testing.assert_array_equal(out.numpy(), want)
    np.testing.assert_array_equal(t.numpy(), a)
    if base is not None:  # nothing beside the view was written
        assert base.sum().item() == pytest.approx(before + want.astype(np.complex128 if target.is_complex else np.float64).sum(), rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.lists(st.integers(0, 20), min_size=1, max_size=4).map(tuple))
def test_clones_keep_the_layout_where_it_is_dense(kind, shape):
    a, t, _ = laid_out(kind, shape, fb.float32, True)
    c = t.clone()
    np.testing.assert_array_equal(c.numpy(), a)
    assert c.untyped_storage().data_ptr() != t.untyped_storage().data_ptr() or not a.size
    if kind in ("dense", "transposed", "permuted 3"):
        assert c.stride() == t.stride()
    assert c.untyped_storage().nbytes() == a.nbytes or not a.size
    row = t.contiguous()
    assert row.is_contiguous() and (row is t) == t.is_contiguous()
    np.testing.assert_array_equal(row.numpy(), a)


def test_broadcast_copies_and_their_errors():
    t = fb.zeros(2, 3)
    t.copy_(fb.tensor([1, 2, 3]))
    assert t.tolist() == [[1, 2, 3]] * 2
    t.copy_(fb.tensor(7))
    assert t.tolist() == [[7] * 3] * 2 and t._version == 2
    for wrong in (fb.zeros(2), fb.zeros(1, 2, 3, 1), fb.zeros(3, 3)):
        with pytest.raises(RuntimeError, match="must match|doesn't match the broadcast shape"):
            t.copy_(wrong)
    with pytest.raises(TypeError, match="must be Tensor"):
        t.copy_([1, 2, 3])
    assert t.copy_(t) is t


def test_dense_memory_is_not_copied_over_a_part_of_itself():
    t, m = fb.arange(6), fb.arange(9).reshape(3, 3)
    for call in (lambda: t[1:].copy_(t[:-1]), lambda: t.__setitem__(slice(1, None), t[:-1]), lambda: m.copy_(m.t())):
        with pytest.raises(RuntimeError, match="single memory location"):
            call()
    assert t.tolist() == [0, 1, 2, 3, 4, 5] and m.copy_(m).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    t[:3].copy_(t[3:])
    assert t.tolist() == [3, 4, 5, 3, 4, 5]


def test_overlapping_copies_of_what_is_not_dense_read_before_they_write():
    m = fb.arange(9).reshape(3, 3)
    m[:, 1:] = m[:, :-1]
    assert m.tolist() == [[0, 0, 1], [3, 3, 4], [6, 6, 7]]


def test_copy_of_a_number(device):
    for d, written, gives in ((fb.float32, 2, 2.0), (fb.int64, 1.5, 1), (fb.complex64, 2 + 3j, 2 + 3j), (fb.bool, 0.25, True)):
        for shape in ((), (2,)):
            x = fb.ones(shape, dtype=d, device=device)
            assert x.copy_(written) is x and x.cpu().flatten().tolist() == [gives] * x.numel() and x.dtype is d
    a = fb.ones(2, device=device, requires_grad=True)
    (a * 3).copy_(4).sum().backward()
    assert a.grad.tolist() == [0, 0]


def test_clone_and_copy_have_gradients():
    x = fb.tensor(np.random.default_rng(0).normal(size=(3, 4)), requires_grad=True)
    for f in (lambda x: x.clone() ** 2, lambda x: x.t().contiguous() ** 2, lambda x: fb.zeros(2, 3, 4, dtype=fb.float64).copy_(x * x),
              lambda x: fb.zeros(4, 3, dtype=fb.complex128).copy_((x * x).t())):
        assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))
    assert x.clone().grad_fn.name() == x.t().contiguous().grad_fn.name() == "CloneBackward0"
    y = x.clone()
    y.backward(fb.ones_like(x), retain_graph=False)
    y.backward(fb.ones_like(x))  # a copy saves nothing
    x.grad = None
    assert x.contiguous() is x and not fb.ones(2, 3, dtype=fb.int64).clone().requires_grad
    w = fb.ones(3, dtype=fb.float16, requires_grad=True)
    fb.zeros(3).copy_(w).sum().backward()
    assert w.grad.dtype is fb.float16


def test_memory_formats():
    x = fb.arange(120.0).reshape(2, 3, 4, 5)
    last = x.clone(memory_format=fb.channels_last)
    assert last.stride() == (60, 1, 15, 3) and (last == x).all() and last.clone().stride() == last.stride()
    assert last.clone(memory_format=fb.contiguous_format).stride() == x.stride() and last.contiguous(memory_format=fb.channels_last) is last
    assert last.contiguous().stride() == x.stride()
    with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
        fb.zeros(2, 3).contiguous(memory_format=fb.channels_last)


def test_resizing_keeps_what_fits():
    t = fb.arange(6)
    place = t.data_ptr()
    t.resize_(2, 2)
    assert t.tolist() == [[0, 1], [2, 3]] and t.data_ptr() == place
    t.resize_(10)
    assert t[:4].tolist() == [0, 1, 2, 3] and t.shape == (10,)
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        fb.zeros(2, requires_grad=True).resize_(3)


def test_between_devices(device):
    a = np.arange(24).reshape(4, 6)
    t = fb.zeros(4, 6).to(device)
    t.copy_(fb.tensor(a))
    np.testing.assert_array_equal(t.cpu().numpy(), a)
    t[:, ::2].copy_(fb.tensor(-a[:, ::2], dtype=fb.int16))
    a[:, ::2] *= -1
    np.testing.assert_array_equal(t.cpu().numpy(), a)
    host = fb.zeros(6, 4, dtype=fb.float64)
    host.t().copy_(t)
    np.testing.assert_array_equal(host.numpy(), a.T)
    np.testing.assert_array_equal(t.t().clone().cpu().numpy(), a.T)


@pytest.mark.parametrize("value,expected", [(0.5, 0.5), (3, 3.0), (True, 1.0), (2 + 1j, 2.0)])
def test_a_number_is_copied_everywhere(value, expected):
    t = fb.zeros(2, 3)
    assert t.copy_(value) is t and t.tolist() == [[expected] * 3] * 2
    assert fb.zeros(2, dtype=fb.int64).copy_(2.7).tolist() == [2, 2]
    x = fb.ones(2, requires_grad=True)
    y = (x * 3).copy_(value)
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]
    with pytest.raises(TypeError, match="must be Tensor"):
        t.copy_([1.0])
