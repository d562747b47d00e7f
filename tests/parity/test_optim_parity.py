"""Every optimizer and schedule beside PyTorch's: same parameters, same state, states that can be exchanged."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.1, "maximize": True}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.1}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.9}),
    ("RMSprop", {"lr": 0.1, "centered": True}),
    ("RMSprop", {"lr": 0.1, "centered": True, "momentum": 0.9, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("Rprop", {}),
    ("ASGD", {"lr": 0.1, "weight_decay": 0.1, "t0": 2}),
]


def _run(library, name, options, values, grads):
    params = [library.from_numpy(v.copy()).requires_grad_() for v in values]
    optimizer = getattr(library.optim, name)(params, **options)
    for step in grads:
        for p, g in zip(params, step):
            p.grad = library.from_numpy(g.copy())
        optimizer.step()
    return params, optimizer


def _numbers():
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((4, 3)).astype(np.float32), rng.standard_normal(5).astype(np.float32)]
    return values, [[rng.standard_normal(v.shape).astype(np.float32) for v in values] for _ in range(12)]


@pytest.mark.parametrize("name,options", OPTIMIZERS)
def test_optimizer(name, options):
    values, grads = _numbers()
    mine, own = _run(flambeau, name, options, values, grads)
    theirs, other = _run(torch, name, options, values, grads)
    for p, q in zip(mine, theirs):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=3e-5, atol=3e-6)
    state, expected = own.state_dict(), other.state_dict()
    assert state["param_groups"][0].keys() == expected["param_groups"][0].keys()
    assert state["state"].keys() == expected["state"].keys()
    for key, row in expected["state"].items():
        assert state["state"][key].keys() == row.keys()
        for what, value in row.items():
            np.testing.assert_allclose(np.asarray(state["state"][key][what]), np.asarray(value), rtol=3e-4, atol=1e-5,
                                       err_msg=what)
    assert repr(own) == repr(other)


@pytest.mark.parametrize("name,options", OPTIMIZERS)
def test_a_state_of_pytorch_can_be_resumed(name, options):
    values, grads = _numbers()
    halfway, other = _run(torch, name, options, values, grads[:6])
    state = other.state_dict()
    for row in state["state"].values():
        for what, value in row.items():
            if isinstance(value, torch.Tensor):
                row[what] = flambeau.from_numpy(value.numpy().copy())
    params = [flambeau.from_numpy(p.detach().numpy().copy()).requires_grad_() for p in halfway]
    optimizer = getattr(flambeau.optim, name)(params, **options)
    optimizer.load_state_dict(state)
    for step in grads[6:]:
        for p, g in zip(params, step):
            p.grad = flambeau.from_numpy(g.copy())
        optimizer.step()
    expected, _ = _run(torch, name, options, values, grads)
    for p, q in zip(params, expected):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=3e-5, atol=3e-6)


def _schedule(library, make, steps=20):
    p = library.zeros(1).requires_grad_()
    optimizer = library.optim.SGD([p], lr=0.5, momentum=0.9)
    scheduler = make(library.optim.lr_scheduler, optimizer)
    metrics = [5, 4, 3, 3, 3, 3, 3, 3] + [2] * 12
    seen = []
    for i in range(steps):
        group = optimizer.param_groups[0]
        seen.append((group["lr"], group["momentum"]))
        optimizer.step()
        if type(scheduler).__name__ == "ReduceLROnPlateau":
            scheduler.step(metrics[i])
        else:
            scheduler.step()
        if i == 9:  # a schedule goes on from its saved state
            scheduler.load_state_dict(scheduler.state_dict())
    return seen, scheduler.get_last_lr()


SCHEDULES = {
    "step": lambda s, o: s.StepLR(o, 3),
    "multi step": lambda s, o: s.MultiStepLR(o, [2, 5, 5]),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 5, 0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2),
    "lambda": lambda s, o: s.LambdaLR(o, lambda e: 0.9**e),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.9),
    "one cycle": lambda s, o: s.OneCycleLR(o, 1.0, total_steps=25),
    "one cycle, three phases": lambda s, o: s.OneCycleLR(o, 1.0, total_steps=25, three_phase=True,
                                                         anneal_strategy="linear"),
    "linear": lambda s, o: s.LinearLR(o),
    "constant": lambda s, o: s.ConstantLR(o),
    "polynomial": lambda s, o: s.PolynomialLR(o, power=2),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 3),
    "cyclic 2": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 3, mode="triangular2"),
    "cyclic exp": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 3, mode="exp_range", gamma=0.9),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=2, cooldown=1),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9), s.CosineAnnealingLR(o, 5)], [4, 9]),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)]),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name):
    mine, last = _schedule(flambeau, SCHEDULES[name])
    theirs, expected = _schedule(torch, SCHEDULES[name])
    np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    np.testing.assert_allclose(last, expected, rtol=1e-12)
