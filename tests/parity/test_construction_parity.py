"""What tensors are made of data, how results lie in memory, and the phrases of errors that programs look for: as PyTorch has them."""

from __future__ import annotations

import copy
import warnings
from itertools import permutations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


class Indexable:
    """A sequence by `__len__` and `__getitem__` alone."""

    def __init__(self, *elements):
        self.elements = elements

    def __len__(self):
        return len(self.elements)

    def __getitem__(self, i):
        return self.elements[i]


class Closed(Indexable):
    def __getitem__(self, i):
        raise TypeError("no element for anybody")


endless: list = [0]
endless.append(endless)


def seen(T, call):
    """What a call gives, as plain data, or the type of its exception."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            made = eval(call, {"T": T, "np": np, "Indexable": Indexable, "Closed": Closed, "endless": endless, "copy": copy})
        except Exception as error:
            return type(error).__name__
    if isinstance(made, T.Tensor):
        made = (str(made.dtype).split(".")[-1], tuple(made.shape), made.stride() if made.layout is T.strided else None, made.to_dense().tolist())
    return made, len(said)


@pytest.mark.parametrize("call", """
T.tensor(Indexable(1., 2., 3.))
T.tensor(Closed(1., 2., 3.))
T.tensor(endless)
T.as_tensor([[1, 2], endless])
T.tensor([0, 1, 0.5, 2j, 0.], dtype=T.bool)
T.tensor(2j, dtype=T.bool)
T.tensor([2j], dtype=T.float32)
T.tensor([4, np.float64(3)])
T.tensor([4., np.float32(3)])
T.tensor([np.float32(3), 4.])
T.tensor([np.int8(3), 4])
T.asarray(np.float64(.5), copy=False)
T.asarray([1, 2], copy=False)
T.frombuffer(bytearray(8), dtype=T.int32, count=0)
T.frombuffer(bytearray(8), dtype=T.int32, count=1)
T.tensor(1.).to_sparse()
T.tensor(0.).to_sparse()
T.tensor(1.).to_sparse().t()
T.ones(2, 2).to_sparse(0)
T.ones(2, 2).to_sparse(3)
T.ones(2, 2).to_sparse(1).t()
T.repeat_interleave(T.arange(4.))
T.repeat_interleave(T.arange(4).reshape(2, 2))
T.repeat_interleave(T.ones(2), T.ones(2))
T.repeat_interleave(T.ones(2, 2), T.arange(9).reshape(3, 3), dim=0)
T.repeat_interleave(T.arange(3), T.tensor([1, 2, 0], dtype=T.int32))
T.zeros(3, layout=T.sparse_coo, out=T.zeros(3))
T.zeros(3, layout=T.strided, out=T.zeros(3))
T.randperm(2049, dtype=T.half).dtype.itemsize
T.randperm(2050, dtype=T.half)
T.randperm(257, dtype=T.bfloat16).dtype.itemsize
T.logspace(0., 2j, 3).dtype.itemsize
T.logspace(0., 2j, 3, dtype=T.float32)
T.range(0, 3)
T.ones(2).new(size=(2,)).shape[0]
T.FloatTensor(device="meta")
T.Tensor(T.tensor([1]), device="cpu")
T.tensor([1]).new(T.tensor([1]), device="cpu")
T.tensor([1]).new((2., 3.), device="meta")
type("Derived", (T.FloatTensor,), {})
T.tensor_split(T.ones(3), 2.0)
T.tensor_split(T.ones(3), (1., 2.))
T.tensor_split(T.ones(3), T.tensor([1., 2]))
T.isclose(T.ones(2), T.ones(2), T.tensor(1), T.tensor(1.))
T.isclose(T.ones(2), T.ones(2), T.tensor(1.), T.tensor(1., requires_grad=True))
T.nn.functional.nll_loss(T.tensor(1.), T.tensor(1.), reduction="none")
T.ones(3).storage().__sizeof__() - T.ones(0).storage().__sizeof__()
T.ones(3).untyped_storage().__sizeof__() - T.ones(0).untyped_storage().__sizeof__()
T.ones(6).reshape(2, 3).t().resize_as_(T.ones(3, 2)).stride()
T.empty(2, 3).t().resize_(3, 2).stride()
T.empty(2, 3).t().resize_(2, 3).stride()
T.empty(6).resize_((1, 2, 1, 3), memory_format=T.channels_last).stride()
T.empty(2).resize_((1, 2, 2, 3), memory_format=T.channels_last).stride()
T.empty(6).resize_((1, 2, 1, 3), memory_format=T.preserve_format)
T.empty(6).resize_((2, 3), memory_format=T.channels_last)
T.empty(24).resize_as_(T.empty(2, 3, 2, 2).to(memory_format=T.channels_last)).stride()
T.empty(24).resize_as_(T.empty(2, 3, 2, 2).to(memory_format=T.channels_last), memory_format=T.preserve_format).stride()
""".strip().splitlines())
def test_data_sizes_and_formats_are_taken_as_by_pytorch(call):
    assert seen(flambeau, call) == seen(torch, call)


@pytest.mark.parametrize(("call", "error", "phrase"), [
    ("T.tensor(endless)", TypeError, "self-referential lists are incompatible"),
    ("T.tensor(Closed(1))", ValueError, "could not determine the shape"),
    ("T.tensor([1], requires_grad=True)", RuntimeError, "Only Tensors of floating point and complex dtype can require gradients"),
    ("T.empty([8, 8, 2**29, 2**29], dtype=T.float64)", RuntimeError, "Storage size calculation overflowed"),
    ("T.empty([0, 4, 2**61])", RuntimeError, "Stride calculation overflowed"),
    ("T.ones(1).expand(2**40, 2**40)", RuntimeError, "numel: integer multiplication overflow"),
    ("T.view_as_complex(T.ones(()))", RuntimeError, "Input tensor must have one or more dimensions"),
    ("T.tensor([1 + 2j]).conj().view(T.float64)", RuntimeError, "not supported for conjugate view tensors"),
    ("T.meshgrid(T.ones(1), T.ones(1, device='meta'), indexing='ij')", RuntimeError, "expects all tensors to have the same device"),
    ("T.frombuffer(bytearray(8), dtype=T.int32, count=0)", ValueError, r"both buffer length \(8\) and count \(0\) must not be 0"),
    ("T.nn.functional.conv2d(T.ones(1, 1, 1, 6).long(), T.ones(1, 1, 1, 3).double())", RuntimeError, "expected scalar type Long but found Double"),
    ("T.cummax(T.ones(3), 0, out=(T.ones(3).short(), T.ones(3).long()))", RuntimeError, "expected scalar_type Float but found Short"),
    ("T.complex(T.ones(2), T.ones(2), out=T.ones(2))", RuntimeError,
     "Expected object of scalar type ComplexFloat but got scalar type Float for argument 'out'"),
    ("T.index_select(T.randn(0, 3), 0, T.tensor([0, 1]))", RuntimeError, "self indexing axis dim should be positive"),
    ("T.ones(2, 2, 2).to_sparse().t()", RuntimeError, "expects a tensor with <= 2 sparse and 0 dense dimensions"),
    ("T.zeros(3, layout=T.sparse_coo, out=T.zeros(3))", RuntimeError, "does not match layout of out parameter"),
])
def test_errors_have_the_phrases_that_programs_look_for(call, error, phrase):
    for T in (flambeau, torch):
        with pytest.raises(error, match=phrase):
            eval(call, {"T": T, "endless": endless, "Closed": Closed})


@pytest.mark.parametrize("call", """
T.arange(6).view(2, 3)[T.tensor(1, dtype=T.int16)]
T.arange(6).view(2, 3)[T.tensor(1, dtype=T.int8), 0]
T.arange(6).view(2, 3)[:, T.tensor(-1, dtype=T.int16)]
T.arange(6).view(2, 3)[T.tensor([1], dtype=T.int8)]
T.arange(6)["0":"1"]
T.arange(6)[1.5:]
T.empty(10, 0)[:, [1, 2]]
T.add(T.tensor(33000., dtype=T.float16), T.tensor(33000., dtype=T.float16), out=T.empty((), dtype=T.float64))
T.mul(T.tensor(1.3, dtype=T.bfloat16), T.tensor(1.7, dtype=T.bfloat16), out=T.empty(()))
T.true_divide(T.tensor(1.5, dtype=T.float16), T.tensor(.666, dtype=T.float16), out=T.empty((), dtype=T.float64))
T.exp(T.tensor(1.3, dtype=T.bfloat16), out=T.empty(()))
""".strip().splitlines())
def test_positions_of_any_integer_type_and_results_of_16_bits_in_wider_outs(call):
    assert seen(flambeau, call) == seen(torch, call)


def test_the_whole_range_of_int64_is_drawn_from():
    for T in (flambeau, torch):
        T.manual_seed(3)
    ours, theirs = (T.empty(3000, dtype=T.int64).random_(-2**63, None) for T in (flambeau, torch))
    assert ours.tolist() == theirs.tolist()


def test_a_sparse_tensors_gradient_is_copied_with_it():
    for T in (flambeau, torch):
        s = T.ones(3).to_sparse()
        s.grad = T.full((3,), 2.).to_sparse()
        held = copy.deepcopy(s)
        s.grad = None
        assert held.grad.to_dense().tolist() == [2, 2, 2]


def test_the_name_storage_is_that_of_the_default_type():
    try:
        flambeau.set_default_dtype(flambeau.float64)
        assert flambeau.Storage is flambeau.DoubleStorage
    finally:
        flambeau.set_default_dtype(flambeau.float32)
    assert flambeau.Storage is flambeau.FloatStorage


LAYOUTS = {"dense": lambda T: T.ones(2, 3, 4), "every other": lambda T: T.ones(2, 3, 8)[:, :, ::2], "ones before": lambda T: T.ones(1, 1, 4, 12)[:, :, :, ::2],
           "expanded": lambda T: T.ones(2, 1, 1).expand(2, 3, 1), "one image": lambda T: T.ones(1, 3, 1, 1).contiguous(memory_format=T.channels_last),
           "images": lambda T: T.ones(2, 3, 1, 1).contiguous(memory_format=T.channels_last)}


@pytest.mark.parametrize("of", LAYOUTS)
def test_elementwise_results_lie_as_pytorchs_do_also_in_an_out_that_grows(of):
    def strides(T):
        x, found = LAYOUTS[of](T), []
        for axes in permutations(range(x.dim())):
            p = x.permute(axes)
            for a, b in ((p, p), (p, T.ones(p.size(-1))), (T.ones(p.size(-1)), p), (T.ones((1,) * p.dim()), p), (T.ones(3, 1, 1), p), (p.contiguous(), p)):
                try:
                    made = [T.eq(a, b), T.add(a, b), T.where(a > 0, a, b)]
                except RuntimeError:
                    continue
                found += [m.stride() for m in made] + [T.add(a, b, out=T.empty(0)).stride(), T.eq(a, b, out=T.empty(0, dtype=T.bool)).stride()]
            found += [p.exp().stride(), T.exp(p, out=T.empty(0)).stride(), (p * 5).stride(), p.clone().stride()]
        return found
    assert strides(flambeau) == strides(torch)
