"""Checkpointed parts give the values and gradients of plain ones."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau
from flambeau import nn
from flambeau.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)


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
        y = checkpoint(part, x, w, use_reentrant=False, early_stop=False)
    y.float().sum().backward()
    assert seen == [(flambeau.bfloat16, True)] * 2 and x.grad.dtype is flambeau.float32
    y = checkpoint(part, x, w, use_reentrant=True)
    with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
        y.sum().backward()
        assert flambeau.is_autocast_enabled("cpu")
    assert seen[2:] == [(flambeau.float32, False)] * 2
    with flambeau.autocast("cpu"), flambeau.autocast("cpu", enabled=False):
        y = checkpoint(part, x, w, use_reentrant=False, early_stop=False)
    y.sum().backward()
    assert seen[4:] == [(flambeau.float32, False)] * 2


def test_a_second_run_ends_when_it_has_what_the_pass_needs():
    ran = []

    def part(t):
        y = t.sin().cos()
        ran.append(len(ran))
        return y
    for enable, times in ((True, 1), (False, 2)):
        x = flambeau.ones(2, requires_grad=True)
        ran.clear()
        with set_checkpoint_early_stop(enable):
            y = checkpoint(part, x, use_reentrant=False)
        y.sum().backward()
        assert len(ran) == times and x.grad.tolist() == (-flambeau.ones(2).sin().sin() * flambeau.ones(2).cos()).tolist()


def test_the_graph_is_that_of_the_plain_part():
    """Gradients of gradients, `autograd.grad`, hooks on what lies outside and inside, and tensors in keywords and containers."""
    w = flambeau.tensor([0.5, -1.0], requires_grad=True)
    x = flambeau.tensor([1.0, 2.0], requires_grad=True)

    def part(box, by=None):
        return {"y": flambeau.tanh(box["x"] * w) * by}
    hooked = []
    w.register_hook(hooked.append)
    by = flambeau.tensor([2.0, 3.0], requires_grad=True)
    found = []
    for run in (part, lambda box, by: checkpoint(part, box, by=by, use_reentrant=False)):
        y = run({"x": x * w}, by=by)["y"]
        first = flambeau.autograd.grad(y.sum(), (x, w, by), create_graph=True)
        second = flambeau.autograd.grad(sum((g * g).sum() for g in first), (x, w, by))
        found.append([t.tolist() for t in (*first, *second)])
    assert found[0] == found[1] and len(hooked) == 4


def test_parts_within_parts():
    def grad(f):
        def g(x):
            with flambeau.enable_grad():
                return flambeau.autograd.grad(f(x), (x,), create_graph=True)[0]
        return g

    def kept(f):
        return lambda x: checkpoint(f, x, use_reentrant=False)

    def f(x):
        return x.sin().exp().sin()
    x = flambeau.tensor(0.7, requires_grad=True)
    for early in (True, False):
        with set_checkpoint_early_stop(early):
            for plain, others in ((grad(f), (grad(kept(f)), grad(kept(kept(f))))),
                                  (grad(grad(f)), (grad(kept(grad(f))), kept(grad(grad(kept(f)))), grad(kept(grad(kept(f))))))):
                for other in others:
                    assert other(x).item() == plain(x).item()


def test_what_is_saved_is_there_for_one_pass():
    count = []

    def part(a):
        count.append(1)
        return flambeau.exp(a * a)
    a = flambeau.ones(3, requires_grad=True)
    y = checkpoint(part, a, use_reentrant=False)
    for times in (2, 3):
        assert y.grad_fn._saved_result.tolist() == y.tolist() and len(count) == times
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert len(count) == 5
    with pytest.raises(RuntimeError, match="already been freed"):
        y.grad_fn._saved_result  # noqa: B018


def test_a_run_that_saves_something_else_is_an_error():
    sizes = iter((3, 2))
    x = flambeau.ones(3, requires_grad=True)
    y = checkpoint(lambda t: t[:next(sizes)].exp().sum(), x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="another tensor"):
        y.backward()
    times = iter((3, 1))
    y = checkpoint(lambda t: sum(t.exp().sum() for _ in range(next(times))), x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="fewer tensors|saved 1 tensors"):
        y.backward()


def test_the_two_contexts():
    class Count:
        def __init__(self):
            self.entered = 0

        def __enter__(self):
            self.entered += 1

        def __exit__(self, *exc):
            pass
    first, again = Count(), Count()
    x = flambeau.ones(3, requires_grad=True)
    y = checkpoint(flambeau.exp, x, use_reentrant=False, context_fn=lambda: (first, again))
    assert (first.entered, again.entered) == (1, 0)
    y.sum().backward()
    assert (first.entered, again.entered) == (1, 1)
    for options in ({"context_fn": lambda: (first, again)}, {"times": 2}):
        with pytest.raises(ValueError):
            checkpoint(lambda t, times=1: t, x, use_reentrant=True, **options)
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(flambeau.exp, x, use_reentrant=False, determinism_check="some")


def test_a_part_that_is_one_operation_is_for_backward_alone():
    x = flambeau.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="not compatible with .grad"):
        flambeau.autograd.grad(checkpoint(flambeau.exp, x, use_reentrant=True).sum(), (x,))
    checkpoint(flambeau.exp, x, use_reentrant=True).sum().backward()
    assert x.grad.tolist() == flambeau.ones(2).exp().tolist()
    with pytest.raises(RuntimeError, match="none of output"):
        checkpoint(lambda t: t.detach(), x, use_reentrant=True).sum().backward()


@pytest.mark.parametrize("make, shape", [
    (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 3, 8)),
    (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5)), (2, 2, 8, 8)),
    (lambda: nn.LSTM(4, 5, batch_first=True), (2, 3, 4)),
], ids=["attention", "convolution", "recurrent"])
def test_layers_save_the_same_each_time(make, shape):
    """Also once the engine has plans for their calls."""
    flambeau.manual_seed(0)
    net = make()
    x = flambeau.randn(*shape, requires_grad=True)
    for i in range(5):
        found = []
        for run in (net, lambda t: checkpoint(net, t, use_reentrant=False)):
            flambeau.manual_seed(i)
            net.zero_grad()
            out = run(x)
            (out[0] if isinstance(out, tuple) else out).sum().backward()
            found.append([p.grad.clone() for p in net.parameters()])
        assert all(flambeau.allclose(a, b, atol=1e-6) for a, b in zip(*found))  # a recurrent layer is one operation where nobody looks at what is saved


def test_contexts_of_a_policy_change_no_gradient():
    m = Gate()
    x = flambeau.tensor([1.0, 2.0])
    m(x).sum().backward()
    plain, m.by.grad = m.by.grad, None

    def policy(ctx, operation, *args, **kwargs):
        return CheckpointPolicy.PREFER_RECOMPUTE

    checkpoint(m, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy)).sum().backward()
    assert m.by.grad.tolist() == plain.tolist()
    assert len(create_selective_checkpoint_contexts([flambeau.mm])) == 2 and SelectiveCheckpointContext(is_recompute=True).is_recompute
    with pytest.raises(TypeError, match="policy_fn_or_list"):
        create_selective_checkpoint_contexts(3)


def test_a_part_applied_by_hand() -> None:
    from flambeau.utils import checkpoint as c
    x, w = flambeau.tensor([2.0, 3.0], requires_grad=True), flambeau.tensor([5.0], requires_grad=True)
    runs = []

    def part(x: Any, n: int) -> Any:
        runs.append(1)
        return x * x * w * n
    c.CheckpointFunction.apply(part, True, x, 2).sum().backward()
    assert len(runs) == 2 and x.grad is not None and x.grad.tolist() == [40.0, 60.0] and w.grad is not None and w.grad.tolist() == [26.0]
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        c.check_backward_validity([flambeau.ones(1), 3])
    c.check_backward_validity([x, flambeau.ones(1)])
    with c.noop_context_fn()[0], c.noop_context_fn()[1], c.set_checkpoint_debug_enabled(True):
        pass
    try:
        c.DefaultDeviceType.set_device_type("meta")
        assert c.DefaultDeviceType.get_device_type() == "meta"
    finally:
        c.DefaultDeviceType._default_device_type = None
    assert c.DefaultDeviceType.get_device_type() == ("cuda" if flambeau.cuda.is_available() else "cpu")
