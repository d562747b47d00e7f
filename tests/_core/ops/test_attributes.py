"""What a tensor tells: sizes, flags, values on the host, conversions to Python numbers, copies and pickles, hooks' handles."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import flambeau as fb
from flambeau._core import dtypes


def test_description():
    t = fb.zeros(2, 3, dtype=fb.float64)
    assert t.shape == t.size() == (2, 3) and t.size(-1) == 3 and t.ndim == t.dim() == t.ndimension() == 2 and t.numel() == t.nelement() == 6
    assert t.stride() == (3, 1) and t.stride(0) == 3 and t.element_size() == t.itemsize == 8 and t.nbytes == 48 and len(t) == 2
    assert t.is_cpu and not t.is_cuda and t.get_device() == -1 and str(t.device) == "cpu" and t.layout is fb.strided and t.dtype is fb.float64
    assert not t.is_sparse and not t.is_quantized and not t.is_meta and t.is_leaf and t.names == (None, None) and not t.is_conj() and not t.is_neg()
    assert t.is_floating_point() and not t.is_complex() and t.is_signed() and t.output_nr == 0 and t._version == 0
    with pytest.raises(IndexError, match="Dimension out of range"):
        t.size(2)
    with pytest.raises(IndexError):
        fb.tensor(1).size(0)
    with pytest.raises(AttributeError):
        t.colour  # noqa: B018


@pytest.mark.parametrize("shape,strides,contiguous", [((2, 3), (3, 1), True), ((2, 3), (1, 2), False), ((1, 3), (99, 1), True), ((0, 3), (5, 7), True),
    ((3, 1), (1, 5), True)])
def test_contiguity_looks_past_axes_of_size_one(shape, strides, contiguous):
    assert fb.empty(50).as_strided(shape, strides).is_contiguous() is contiguous if 0 not in shape else fb.empty(0, 3).is_contiguous()


def test_data_pointers_and_storages():
    t = fb.arange(6.0)
    assert t[2:].data_ptr() == t.data_ptr() + 8 and t[2:].storage_offset() == 2 and fb.empty(0).data_ptr() == 0
    s = t.untyped_storage()
    assert s.data_ptr() == t.data_ptr() and s.nbytes() == len(s) == s.size() == 24 and s.device == t.device
    assert t[1:].untyped_storage() == s and hash(t.untyped_storage()) == hash(s) and t.clone().untyped_storage() != s


@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
def test_one_element_becomes_a_python_number(d):
    v = fb.ones((), dtype=d).item()
    assert type(v) is {"b": bool, "u": int, "i": int, "f": float, "c": complex}[d.kind] and v == 1
    t = fb.ones(1, 1, dtype=d)
    assert t.item() == 1 and bool(t) is True and t.tolist() == [[v]] and type(t.tolist()[0][0]) is type(v)
    assert int(t) == 1 and float(t) == 1.0 and complex(t) == 1


def test_values_that_are_no_single_number():
    for t in (fb.zeros(2), fb.zeros(0)):
        with pytest.raises(RuntimeError, match=f"a Tensor with {t.numel()} elements cannot be converted to Scalar"):
            t.item()
        with pytest.raises(RuntimeError, match="Boolean value of Tensor with"):
            bool(t)
    assert bool(fb.tensor(0.0)) is False and bool(fb.tensor([float("nan")])) is True
    assert list(range(5))[fb.tensor(2)] == 2 and "abc"[fb.tensor([1])] == "b"
    for wrong in (fb.tensor(1.5), fb.tensor([1, 2])):
        with pytest.raises(TypeError, match="only integer tensors of a single element"):
            [1, 2, 3][wrong]
    with pytest.raises(ValueError):
        int(fb.tensor(float("nan")))
    with pytest.raises(OverflowError):
        int(fb.tensor(float("inf")))


def test_iteration_and_membership():
    t = fb.tensor([[1, 2], [3, 4]])
    assert [r.tolist() for r in t] == [[1, 2], [3, 4]] and [r.tolist() for r in reversed(t)] == [[3, 4], [1, 2]] and 3 in t and 9 not in t
    (a, b), c = t
    assert b.item() == 2 and c.tolist() == [3, 4]
    for wrong in (len, iter):
        with pytest.raises(TypeError, match="0-d tensor"):
            wrong(fb.tensor(1))
    with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
        "x" in t  # noqa: B015
    assert hash(t) == hash(t) and len({t, t, t.clone()}) == 2


def test_numpy_shares_memory_and_says_when_it_cannot():
    t = fb.arange(6.0).reshape(2, 3)
    a = t.t().numpy()
    a[0, 1] = 9
    assert t[1, 0].item() == 9 and a.strides == (4, 12)
    assert np.asarray(t).dtype == np.float32 and np.array(t, dtype=np.int64).tolist() == [[0, 1, 2], [9, 4, 5]]
    assert np.asarray(t).sum() == 21
    with pytest.raises(RuntimeError, match="Can't call numpy\\(\\) on Tensor that requires grad"):
        fb.ones(1, requires_grad=True).numpy()
    with pytest.raises(TypeError, match="unsupported ScalarType BFloat16"):
        fb.ones(1, dtype=fb.bfloat16).numpy()
    assert fb.ones(1, requires_grad=True).numpy(force=True).tolist() == [1] and fb.ones(1, requires_grad=True).detach().numpy()[0] == 1
    del t
    assert a[0, 1] == 9


def test_values_of_gpu_tensors_come_by_copy(sim_gpus):
    t = fb.arange(6, device="cuda").reshape(2, 3)
    assert t.tolist() == [[0, 1, 2], [3, 4, 5]] and t[1, 1].item() == 4 and bool(t[0, 1]) and t.get_device() == 0 and t.is_cuda
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        t.numpy()
    assert t.numpy(force=True)[1, 2] == 5 and [r.tolist() for r in t.t()] == [[0, 3], [1, 4], [2, 5]]


def test_copies_keep_the_layout_and_attributes():
    t = fb.arange(6.0).reshape(2, 3).t()
    t.label = ["kept"]
    c = copy.deepcopy(t)
    assert c.stride() == t.stride() and fb.equal(c, t) and c.label == ["kept"] and c.label is not t.label and c.data_ptr() != t.data_ptr()
    both = copy.deepcopy([t, t])
    assert both[0] is both[1]
    shallow = copy.copy(t)
    assert fb.equal(shallow, t)


@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
def test_pickles(d, sim_gpus):
    t = fb.tensor([[0, 1], [2, 3]]).to(d)
    for u in (t, t.t(), t[:, :1], t[:0], t[0, 0], t.to("cuda:1")):
        back = pickle.loads(pickle.dumps(u))
        assert back.dtype is d and back.shape == u.shape and back.device == u.device and fb.equal(back, u)
    if d.is_floating_point:
        leaf = t.clone().requires_grad_()
        assert pickle.loads(pickle.dumps(leaf)).requires_grad
    p = pickle.loads(pickle.dumps(fb.nn.Parameter(fb.ones(2))))
    assert type(p) is fb.nn.Parameter and p.requires_grad
    stream = io.BytesIO()
    pickle.dump({"a": t}, stream)
    assert stream.tell() < 2000


def test_data_shares_memory_but_neither_history_nor_version():
    x = fb.ones(2, requires_grad=True)
    y = x * 2
    y.data.mul_(5)
    assert y.tolist() == [10, 10] and y._version == 0 and not y.data.requires_grad
    x.data = fb.tensor([3.0, 4.0])
    assert x.requires_grad and x.is_leaf and x.tolist() == [3, 4]
    with pytest.raises(TypeError, match="Variable data has to be a tensor"):
        x.data = [1]
    d = x.detach()
    d.add_(1)
    assert x._version == d._version and x.tolist() == [4, 5]


def test_types_by_name():
    t = fb.zeros(2)
    assert t.type() == "torch.FloatTensor" and t.long().type() == "torch.LongTensor" and t.type("torch.DoubleTensor").dtype is fb.float64
    assert t.type(fb.int8).dtype is fb.int8
    assert fb.typename(t) == "torch.FloatTensor"


def test_elements_replaced_one_by_one_in_python(sim_gpus):
    t = fb.tensor([[1.0, 2.0], [3.0, 4.0]]).t()
    assert t.apply_(lambda v: v * 10) is t and t.tolist() == [[10, 30], [20, 40]] and t._version == 1
    assert t.map_(fb.tensor([1.0, 2.0]), lambda a, b: a + b).tolist() == [[11, 32], [21, 42]]
    assert fb.tensor([1.0]).map2_(fb.tensor([2.0]), fb.tensor([3.0]), lambda a, b, c: a + b * c).tolist() == [7]
    with pytest.raises(TypeError, match="float32.*'y'.*int64"):
        fb.ones(2).map2_(fb.ones(2), fb.ones(2, dtype=fb.int64), lambda a, b, c: a)
    assert fb.tensor([3]).is_nonzero() is True
    with pytest.raises(TypeError, match="only implemented on CPU tensors"):
        t.cuda().apply_(abs)
    with pytest.raises(RuntimeError, match="requires grad"):
        fb.ones(1, requires_grad=True).apply_(abs)


def test_reversed_and_deleted_parts():
    x = fb.arange(6.0).reshape(3, 2).requires_grad_()
    y = reversed(x)
    assert y.tolist() == [[4, 5], [2, 3], [0, 1]] and y.requires_grad and reversed(fb.tensor(3.0)).item() == 3
    with pytest.raises(TypeError, match="does not support deleting items"):
        del x[0]
    x.sum().backward()
    del x.grad
    assert x.grad is None
    for name, words in (("data", "Deleting tensor data"), ("requires_grad", "must be a bool")):
        with pytest.raises(RuntimeError, match=words):
            delattr(x, name)


def test_shallow_copies_and_pickles_of_what_has_a_history_are_leaves():
    x = fb.ones(2, requires_grad=True)
    y = x * 3
    shallow, loaded = copy.copy(y), pickle.loads(pickle.dumps(y))
    assert shallow.tolist() == loaded.tolist() == [3, 3] and shallow.data_ptr() == y.data_ptr() and loaded.data_ptr() != y.data_ptr()
    assert shallow.is_leaf and shallow.requires_grad and loaded.is_leaf and loaded.requires_grad
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(y)


def test_the_gradient_by_its_other_name():
    for x in (fb.ones(2), fb.ones(2, requires_grad=True), fb.nn.Parameter(fb.ones(2))):
        x._grad = fb.full((2,), 3.0)
        assert x.grad.tolist() == x._grad.tolist() == [3, 3]
        x.grad = None
        assert x._grad is None
    kept = fb.ones(2, requires_grad=True).requires_grad_()
    kept.grad = fb.ones(2)
    assert kept.requires_grad_(False).grad.tolist() == [1, 1] and kept.requires_grad_().grad.tolist() == [1, 1]


def test_data_of_another_kind_is_refused():
    a = fb.ones((), requires_grad=True)
    a.data = fb.full((), 2.0)
    with pytest.raises(RuntimeError, match="must be floating point or complex dtype"):
        a.data = fb.tensor(3)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        fb.ones(1, 2).data = fb.sparse_coo_tensor(fb.zeros(1, 1, dtype=fb.int64), fb.ones(1))
    assert a.item() == 2 and a._fix_weakref() is None


def test_all_names_of_a_tensor_are_there():
    x = fb.ones(2, 2)
    with pytest.raises(RuntimeError):
        hasattr(x, "imag")
    names = [n for n in dir(x) if n != "imag"]
    assert "shape" in names and all(hasattr(x, n) for n in names)


def test_what_cannot_be_deleted():
    x = fb.ones(2, requires_grad=True)
    y = x * 2
    assert y._grad_fn is y.grad_fn and y._backward_hooks is None
    handle = y.register_hook(lambda g: g)
    assert list(y._backward_hooks) == [handle.id]
    for name in ("data", "requires_grad", "_grad_fn", "_backward_hooks"):
        with pytest.raises(RuntimeError):
            delattr(x, name)
    del x.grad
    assert x.grad is None


def test_hooks_put_in_the_place_of_others():
    from collections import OrderedDict
    x = fb.ones(2, requires_grad=True)
    x.register_hook(lambda g: g * 100)
    x._backward_hooks = OrderedDict([(0, lambda g: g * 3)])
    (x * 2).sum().backward()
    y = fb.ones(2)
    y._backward_hooks = OrderedDict()
    y._backward_hooks["test"] = lambda g: 1 / 0
    (y * x.detach().requires_grad_()).sum().backward()
    assert x.grad.tolist() == [6, 6]
    x._backward_hooks, x.grad = None, None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_axes_in_the_order_of_memory() -> None:
    x = fb.empty(2, 3, 5, 7)
    assert x.dim_order() == (0, 1, 2, 3) and x.transpose(1, 3).dim_order() == (0, 3, 2, 1)
    assert x.to(memory_format=fb.channels_last).dim_order(ambiguity_check=True) == (0, 2, 3, 1)
    assert fb.ones(3).expand(2, 3).dim_order() == (0, 1)
    one = fb.empty(1, 3)
    assert one.dim_order() == one.dim_order(ambiguity_check=[fb.contiguous_format]) == (0, 1)
    for check, y in ((True, one), ([fb.contiguous_format, fb.channels_last], fb.empty(1, 3, 1, 1))):
        with pytest.raises(RuntimeError, match="does not have unique dim order"):
            y.dim_order(ambiguity_check=check)
    for wrong in (3, [3], "no"):
        with pytest.raises(TypeError, match="bool or a list of memory formats"):
            one.dim_order(ambiguity_check=wrong)
    with pytest.raises(AttributeError, match="dim order on sparse type"):
        fb.eye(2).to_sparse().dim_order()


def test_what_loading_leaves_in_a_tensors_place() -> None:
    x, other = fb.zeros(2), fb.nn.Parameter(fb.ones(2))
    made = x.module_load(other)
    assert made.data_ptr() == x.data_ptr() and x.tolist() == [1, 1] and not made.requires_grad
    assert x.module_load(other, assign=True).data_ptr() == other.data_ptr()
    assert x.const_data_ptr() == x.data_ptr() and x.is_distributed() is False
