"""A beginner's mistakes: each is an error of PyTorch's type, and its message holds the facts that PyTorch's has, at the least."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn

F: Any = nn.functional

# what was done, as text; on a simulated GPU; the error; what its message must hold
MISTAKES: list[tuple[str, bool, type[Exception], tuple[str, ...]]] = [
    ("torch.tensor([[1, 2], [3]])", False, ValueError, ("expected sequence of length 2 at dim 1 (got 1", "data[1]")),
    ("torch.tensor([[1, 2], 3])", False, TypeError, ("not a sequence", "data[1] is a number")),
    ("torch.tensor(['a', 'b'])", False, ValueError, ("too many dimensions 'str'",)),
    ("torch.tensor([1, None])", False, RuntimeError, ("Could not infer dtype of NoneType",)),
    ("torch.tensor([torch.ones(2), torch.ones(2)])", False, ValueError, ("only one element tensors can be converted", "torch.stack")),
    ("torch.ones(2).new('abc')", False, TypeError, ("new(): data must be a sequence", "str")),
    ("torch.from_numpy(np.array([object()]))", False, TypeError, ("can't convert np.ndarray of type object", "float64", "bool")),
    ("torch.from_numpy([1, 2])", False, TypeError, ("expected np.ndarray (got list)",)),
    ("torch.zeros(2, dtype='float')", False, TypeError, ("zeros(): argument 'dtype' must be torch.dtype, not str",)),
    ("torch.zeros(2, device='gpu')", False, RuntimeError, ("'gpu'", "cpu, cuda")),
    ("torch.zeros(-1)", False, RuntimeError, ("negative dimension -1",)),
    ("torch.ones(2, 3) + torch.ones(4)", False, RuntimeError, ("(3)", "(4)", "non-singleton dimension 1")),
    ("torch.ones(2, 3) @ torch.ones(2, 3)", False, RuntimeError, ("cannot be multiplied (2x3 and 2x3)",)),
    ("torch.ones(6).view(4, 2)", False, RuntimeError, ("shape '[4, 2]' is invalid for input of size 6",)),
    ("torch.ones(2, 3).t().view(6)", False, RuntimeError, ("not compatible with input tensor's size and stride", ".reshape(...)")),
    ("torch.ones(6).reshape(-1, -1)", False, RuntimeError, ("only one dimension can be inferred",)),
    ("torch.ones(2).squeeze(3)", False, IndexError, ("range of [-1, 0], but got 3",)),
    ("torch.cat([torch.ones(2, 3), torch.ones(2, 4)])", False, RuntimeError, ("except in dimension 0", "Expected size 3 but got size 4", "number 1")),
    ("torch.cat(torch.ones(2), torch.ones(2))", False, TypeError, ("argument 'tensors' (position 1)", "not Tensor")),
    ("torch.stack([torch.ones(2), torch.ones(3)])", False, RuntimeError, ("[2] at entry 0 and [3] at entry 1",)),
    ("torch.ones(3)[5]", False, IndexError, ("index 5 is out of bounds for dimension 0 with size 3",)),
    ("torch.ones(3)[1.0]", False, IndexError, ("only integers, slices", "float")),
    ("torch.ones(3)[0, 0]", False, IndexError, ("too many indices for tensor of dimension 1",)),
    ("torch.ones(3)[torch.tensor([True, False])]", False, IndexError, ("shape of the mask [2]", "indexed tensor [3] at index 0")),
    ("torch.ones(3).item()", False, RuntimeError, ("Tensor with 3 elements cannot be converted to Scalar",)),
    ("bool(torch.ones(3))", False, RuntimeError, ("more than one value is ambiguous",)),
    ("torch.ones(2, requires_grad=True).numpy()", False, RuntimeError, ("requires grad", "tensor.detach().numpy()")),
    ("torch.ones(2, device='cuda').numpy()", True, TypeError, ("cuda:0 device type tensor to numpy", "Tensor.cpu()")),
    ("torch.ones(2, device='cuda') + torch.ones(2)", True, RuntimeError, ("same device", "cuda:0 and cpu", "other.to('cuda:0')")),
    ("nn.Linear(2, 2).cuda()(torch.ones(1, 2))", True, RuntimeError, ("same device", "cuda:0 and cpu", "input", "weight")),
    ("(torch.ones(2, requires_grad=True) * 2).backward()", False, RuntimeError, ("grad can be implicitly created only for scalar outputs",)),
    ("torch.ones(2).sum().backward()", False, RuntimeError, ("does not require grad and does not have a grad_fn",)),
    ("backward_twice()", False, RuntimeError, ("backward through the graph a second time", "retain_graph=True")),
    ("torch.ones(2, requires_grad=True).add_(1)", False, RuntimeError, ("leaf Variable that requires grad", "in-place")),
    ("torch.tensor([1, 2], requires_grad=True)", False, RuntimeError, ("floating point", "can require gradients")),
    ("overwritten()", False, RuntimeError, ("modified by an inplace operation", "ExpBackward0", "version 1; expected version 0")),
    ("nn.Linear(3, 2)(torch.ones(4, 5))", False, RuntimeError, ("(4x5 and 3x2)",)),
    ("nn.Linear(3, 2)(torch.ones(4, 3, dtype=torch.int64))", False, RuntimeError, ("mat1 and mat2 must have the same dtype", "Long and Float")),
    ("nn.Conv2d(3, 8, 3)(torch.ones(1, 1, 8, 8))", False, RuntimeError, ("weight of size [8, 3, 3, 3]", "to have 3 channels, but got 1")),
    ("nn.Conv2d(3, 8, 5)(torch.ones(1, 3, 4, 4))", False, RuntimeError, ("(4 x 4)", "(5 x 5)", "Kernel size can't be greater")),
    ("nn.Conv2d(3, 8, 3)(torch.ones(3, 8))", False, RuntimeError, ("Expected 3D (unbatched) or 4D (batched) input to conv2d", "[3, 8]")),
    ("nn.MaxPool2d(2)(torch.ones(1, 3, 1, 1))", False, RuntimeError, ("(3x1x1)", "(3x0x0)", "kernel of 2x2", "Output size is too small")),
    ("nn.BatchNorm1d(3)(torch.ones(1, 3))", False, ValueError, ("more than 1 value per channel", "[1, 3]")),
    ("nn.Embedding(3, 2)(torch.tensor([3]))", False, IndexError, ("index 3 is out of bounds", "size 3")),
    ("nn.Embedding(3, 2)(torch.tensor([1.0]))", False, RuntimeError, ("indices", "Long, Int", "torch.FloatTensor")),
    ("F.cross_entropy(torch.ones(2, 3), torch.tensor([0.0, 1.0]))", False, RuntimeError, ("expected target dtype to be Long or Byte, but got Float",)),
    ("F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 3]))", False, IndexError, ("Target 3 is out of bounds",)),
    ("F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1, 2]))", False, ValueError, ("batch_size (2)", "target batch_size (3)")),
    ("F.binary_cross_entropy(torch.tensor([2.0]), torch.tensor([1.0]))", False, RuntimeError, ("between 0 and 1",)),
    ("torch.optim.SGD([], lr=0.1)", False, ValueError, ("empty parameter list",)),
    ("torch.optim.SGD(torch.ones(2, requires_grad=True), lr=0.1)", False, TypeError, ("iterable of Tensors or dicts",)),
    ("torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=-1)", False, ValueError, ("Invalid learning rate: -1",)),
    ("nn.Linear(2, 2).load_state_dict({'weight': torch.ones(3, 3)})", False, RuntimeError, (
        'Missing key(s) in state_dict: "bias"', "size mismatch for weight", "[3, 3]", "[2, 2]")),
    ("without_init()", False, AttributeError, ("cannot assign module before Module.__init__() call",)),
    ("torch.tensor([1, 2]).mean()", False, RuntimeError, ("floating point or complex", "Long")),
    ("torch.tensor({'a': 1})", False, RuntimeError, ("Could not infer dtype of dict", "x.values()")),
    ("torch.arange('3')", False, TypeError, ("arange(): argument 'end' (position 1) must be Number, not str",)),
    ("torch.arange(None)", False, TypeError, ("arange(): argument 'end' (position 1) must be Number, not NoneType",)),
    ("torch.arange(1, 2, '3')", False, TypeError, ("arange(): argument 'step' (position 3) must be Number, not str",)),
    ("torch.linspace(1, '5', 3)", False, TypeError, ("linspace(): argument 'end' (position 2) must be Number, not str",)),
    ("torch.logspace([1], 5, 3)", False, TypeError, ("logspace(): argument 'start' (position 1) must be Number, not list",)),
    ("torch.eye('3')", False, TypeError, ("eye(): argument 'n' (position 1) must be int, not str",)),
    ("torch.randperm('3')", False, TypeError, ("randperm(): argument 'n' (position 1) must be int, not str",)),
    ("torch.sum(torch.ones(2), axes=1)", False, TypeError, ("'axes'", "its arguments are input, dim, keepdim, dtype, out")),
    ("F.softmax(torch.ones(2), dimm=1)", False, TypeError, ("'dimm'", "its arguments are input, dim, dtype")),
    ("nn.Sequential(nn.Linear(2, 2), F.relu)", False, TypeError, ("torch.nn.functional.relu is not a Module subclass",)),
    ("nn.Sequential(nn.Linear(2, 2), torch.relu)", False, TypeError, ("torch.relu is not a Module subclass",)),
    ("nn.Sequential(nn.Linear(2, 2), nn.ReLU)", False, TypeError, ("ReLU is not a Module subclass", "it is a class, and ReLU(...) makes a module")),
    ("nn.Sequential([nn.Linear(2, 2)])", False, TypeError, ("list is not a Module subclass",)),
    ("wrong_index_on_a_gpu()", True, torch.AcceleratorError, ("index 5 is out of bounds for dimension 0 with size 3", f"launched at {__file__}:")),
]


def backward_twice() -> None:
    y = (torch.ones(2, requires_grad=True) ** 2).sum()
    y.backward()
    y.backward()


def overwritten() -> None:
    y = torch.ones(2, requires_grad=True).exp()
    y.add_(1)
    y.sum().backward()


def without_init() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(2, 2)
    Net()


def wrong_index_on_a_gpu() -> None:
    torch.ones(3, device="cuda")[torch.tensor([5], device="cuda")]
    torch.cuda.synchronize()


def test_there_are_70() -> None:
    assert len(MISTAKES) == 70 == len({code for code, *_ in MISTAKES})


@pytest.mark.parametrize(("code", "gpu", "kind", "facts"), MISTAKES, ids=[code for code, *_ in MISTAKES])
def test_a_mistake_is_told(code: str, gpu: bool, kind: type[Exception], facts: tuple[str, ...]) -> None:
    with torch.simulate(gpus=1) if gpu else contextlib.nullcontext(), pytest.raises(kind) as caught:
        eval(code, globals() | {"np": np})
    assert [fact for fact in facts if fact not in str(caught.value)] == [], str(caught.value)


def test_the_broadcast_warning_names_the_line() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        F.mse_loss(torch.ones(4, 1), torch.ones(4))
    assert [(w.filename, w.lineno) for w in told] == [(__file__, line)]
    assert "target size" in str(told[0].message) and "[4, 1]" in str(told[0].message) and "[4]" in str(told[0].message)
