"""What a program may do wrong: each time a clear error of PyTorch's type, and everything made before still works."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import cuda, nn, optim

F: Any = nn.functional


@pytest.fixture(params=["cpu", "eager", "lazy"])
def where(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A function that makes a tensor on the device under test."""
    if request.param == "cpu":
        yield lambda t: t
        return
    with torch.simulate(gpus=1, memory="64MiB", queue=request.param):
        yield lambda t: t.cuda()


Row = tuple[str, Callable[[Any], Any], type[Exception], str]


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape)


SHAPES: list[Row] = [
    (
        "broadcast",
        lambda d: d(ones(2, 3)) + d(ones(4)),
        RuntimeError,
        r"size of tensor a \(3\) must match the size of tensor b \(4\) at non-singleton dimension 1",
    ),
    ("matmul", lambda d: d(ones(2, 3)) @ d(ones(2, 3)), RuntimeError, r"cannot be multiplied \(2x3 and 2x3\)"),
    ("bmm", lambda d: torch.bmm(d(ones(2, 3)), d(ones(2, 3))), RuntimeError, "batch1 must be a 3D tensor"),
    ("dot", lambda d: torch.dot(d(ones(2)), d(ones(3))), RuntimeError, "inconsistent tensor size"),
    ("einsum", lambda d: torch.einsum("ij,jk", d(ones(2, 3)), d(ones(4, 5))), RuntimeError, "subscript j has size 4"),
    ("view", lambda d: d(ones(2, 3)).view(7), RuntimeError, r"shape '\[7\]' is invalid for input of size 6"),
    ("reshape", lambda d: d(ones(2, 3)).reshape(4, -1), RuntimeError, r"shape '\[4, -1\]' is invalid for input of size 6"),
    ("two -1", lambda d: d(ones(2, 3)).reshape(-1, -1), RuntimeError, "only one dimension can be inferred"),
    ("view of a transpose", lambda d: d(ones(2, 3)).t().view(6), RuntimeError, "view size is not compatible with input tensor's size and stride"),
    ("expand", lambda d: d(ones(2, 3)).expand(4, 3), RuntimeError, "must match the existing size"),
    ("cat", lambda d: torch.cat([d(ones(2, 3)), d(ones(2, 4))]), RuntimeError, "Sizes of tensors must match except in dimension 0"),
    ("stack", lambda d: torch.stack([d(ones(2)), d(ones(3))]), RuntimeError, "stack expects each tensor to be equal size"),
    ("copy_", lambda d: d(ones(2)).copy_(d(ones(3))), RuntimeError, r"size of tensor a \(2\) must match the size of tensor b \(3\)"),
    ("in place", lambda d: d(ones(2)).mul_(d(ones(3, 2))), RuntimeError, "doesn't match the broadcast shape"),
    ("linear", lambda d: F.linear(d(ones(2, 3)), d(ones(4, 5))), RuntimeError, r"cannot be multiplied \(2x3 and 5x4\)"),
    ("conv2d channels", lambda d: F.conv2d(d(ones(1, 3, 8, 8)), d(ones(2, 4, 3, 3))), RuntimeError, r"to have 4 channels, but got 3 channels"),
    ("conv2d kernel", lambda d: F.conv2d(d(ones(1, 3, 2, 2)), d(ones(2, 3, 3, 3))), RuntimeError, "Kernel size can't be greater than actual input size"),
    ("layer_norm", lambda d: F.layer_norm(d(ones(2, 3)), (4,)), RuntimeError, r"normalized_shape=\[4\]"),
    ("cross_entropy", lambda d: F.cross_entropy(d(ones(2, 3)), d(torch.tensor([0, 1, 2]))), ValueError, r"batch_size \(2\) to match target batch_size \(3\)"),
    ("batch_norm", lambda d: F.batch_norm(d(ones(1, 3)), None, None, training=True), ValueError, "more than 1 value per channel"),
    ("mask", lambda d: d(ones(2, 3))[d(torch.tensor([True, False, True]))], IndexError, "shape of the mask"),
    ("pooling", lambda d: F.max_pool2d(d(ones(1, 1, 2, 2)), 5), RuntimeError, "Output size is too small"),
    ("inverse", lambda d: torch.linalg.inv(d(ones(2, 3))), RuntimeError, "square matrices"),
]
DIMS: list[Row] = [
    *[
        (name, call, IndexError, r"Dimension out of range \(expected to be in range of \[-2, 1\], but got (2|-3|5)\)")
        for name, call in (
            ("sum", lambda d: d(ones(2, 3)).sum(2)),
            ("sum of -3", lambda d: d(ones(2, 3)).sum(-3)),
            ("mean", lambda d: d(ones(2, 3)).mean(5)),
            ("transpose", lambda d: d(ones(2, 3)).transpose(0, 2)),
            ("softmax", lambda d: d(ones(2, 3)).softmax(2)),
            ("max", lambda d: d(ones(2, 3)).max(2)),
            ("squeeze", lambda d: d(ones(2, 3)).squeeze(5)),
            ("cat", lambda d: torch.cat([d(ones(2, 3))] * 2, 2)),
            ("select", lambda d: d(ones(2, 3)).select(2, 0)),
            ("cumsum", lambda d: d(ones(2, 3)).cumsum(2)),
            ("sort", lambda d: d(ones(2, 3)).sort(2)),
            ("index_select", lambda d: d(ones(2, 3)).index_select(5, d(torch.tensor([0])))),
            ("narrow", lambda d: d(ones(2, 3)).narrow(2, 0, 1)),
            ("flip", lambda d: d(ones(2, 3)).flip(2)),
            ("size", lambda d: d(ones(2, 3)).size(2)),
        )
    ],
    ("unsqueeze", lambda d: d(ones(2, 3)).unsqueeze(4), IndexError, r"\[-3, 2\], but got 4"),
    ("twice", lambda d: d(ones(2, 3)).sum((0, 0)), RuntimeError, "dim 0 appears multiple times"),
    ("permute", lambda d: d(ones(2, 3)).permute(0, 0), RuntimeError, "duplicate|repeated"),
    ("t of three", lambda d: d(ones(2, 3, 4)).t(), RuntimeError, "expects a tensor with <= 2 dimensions"),
    ("index", lambda d: d(ones(2, 3))[2], IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
    ("too many", lambda d: d(ones(2, 3))[0, 0, 0], IndexError, "too many indices for tensor of dimension 2"),
    ("narrow past", lambda d: d(ones(2, 3)).narrow(0, 1, 5), RuntimeError, "exceeds dimension size"),
    ("empty max", lambda d: d(ones(0)).max(), RuntimeError, "max"),
    ("topk", lambda d: d(ones(2, 3)).topk(7), RuntimeError, "out of range"),
]
NEGATIVE: list[Row] = [
    *[
        (name, call, RuntimeError, "negative dimension")
        for name, call in (
            ("zeros", lambda d: torch.zeros(-1)),
            ("ones", lambda d: torch.ones(2, -3)),
            ("empty", lambda d: torch.empty((-1,))),
            ("full", lambda d: torch.full((-2,), 1)),
            ("rand", lambda d: torch.rand(-1)),
            ("randn", lambda d: torch.randn(3, -1)),
            ("randint", lambda d: torch.randint(0, 5, (-1,))),
            ("new_zeros", lambda d: d(ones(2)).new_zeros(-1)),
            ("new_full", lambda d: d(ones(2)).new_full((-1,), 2)),
        )
    ],
    ("linspace", lambda d: torch.linspace(0, 1, -1), RuntimeError, "non-negative"),
    ("eye", lambda d: torch.eye(-1), RuntimeError, "greater or equal to 0, got -1"),
    ("arange", lambda d: torch.arange(0, 5, -1), RuntimeError, "upper bound and lower bound inconsistent with step sign|larger bound"),
    ("arange of step 0", lambda d: torch.arange(0, 5, 0), RuntimeError, "step must be nonzero"),
    ("randperm", lambda d: torch.randperm(-1), RuntimeError, "non-negative|negative"),
    ("narrow", lambda d: d(ones(2, 3)).narrow(0, 0, -1), RuntimeError, "non-negative"),
    ("split", lambda d: d(ones(2, 3)).split(-1), RuntimeError, "non-negative"),
    ("chunk", lambda d: d(ones(2, 3)).chunk(0), RuntimeError, "greater than 0"),
    ("repeats", lambda d: d(ones(2)).repeat_interleave(-1), RuntimeError, "non-negative"),
    ("step", lambda d: d(ones(2, 3))[::-1], ValueError, "step must be greater than zero"),
    ("too big", lambda d: torch.ones(2**62), RuntimeError, "overflow"),
    ("far too big", lambda d: torch.ones(2**40, 2**40), RuntimeError, "overflow"),
    ("more than there is", lambda d: torch.empty(2**55), RuntimeError, "memory|allocate"),
]
TYPES: list[Row] = [
    ("gradient of integers", lambda d: d(ones(2)).long().requires_grad_(), RuntimeError, "only Tensors of floating point"),
    ("integer leaf", lambda d: torch.tensor([1, 2], requires_grad=True), RuntimeError, "[Oo]nly Tensors of floating point"),
    ("matmul of two types", lambda d: d(torch.tensor([[1, 2]])) @ d(torch.tensor([[1.0], [2.0]])), RuntimeError, "same dtype"),
    (
        "subtraction of bools",
        lambda d: d(ones(2)).bool() - d(ones(2)).bool(),
        RuntimeError,
        "Subtraction, the `-` operator, with two bool tensors is not supported",
    ),
    ("minus a bool", lambda d: -d(ones(2)).bool(), RuntimeError, "Negation, the `-` operator, on a bool tensor is not supported"),
    ("float into int", lambda d: d(ones(2)).long().add_(1.5), RuntimeError, "result type Float can't be cast to the desired output type Long"),
    ("exp_ of ints", lambda d: d(ones(2)).long().exp_(), RuntimeError, "can't be cast"),
    ("out", lambda d: torch.add(d(ones(2)), d(ones(2)), out=d(ones(2)).long()), RuntimeError, "can't be cast"),
    ("shift of floats", lambda d: d(ones(2)) << d(ones(2)), NotImplementedError, "not implemented for 'Float'"),
    ("and of floats", lambda d: d(ones(2)) & d(ones(2)), NotImplementedError, "not implemented for 'Float'"),
    ("mask of floats", lambda d: d(ones(3)).masked_fill(d(ones(3)), 1.0), RuntimeError, "only supports boolean masks"),
    ("float index", lambda d: d(ones(2, 3))[d(torch.tensor([1.0]))], IndexError, "must be long, int, byte or bool"),
    ("gather", lambda d: d(ones(2, 3)).gather(0, d(ones(2, 3))), RuntimeError, "int64"),
    ("string index", lambda d: d(ones(2))["a"], TypeError, "got str"),
    ("embedding", lambda d: F.embedding(d(torch.tensor([1.0])), d(ones(3, 2))), RuntimeError, "Long, Int"),
    ("linear of ints", lambda d: F.linear(d(ones(2, 3)).long(), d(ones(4, 3))), RuntimeError, "same dtype"),
    ("dtype as text", lambda d: torch.ones(2, dtype="float32"), TypeError, "dtype"),
    ("size as text", lambda d: torch.ones("a"), TypeError, "size|int"),
    ("size as float", lambda d: torch.ones(2.5), TypeError, "size|int"),
    ("text", lambda d: torch.tensor("abc"), TypeError, "invalid data type 'str'"),
    ("ragged", lambda d: torch.tensor([[1, 2], [3]]), ValueError, "expected sequence of length 2 at dim 1"),
    ("add text", lambda d: d(ones(2)) + "a", TypeError, "str"),
    ("add nothing", lambda d: d(ones(2)) + None, TypeError, "NoneType"),
    ("missing", lambda d: torch.add(d(ones(2))), TypeError, "missing|other"),
    ("unknown argument", lambda d: torch.exp(d(ones(2)), inputt=3), TypeError, "inputt"),
    ("default", lambda d: torch.set_default_dtype(torch.int64), TypeError, "floating"),
    ("of two elements", lambda d: float(d(ones(2))), ValueError, "only one element tensors can be converted"),
    ("item", lambda d: d(ones(2)).item(), RuntimeError, "Tensor with 2 elements"),
    ("truth", lambda d: bool(d(ones(2))), RuntimeError, "Boolean value of Tensor with more than one value is ambiguous"),
    ("negative power", lambda d: d(torch.tensor([2])) ** -1, RuntimeError, "Integers to negative integer powers are not allowed"),
    ("seed", lambda d: torch.manual_seed(2**70), ValueError, "64 bits|Overflow"),
    ("chances", lambda d: torch.bernoulli(torch.tensor([2.0])), RuntimeError, "p_in <= 1"),
    ("reduction", lambda d: F.mse_loss(d(ones(2)), d(ones(2)), reduction="avg"), ValueError, "avg"),
    ("dropout", lambda d: F.dropout(d(ones(2)), 1.5), ValueError, "between 0 and 1"),
    ("sgd", lambda d: optim.SGD([d(ones(2))], lr=-1), ValueError, "learning rate"),
    ("no parameters", lambda d: optim.SGD([], lr=0.1), ValueError, "empty parameter list"),
]
TABLE = (
    [("shape: " + r[0], *r[1:]) for r in SHAPES]
    + [("dim: " + r[0], *r[1:]) for r in DIMS]
    + [("size: " + r[0], *r[1:]) for r in NEGATIVE]
    + [("type: " + r[0], *r[1:]) for r in TYPES]
)


@pytest.mark.parametrize(("call", "kind", "pattern"), [r[1:] for r in TABLE], ids=[r[0] for r in TABLE])
def test_wrong_shapes_dims_sizes_and_types(where: Any, call: Callable[[Any], Any], kind: type[Exception], pattern: str) -> None:
    witness = where(ones(3))
    with pytest.raises(kind, match=pattern):
        call(where)
    assert (witness + 1).tolist() == [2.0] * 3  # nothing is broken by it


@pytest.mark.parametrize(
    "call",
    [
        lambda i: torch.tensor([1.0, 2.0])[i],
        lambda i: ones(2, 3).index_select(0, i),
        lambda i: ones(2, 3).gather(0, i.reshape(1, 1)),
        lambda i: ones(3).scatter_(0, i, ones(1)),
        lambda i: F.embedding(i, ones(3, 2)),
        lambda i: F.cross_entropy(ones(1, 3), i),
        lambda i: ones(3).index_fill_(0, i, 1.0),
        lambda i: ones(3).take(i),
        lambda i: F.one_hot(i, 3),
        lambda i: ones(3).index_add(0, i, ones(1)),
    ],
)
def test_index_tensors_out_of_range(call: Callable[[Any], Any]) -> None:
    with pytest.raises((IndexError, RuntimeError), match="out of (bounds|range)|smaller than num_classes"):
        call(torch.tensor([7]))


NUMBERS: dict[str, int] = {  # operations of two tensors: how many of the two must not be numbers
    **dict.fromkeys(
        "maximum minimum fmax fmin atan2 hypot nextafter logaddexp logaddexp2 logical_and logical_or logical_xor ldexp heaviside isclose".split(), 2
    ),
    **dict.fromkeys("fmod copysign eq ne lt le gt ge".split(), 1),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_where_a_tensor_is_needed(where: Any, name: str) -> None:
    f, x = getattr(torch, name), where(ones(3))
    for number in (2, 2.0, True):
        with pytest.raises(TypeError, match=rf"{name}\(\): argument 'input' \(position 1\) must be Tensor, not {type(number).__name__}"):
            f(number, x)
        if NUMBERS[name] == 2:
            with pytest.raises(TypeError, match=rf"{name}\(\): argument '(other|values)' \(position 2\) must be Tensor, not {type(number).__name__}"):
                f(x, number)
            with pytest.raises(TypeError, match="must be Tensor"):
                getattr(x, name)(number)
    f(x, x)
    with pytest.raises(TypeError, match="must be Tensor"):
        f(x, "a")
    with pytest.raises(TypeError):
        f(x, None)


def test_numbers_are_fine_where_pytorch_takes_them(where: Any) -> None:
    x = where(torch.tensor([1.0, 2.0]))
    assert (torch.add(x, 2).tolist(), torch.mul(x, 2).tolist(), torch.fmod(x, 2).tolist(), torch.eq(x, 2).tolist()) == ([3, 4], [2, 4], [1, 0], [False, True])
    assert torch.pow(2.0, x).tolist() == [2, 4] and torch.remainder(5.0, x).tolist() == [0, 1] and torch.xlogy(2.0, x)[0].item() == 0
    assert torch.where(x > 1, x, 0.0).tolist() == [0, 2] and torch.lerp(x, x, 0.5).tolist() == [1, 2]


NO_TENSORS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: torch.sum(x), "mean": lambda x: torch.mean(x, 0), "max": lambda x: torch.max(x), "softmax": lambda x: torch.softmax(x, 0),
    "matmul": lambda x: torch.matmul(x, ones(2)), "reshape": lambda x: torch.reshape(x, (1,)), "transpose": lambda x: torch.transpose(x, 0, 1),
    "sort": lambda x: torch.sort(x), "exp": lambda x: torch.exp(x), "clamp": lambda x: torch.clamp(x, 0), "unique": lambda x: torch.unique(x),
    "zeros_like": lambda x: torch.zeros_like(x), "linear": lambda x: nn.Linear(2, 2)(x), "conv2d": lambda x: nn.Conv2d(1, 1, 1)(x),
    "embedding": lambda x: nn.Embedding(2, 2)(x), "dropout": lambda x: F.dropout(x), "relu": lambda x: F.relu(x), "mse_loss": lambda x: F.mse_loss(x, ones(2)),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0])), "norm": lambda x: torch.linalg.norm(x), "fft": lambda x: torch.fft.fft(x),
    "roll": lambda x: torch.roll(x, 1), "layer_norm": lambda x: F.layer_norm(x, (2,)), "einsum": lambda x: torch.einsum("i", x),
    "gather": lambda x: ones(2).gather(0, x), "index_select": lambda x: ones(2).index_select(0, x), "expand_as": lambda x: ones(2).expand_as(x),
}


