"""Views against NumPy: the same elements at the same addresses, writes seen everywhere, versions shared, gradients put back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau._core.engine import fields
from flambeau._core.ops import table
from flambeau.autograd import gradcheck, gradgradcheck


@st.composite
def chains(draw):
    """A dense shape and a chain of view operations, each as (a function of a tensor, the same of an array)."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    a = np.arange(float(np.prod(shape))).reshape(shape)
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["permute", "transpose", "select", "narrow", "slice", "unsqueeze", "squeeze", "expand", "diagonal", "unfold"]))
        n = a.ndim
        if kind == "permute":
            order = draw(st.permutations(range(n)))
            step = (lambda t, o=tuple(order): t.permute(o), lambda x, o=tuple(order): x.transpose(o))
        elif kind == "transpose" and n:
            i, j = draw(st.integers(-n, n - 1)), draw(st.integers(-n, n - 1))
            step = (lambda t, i=i, j=j: t.transpose(i, j), lambda x, i=i, j=j: x.swapaxes(i, j))
        elif kind == "select" and n:
            d = draw(st.integers(0, n - 1))
            if not a.shape[d]:
                continue
            i = draw(st.integers(-a.shape[d], a.shape[d] - 1))
            step = (lambda t, d=d, i=i: t.select(d, i), lambda x, d=d, i=i: x[(slice(None),) * d + (i, ...)])
        elif kind == "narrow" and n:
            d = draw(st.integers(0, n - 1))
            s = draw(st.integers(0, a.shape[d]))
            k = draw(st.integers(0, a.shape[d] - s))
            step = (lambda t, d=d, s=s, k=k: t.narrow(d, s, k), lambda x, d=d, s=s, k=k: x[(slice(None),) * d + (slice(s, s + k),)])
        elif kind == "slice" and n:
            cut = slice(draw(st.none() | st.integers(-3, 3)), draw(st.none() | st.integers(-3, 3)), draw(st.integers(1, 3)))
            step = (lambda t, c=cut: t[..., c], lambda x, c=cut: x[..., c])
        elif kind == "unsqueeze":
            d = draw(st.integers(0, n))
            step = (lambda t, d=d: t.unsqueeze(d), lambda x, d=d: np.expand_dims(x, d))
        elif kind == "squeeze":
            step = (lambda t: t.squeeze(), lambda x: x.squeeze())
        elif kind == "expand":
            k = draw(st.integers(1, 3))
            step = (lambda t, k=k: t.expand(k, *t.shape), lambda x, k=k: np.broadcast_to(x, (k, *x.shape)))
        elif kind == "diagonal" and n >= 2:
            off = draw(st.integers(-2, 2))
            step = (lambda t, o=off: t.diagonal(o, 0, -1), lambda x, o=off: x.diagonal(o, 0, -1))
        elif kind == "unfold" and n:
            d = draw(st.integers(0, n - 1))
            if not a.shape[d]:
                continue
            w, s = draw(st.integers(1, a.shape[d])), draw(st.integers(1, 2))
            step = (lambda t, d=d, w=w, s=s: t.unfold(d, w, s),
                    lambda x, d=d, w=w, s=s: np.lib.stride_tricks.sliding_window_view(x, w, d)[(slice(None),) * d + (slice(None, None, s),)])
        else:
            continue
        steps.append(step)
        a = step[1](a)
    return shape, steps


def follow(shape, steps):
    """The dense array and tensor, and what the chain shows of each."""
    dense = np.arange(float(np.prod(shape))).reshape(shape)
    base = fb.tensor(dense)
    array, view = dense, base
    for ours, numpys in steps:
        view, array = ours(view), numpys(array)
    return dense, base, array, view


def address(a):
    return a.__array_interface__["data"][0]


@settings(max_examples=200, deadline=None)
@given(chains())
def test_a_chain_of_views_shows_what_numpys_shows_at_the_same_place(case):
    dense, base, array, view = follow(*case)
    assert tuple(view.shape) == array.shape
    np.testing.assert_array_equal(view.numpy(), array)
    assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    if array.size:
        assert view.data_ptr() - base.data_ptr() == address(array) - address(dense)
        at = [(s, t) for s, t, d in zip(array.strides, view.stride(), array.shape, strict=True) if d > 1]
        assert all(s == t * 8 for s, t in at)
        assert view.storage_offset() * 8 == address(array) - address(dense)


