"""Conjugate and negative views: who reads them gets the elements, who writes to them writes through, and nobody reads the memory as it lies."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

import flambeau as fb


def test_a_view_of_conjugates_shares_the_memory(device):
    x = fb.tensor([[1 + 2j, 3 - 4j]], device=device)
    y = x.conj()
    assert y.is_conj() and not x.is_conj() and y._is_view() and y._base is x and y.data_ptr() == x.data_ptr() and fb.is_conj(y)
    assert y.tolist() == [[1 - 2j, 3 + 4j]] and y.stride() == x.stride() and y.storage_offset() == 0
    x[0, 0] = 5j
    assert y.tolist() == [[-5j, 3 + 4j]] and y.conj().tolist() == x.tolist() and not y.conj().is_conj()
    for shown in (y[0], y.t(), y.view(2), y.reshape(-1), y.unsqueeze(0), y.detach(), y.data, *y.unbind(0), *y.split(1, 1), x.mH):
        assert shown.is_conj() and shown.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    for made in (y.clone(), y + 0, y.resolve_conj(), y.to(fb.complex128), fb.cat([y]), y[[0]], y.contiguous().clone(), y.cpu() * 1):
        assert not made.is_conj() and made.tolist() == y.tolist()
    assert (y.real.tolist(), y.imag.tolist(), y.imag.is_neg(), y.real.is_neg()) == ([[0, 3]], [[-5, 4]], True, False)
    assert y.imag.resolve_neg().is_neg() is False and y.imag._neg_view().tolist() == x.imag.tolist() and y.mH.is_conj() is False


def test_what_is_written_goes_through(device):
    x = fb.tensor([1 + 2j, 3 - 4j], device=device)
    y = x.conj()
    assert y.mul_(2j) is y and x.tolist() == [4 - 2j, -8 - 6j] and x._version == 1
    y[0] = 1 + 1j
    y.imag.add_(1)
    assert x.tolist() == [1 - 2j, -8 - 7j] and y.tolist() == [1 + 2j, -8 + 7j]
    fb.add(x, 1, out=y)
    assert y.is_conj() and y.tolist() == [2 - 2j, -7 - 7j] and x.tolist() == [2 + 2j, -7 + 7j]
    y.imag = fb.zeros(2, device=device)
    x.copy_(y.zero_() + 1)
    assert x.tolist() == [1, 1] and y.unsqueeze_(0).shape == (1, 2) and y.is_conj()


def test_gradients_pass_through_both_ways():
    g = fb.tensor([1 + 2j, 2 - 1j], dtype=fb.complex128, requires_grad=True)
    assert fb.autograd.gradcheck(lambda z: z.conj() * z + z.conj()[1:] * z.mH, (g.detach().reshape(2, 1).requires_grad_(),))
    assert fb.autograd.gradcheck(lambda z: z.conj().imag * z.conj().real + z._neg_view().real, (g,))

    def through(z):
        w = z * 1
        c = w.conj()
        c[:1].mul_(2j)
        w.mul_(z)
        return c * w
    assert fb.autograd.gradcheck(through, (g,)) and fb.autograd.gradgradcheck(through, (g,))
    with pytest.raises(RuntimeError, match="view of a leaf"):
        g.conj().mul_(2)
    w = g.detach()
    assert g.conj().grad_fn.name() == "ConjBackward0" and w.conj().requires_grad_().is_leaf
    (found,) = fb.autograd.grad(g * 1j, g, grad_outputs=fb.ones(2, dtype=fb.complex128).mul(1 + 1j).conj())
    assert found.tolist() == ((1 - 1j) * np.conj(1j) * np.ones(2)).tolist()


def test_nobody_reads_the_memory_as_it_lies():
    x = fb.tensor([1 + 2j])
    y = x.conj()
    for wrong, message in ((lambda: y.numpy(), "resolve_conj"), (lambda: np.asarray(y), "resolve_conj"), (lambda: y.imag.numpy(), "resolve_neg"),
                           (lambda: fb.view_as_real(y), "unresolved conj"), (lambda: y.view(fb.float32), "conjugate view")):
        with pytest.raises(RuntimeError, match=message):
            wrong()
    with pytest.raises(BufferError, match="conjugate"):
        fb.utils.dlpack.to_dlpack(y)
    with pytest.raises(NotImplementedError, match="logical_not"):
        fb._neg_view(fb.tensor([True]))
    with pytest.raises(AttributeError):
        _ = y.ptr
    saved = io.BytesIO()
    fb.save(y, saved)
    saved.seek(0)
    for made in (fb.load(saved), pickle.loads(pickle.dumps(y)), copy.deepcopy(y), fb.nn.Parameter(y), fb.func.vmap(lambda v: v.conj())(x),
                 fb.func.jvp(lambda v: v.conj() * 2, (x,), (x,))[1] / 2):
        assert made.tolist() == [1 - 2j]
    assert fb._neg_view(fb.tensor([1, 2])).tolist() == [-1, -2] and fb.ones(2).conj().is_conj() is False


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(np.complex128, hnp.array_shapes(max_dims=3, max_side=4), elements={"allow_nan": False, "allow_infinity": False, "max_magnitude": 1e6}))
def test_a_view_has_the_elements_of_a_copy(a):
    x = fb.tensor(a)
    view, want = x.mT.conj() if a.ndim > 1 else x.conj(), (a.swapaxes(-1, -2) if a.ndim > 1 else a).conj()
    for f in (lambda t: t + 1, lambda t: t * t, lambda t: t.sum(0), lambda t: t[-1], lambda t: t.imag, lambda t: t.real, lambda t: abs(t)):
        got, wanted = f(view), f(fb.tensor(want))
        np.testing.assert_allclose(got.resolve_conj().resolve_neg().numpy(), wanted.numpy(), rtol=1e-12)


def test_views_of_conjugates_are_made_by_a_plan_and_leave_nothing_behind():
    x = fb.tensor([[1 + 2j, 3 - 4j]])
    for _ in range(5):  # which leaves plans
        x.conj()

    def references():
        return [sys.getrefcount(o) for o in (x.meta.strides, x.meta.shape, x.meta, x.store, x)]
    before = references()
    for _ in range(200):
        x.conj()
    gc.collect()
    assert references() == before
    views = [x.conj() for _ in range(50)]
    assert [v.tolist() for v in views] == [[[1 - 2j, 3 + 4j]]] * 50 and len({id(v.meta) for v in views}) == 50
    assert all(v._base is x and v[0]._base is x and v.conj().tolist() == x.tolist() for v in views)
    assert [fb.real(fb.tensor([2.0])).conj().tolist() for _ in range(5)] == [[2.0]] * 5
    y = x[:, 1:]
    seen = [y.conj() for _ in range(5)]
    assert all(v._base is x and v.tolist() == [[3 + 4j]] for v in seen)
    with fb.no_grad():
        x.mul_(1j)
    assert seen[0].tolist() == y.conj().tolist() == [[4 - 3j]] and views[0].tolist() == [[-2 - 1j, 4 - 3j]]
    negative = [x.imag._neg_view() for _ in range(5)]
    assert all(v.is_neg() and v.tolist() == [[-1.0, -3.0]] for v in negative)


def test_recorded_views_of_conjugates_after_plain_ones():
    x = fb.tensor([1 + 2j, 3 - 4j])
    for _ in range(3):
        x.conj()
    leaf = x.clone().requires_grad_()
    y = leaf.conj()
    assert y.requires_grad and y.grad_fn.name() == "ConjBackward0"
    (y * (2 + 1j)).sum().abs().backward()
    again = x.clone().requires_grad_()
    (again.conj().resolve_conj() * (2 + 1j)).sum().abs().backward()
    assert leaf.grad.tolist() == again.grad.tolist()
    with fb.no_grad():
        assert leaf.conj().grad_fn is None and leaf.conj().is_leaf


def test_passes_back_from_views_begin_at_their_own_node():
    for _ in range(3):
        x = fb.tensor([1 + 2j, 3 - 4j], requires_grad=True)
        x.conj().backward(fb.tensor([1 + 1j, 2 - 1j]))
        assert x.grad.tolist() == [1 - 1j, 2 + 1j]
        y = fb.tensor(1 + 2j, requires_grad=True)
        y.conj().imag.backward()
        assert y.grad.item() == -1j
        with pytest.raises(RuntimeError, match="implicitly created only for"):
            x.conj().backward()


def test_numpy_by_force_takes_lazy_views():
    x = fb.tensor([1 + 2j, 3 - 4j], requires_grad=True)
    assert x.conj().numpy(force=True).tolist() == [1 - 2j, 3 + 4j] and x.conj().imag.numpy(force=True).tolist() == [-2, 4]
    with pytest.raises(RuntimeError, match="conjugate bit set"):
        x.detach().conj().numpy()