@pytest.mark.parametrize("name", NO_TENSORS)
def test_what_is_no_tensor_is_named(name: str) -> None:
    for wrong in (3, [1.0, 2.0], np.ones(2), "text"):
        if name == "einsum" and isinstance(wrong, list):  # a list of operands
            continue
        with pytest.raises(TypeError, match=rf"argument '\w+'.* must be Tensor, not {type(wrong).__name__}|operand 0 is {type(wrong).__name__}"):
            NO_TENSORS[name](wrong)


def test_errors_of_other_origin_stay_what_they_are() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ones(2).nothing  # noqa: B018
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.sum(ones(2), 5)


class TestAutograd:
    """Gradients asked for in ways that cannot be."""

    def test_in_place_on_leaves(self, where: Any) -> None:
        x = where(ones(3)).requires_grad_()
        for write in (
            lambda: x.add_(1),
            lambda: x.zero_(),
            lambda: x.mul_(x),
            lambda: x.copy_(x * 2),
            lambda: x.__setitem__(0, 1.0),
            lambda: x.exp_(),
            lambda: x.fill_(2),
        ):
            with pytest.raises(RuntimeError, match="a (view of a )?leaf Variable that requires grad is being used in an in-place operation"):
                write()
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used in an in-place operation"):
            x[0].add_(1)
        assert x.tolist() == [1.0] * 3
        with torch.no_grad():
            x.add_(1)
        x.sum().backward()
        assert x.tolist() == [2.0] * 3 and x.grad.tolist() == [1.0] * 3

    def test_backward_twice(self, where: Any) -> None:
        x = where(ones(3)).requires_grad_()
        y = (x.exp() * x).sum()
        y.backward()
        with pytest.raises(
            RuntimeError,
            match=r"^Trying to backward through the graph a second time \(or directly access saved tensors after they have already been freed\)\. "
            r"Saved intermediate values of the graph are freed when you call \.backward\(\) or autograd\.grad\(\)\. "
            r"Specify retain_graph=True",
        ):
            y.backward()
        z = (x.exp() * x).sum()
        z.backward(retain_graph=True)
        z.backward()

    def test_no_gradient_to_be_had(self, where: Any) -> None:
        with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
            where(ones(1)).sum().backward()
        x = where(ones(3)).requires_grad_()
        with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
            (x * 2).backward()
        with pytest.raises(RuntimeError, match="Mismatch in shape"):
            (x * 2).backward(where(ones(2)))
        with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
            torch.autograd.grad(x.sum(), where(ones(2)).requires_grad_())
        with pytest.raises(RuntimeError, match="requires grad"):
            x.cpu().numpy()

    def test_a_saved_value_was_overwritten(self, where: Any) -> None:
        x = where(ones(3)).requires_grad_()
        y = x.exp()
        z = (y * y).sum()
        y.add_(1)
        with pytest.raises(RuntimeError, match="one of the variables needed for gradient computation has been modified by an inplace operation"):
            z.backward()

    def test_overlapping_writes(self, where: Any) -> None:
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory location"):
            where(ones(1, 2)).expand(3, 2).add_(1)


