"""Rows D1 to D5: device objects, factories, `.to`, its shorthands, tensor types and defaults; a class for each row.

Row D6 is in test_d6_mismatch.py, D7 to D10 in test_d7_to_d10.py, D11 in test_d11_models.py.
"""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.runtime import dispatch

D = torch.device
CPU, GPU0, GPU1 = D("cpu"), D("cuda:0"), D("cuda:1")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
ALL = (*FLOATS, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128)


@pytest.fixture(params=["eager", "lazy"])
def gpus(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch.simulate(gpus=2, memory="64MiB", queue=request.param):
        yield


class TestD1DeviceObjects:
    @pytest.mark.parametrize(("args", "kind", "index", "text"), [
        (("cpu",), "cpu", None, "cpu"), (("cpu:0",), "cpu", 0, "cpu:0"), (("cpu", 0), "cpu", 0, "cpu:0"), (("cuda",), "cuda", None, "cuda"),
        (("cuda", None), "cuda", None, "cuda"), (("cuda:1",), "cuda", 1, "cuda:1"), (("cuda", 1), "cuda", 1, "cuda:1"), ((1,), "cuda", 1, "cuda:1"),
        (("cuda:13",), "cuda", 13, "cuda:13"),
    ])
    def test_forms(self, args: tuple[Any, ...], kind: str, index: int | None, text: str) -> None:
        d = D(*args)
        assert (d.type, d.index, str(d)) == (kind, index, text)
        assert repr(d) == (f"device(type='{kind}', index={index})" if index is not None else f"device(type='{kind}')")
        assert d == D(text) and hash(d) == hash(D(text)) and d != D("cuda:7") and D(d) is d
        assert eval(repr(d), {"device": D}) == d and {d: 1}[D(text)] == 1

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_pickles(self, protocol: int) -> None:
        for d in (CPU, D("cpu:0"), D("cuda"), GPU1):
            assert pickle.loads(pickle.dumps(d, protocol)) == d == copy.copy(d) == copy.deepcopy(d)
        there = pickle.loads(pickle.dumps({"where": GPU1, "also": [GPU1]}, protocol))
        assert there == {"where": GPU1, "also": [GPU1]}

    def test_a_block_and_a_decorator(self, gpus: None) -> None:
        with D("cuda:1") as entered:
            assert entered == GPU1 and torch.ones(2).device == GPU1 and torch.cuda.current_device() == 0
            with D("cuda"):
                assert torch.ones(2).device == GPU0
            assert torch.rand(2).device == GPU1 and torch.tensor([1, 2]).device == GPU1 and torch.arange(3).device == GPU1
        assert torch.ones(2).device == CPU
        assert D("cuda:1")(lambda: torch.zeros(1).device)() == GPU1

    @pytest.mark.parametrize("text", ["", "foo", "CUDA", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "cuda 1", "cpu:", "cuda:01"])
    def test_bad_strings_name_the_accepted_forms(self, text: str) -> None:
        with pytest.raises(RuntimeError, match="'cpu', 'cuda' or 'cuda:<index>'") as caught:
            D(text)
        assert text in str(caught.value)
        with pytest.raises(RuntimeError, match="'cpu', 'cuda' or 'cuda:<index>'"):
            torch.ones(2, device=text)
        with pytest.raises(RuntimeError, match="'cpu', 'cuda' or 'cuda:<index>'"):
            torch.ones(2).to(text)


def _generator(device: Any) -> Any:
    return torch.Generator(device=device)


# name, call(device, dtype): everything here makes its elements where they will live
FACTORIES: dict[str, Callable[[Any, Any], Any]] = {
    "empty": lambda v, d: torch.empty(3, 4, device=v, dtype=d), "zeros": lambda v, d: torch.zeros(3, 4, device=v, dtype=d),
    "ones": lambda v, d: torch.ones((3, 4), device=v, dtype=d), "full": lambda v, d: torch.full((3, 4), 2, device=v, dtype=d),
    "arange": lambda v, d: torch.arange(5, device=v, dtype=d), "arange of three": lambda v, d: torch.arange(1, 9, 2, device=v, dtype=d),
    "linspace": lambda v, d: torch.linspace(0, 8, 5, device=v, dtype=d), "logspace": lambda v, d: torch.logspace(0, 2, 3, device=v, dtype=d),
    "eye": lambda v, d: torch.eye(3, 4, device=v, dtype=d), "empty_strided": lambda v, d: torch.empty_strided((2, 3), (3, 1), device=v, dtype=d),
    "empty_like": lambda v, d: torch.empty_like(torch.ones(2, 3), device=v, dtype=d),
    "zeros_like": lambda v, d: torch.zeros_like(torch.ones(2, 3), device=v, dtype=d),
    "ones_like": lambda v, d: torch.ones_like(torch.ones(2, 3), device=v, dtype=d),
    "full_like": lambda v, d: torch.full_like(torch.ones(2, 3), 5, device=v, dtype=d),
    "new_zeros": lambda v, d: torch.ones(2).new_zeros(3, 4, device=v, dtype=d), "new_ones": lambda v, d: torch.ones(2).new_ones((3, 4), device=v, dtype=d),
    "new_empty": lambda v, d: torch.ones(2).new_empty(3, device=v, dtype=d), "new_full": lambda v, d: torch.ones(2).new_full((3,), 2, device=v, dtype=d),
    "randint": lambda v, d: torch.randint(0, 2 if d is torch.bool else 5, (3, 4), device=v, dtype=d),
    "randperm": lambda v, d: torch.randperm(6, device=v, dtype=d),
    "tril_indices": lambda v, d: torch.tril_indices(3, 3, device=v, dtype=d), "triu_indices": lambda v, d: torch.triu_indices(3, 3, device=v, dtype=d),
}
FLOATING: dict[str, Callable[[Any, Any], Any]] = {
    "rand": lambda v, d: torch.rand(3, 4, device=v, dtype=d), "randn": lambda v, d: torch.randn((3, 4), device=v, dtype=d),
    "rand_like": lambda v, d: torch.rand_like(torch.ones(2, 3), device=v, dtype=d),
    "randn_like": lambda v, d: torch.randn_like(torch.ones(2, 3), device=v, dtype=d),
    "normal": lambda v, d: torch.normal(0.0, 1.0, (3, 4), device=v, dtype=d),
    "randn with a generator": lambda v, d: torch.randn(3, device=v, dtype=d, generator=_generator(v)),
}
_INTEGER_ONLY = {"tril_indices", "triu_indices"}
_NO_BOOL = {"randperm", "linspace", "logspace", "arange", "arange of three", "tril_indices", "triu_indices"}
_NO_COMPLEX = {"randint", "randperm", "arange", "arange of three", "tril_indices", "triu_indices"}


class TestD2Factories:
    @pytest.mark.parametrize("name", [*FACTORIES, *FLOATING])
    @pytest.mark.parametrize("where", [GPU0, "cuda:1", 1, "cuda", CPU, "cpu"])
    def test_made_on_the_device_and_nowhere_else(self, gpus: None, name: str, where: Any) -> None:
        make = FACTORIES.get(name) or FLOATING[name]
        expected = torch.empty(0, device=where).device
        default = torch.int64 if name in _INTEGER_ONLY else None
        copies: list[Any] = []
        launches: list[Any] = []
        make(where, default)  # the kernels are built
        with dispatch.observe(launches=lambda dev, stream, prepared, args: launches.append(dev), copies=copies.append):
            t = make(where, default)
        assert t.device == expected and not copies, copies
        others = [dev for dev in launches if dev != expected]
        assert len(others) <= (1 if "_like" in name or name.startswith("new_") else 0), launches  # the `torch.ones` they are like

    @pytest.mark.parametrize("name", [*FACTORIES, *FLOATING])
    def test_every_dtype(self, gpus: None, name: str) -> None:
        make = FACTORIES.get(name) or FLOATING[name]
        for d in ALL if name in FACTORIES else FLOATS:
            if (name in _INTEGER_ONLY and d not in (torch.int32, torch.int64)) or (d == torch.bool and name in _NO_BOOL) or (
                    d.is_complex and name in _NO_COMPLEX):
                continue
            with torch.random.fork_rng():
                torch.random.set_stream("counter")
                torch.manual_seed(7)
                here = make("cpu", d)
                torch.manual_seed(7)
                there = make("cuda:1", d)
            assert here.dtype == there.dtype == d and there.device == GPU1 and here.shape == there.shape
            if "empty" not in name:
                assert here.tolist() == there.tolist()  # random numbers that count too: the seed decides, not the device

    def test_data_crosses_once(self, gpus: None) -> None:
        for make, nbytes in ((lambda: torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda"), 16),
                             (lambda: torch.tensor([1, 2], dtype=torch.int8, device="cuda"), 2),
                             (lambda: torch.as_tensor([1.0], device="cuda"), 4), (lambda: torch.ones(1, device="cuda").new_tensor([1.0, 2.0]), 8)):
            copies: list[Any] = []
            with dispatch.observe(copies=copies.append):
                assert make().device == GPU0
            assert [(c.direction, c.nbytes) for c in copies] == [("h2d", nbytes)]

    @pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
    def test_triangles_are_computed_where_they_live(self, gpus: None, name: str) -> None:
        make, oracle = getattr(torch, name), getattr(np, name)
        for row, col, offset in ((0, 3, 0), (3, 0, 1), (4, 4, 0), (5, 3, -2), (3, 6, 4), (6, 2, -9), (6, 2, 9), (7, 7, 3), (1500, 1300, 40), (900, 1400, -400)):
            expected = np.stack(oracle(row, offset, col))
            assert (make(row, col, offset, device="cuda:1").cpu().numpy() == expected).all()
            assert (make(row, col, offset, dtype=torch.int32).numpy() == expected).all()
        for args, kwargs in (((-1, 2), {}), ((2, -1), {}), ((2, 2), {"dtype": torch.float32})):
            with pytest.raises(RuntimeError):
                make(*args, **kwargs)

    def test_requires_grad_and_layout_arguments(self, gpus: None) -> None:
        for make in (torch.zeros, torch.ones, torch.rand, torch.randn, torch.empty):
            t = make(2, 3, device="cuda", dtype=torch.float64, requires_grad=True, layout=torch.strided)
            assert t.requires_grad and t.is_leaf and t.device == GPU0 and t.dtype == torch.float64
        assert torch.zeros(2, 3, pin_memory=True).is_pinned() and torch.empty(2, pin_memory=True).is_pinned()

    def test_modules_are_made_on_the_device(self, gpus: None) -> None:
        nn = torch.nn
        for make in (lambda **k: nn.Linear(2, 3, **k), lambda **k: nn.Conv2d(1, 2, 3, **k),
                     lambda **k: nn.BatchNorm1d(3, **k), lambda **k: nn.LayerNorm(3, **k),
                     lambda **k: nn.Embedding(4, 3, **k), lambda **k: nn.LSTM(2, 3, **k), lambda **k: nn.MultiheadAttention(4, 2, **k)):
            copies: list[Any] = []
            with dispatch.observe(copies=copies.append):
                net = make(device="cuda:1", dtype=torch.float64)
            assert not [c for c in copies if c.direction != "d2d"], copies
            assert {(t.device, t.dtype) for t in net.parameters()} == {(GPU1, torch.float64)}

    @pytest.mark.parametrize("name", [*FACTORIES, *FLOATING])
    def test_a_device_that_is_not_there(self, name: str) -> None:
        make = FACTORIES.get(name) or FLOATING[name]
        default = torch.int64 if name in _INTEGER_ONLY else None
        with torch.simulate(gpus=2, model="L4", memory="16MiB"), pytest.raises(
                RuntimeError, match=r"cuda:5 is not there; the devices here are cpu and cuda:0 to cuda:1 \(simulated NVIDIA L4\).*"
                r"flambeau.simulate.*FLAMBEAU_SIM_GPUS"):
            make("cuda:5", default)
        with torch.simulate(gpus=0), pytest.raises(
                RuntimeError, match=r"no CUDA GPU is available.*devices here are: cpu.*flambeau.simulate.*FLAMBEAU_SIM_GPUS"):
            make("cuda", default)
        with pytest.raises(RuntimeError, match="one CPU device"):
            make("cpu:3", default)


class TestD3To:
    def test_every_form(self, gpus: None) -> None:
        x = torch.arange(6.0).reshape(2, 3)
        other = torch.ones(1, dtype=torch.float64, device="cuda:1")
        f64 = torch.float64
        for there, where, d in (
                (x.to("cuda"), GPU0, None), (x.to(GPU1), GPU1, None), (x.to(1), GPU1, None), (x.to(device="cuda:1"), GPU1, None), (x.to(f64), CPU, f64),
                (x.to(dtype=f64), CPU, f64), (x.to("cuda:1", f64), GPU1, f64), (x.to(1, f64), GPU1, f64), (x.to(GPU0, dtype=f64), GPU0, f64),
                (x.to(device="cuda", dtype=f64), GPU0, f64), (x.to(other), GPU1, f64), (x.to(other=other), GPU1, f64),
                (x.to("cuda", non_blocking=True), GPU0, None),
                (x.to("cuda", f64, True), GPU0, f64), (x.to("cuda", f64, True, True), GPU0, f64), (x.to(other, non_blocking=True, copy=True), GPU1, f64),
                (x.to(f64, True, True), CPU, f64), (x.to(f64, copy=True), CPU, f64), (x.to(None, f64), CPU, f64), (x.to("cuda", None), GPU0, None)):
            assert there is not x and there.device == where and there.dtype == (d or torch.float32) and there.tolist() == x.tolist()

    def test_nothing_to_change_gives_itself(self, gpus: None) -> None:
        for x in (torch.ones(2, 3), torch.ones(2, 3, device="cuda:1", dtype=torch.float16), torch.ones(3, requires_grad=True)):
            for same in (x.to(x.device), x.to(x.dtype), x.to(x.device, x.dtype), x.to(x), x.to(str(x.device)), x.to(x.device, non_blocking=True),
                         x.to(x.device, copy=False), x.to(memory_format=torch.preserve_format), x.to()):
                assert same is x
            for copied in (x.to(x.device, copy=True), x.to(x, copy=True), x.to(x.dtype, copy=True)):
                assert copied is not x and copied.data_ptr() != x.data_ptr() and copied.device == x.device and copied.tolist() == x.tolist()
        assert torch.ones(1).to("cpu:0").device == CPU
        with torch.cuda.device(1):
            x = torch.ones(1, device="cuda:1")
            assert x.to("cuda") is x

    def test_the_source_is_never_changed(self, gpus: None) -> None:
        x = torch.arange(6.0).reshape(2, 3).t()
        version, before, address = x._version, x.tolist(), x.data_ptr()
        for there in (x.to("cuda"), x.to("cuda:1", torch.int8), x.to(torch.float64), x.to(x, copy=True)):
            there.zero_()
            assert x.tolist() == before and x._version == version and x.data_ptr() == address and x.device == CPU and x.stride() == (1, 3)

    def test_layouts(self, gpus: None) -> None:
        x = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
        last = x.to(memory_format=torch.channels_last)
        assert last.stride() == (60, 1, 15, 3) and last.tolist() == x.tolist()
        for t in (x.to("cuda", memory_format=torch.channels_last), last.to("cuda"), last.to("cuda", torch.float64), last.to(torch.float16),
                  x.to("cuda:1", torch.float64, memory_format=torch.channels_last)):
            assert t.stride() == (60, 1, 15, 3) and t.tolist() == x.tolist()
        assert last.to(memory_format=torch.channels_last) is last and x.to(memory_format=torch.contiguous_format) is x
        assert last.to("cuda", memory_format=torch.contiguous_format).stride() == (60, 20, 5, 1)
        assert x.t_().stride() if x.dim() == 2 else x.permute(3, 0, 1, 2).to("cuda").stride() == (1, 60, 20, 5)
        part = x[:, ::2, 1:, ::3]
        for there in (part.to("cuda"), part.to("cuda", torch.float64), x.expand(2, 2, 3, 4, 5).to("cuda")):
            assert there.tolist() == (part if there.dim() == 4 else x.expand(2, 2, 3, 4, 5)).tolist()
        assert torch.zeros(0, 3).to("cuda").shape == (0, 3) and torch.tensor(5).to("cuda").item() == 5

    @pytest.mark.parametrize("d", ALL)
    def test_there_and_back_in_every_type(self, gpus: None, d: Any) -> None:
        x = torch.tensor([0, 1, 2, 100]).to(d)
        assert x.to("cuda").to("cuda:1").to("cpu").tolist() == x.tolist()
        for e in ALL:
            if not (d.is_complex and not e.is_complex):
                assert x.to("cuda:1", e).cpu().tolist() == x.to(e).tolist() == x.cuda().to(e).tolist()

    def test_the_bus_sees_the_narrower_type(self, gpus: None) -> None:
        for source, d, nbytes in ((torch.ones(8), torch.float16, 16), (torch.ones(8, dtype=torch.uint8), torch.float32, 8)):
            copies: list[Any] = []
            with dispatch.observe(copies=copies.append):
                source.to("cuda", d)
            assert [c.nbytes for c in copies] == [nbytes]

    @pytest.mark.parametrize(("args", "kwargs"), [((1.5,), {}), (([],), {}), (("cuda", "cuda"), {}), ((), {"devise": "cuda"}), ((), {"dtype": "float32"}),
                                                   ((torch.float32, torch.float64), {}), ((True,), {})])
    def test_bad_arguments_are_type_errors(self, gpus: None, args: Any, kwargs: Any) -> None:
        with pytest.raises(TypeError, match="to\\(\\)"):
            torch.ones(2).to(*args, **kwargs)

    def test_a_device_that_is_not_there(self, gpus: None) -> None:
        for call in (lambda: torch.ones(2).to("cuda:2"), lambda: torch.ones(2).to(2), lambda: torch.ones(2).cuda(2)):
            with pytest.raises(RuntimeError, match="cuda:2 is not there; the devices here are cpu and cuda:0 to cuda:1.*simulate"):
                call()


class TestD4Shorthands:
    def test_cuda_and_cpu(self, gpus: None) -> None:
        x = torch.ones(2)
        assert x.cuda().device == GPU0 and x.cuda(1).device == GPU1 and x.cuda(GPU1).device == GPU1 and x.cuda("cuda:1").device == GPU1
        assert x.cuda(device=1, non_blocking=True).device == GPU1 and x.cuda(None).device == GPU0
        with torch.cuda.device(1):
            assert x.cuda().device == GPU1
        there = x.cuda()
        assert there.cuda() is there and there.cuda(1) is not there and x.cpu() is x and there.cpu().device == CPU
        with pytest.raises(RuntimeError, match="must be cuda device, got cpu"):
            x.cuda("cpu")

    @pytest.mark.parametrize(("name", "d"), [("half", torch.float16), ("float", torch.float32), ("double", torch.float64), ("bfloat16", torch.bfloat16),
                                             ("int", torch.int32), ("long", torch.int64), ("short", torch.int16), ("char", torch.int8), ("byte", torch.uint8),
                                             ("bool", torch.bool), ("cfloat", torch.complex64), ("cdouble", torch.complex128)])
    def test_types(self, gpus: None, name: str, d: Any) -> None:
        for where in ("cpu", "cuda:1"):
            x = torch.tensor([0, 1, 2, 3], device=where)
            y = getattr(x, name)()
            assert y.dtype == d and y.device == x.device and getattr(y, name)() is y

    def test_type(self, gpus: None) -> None:
        x = torch.ones(2)
        assert x.type() == "torch.FloatTensor" and x.cuda().type() == "torch.cuda.FloatTensor" and x.long().cuda(1).type() == "torch.cuda.LongTensor"
        assert x.bool().type() == "torch.BoolTensor" and x.bfloat16().type() == "torch.BFloat16Tensor"
        there = x.type("torch.cuda.FloatTensor")
        assert there.device == GPU0 and there.type("torch.cuda.FloatTensor") is there and x.type("torch.FloatTensor") is x
        assert there.type("torch.LongTensor").device == CPU and x.type(torch.cuda.HalfTensor).type() == "torch.cuda.HalfTensor"
        assert x.cuda(1).type("torch.cuda.DoubleTensor").device == GPU1 and x.cuda(1).type(torch.float64).device == GPU1
        assert x.type(torch.DoubleTensor).dtype == torch.float64 and x.type(torch.int32).dtype == torch.int32 and x.type(dtype=torch.half).dtype == torch.half
        assert x.type_as(torch.ones(1, device="cuda:1", dtype=torch.half)).type() == "torch.cuda.HalfTensor"
        with pytest.raises(ValueError, match="invalid type: 'torch.gpu.FloatTensor'"):
            x.type("torch.gpu.FloatTensor")

    def test_questions(self, gpus: None) -> None:
        x = torch.ones(2)
        y = x.cuda(1)
        assert (x.device, x.is_cuda, x.get_device(), x.is_cpu) == (CPU, False, -1, True)
        assert (y.device, y.is_cuda, y.get_device(), y.is_cpu) == (GPU1, True, 1, False)

    def test_pinned_memory(self, gpus: None) -> None:
        x = torch.arange(6.0).reshape(2, 3)
        p = x.pin_memory()
        assert p.is_pinned() and not x.is_pinned() and p.tolist() == x.tolist() and p.pin_memory() is p and not x.cuda().is_pinned()
        assert p[1:].is_pinned() and p.t().is_pinned() and x.t().pin_memory().stride() == (1, 3)
        with pytest.raises(RuntimeError, match="cannot pin 'cuda:0' memory"):
            x.cuda().pin_memory()
        with torch.simulate(gpus=0):
            assert not x.is_pinned()
            with pytest.raises(RuntimeError, match="no CUDA GPU is available.*simulate"):
                x.pin_memory()


NAMES = "Float Double Half Byte Char Short Int Long BFloat16 Bool".split()
DTYPES = (torch.float32, torch.float64, torch.float16, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16, torch.bool)


@pytest.fixture
def defaults() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


class TestD5TypesAndDefaults:
    @pytest.mark.parametrize(("name", "d"), zip(NAMES, DTYPES, strict=True))
    @pytest.mark.parametrize("place", ["cpu", "cuda"])
    def test_tensor_types(self, gpus: None, name: str, d: Any, place: str) -> None:
        kind: Any = getattr(torch.cuda if place == "cuda" else torch, name + "Tensor")
        full = f"torch.{'cuda.' if place == 'cuda' else ''}{name}Tensor"
        where = torch.empty(0, device=place).device
        for t, shape in ((kind(), (0,)), (kind(3), (3,)), (kind(2, 3), (2, 3)), (kind([0, 1, 1]), (3,)),
                         (kind([[0], [1]]), (2, 1)), (kind(torch.Size([4, 5])), (4, 5)),
                         (kind((1, 0)), (2,))):
            assert t.dtype == d and t.device == where and tuple(t.shape) == shape and t.type() == full
        assert kind([0, 1, 1]).tolist() == torch.tensor([0, 1, 1]).to(d).tolist()
        assert isinstance(kind(1), kind) and not isinstance(torch.empty(1, dtype=d, device="cuda" if place == "cpu" else "cpu"), kind)
        assert isinstance(kind(1), torch.Tensor) and kind.dtype == d and kind.__name__ == name + "Tensor" and repr(kind) == f"<class '{full}'>"
        assert torch.ones(2).type(kind).type() == full == torch.ones(2).type(full).type()

    def test_cuda_types_follow_the_current_gpu(self, gpus: None) -> None:
        with torch.cuda.device(1):
            assert torch.cuda.FloatTensor(2).device == GPU1
            assert torch.cuda.FloatTensor([1.0, 2.0]).device == GPU1

    def test_default_dtype(self, defaults: None) -> None:
        assert torch.get_default_dtype() == torch.float32
        torch.set_default_dtype(torch.float64)
        assert torch.get_default_dtype() == torch.float64 == torch.ones(1).dtype == torch.tensor(1.0).dtype == torch.rand(1).dtype == torch.Tensor(2).dtype
        assert torch.tensor(1j).dtype == torch.complex128 and (torch.tensor([1]) / 2).dtype == torch.float64 and torch.tensor(1).dtype == torch.int64
        for wrong in (torch.int64, torch.bool, "float32", None):
            with pytest.raises(TypeError):
                torch.set_default_dtype(wrong)

    def test_default_tensor_type(self, gpus: None, defaults: None) -> None:
        torch.set_default_tensor_type("torch.cuda.DoubleTensor")
        for t in (torch.ones(2), torch.tensor([1.0]), torch.rand(3), torch.Tensor(2)):
            assert t.dtype == torch.float64 and t.device == GPU0
        torch.set_default_tensor_type(torch.HalfTensor)
        assert torch.ones(2).type() == "torch.HalfTensor"
        torch.set_default_tensor_type(torch.FloatTensor)
        assert torch.ones(2).type() == "torch.FloatTensor"
        with pytest.raises(TypeError, match="only floating-point types"):
            torch.set_default_tensor_type("torch.LongTensor")
        with pytest.raises(TypeError, match="set_default_dtype.. takes torch.float32"):
            torch.set_default_tensor_type(torch.float32)

    def test_default_device(self, gpus: None, defaults: None) -> None:
        assert torch.get_default_device() == CPU
        for where, expected in (("cuda:1", GPU1), (GPU0, GPU0), (1, GPU1), ("cpu", CPU), (None, CPU)):
            torch.set_default_device(where)
            assert torch.get_default_device() == expected
            for t in (torch.ones(2), torch.tensor([1]), torch.rand(2), torch.arange(3), torch.eye(2), torch.randperm(3), torch.full((2,), 1.0), torch.empty(2),
                      torch.as_tensor([1]), torch.linspace(0, 1, 3), torch.nn.Linear(2, 2).weight):
                assert t.device == expected
            assert torch.ones(2, device="cpu").device == CPU and torch.from_numpy(torch.ones(2, device="cpu").numpy()).device == CPU
            assert torch.zeros_like(torch.ones(2, device="cpu")).device == CPU  # the input's device, not the default

    def test_a_default_device_inside_contexts(self, gpus: None, defaults: None) -> None:
        torch.set_default_device("cuda:0")
        with D("cuda:1"):
            assert torch.ones(1).device == GPU1
            torch.set_default_device("cpu")
            assert torch.ones(1).device == CPU
        assert torch.ones(1).device == GPU0  # the block puts back what was before it
        torch.set_default_device("cuda")
        with torch.cuda.device(1):
            assert torch.ones(1).device == torch.get_default_device()
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(torch.ones(1).device))
        thread.start()
        thread.join()
        assert seen == [CPU]  # each thread has its own

    def test_a_default_device_does_not_break_loaders(self, gpus: None, defaults: None) -> None:
        data = torch.utils.data
        torch.set_default_device("cuda:1")
        for made in (data.DataLoader(data.TensorDataset(torch.arange(8)), batch_size=2, shuffle=True),
                     data.DataLoader(data.TensorDataset(torch.arange(8)), batch_size=2, shuffle=True, generator=torch.Generator()),
                     data.DataLoader(data.TensorDataset(torch.arange(8, device="cpu")), batch_size=2, sampler=data.RandomSampler(range(8)))):
            assert sorted(i for (batch,) in made for i in batch.tolist()) == list(range(8))
        first, second = data.random_split(range(6), [4, 2])
        assert sorted([*first, *second]) == list(range(6))

    def test_workers_build_on_the_cpu(self, gpus: None, defaults: None) -> None:
        data = torch.utils.data

        class Made(data.Dataset):  # type: ignore[misc,name-defined]
            def __len__(self) -> int:
                return 4

            def __getitem__(self, i: int) -> Any:
                return torch.full((2,), i), i

        torch.set_default_device("cuda:1")
        assert torch.ones(1).device == GPU1  # the GPU is in use: a forked worker could not touch it
        batches = list(data.DataLoader(Made(), batch_size=2, num_workers=2))
        assert [b.tolist() for b, _ in batches] == [[[0, 0], [1, 1]], [[2, 2], [3, 3]]] and {b.device for b, _ in batches} == {CPU}

    def test_a_default_device_costs_nothing_when_unset(self) -> None:
        # no function mode, no wrapper: factories ask one thread-local name, and looking at it starts no GPU
        script = ("import sys, flambeau as t\nfrom flambeau._core.ops import creation\nfrom flambeau._core.runtime import device\n"
                  "before = {n: getattr(t, n) for n in ('ones', 'rand', 'tensor', 'add')}\n"
                  "t.ones(2); t.rand(2); t.tensor([1])\nassert not t.cuda.is_initialized()\nassert creation.resolve is device.resolve\n"
                  "t.set_default_device('cpu')\nt.set_default_device(None)\n"
                  "assert before == {n: getattr(t, n) for n in before} and device._thread.default is device.CPU\nprint('fine')")
        out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
        assert out.stdout.strip() == "fine", out.stderr

    def test_the_default_is_not_saved_with_tensors(self, gpus: None, defaults: None) -> None:
        stream = io.BytesIO()
        torch.save(torch.ones(2), stream)
        stream.seek(0)
        torch.set_default_device("cuda:1")
        assert torch.load(stream).device == CPU


def test_a_tensor_types_constructor_takes_tensors_and_storages_of_its_type() -> None:
    x, z = torch.FloatTensor([1.0]), torch.IntTensor([3])
    for call in (lambda: x.new(z), lambda: torch.FloatTensor(z)):
        with pytest.raises(TypeError, match="expected a tensor of type torch.float32, got torch.int32"):
            call()
    with pytest.raises(RuntimeError, match="Expected a Storage of type Float or an UntypedStorage, but got type Int"):
        x.new(z.storage())
    assert x.new(x).tolist() == [1] and torch.Tensor(z).dtype == torch.int32 and torch.Tensor(z).tolist() == [3]