@settings(max_examples=200, deadline=None)
@given(chains())
def test_a_write_through_a_view_is_seen_in_the_base(case):
    dense, base, array, view = follow(*case)
    version = base._version
    if len(np.unique(array)) < array.size:
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory location"):
            view.add_(1.0)
        return
    view.mul_(-2.0)
    dense.reshape(-1)[array.astype(int).reshape(-1)] *= -2.0
    np.testing.assert_array_equal(base.numpy(), dense)
    assert base._version == view._version == version + 1


@settings(max_examples=60, deadline=None)
@given(chains())
def test_the_gradient_of_a_view_goes_back_to_each_element_as_often_as_it_is_shown(case):
    shape, steps = case
    _, base, array, _ = follow(shape, steps)
    base.requires_grad_()
    view = base
    for ours, _ in steps:
        view = ours(view)
    weight = np.random.default_rng(0).normal(size=array.shape)
    (view * fb.tensor(weight)).sum().backward()
    want = np.zeros(int(np.prod(shape)))
    np.add.at(want, array.astype(int).reshape(-1), weight.reshape(-1))
    got = base.grad.numpy() if base.grad is not None else np.zeros(shape)
    np.testing.assert_allclose(got, want.reshape(shape), rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(chains())
def test_a_recorded_write_through_a_view_replaces_that_part_of_the_history(case):
    shape, steps = case
    _, _, array, _ = follow(shape, steps)
    if len(np.unique(array)) != array.size:
        return
    x = fb.ones(*shape, dtype=fb.float64, requires_grad=True)
    y = x * 3.0
    view = y
    for ours, _ in steps:
        view = ours(view)
    w = fb.ones(*view.shape, dtype=fb.float64, requires_grad=True)
    view.copy_(w * 5.0)
    y.sum().backward()
    want = np.full(int(np.prod(shape)), 3.0)
    want[array.astype(int).reshape(-1)] = 0.0
    np.testing.assert_array_equal(x.grad.numpy(), want.reshape(shape))
    np.testing.assert_array_equal(w.grad.numpy(), np.full(array.shape, 5.0))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=3), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 6))
def test_as_strided_is_numpys_and_stays_in_the_storage(shape, strides, offset):
    strides = (strides + [1, 1, 1])[:len(shape)]
    data = np.arange(24.0)
    t = fb.tensor(data)
    reach = 0 if 0 in shape else 1 + offset + sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
    if reach > 24:
        with pytest.raises(RuntimeError, match="out of bounds for storage"):
            t.as_strided(shape, strides, offset)
        return
    got = t.as_strided(shape, strides, offset)
    np.testing.assert_array_equal(got.numpy(), np.lib.stride_tricks.as_strided(data[offset:], shape, [8 * s for s in strides]))
    x = fb.tensor(data, requires_grad=True)
    x.as_strided(shape, strides, offset).sum().backward()
    want = np.zeros(24)
    for index in np.ndindex(*shape):
        want[offset + sum(i * s for i, s in zip(index, strides, strict=True))] += 1
    np.testing.assert_array_equal(x.grad.numpy(), want)


def test_as_strided_refuses_what_no_storage_has():
    t = fb.zeros(4)
    for args, message in [(((2,), (1, 1)), "mismatch in length"), (((2,), (-1,)), "Negative strides"), (((2,), (1,), -1), "invalid storage offset")]:
        with pytest.raises(RuntimeError, match=message):
            t.as_strided(*args)
    view = t[2:]
    assert view.as_strided((2,), (1,)).storage_offset() == 2 and view.as_strided((4,), (1,), 0).storage_offset() == 0


def test_view_and_reshape():
    t = fb.arange(12).reshape(3, 4)
    assert t.view(-1).data_ptr() == t.data_ptr() and t.reshape(2, 6).data_ptr() == t.data_ptr()
    assert t.t().reshape(12).data_ptr() != t.data_ptr() and t.t().reshape(-1).tolist() == np.arange(12).reshape(3, 4).T.reshape(-1).tolist()
    with pytest.raises(RuntimeError, match=r"view size is not compatible.*Use .reshape\(...\) instead"):
        t.t().view(12)
    with pytest.raises(RuntimeError, match="is invalid for input of size 12"):
        t.view(5, -1)
    with pytest.raises(TypeError):
        t.view(2.0, 6)
    assert t.view([4, 3]).shape == (4, 3) and t.view(fb.Size([6, 2])).shape == (6, 2) and fb.zeros(()).view(1, 1).shape == (1, 1)


