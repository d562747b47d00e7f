"""GradScaler: scaling, skipped steps, growth and backoff, its state."""

from __future__ import annotations

import pickle
import warnings

import pytest

import flambeau as torch
from flambeau import nn, optim


def made(device: str, **options):
    return torch.amp.GradScaler(device.split(":")[0], **options)


def test_a_scaled_step_is_the_plain_step(device: str) -> None:
    results = []
    for scaled in (False, True):
        torch.manual_seed(0)
        net = nn.Linear(4, 2).to(device)
        x = torch.ones(3, 4, device=device)
        o = optim.SGD(net.parameters(), lr=0.1)
        scaler = made(device, enabled=scaled, init_scale=1024.0)
        loss = net(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(o)
        scaler.update()
        results.append(net.weight.detach().cpu())
    assert torch.allclose(*results, rtol=1e-6)


def test_infinite_gradients_skip_and_back_off(device: str) -> None:
    p = nn.Parameter(torch.ones(3, device=device))
    o = optim.SGD([p], lr=1.0)
    scaler = made(device, init_scale=8.0, growth_interval=2)
    for bad in (float("inf"), float("nan")):
        p.grad = torch.tensor([1.0, bad, 0.0], device=device)
        before = scaler.get_scale()
        assert scaler.step(o) is None and p.detach().cpu().tolist() == [1.0] * 3
        scaler.update()
        assert scaler.get_scale() == before / 2
    for i in range(2):
        p.grad = torch.zeros(3, device=device)
        scaler.step(o)
        scaler.update()
        assert scaler.get_scale() == (2.0, 4.0)[i]


def test_unscale_then_clip_and_misuse(device: str) -> None:
    p = nn.Parameter(torch.zeros(2, device=device))
    o = optim.SGD([p], lr=1.0)
    scaler = made(device, init_scale=4.0)
    scaler.scale((p * torch.tensor([3.0, 4.0], device=device)).sum()).backward()
    scaler.unscale_(o)
    assert p.grad.cpu().tolist() == [3.0, 4.0]
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(o)
    nn.utils.clip_grad_norm_([p], 1.0)
    scaler.step(o)
    with pytest.raises(RuntimeError, match="step\\(\\) has already"):
        scaler.step(o)
    scaler.update()
    assert torch.allclose(p.detach().cpu(), torch.tensor([-0.6, -0.8]), atol=1e-5)
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
    p.grad = None
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.step(o)


def test_state_and_settings(device: str) -> None:
    scaler = made(device, init_scale=16.0)
    scaler.update(2.0)
    other = made(device)
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 2.0 and other.get_growth_interval() == 2000
    with pytest.raises(RuntimeError, match="empty"):
        other.load_state_dict({})
    with pytest.raises(ValueError, match="Tensor or an iterable"):
        scaler.scale(3)
    assert [x.item() for x in scaler.scale([torch.ones((), device=device)] * 2)] == [2.0, 2.0]
    assert made(device, enabled=False).state_dict() == {} and made(device, enabled=False).get_scale() == 1.0


def test_without_a_gpu_it_is_off() -> None:
    with torch.simulate(gpus=0), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert not torch.cuda.amp.GradScaler().is_enabled()
    assert any("not available" in str(w.message) for w in seen)


def test_a_resumed_scaler_goes_on_where_it_was(device: str) -> None:
    """State taken between two steps, growth counter and all, leads to the same scales as never having stopped."""
    def drive(scaler, steps):
        p = nn.Parameter(torch.zeros(2, device=device))
        o, scales = optim.SGD([p], lr=1.0), []
        for bad in steps:
            p.grad = torch.tensor([float("inf") if bad else 1.0, 0.0], device=device)
            scaler.step(o)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales

    steps = [False, False, True, False, False, False, True, False]
    options = {"init_scale": 16.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 3}
    whole = drive(made(device, **options), steps)
    for cut in range(1, len(steps)):
        first = made(device, **options)
        before = drive(first, steps[:cut])
        state = first.state_dict()
        assert set(state) == {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}
        second = made(device)
        second.load_state_dict(state)
        assert before + drive(second, steps[cut:]) == whole
    assert drive(pickle.loads(pickle.dumps(made(device, **options))), steps) == whole


def test_one_optimizer_of_two_steps(device: str) -> None:
    """Only the optimizer whose gradients are not finite is held back; the scale shrinks for both."""
    a, b = (nn.Parameter(torch.ones(1, device=device)) for _ in range(2))
    first, second = optim.SGD([a], lr=1.0), optim.SGD([b], lr=1.0)
    scaler = made(device, init_scale=2.0)
    a.grad, b.grad = torch.tensor([2.0], device=device), torch.tensor([float("nan")], device=device)
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert (a.item(), b.item(), scaler.get_scale()) == (0.0, 1.0, 1.0)


def test_gradients_of_16_bits_are_refused(device: str) -> None:
    p = nn.Parameter(torch.ones(2, device=device, dtype=torch.float16))
    o = optim.SGD([p], lr=1.0)
    scaler = made(device)
    p.grad = torch.ones(2, device=device, dtype=torch.float16)
    with pytest.raises(ValueError, match="unscale FP16 gradients"):
        scaler.unscale_(o)


def test_scalers_that_libraries_derive(sim_gpus) -> None:
    """Composer's and hivemind's: the steps by PyTorch's names, and a state of each optimizer's that they read."""
    from flambeau.amp.grad_scaler import OptState, _refresh_per_optimizer_state
    told = []

    class Own(torch.amp.GradScaler):
        def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
            found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
            told.append({str(device): bool(x) for device, x in found.items()})
            return found

        def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):
            told.append((optimizer_state["stage"], sum(v.item() for v in optimizer_state["found_inf_per_device"].values())))
            return super()._maybe_opt_step(optimizer, optimizer_state, *args, **kwargs)
    p = torch.nn.Parameter(torch.tensor([1.0], device="cuda"))
    scaler, optimizer = Own(init_scale=4.0), torch.optim.SGD([p], 0.5)
    for factor, left, scale in ((1.0, 0.5, 4.0), (float("inf"), 0.5, 2.0)):
        told.clear()
        optimizer.zero_grad()
        scaler.scale(p.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        bad = factor != 1.0
        assert told == [{"cuda:0": bad}, (OptState.UNSCALED, bad)] and p.item() == left and scaler.get_scale() == scale
    assert scaler._per_optimizer_states[id(optimizer)] == _refresh_per_optimizer_state() == {"stage": OptState.READY, "found_inf_per_device": {}}
