"""Schedules against their formulas, and their errors."""

from __future__ import annotations

import math
import pickle

import pytest

import flambeau
from flambeau import nn, optim
from flambeau.optim import lr_scheduler as schedules


def _optimizer(lr=1.0, **options):
    return optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=lr, **options)


def _rates(make, steps):
    optimizer = _optimizer()
    scheduler = make(optimizer)
    seen = []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


def test_schedules_against_formulas():
    table = [
        (lambda o: schedules.StepLR(o, 2, 0.5), lambda t: 0.5 ** (t // 2)),
        (lambda o: schedules.ExponentialLR(o, 0.9), lambda t: 0.9**t),
        (lambda o: schedules.LambdaLR(o, lambda t: 1 / (1 + t)), lambda t: 1 / (1 + t)),
        (lambda o: schedules.CosineAnnealingLR(o, 8), lambda t: (1 + math.cos(math.pi * t / 8)) / 2),
        (lambda o: schedules.LinearLR(o, 0.5, 1.0, 4), lambda t: 0.5 + 0.5 * min(t, 4) / 4),
        (lambda o: schedules.PolynomialLR(o, 4, 2.0), lambda t: (1 - min(t, 4) / 4) ** 2),
        (lambda o: schedules.MultiStepLR(o, [3, 5], 0.1), lambda t: 0.1 ** ((t >= 3) + (t >= 5))),
    ]
    for make, formula in table:
        assert _rates(make, 7) == pytest.approx([formula(t) for t in range(7)], abs=1e-12)


def test_stepping_to_an_epoch_uses_the_closed_form():
    optimizer = _optimizer()
    scheduler = schedules.CosineAnnealingLR(optimizer, 10)
    optimizer.step()
    scheduler.step(5)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5) and scheduler.last_epoch == 5


def test_resuming_needs_initial_lr():
    with pytest.raises(KeyError, match="param 'initial_lr' is not specified"):
        schedules.StepLR(_optimizer(), 2, last_epoch=3)


def test_wrong_order_warns():
    optimizer = _optimizer()
    scheduler = schedules.StepLR(optimizer, 2)
    with pytest.warns(UserWarning, match=r"`lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()


def test_plateau():
    optimizer = _optimizer()
    scheduler = schedules.ReduceLROnPlateau(optimizer, "max", factor=0.5, patience=1, min_lr=0.3)
    for metric, rate in ((1.0, 1.0), (1.0, 1.0), (0.9, 0.5), (2.0, 0.5), (1.0, 0.5), (1.0, 0.3)):
        scheduler.step(metric)
        assert optimizer.param_groups[0]["lr"] == rate
    with pytest.raises(ValueError, match="Factor should be < 1.0"):
        schedules.ReduceLROnPlateau(optimizer, factor=1.0)
    with pytest.raises(ValueError, match="mode best is unknown"):
        schedules.ReduceLROnPlateau(optimizer, "best")


def test_one_cycle_cycles_momentum_and_ends():
    optimizer = _optimizer(0.1, momentum=0.9)
    scheduler = schedules.OneCycleLR(optimizer, 1.0, total_steps=10)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1.0 / 25)
    assert optimizer.param_groups[0]["momentum"] == pytest.approx(0.95)
    for _ in range(9):
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1.0 / 25 / 1e4)
    scheduler.step()
    with pytest.raises(ValueError, match="Tried to step 11 times. The total number of steps is 10"):
        scheduler.step()
    with pytest.raises(ValueError, match="must support momentum"):
        schedules.OneCycleLR(optim.Adagrad([nn.Parameter(flambeau.zeros(1))]), 1.0, total_steps=5)


def test_state_dict_round_trip():
    optimizer = _optimizer()
    scheduler = schedules.StepLR(optimizer, 2)
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    other = schedules.StepLR(_optimizer(), 7)
    other.load_state_dict(scheduler.state_dict())
    assert other.last_epoch == 3 and other.step_size == 2 and "optimizer" not in scheduler.state_dict()


def test_wrong_kinds():
    with pytest.raises(TypeError, match="int is not an Optimizer"):
        schedules.StepLR(3, 1)
    with pytest.raises(ValueError, match="Expected 1 lr_lambdas, but got 2"):
        schedules.LambdaLR(_optimizer(), [lambda t: 1.0, lambda t: 1.0])
    with pytest.raises(ValueError, match="number of schedulers provided to be one more"):
        o = _optimizer()
        schedules.SequentialLR(o, [schedules.ConstantLR(o)], [1])


def test_what_a_schedule_says_of_how_it_is_used():
    import warnings
    optimizer = _optimizer()
    optimizer.step()
    for scheduler in (schedules.StepLR(optimizer, 2), schedules.ReduceLROnPlateau(optimizer)):
        first = (1.0,) if isinstance(scheduler, schedules.ReduceLROnPlateau) else ()
        with pytest.warns(UserWarning) as said:
            scheduler.step(*first, 3)
        assert [str(w.message) for w in said] == [schedules.EPOCH_DEPRECATION_WARNING] and scheduler.last_epoch == 3
    both = schedules.SequentialLR(optimizer, [schedules.ConstantLR(optimizer), schedules.ExponentialLR(optimizer, 0.9)], [2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            both.step()
    late = schedules.StepLR(_optimizer(), 2)
    with pytest.warns(UserWarning, match="how-to-adjust-learning-rate"):
        late.step()


def test_a_step_put_in_the_optimizer_s_place_is_told():
    import types

    from flambeau import nn, optim
    net = nn.Linear(2, 2)
    opt = optim.SGD(net.parameters(), 0.1)
    schedule = optim.lr_scheduler.StepLR(opt, 3)
    before = opt.step
    opt.step = types.MethodType(lambda self, *args: before(*args), opt)
    opt.step()
    with pytest.warns(UserWarning, match="has been overridden"):
        schedule.step()
    cyclic = optim.lr_scheduler.CyclicLR(optim.Adam(net.parameters()), 1, 5, cycle_momentum=False, mode="triangular2")
    assert cyclic._scale_fn_ref(2) == 0.5 and cyclic._scale_fn_custom is None


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_an_annealed_schedules_state_is_plain(strategy):
    from flambeau.optim.swa_utils import SWALR
    made = [SWALR(_optimizer(), 0.1, 4, strategy) for _ in range(2)]
    made[0].optimizer.step()
    made[0].step()
    made[1].load_state_dict(pickle.loads(pickle.dumps(made[0].state_dict())))
    assert made[1].last_epoch == 1 and made[1]._anneal_strategy == strategy and made[0]._is_initial is False