def test_a_view_of_another_type_shares_the_bytes():
    t = fb.tensor([1.0, -2.0])
    bits = t.view(fb.int32)
    assert bits.tolist() == np.array([1.0, -2.0], np.float32).view(np.int32).tolist()
    bits[0] = 0x40000000
    assert t.tolist() == [2.0, -2.0] and t._version == bits._version
    assert t.view(fb.uint8).shape == (8,) and t.view(fb.float64).shape == (1,)
    assert fb.zeros(3, 4).view(fb.int16).stride() == (8, 1)
    with pytest.raises(RuntimeError, match=r"self.size\(-1\) must be divisible by 2"):
        fb.zeros(3).view(fb.float64)
    with pytest.raises(RuntimeError, match=r"self.stride\(-1\) must be 1"):
        fb.zeros(2, 4).t().view(fb.float64)


def test_expand():
    t = fb.arange(3)
    e = t.expand(2, -1)
    assert e.stride() == (0, 1) and e.tolist() == [[0, 1, 2]] * 2 and t.expand_as(fb.zeros(4, 3)).shape == (4, 3)
    with pytest.raises(RuntimeError, match=r"The expanded size of the tensor \(4\) must match the existing size \(3\) at non-singleton dimension 1"):
        t.expand(2, 4)
    with pytest.raises(RuntimeError, match="leading, non-existing dimension 0"):
        t.expand(-1, 3)
    with pytest.raises(RuntimeError, match="must be greater or equal to the number of dimensions"):
        fb.zeros(2, 3).expand(3)
    with pytest.raises(RuntimeError, match="single memory location"):
        e.mul_(2)
    assert e.zero_().sum().item() == 0 and t.tolist() == [0, 0, 0]  # a number may be written as often as one likes
    x = fb.ones(3, requires_grad=True)
    y = x * 2
    y[:1].expand(4).fill_(5.0)
    y.sum().backward()
    assert y.tolist() == [5, 2, 2] and x.grad.tolist() == [0, 2, 2]
    assert fb.broadcast_to(t, (2, 3)).stride() == (0, 1) and [b.shape for b in fb.broadcast_tensors(t, fb.zeros(2, 1))] == [(2, 3)] * 2


@pytest.mark.parametrize("call,error", [
    (lambda t: t.permute(0, 0), "duplicate dims"), (lambda t: t.permute(0), "number of dimensions"), (lambda t: t.select(0, 3), "out of range"),
    (lambda t: t.narrow(0, 2, 2), "exceeds dimension size"), (lambda t: t.narrow(0, 0, -1), "non-negative"), (lambda t: t.transpose(0, 2), "out of range"),
    (lambda t: t.unsqueeze(4), "out of range"), (lambda t: fb.zeros(2, 3, 4).t(), "<= 2 dimensions"), (lambda t: fb.zeros(()).select(0, 0), "0-dim"),
    (lambda t: t.unfold(0, 4, 1), "maximum size"), (lambda t: t.unfold(0, 1, 0), "step is 0"), (lambda t: t.diagonal(0, 1, 1), "cannot be identical")])
def test_wrong_views_say_why(call, error):
    with pytest.raises((RuntimeError, IndexError), match=error):
        call(fb.zeros(3, 4))


def test_views_know_their_base_and_detach_shares_the_version():
    t = fb.zeros(2, 3)
    v = t[0][1:]
    assert v._is_view() and v._base is t and not t._is_view() and t._base is None
    d = t.detach()
    d.add_(1.0)
    assert t.sum().item() == 6 and t._version == d._version == v._version == 1
    t.data.add_(1.0)  # .data has a version of its own
    assert t.sum().item() == 12 and t._version == 1


def test_a_result_in_memory_of_its_own_is_no_view():
    t, v = fb.arange(6.0).reshape(2, 3), fb.arange(3.0)
    for made in (lambda: t.repeat(2, 2), lambda: t.tile(2), lambda: fb.kron(t, t), lambda: t @ v, lambda: fb.unique(t), lambda: t.roll(1),
                 lambda: t.quantile(0.5, 1)):
        for _ in range(6):  # by its body, then by what was learned of it
            x = made()
            assert not x._is_view() and x._base is None
            assert x.detach_() is x
    for view in (lambda: t.narrow(0, 0, 1), lambda: t.ravel(), lambda: t.reshape(3, 2), lambda: t.unbind()[0]):
        assert view()._base is t._base
        with pytest.raises(RuntimeError, match="Can't detach views"):
            view().detach_()


