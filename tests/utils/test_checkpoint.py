"""Checkpointed parts give the values and gradients of plain ones."""

from __future__ import annotations

import flambeau
from flambeau import nn
from flambeau.utils.checkpoint import checkpoint, checkpoint_sequential


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(flambeau.tensor([0.5, -1.0]))
        self.calls = 0

    def forward(self, x, times=1):
        self.calls += 1
        return flambeau.tanh(x * self.by) * times


def test_gradients_of_inputs_and_parameters():
    plain, kept = Gate(), Gate()
    x, y = (flambeau.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    out, ref = checkpoint(kept, x, times=3), plain(y, times=3)
    assert out.tolist() == ref.tolist() and kept.calls == 1
    out.backward(flambeau.ones(2))
    ref.backward(flambeau.ones(2))
    assert kept.calls == 2 and x.grad.tolist() == y.grad.tolist() and kept.by.grad.tolist() == plain.by.grad.tolist()


def test_parameters_alone_get_gradients():
    net = Gate()
    checkpoint(net, flambeau.ones(2)).backward(flambeau.ones(2))
    assert net.by.grad is not None
    with flambeau.no_grad():
        assert not checkpoint(net, flambeau.ones(2)).requires_grad


def test_the_same_random_numbers_are_drawn_again():
    flambeau.manual_seed(0)
    x = flambeau.ones(100, requires_grad=True)
    out = checkpoint(lambda v: v * flambeau.rand(100), x)
    after = flambeau.rand(1).item()
    out.backward(flambeau.ones(100))
    assert x.grad.tolist() == out.tolist()
    flambeau.manual_seed(0)
    flambeau.rand(100)
    assert flambeau.rand(1).item() == after


def test_sequential():
    net = nn.Sequential(Gate(), Gate(), Gate(), Gate(), Gate())
    x = flambeau.ones(2, requires_grad=True)
    out = checkpoint_sequential(net, 2, x)
    assert out.tolist() == net(flambeau.ones(2)).tolist()
    out.backward(flambeau.ones(2))
    assert [m.calls for m in net] == [3, 3, 2, 2, 2] and x.grad is not None


def test_a_part_runs_again_in_the_regions_it_first_ran_in():
    seen = []

    def part(x, w):
        y = x @ w
        seen.append((y.dtype, flambeau.is_autocast_enabled("cpu")))
        return y
    x, w = (flambeau.ones(2, 2, requires_grad=True) for _ in range(2))
    with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
        y = checkpoint(part, x, w, use_reentrant=False)
    y.float().sum().backward()
    assert seen == [(flambeau.bfloat16, True)] * 2 and x.grad.dtype is flambeau.float32
    y = checkpoint(part, x, w, use_reentrant=True)
    with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
        y.sum().backward()
        assert flambeau.is_autocast_enabled("cpu")
    assert seen[2:] == [(flambeau.float32, False)] * 2
    with flambeau.autocast("cpu"), flambeau.autocast("cpu", enabled=False):
        y = checkpoint(part, x, w, use_reentrant=False)
    y.sum().backward()
    assert seen[4:] == [(flambeau.float32, False)] * 2


def test_early_stop_is_accepted():
    from flambeau.utils.checkpoint import checkpoint, set_checkpoint_early_stop
    x = flambeau.ones(2, requires_grad=True)
    for enable in (True, False):
        x.grad = None
        with set_checkpoint_early_stop(enable):
            checkpoint(lambda t: (t * t).sum(), x, use_reentrant=False).backward()
        assert x.grad.tolist() == [2, 2]
