"""Row D11: models move in place; parameters keep their identity, tied weights stay tied, optimizers keep working."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn, optim

D = torch.device
F: Any = nn.functional


@pytest.fixture(params=["eager", "lazy"])
def gpus(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch.simulate(gpus=2, memory="64MiB", queue=request.param):
        yield


class Tied(nn.Module):
    """An embedding whose weights are also the last layer's, with buffers of two types."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("scale", torch.ones(1), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.table(x)) * self.scale)


MOVES: list[tuple[str, Callable[[Any], Any], str, Any]] = [
    ("cuda()", lambda m: m.cuda(), "cuda:0", torch.float32), ("cuda(1)", lambda m: m.cuda(1), "cuda:1", torch.float32),
    ("cuda(device)", lambda m: m.cuda(D("cuda:1")), "cuda:1", torch.float32), ("to(str)", lambda m: m.to("cuda:1"), "cuda:1", torch.float32),
    ("to(int)", lambda m: m.to(1), "cuda:1", torch.float32), ("to(device, dtype)", lambda m: m.to("cuda", torch.float64), "cuda:0", torch.float64),
    ("to(dtype)", lambda m: m.to(torch.float16), "cpu", torch.float16),
    ("to(tensor)", lambda m: m.to(torch.ones(1, device="cuda:1").double()), "cuda:1", torch.float64),
    ("to(keywords)", lambda m: m.to(device="cuda:1", dtype=torch.bfloat16, non_blocking=True), "cuda:1", torch.bfloat16),
    ("half", lambda m: m.half(), "cpu", torch.float16), ("double", lambda m: m.double(), "cpu", torch.float64),
    ("bfloat16", lambda m: m.bfloat16(), "cpu", torch.bfloat16),
    ("float", lambda m: m.double().float(), "cpu", torch.float32), ("type", lambda m: m.type(torch.float64), "cpu", torch.float64),
    ("cuda and back", lambda m: m.cuda().cpu(), "cpu", torch.float32), ("across", lambda m: m.cuda(0).cuda(1), "cuda:1", torch.float32),
]


class TestD11ModulesMoveInPlace:
    @pytest.mark.parametrize(("name", "move", "where", "d"), MOVES, ids=[m[0] for m in MOVES])
    def test_parameters_buffers_and_gradients(self, gpus: None, name: str, move: Callable[[Any], Any], where: str, d: Any) -> None:
        net = Tied()
        before = dict(net.named_parameters())
        values = {n: p.detach().clone() for n, p in before.items()}
        net(torch.tensor([0, 1, 2])).sum().backward()
        grads = {n: p.grad.clone() for n, p in before.items()}
        stored = net.state_dict()
        assert move(net) is net
        after = dict(net.named_parameters())
        assert list(after) == list(before) and all(after[n] is p for n, p in before.items())  # the very objects
        assert net.head.weight is net.table.weight and len(list(net.parameters())) == 3
        for n, p in after.items():
            assert isinstance(p, nn.Parameter) and p.is_leaf and p.requires_grad and str(p.device) == where and p.dtype == d
            assert p.grad is not None and str(p.grad.device) == where and p.grad.dtype == d
            assert p.cpu().tolist() == values[n].to(d).tolist() and p.grad.cpu().tolist() == grads[n].to(d).tolist()
        assert str(net.norm.running_mean.device) == where and net.norm.running_mean.dtype == d
        assert {str(b.device) for b in net.buffers()} == {where}
        # only .type() changes what is not floating
        assert (net.mask.dtype, net.norm.num_batches_tracked.dtype) == ((d, d) if name == "type" else (torch.bool, torch.int64))
        assert str(net.device) == where and "table.weight" in stored
        if d == torch.float32:
            out = net(torch.tensor([0, 1, 2], device=where))
            assert str(out.device) == where

    def test_references_elsewhere_see_the_move(self, gpus: None) -> None:
        net = nn.Linear(2, 2)
        weight, listed, by_name = net.weight, list(net.parameters()), dict(net.named_parameters())
        view = weakref.ref(weight)
        net.cuda(1)
        assert weight.device == D("cuda:1") == listed[0].device == by_name["weight"].device and view() is weight

    def test_nothing_to_change_copies_nothing(self, gpus: None) -> None:
        from flambeau._core.runtime import dispatch
        net = Tied().cuda(1)
        addresses = [t.data_ptr() for t in (*net.parameters(), *net.buffers())]
        copies: list[Any] = []
        with dispatch.observe(copies=copies.append):
            net.to("cuda:1").cuda(1).to(torch.float32).float().to(net.table.weight)
        assert not copies and addresses == [t.data_ptr() for t in (*net.parameters(), *net.buffers())]

    def test_a_tied_weight_is_moved_once(self, gpus: None) -> None:
        from flambeau._core.runtime import dispatch
        copies: list[Any] = []
        net = Tied()
        with dispatch.observe(copies=copies.append):
            net.cuda()
        assert len([c for c in copies if c.direction == "h2d" and c.nbytes == 5 * 4 * 4]) == 1
        assert len(copies) == len(list(net.parameters())) + len(list(net.buffers()))

    def test_the_old_memory_is_given_back(self, gpus: None) -> None:
        net = nn.Linear(512, 512, device="cuda:0")
        held = torch.cuda.memory_allocated(0)
        net.to("cuda:1")
        gc.collect()
        torch.cuda.synchronize()
        assert held >= 1 << 20 and torch.cuda.memory_allocated(0) == 0 and torch.cuda.memory_allocated(1) == held

    def test_parameter_is_a_tensor(self, gpus: None) -> None:
        p = nn.Parameter(torch.ones(2, device="cuda:1"))
        assert isinstance(p, torch.Tensor) and isinstance(p, nn.Parameter) and p.is_cuda and p.requires_grad and p.is_leaf
        assert not isinstance(p.cuda(0), nn.Parameter) and not isinstance(p + 1, nn.Parameter) and p.cuda(1) is p
        assert isinstance(copy.deepcopy(p), nn.Parameter) and copy.deepcopy(p).device == D("cuda:1")

    @pytest.mark.parametrize("call", [lambda m: m.to(torch.int64), lambda m: m.to(1.5), lambda m: m.to("gpu"), lambda m: m.cuda(7),
                                      lambda m: m.to(devise="cuda")])
    def test_bad_moves_change_nothing(self, gpus: None, call: Callable[[Any], Any]) -> None:
        net = Tied()
        with pytest.raises((TypeError, RuntimeError)):
            call(net)
        assert {str(t.device) for t in (*net.parameters(), *net.buffers())} == {"cpu"} and {p.dtype for p in net.parameters()} == {torch.float32}


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1), "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), "adam": lambda p: optim.Adam(p, lr=0.1),
    "amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True, weight_decay=0.01), "adamw": lambda p: optim.AdamW(p, lr=0.1),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1), "adadelta": lambda p: optim.Adadelta(p, lr=0.5),
    "nadam": lambda p: optim.NAdam(p, lr=0.1), "radam": lambda p: optim.RAdam(p, lr=0.1),
}