def test_bits_read_as_another_type_are_outside_autograd():
    t = fb.ones(4)
    for d in (fb.int32, fb.float32, fb.float64):
        for x in (t.view(d), t.view(d), t.requires_grad_(True).view(d), t.requires_grad_(False).view(d)):
            assert x.data_ptr() == t.data_ptr() and not x._is_view() and not x.requires_grad
    t.view(fb.int32)[0] = 0
    assert t.tolist() == [0, 1, 1, 1]


def test_writes_that_overlap_what_they_read():
    t = fb.arange(6.0)
    with pytest.raises(RuntimeError, match="input tensor and the written-to tensor refer to a single memory location"):
        t[1:].add_(t[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        fb.add(t[:4], 1.0, out=t[1:5])
    t[:3].add_(t[3:])  # apart
    assert t.tolist() == [3, 5, 7, 3, 4, 5]
    m = fb.arange(9.0).reshape(3, 3)
    m[:, 0].add_(m[:, 1])  # interleaved, no element in common
    assert m[:, 0].tolist() == [1, 7, 13]
    pairs = fb.arange(24.0).reshape(2, 4, 3).transpose(1, 0).view(2, 2, 2, 3)  # so a parallel scan takes pairs of a turned axis
    pairs[:, 1].mul_(pairs[:, 0])
    assert pairs[0, 1].tolist() == [[0, 4, 10], [180, 208, 238]]
    t.add_(t)
    assert t.tolist() == [6, 10, 14, 6, 8, 10]
    u = fb.arange(4.0)
    u[1:].copy_(u[:-1].clone())
    assert u.tolist() == [0, 0, 1, 2]


VIEWS = {"view": lambda x: x.view(4, 3), "reshape": lambda x: x.t().reshape(2, 6), "permute": lambda x: x.permute(1, 0), "transpose": lambda x: x.mT,
         "expand": lambda x: x.unsqueeze(1).expand(3, 2, 4), "select": lambda x: x.select(1, 2), "narrow": lambda x: x.narrow(1, 1, 2),
         "slice": lambda x: x[::2, 1:], "squeeze": lambda x: x[:1].squeeze(0), "as_strided": lambda x: x.as_strided((3, 3), (2, 1), 1),
         "diagonal": lambda x: x.diagonal(1), "unfold": lambda x: x.unfold(1, 3, 1), "chunk": lambda x: x.chunk(2, 1)[1], "T": lambda x: x.T}


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_gradients_match_finite_differences(name):
    x = fb.tensor(np.random.default_rng(0).normal(size=(3, 4)), requires_grad=True)
    f = lambda t: VIEWS[name](t) ** 2  # noqa: E731 (a square, so that the second derivative is no zero)
    assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))


def test_views_of_a_gpu_tensor(device):
    data = np.arange(24.0).reshape(2, 3, 4)
    t = fb.tensor(data).to(device)
    v = t.permute(2, 0, 1)[1:, :, ::2]
    np.testing.assert_array_equal(v.cpu().numpy(), data.transpose(2, 0, 1)[1:, :, ::2])
    v.fill_(-1.0)
    data.transpose(2, 0, 1)[1:, :, ::2] = -1.0
    np.testing.assert_array_equal(t.cpu().numpy(), data)
    assert v.device == t.device and v._version == t._version == 1


def test_layouts_changed_in_place():
    t = fb.arange(6).reshape(2, 3)
    place = t.data_ptr()
    assert t.t_() is t and t.shape == (3, 2) and t.stride() == (1, 3) and t.data_ptr() == place
    assert t.unsqueeze_(0).shape == (1, 3, 2) and t.squeeze_(0).shape == (3, 2) and t.transpose_(0, 1).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_view_without_elements_begins_where_its_slice_does(device):
    x = fb.zeros(4, 5, device=device)
    for view, begins in ((x[1:1], 5), (x[4:], 20), (x[2:1], 10), (x[:, 5:], 5), (x[3][2:2], 17), (x[2:2, 1], 11), (x.narrow(0, 2, 0), 10), (x.t()[2:2], 2),
                         (x[..., 2:2], 2), (x.tensor_split([0, 4], 0)[2], 20), (x.split([4, 0])[1], 20), (x[2:2].view(0, 5), 10), (x[2:2].detach(), 10),
                         (x[100:], 20), (x[-100:0], 0)):
        for _ in range(4):
            assert view.storage_offset() == begins and view.numel() == 0 and view.sum().item() == 0 and view.clone().shape == view.shape
    y = x[4:]
    y.add_(1)
    assert y._version == x._version == 1 and y._base is x