class TestOutOfMemory:
    """A simulated GPU has a capacity, and running into it breaks nothing."""

    @pytest.mark.parametrize("queue", ["eager", "lazy"])
    def test_what_was_made_before_stays_and_less_succeeds(self, queue: str) -> None:
        with torch.simulate(gpus=2, model="A100", memory="16MiB", queue=queue):
            kept = torch.arange(1 << 20, device="cuda", dtype=torch.float32)  # 4 MiB
            with pytest.raises(cuda.OutOfMemoryError) as caught:
                torch.empty(1 << 22, device="cuda")  # 16 MiB
            error, text = caught.value, str(caught.value)
            assert (
                text.startswith("CUDA out of memory. Tried to allocate 16.00 MiB. GPU 0")
                and "A100" in text
                and "16.00 MiB in all" in text
                and "4.00 MiB" in text
            )
            assert isinstance(error, RuntimeError) and error.requested == 16 << 20 and error.total == 16 << 20 and error.allocated == 4 << 20
            assert kept.sum().item() == pytest.approx(sum(range(1 << 20)), rel=1e-5)
            smaller = torch.ones(1 << 20, device="cuda")
            assert (smaller + kept)[:3].tolist() == [1, 2, 3] and torch.ones(1 << 21, device="cuda:1").sum().item() == 1 << 21
            assert cuda.memory_stats(0)["num_ooms"] == 1

    @pytest.mark.parametrize("queue", ["eager", "lazy"])
    def test_in_the_middle_of_an_operation_a_backward_and_a_step(self, queue: str) -> None:
        with torch.simulate(gpus=1, memory="16MiB", queue=queue):
            x = torch.full((1 << 20,), 2.0, device="cuda", requires_grad=True)
            y = torch.full((1 << 20,), 3.0, device="cuda")
            filler = torch.empty((1 << 20) + (1 << 19), device="cuda")
            for call in (
                lambda: x + y,
                lambda: torch.cat([y, y]),
                lambda: y.double(),
                lambda: y.sort(),
                lambda: y.to("cuda", copy=True),
                lambda: y.clone().exp(),
                lambda: (x * y).sum().backward(),
            ):
                with pytest.raises(cuda.OutOfMemoryError, match="CUDA out of memory"):
                    call()
            assert x.grad is None and x[5].item() == 2 and y[5].item() == 3
            y.mul_(2)  # needs nothing
            del filler
            (x * y).sum().backward()
            assert x.grad is not None and x.grad[7].item() == 6

    def test_freed_memory_comes_back(self) -> None:
        with torch.simulate(gpus=1, memory="16MiB"):
            for _ in range(5):
                big = torch.zeros(3 << 20, device="cuda")
                with pytest.raises(cuda.OutOfMemoryError):
                    torch.zeros(3 << 20, device="cuda")
                del big
            several = [torch.zeros(1 << 19, device="cuda") for _ in range(7)]
            del several
            assert torch.zeros(3 << 20, device="cuda").sum().item() == 0  # blocks of other sizes are given back first
            gc.collect()
            cycle: list[Any] = [torch.zeros(3 << 20, device="cuda")]
            cycle.append(cycle)
            del cycle
            assert torch.ones(3 << 20, device="cuda")[0].item() == 1  # even garbage in a cycle

    def test_a_loop_that_catches_it_and_halves_the_batch(self) -> None:
        with torch.simulate(gpus=1, memory="16MiB"):
            net = nn.Linear(64, 64).cuda()
            size, done = 1 << 16, 0
            while not done:
                try:
                    net(torch.ones(size, 64, device="cuda")).sum().backward()
                    done = size
                except cuda.OutOfMemoryError:
                    net.zero_grad()
                    size //= 2
            assert 1 <= done < 1 << 16 and net.weight.grad is not None

    def test_the_hosts_own_memory(self) -> None:
        witness = ones(4)
        with pytest.raises(RuntimeError, match="memory"):
            torch.empty(1 << 50)
        assert (witness + 1).tolist() == [2.0] * 4