def _net() -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def _train(net: Any, optimizer: Any, steps: int = 3) -> list[float]:
    losses = []
    x = torch.linspace(-1, 1, 15, device=net[0].weight.device).reshape(5, 3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((net(x) - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _loaded(optimizer: Any) -> Any:
    """The optimizer, its state where the parameters are now."""
    optimizer.load_state_dict(optimizer.state_dict())
    return optimizer


class TestD11Optimizers:
    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_built_before_or_after_the_move_or_between_steps(self, gpus: None, name: str) -> None:
        make = OPTIMIZERS[name]
        plain = _net()
        expected = _train(plain, make(plain.parameters()), 6)
        assert expected[-1] < expected[0]
        before = _net()
        optimizer = make(before.parameters())
        before.cuda(1)
        assert _train(before, _loaded(optimizer) if name == "adagrad" else optimizer, 6) == pytest.approx(expected, rel=1e-5)  # Adagrad's state is made at once
        after = _net().cuda(1)
        assert _train(after, make(after.parameters()), 6) == pytest.approx(expected, rel=1e-5)
        between = _net()
        optimizer = make(between.parameters())
        losses = _train(between, optimizer, 2) + _train(between.cuda(0), _loaded(optimizer), 2)
        losses += _train(between.cuda(1), _loaded(optimizer), 1) + _train(between.cpu(), _loaded(optimizer), 1)
        assert losses == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_state_follows_its_parameter_when_it_is_loaded(self, gpus: None, name: str) -> None:
        """As in PyTorch, a step whose state lies elsewhere is refused."""
        net = _net()
        optimizer = OPTIMIZERS[name](net.parameters())
        for where in ("cpu", "cuda:0", "cuda:1", "cpu"):
            net.to(where)
            if any(isinstance(v, torch.Tensor) and v.device != D(where) for s in optimizer.state.values() for k, v in s.items() if k != "step"):
                with pytest.raises(RuntimeError, match="at least two devices, .*move a model before its optimizer"):
                    _train(net, optimizer, 1)
            _train(net, _loaded(optimizer), 1)
            for p in net.parameters():
                assert {str(v.device) for k, v in optimizer.state[p].items() if isinstance(v, torch.Tensor) and k != "step"} <= {where}

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_resumed_on_another_device(self, gpus: None, name: str) -> None:
        net = _net()
        optimizer = OPTIMIZERS[name](net.parameters())
        _train(net, optimizer, 2)
        saved = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())
        expected = _train(net, optimizer, 3)
        other = _net().cuda(1)
        resumed = OPTIMIZERS[name](other.parameters())
        other.load_state_dict(saved[0])
        resumed.load_state_dict(saved[1])
        for p in other.parameters():
            assert {str(v.device) for k, v in resumed.state[p].items() if isinstance(v, torch.Tensor) and k != "step"} <= {"cuda:1"}
        assert _train(other, resumed, 3) == pytest.approx(expected, rel=1e-5)

    def test_a_change_of_type_keeps_the_optimizer(self, gpus: None) -> None:
        net = _net()
        optimizer = optim.Adam(net.parameters(), lr=0.1)
        _train(net, optimizer, 2)
        net.double().cuda()
        _loaded(optimizer)
        before = [p.detach().cpu().clone() for p in net.parameters()]
        x = torch.ones(2, 3, dtype=torch.float64, device="cuda")
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        for p, old in zip(net.parameters(), before, strict=True):
            assert p.dtype == torch.float64 and p.device == D("cuda:0") == optimizer.state[p]["exp_avg"].device
            assert 0 < (p.cpu() - old).abs().max().item() < 0.5 and optimizer.state[p]["step"] == 3