def test_views_by_another_size_of_type_say_what_does_not_fit():
    t = fb.zeros(4, 4, 3)
    for of, text in ((t[0, 0, 0], r"self.dim\(\) cannot be 0"), (t, r"size\(-1\) must be divisible by 2"),
                     (t[:, :, 1:], r"storage_offset\(\) must be divisible by 2"),
                     (t.as_strided((4, 4, 2), (2, 1, 1)), r"stride\(1\) must be divisible by 2"), (t.transpose(0, 2), r"stride\(-1\) must be 1")):
        with pytest.raises(RuntimeError, match=text):
            of.view(fb.float64)


_SHOWN = {
    "adjoint": lambda x: x.adjoint(), "as_strided": lambda x: x.as_strided((2, 2), (1, 2)), "broadcast_to": lambda x: fb.broadcast_to(x, (2, 4, 6)),
    "chunk": lambda x: x.chunk(2), "detach": lambda x: x.detach(), "diagonal": lambda x: x.diagonal(), "dsplit": lambda x: x.reshape(2, 2, 6).dsplit(2),
    "expand": lambda x: x.expand(2, 4, 6), "expand_as": lambda x: x.expand_as(fb.ones(2, 4, 6)), "hsplit": lambda x: x.hsplit(2),
    "imag": lambda x: x.imag, "movedim": lambda x: x.movedim(0, 1), "narrow": lambda x: x.narrow(0, 1, 2),
    "permute": lambda x: x.permute(1, 0), "select": lambda x: x.select(0, 1), "split": lambda x: x.split(2),
    "split_with_sizes": lambda x: x.split_with_sizes([1, 3]), "squeeze": lambda x: x[:1].squeeze(), "swapaxes": lambda x: x.swapaxes(0, 1),
    "t": lambda x: x.t(), "tensor_split": lambda x: x.tensor_split(3), "transpose": lambda x: x.transpose(0, 1), "unbind": lambda x: x.unbind(),
    "unflatten": lambda x: x.unflatten(1, (2, 3)), "unfold": lambda x: x.unfold(0, 2, 1), "unsqueeze": lambda x: x.unsqueeze(0),
    "view": lambda x: x.view(24), "view_as": lambda x: x.view_as(fb.ones(24)), "view_as_complex": lambda x: fb.view_as_complex(x.view(4, 3, 2)),
    "view_as_real": lambda x: fb.view_as_real(x), "vsplit": lambda x: x.vsplit(2), "H": lambda x: x.H, "T": lambda x: x.T,
    "mH": lambda x: x.mH, "mT": lambda x: x.mT}
_SOMETIMES = {
    "atleast_1d": lambda x: fb.atleast_1d(x), "atleast_2d": lambda x: fb.atleast_2d(x), "atleast_3d": lambda x: fb.atleast_3d(x),
    "flatten": lambda x: x.flatten(), "ravel": lambda x: x.ravel(), "real": lambda x: x.real, "reshape": lambda x: x.reshape(24),
    "reshape_as": lambda x: x.reshape_as(fb.ones(24))}


@pytest.mark.parametrize("name", sorted({*_SHOWN, *_SOMETIMES}))
def test_what_shows_its_operand_says_so(name):
    """The field "views" is true: the result lies in the operand's memory; where it says so there is a form that copies."""
    x = fb.zeros(4, 6, dtype=fb.complex64 if name in ("imag", "view_as_real") else fb.float32)
    made = (_SHOWN | _SOMETIMES)[name](x)
    for part in made if isinstance(made, tuple) else (made,):
        assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    shows = fields.of("views")[name]
    assert shows == "maybe" if name in _SOMETIMES else shows in ("input", "copied")
    if shows == "copied":
        assert f"{name}_copy" in table.TABLE


def test_nothing_else_says_that_it_shows_its_operand():
    assert set(fields.of("views")) == {*_SHOWN, *_SOMETIMES}


def test_copy_forms_have_memory_of_their_own():
    x = fb.arange(24.0).reshape(4, 6)
    for copied, view in ((fb.t_copy(x), x.t()), (fb.narrow_copy(x, 0, 1, 2), x.narrow(0, 1, 2)), (fb.detach_copy(x), x),
                         (fb.alias_copy(x), x), (fb.unfold_copy(x, 0, 2, 1), x.unfold(0, 2, 1))):
        assert fb.equal(copied, view) and copied.untyped_storage().data_ptr() != x.untyped_storage().data_ptr() and copied.is_contiguous()
    assert all(fb.equal(a, b) for a, b in zip(fb.split_copy(x, 2), x.split(2), strict=True))