CACHE_SCRIPT = """
import sys
import flambeau as t
from flambeau._core.kernels.llvm import compile as compiler
x = t.linspace(-2, 2, 1001)
y = t.ones(7, 11)
r = [(x * 3 + 1).exp().sum().item(), x.sigmoid().mean().item(), y.softmax(1).sum().item(), (y @ y.t()).sum().item(), x.cumsum(0)[-1].item(),
     x.sort().values[0].item(),
     t.nn.functional.gelu(x).sum().item(), t.randn(5, generator=t.Generator().manual_seed(3)).tolist(), x.max().item(), (x > 0).sum().item()]
print(repr(r))
print(compiler.compiled, file=sys.stderr)
"""


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CACHE_SCRIPT], env={**os.environ, "FLAMBEAU_CACHE_DIR": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, int]:
    out, err = process.communicate(timeout=170)
    assert process.returncode == 0, err
    return out, int(err.split()[-1])


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


class TestKernelCache:
    """Files of compiled kernels that were damaged are rebuilt, never loaded."""

    @pytest.fixture(scope="class")
    def filled(self, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
        """A folder that one process filled, that process's results, and how many kernels it compiled."""
        folder = tmp_path_factory.mktemp("filled")
        out, compiled = finish(start(folder))
        assert compiled == len(files(folder)) > 5
        again, none = finish(start(folder))
        assert again == out and none == 0
        return folder, out, compiled

    @pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "another version", "swapped", "noise"])
    def test_damaged_files(self, filled: tuple[Path, str, int], tmp_path: Path, damage: str) -> None:
        source, expected, compiled = filled
        there = files(source)
        contents = [p.read_bytes() for p in there]
        for i, (path, data) in enumerate(zip(there, contents, strict=True)):
            target = tmp_path / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            middle = len(data) * (i + 1) // (len(there) + 2)  # the place differs from file to file: headers, code, check sums
            target.write_bytes(
                {
                    "flipped": data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :],
                    "truncated": data[:middle],
                    "empty": b"",
                    "another version": re.sub(rb"^[^\n]{0,16}", b"flambeau-99     ", data, count=1),
                    "swapped": contents[i - 1],
                    "noise": os.urandom(len(data)),
                }[damage]
            )
        broken = {p: p.read_bytes() for p in files(tmp_path)}
        out, rebuilt = finish(start(tmp_path))
        assert out == expected and rebuilt == compiled  # every one was compiled again
        assert [p.relative_to(tmp_path) for p in files(tmp_path)] == [p.relative_to(source) for p in there]  # and stored again, with nothing beside
        assert all(p.read_bytes() != data for p, data in broken.items())
        again, none = finish(start(tmp_path))
        assert again == expected and none == 0

    def test_processes_that_fill_it_at_once(self, filled: tuple[Path, str, int], tmp_path: Path) -> None:
        source, expected, _ = filled
        together = [start(tmp_path) for _ in range(4)]
        assert {finish(p)[0] for p in together} == {expected}
        assert [p.relative_to(tmp_path) for p in files(tmp_path)] == [p.relative_to(source) for p in files(source)]  # no stray files
        assert finish(start(tmp_path)) == (expected, 0)

    def test_a_folder_that_cannot_be_used(self, filled: tuple[Path, str, int], tmp_path: Path) -> None:
        _, expected, compiled = filled
        (tmp_path / "file").write_text("no folder")
        assert finish(start(tmp_path / "file")) == (expected, compiled)
