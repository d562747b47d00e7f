"""Who asked for a copy: what `transfer_guard(exempt_explicit=True)` lets pass and what it refuses, however the call came about."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn, overrides, transfer_guard
from flambeau._core.engine import interpreters
from flambeau._core.runtime import asking
from flambeau.nn import functional as F


@pytest.fixture(autouse=True)
def gpus() -> Any:
    with torch.simulate(gpus=2):
        yield
    assert not asking._listening and asking.asked.get() is None
    assert not any(isinstance(x, interpreters.note_who_asks) for x in interpreters._stack)


class Answering(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


class Telling(Answering):
    """Looks at a value before it does what it is asked."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            args[0].sum().item()
        return super().__torch_function__(func, types, args, kwargs or {})


class Aside(Answering):
    """Keeps each operand on the CPU: the program's own code says so, whatever operation called it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            args[0].cpu()
        return super().__torch_function__(func, types, args, kwargs or {})


class Mode(overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        return made.cpu() if isinstance(made, torch.Tensor) else made


def item(x: torch.Tensor) -> torch.Tensor:
    """A helper of the program's, named as one of this package's."""
    return x.cpu()


def cpu(x: torch.Tensor) -> Any:
    """Another, the other way round."""
    return x.sum().item()


def _saved(there: torch.Tensor) -> Any:
    x = there.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.cuda()):
        y = (x * x).sum()
    y.backward()
    return x.grad


def _hooked(there: torch.Tensor) -> Any:
    x = there.clone().requires_grad_()
    seen: list[Any] = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.cpu()))
    y.sum().backward()
    return seen


class Back(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.cpu()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g.cuda()


def _in_mode(there: torch.Tensor) -> Any:
    with Mode():
        return there + 1


sizes = count(3)  # what is kept on a device is copied there once
EXPLICIT: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "cpu": lambda here, there: there.cpu(),
    "to": lambda here, there: here.to("cuda:1").to(device="cpu"),
    "cuda": lambda here, there: here.cuda(1),
    "type": lambda here, there: here.type("torch.cuda.DoubleTensor"),
    "copy_": lambda here, there: there.copy_(here),
    "unbound": lambda here, there: torch.Tensor.cpu(there),
    "kept in a list": lambda here, there: [f(there) for f in [torch.Tensor.cpu]],
    "storage": lambda here, there: there.untyped_storage().cpu(),
    "module": lambda here, there: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to("cuda").cpu(),
    "packed sequence": lambda here, there: nn.utils.rnn.pack_sequence([here, here]).to("cuda").data,
    "subclass": lambda here, there: there.as_subclass(Answering).cpu(),
    "subclass that says so": lambda here, there: there.as_subclass(Aside) + 1,
    "parameter": lambda here, there: nn.Parameter(here).cuda(),
    "vmap": lambda here, there: torch.vmap(lambda x: x.cpu() * 2)(there),
    "helper": lambda here, there: item(there),
    "saved tensors": lambda here, there: _saved(there),
    "hook": lambda here, there: _hooked(there),
    "function": lambda here, there: Back.apply(there.clone().requires_grad_()).sum().backward(),
    "mode": lambda here, there: _in_mode(there),
    "recorded": lambda here, there: (here.clone().requires_grad_().cuda() * 2),
}
HIDDEN: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "item": lambda here, there: there.sum().item(),
    "tolist": lambda here, there: there.tolist(),
    "print": lambda here, there: repr(there),
    "numpy": lambda here, there: there.numpy(force=True),
    "truth": lambda here, there: bool(there[0]),
    "nonzero": lambda here, there: there.nonzero(),
    "mask": lambda here, there: there[there > 0],
    "tensor": lambda here, there: torch.tensor([1.0, 2.0], device="cuda"),
    "as_tensor": lambda here, there: torch.as_tensor(here, device="cuda"),
    "type_as": lambda here, there: here.type_as(there),
    "set item": lambda here, there: there.__setitem__(0, here[0]),
    "helper": lambda here, there: cpu(there),
    "subclass that looks": lambda here, there: there.as_subclass(Telling) + 1,
    "subclass that looks as it moves": lambda here, there: torch.Tensor.cpu(there.as_subclass(Telling)),
    "load_state_dict": lambda here, there: nn.Linear(2, 2, device="cuda").load_state_dict({"weight": torch.ones(2, 2), "bias": torch.ones(2)}),
    "save_on_cpu": lambda here, there: _on_cpu(there),
    "interpolate": lambda here, there: F.interpolate(there.view(1, 1, 2), size=next(sizes), mode="linear"),
    "orthogonal_": lambda here, there: nn.init.orthogonal_(torch.empty(2, 2, device="cuda")),
    "assert_close": lambda here, there: torch.testing.assert_close(there, there.clone()),
    "backward of a move": lambda here, there: _back_of(there),
    "data parallel": lambda here, there: torch.cuda.comm.broadcast(there, [0, 1]),
}


def _on_cpu(there: torch.Tensor) -> Any:
    x = there.clone().requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        return x * x


def _back_of(there: torch.Tensor) -> Any:
    x = there.clone().requires_grad_()
    with transfer_guard("allow"):
        y = x.cpu().sum()
    y.backward()


@pytest.mark.parametrize("name", EXPLICIT)
def test_what_the_program_writes_out_is_allowed(name: str) -> None:
    here, there = torch.ones(2), torch.ones(2, device="cuda")
    with transfer_guard("disallow"), pytest.raises(torch.TransferError):
        EXPLICIT[name](here, there)
    with transfer_guard("disallow", exempt_explicit=True):
        EXPLICIT[name](here, there)


@pytest.mark.parametrize("name", HIDDEN)
def test_what_it_does_not_is_refused(name: str) -> None:
    here, there = torch.ones(2), torch.ones(2, device="cuda")
    for _ in range(6):
        HIDDEN[name](here, there)  # also where it would be learned
    with transfer_guard("disallow", exempt_explicit=True), pytest.raises(RuntimeError, match="transfer_guard: a "):
        HIDDEN[name](here, there)


PACKAGE = Path(torch.__file__).parent
# what is the program's word itself, by another name; operations' own calls are within the operation
WORDS = {"_core/ops/", "_core/kernels/", "_core/drivers/", "demo/", "nn/module.py", "interop/aten.py", "interop/protocols.py", "interop/array_api/creation.py",
         "simulated/workloads.py"}
DEVICES = {"device", "device_type", "cuda", "cpu", "where", "there", "target", "dev", "host"}


def _moves(tree: ast.AST, inside: str = "") -> Any:
    """Lines of calls of `.cpu`, `.cuda`, and of `.to` with a device, outside functions of these names."""
    for node in ast.iter_child_nodes(tree):
        name = node.name if isinstance(node, ast.FunctionDef) else inside
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and inside not in ("cpu", "cuda", "to"):
            given = [n for x in node.args for n in ast.walk(x)]
            said = {getattr(n, "attr", None) or getattr(n, "id", None) or getattr(n, "value", None) for n in given
                    if isinstance(n, (ast.Attribute, ast.Name, ast.Constant))}
            if node.func.attr in ("cpu", "cuda") or (node.func.attr == "to" and (said & DEVICES or any(k.arg == "device" for k in node.keywords))):
                yield node.lineno
        yield from _moves(node, name)


def test_what_the_package_moves_for_itself_is_marked() -> None:
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        short = str(file.relative_to(PACKAGE))
        lines = list(_moves(ast.parse(file.read_text(encoding="utf-8"))))
        if lines and not short.startswith(tuple(WORDS)):
            found[short] = lines
    assert not found, f"calls that move tensors for the package's own ends go through asking.unasked: {found}"
    assert list(_moves(ast.parse("x.cpu()\nx.to(y.device)\nx.to(d)\nunasked(x.cpu)()\ndef cpu(): x.to('cpu')"))) == [1, 2]


def test_each_thread_is_asked_for_itself() -> None:
    there, found = torch.ones(2, device="cuda"), []

    def guarded() -> None:
        with transfer_guard("disallow", exempt_explicit=True):
            assert there.cpu().tolist() == [1.0, 1.0]
            with pytest.raises(torch.TransferError):
                there.tolist()
            found.append("guarded")

    def free() -> None:
        found.append(there.tolist())
    with transfer_guard("disallow", exempt_explicit=True):
        for work in (guarded, free):
            t = threading.Thread(target=work)
            t.start()
            t.join()
    assert found == ["guarded", [1.0, 1.0]]


def test_only_blocks_that_exempt_look_on() -> None:
    with transfer_guard("disallow"):
        assert not interpreters._stack
        with transfer_guard("disallow", exempt_explicit=True), transfer_guard("allow"):
            assert len(interpreters._stack) == 1
        assert not interpreters._stack


def test_a_call_is_unasked_unless_somebody_asked() -> None:
    heard: list[Any] = []
    assert asking.unasked(heard.append) == heard.append  # nobody wants to know
    asking.listen(1)
    try:
        asking.unasked(lambda: heard.append(asking.asked.get()))()
        asking.saying(True, asking.unasked(lambda: heard.append(asking.asked.get())))
        asking.saying(False, asking.of_program(lambda: heard.append(asking.asked.get())))
    finally:
        asking.listen(-1)
    assert heard == [False, True, None]
