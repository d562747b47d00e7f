"""LBFGS, Adafactor, Muon and averaged weights."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn, optim
from flambeau.optim import swa_utils


def rosenbrock(p):
    return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_finds_a_minimum(device: str, search) -> None:
    torch.manual_seed(0)
    a = torch.randn(6, 6, dtype=torch.float64, device=device)
    a = a @ a.T + torch.eye(6, dtype=torch.float64, device=device)
    b = torch.randn(6, dtype=torch.float64, device=device)
    x = torch.zeros(6, dtype=torch.float64, device=device, requires_grad=True)
    o = optim.LBFGS([x], lr=1.0 if search else 0.1, max_iter=200 if not search else 30, line_search_fn=search)

    def closure():
        o.zero_grad()
        loss = 0.5 * x @ a @ x - b @ x
        loss.backward()
        return loss

    for _ in range(3):
        o.step(closure)
    np.testing.assert_allclose(x.detach().cpu().numpy(), np.linalg.solve(a.cpu().numpy(), b.cpu().numpy()), atol=1e-4)


def test_lbfgs_rosenbrock_state_and_errors() -> None:
    p = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    o = optim.LBFGS([p], line_search_fn="strong_wolfe", max_iter=100)

    def closure():
        o.zero_grad()
        loss = rosenbrock(p)
        loss.backward()
        return loss

    first = o.step(closure)
    assert first.item() == pytest.approx(24.2) and rosenbrock(p).item() < 1e-8
    again = optim.LBFGS([p], line_search_fn="strong_wolfe")
    again.load_state_dict(o.state_dict())
    assert again.state[p]["n_iter"] == o.state[p]["n_iter"]
    with pytest.raises(RuntimeError, match="strong_wolfe"):
        optim.LBFGS([p], line_search_fn="armijo")
    with pytest.raises(ValueError, match="parameter groups"):
        optim.LBFGS([{"params": [p]}, {"params": [torch.ones(1, requires_grad=True)]}])


@pytest.mark.parametrize("kind", ["Adafactor", "Muon"])
def test_matrix_optimizers_learn(device: str, kind: str) -> None:
    torch.manual_seed(0)
    w = nn.Parameter(torch.zeros(4, 6, device=device))
    x = torch.randn(64, 6, device=device)
    y = x @ torch.randn(6, 4, device=device)
    o = optim.Adafactor([w], lr=0.3) if kind == "Adafactor" else optim.Muon([w], lr=0.05, weight_decay=0.0)
    losses = []
    for _ in range(150):
        o.zero_grad()
        loss = nn.functional.mse_loss(x @ w.T, y)
        loss.backward()
        o.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    with pytest.raises(ValueError, match="2D"):
        optim.Muon([nn.Parameter(torch.zeros(3))])


def test_averaged_model_and_swalr() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = swa_utils.AveragedModel(net)
    values = []
    for i in range(4):
        with torch.no_grad():
            net[0].weight.fill_(float(i))
        average.update_parameters(net)
        values.append(float(i))
    assert torch.allclose(average.module[0].weight, torch.full((2, 2), sum(values) / 4)) and int(average.n_averaged) == 4
    ema = swa_utils.AveragedModel(net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    ema.update_parameters(net)
    with torch.no_grad():
        net[0].weight.fill_(13.0)
    ema.update_parameters(net)
    assert torch.allclose(ema.module[0].weight, torch.full((2, 2), 0.9 * 3 + 0.1 * 13))
    data = torch.randn(50, 2) * 3 + 1
    swa_utils.update_bn([data[:25], data[25:]], average)
    inside = average.module[0](data)
    assert torch.allclose(average.module[1].running_mean, inside.mean(0), atol=1e-4)
    o = optim.SGD(net.parameters(), lr=1.0)
    s = swa_utils.SWALR(o, swa_lr=0.1, anneal_epochs=4, anneal_strategy="linear")
    rates = []
    for _ in range(6):
        o.step()
        s.step()
        rates.append(o.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, [0.775, 0.55, 0.325, 0.1, 0.1, 0.1], atol=1e-9)
