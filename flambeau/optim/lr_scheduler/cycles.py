"""Schedules that rise and fall, momentum the other way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..optimizer import Optimizer
from .base import LRScheduler, _is_function, _per_group, set_option

if TYPE_CHECKING:
    from collections.abc import Callable


def _annealed(strategy: str) -> Callable[[float, float, float], float]:
    if strategy == "cos":
        return lambda start, end, part: end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
    return lambda start, end, part: (end - start) * part + start


class OneCycleLR(LRScheduler):
    """One cycle (Smith & Topin, 2018): up from max_lr / div_factor to max_lr, then down to a `final_div_factor`-th of
    the start, while momentum goes the other way. A step a batch; the number of steps is `total_steps` or epochs
    times steps_per_epoch."""

    def __init__(self, optimizer: Optimizer, max_lr: Any, total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
                 cycle_momentum: bool = True, base_momentum: Any = 0.85, max_momentum: Any = 0.95,
                 div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
                 last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if total_steps is not None:
            if not isinstance(total_steps, int) or total_steps <= 0:
                raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
            self.total_steps = total_steps
        elif epochs is not None and steps_per_epoch is not None:
            if not isinstance(epochs, int) or epochs <= 0:
                raise ValueError(f"Expected positive integer epochs, but got {epochs}")
            if not isinstance(steps_per_epoch, int) or steps_per_epoch <= 0:
                raise ValueError(f"Expected positive integer steps_per_epoch, but got {steps_per_epoch}")
            self.total_steps = epochs * steps_per_epoch
        else:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.optimizer = optimizer
        self._anneal_func_type = anneal_strategy
        up = float(pct_start * self.total_steps) - 1
        phases: list[tuple[float, str, str, str, str]] = [(up, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
        if three_phase:
            phases.append((float(2 * pct_start * self.total_steps) - 2, "max_lr", "initial_lr", "base_momentum",
                           "max_momentum"))
            phases.append((self.total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"))
        else:
            phases.append((self.total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"))
        self._schedule_phases = phases
        tops = _per_group(max_lr, optimizer, "max_lr")
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, tops):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
                raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
            self.use_beta1 = "betas" in optimizer.defaults
            highs = _per_group(max_momentum, optimizer, "max_momentum")
            lows = _per_group(base_momentum, optimizer, "base_momentum")
            if last_epoch == -1:
                for group, high, low in zip(optimizer.param_groups, highs, lows):
                    self._set_momentum(group, high)
                    group["max_momentum"] = high
                    group["base_momentum"] = low
        super().__init__(optimizer, last_epoch)

    def _set_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    def get_lr(self) -> list[Any]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The total number of steps is {self.total_steps}")
        anneal = _annealed(self._anneal_func_type)
        values = []
        for group in self.optimizer.param_groups:
            start = 0.0
            for i, (end, lr0, lr1, m0, m1) in enumerate(self._schedule_phases):
                if step <= end or i == len(self._schedule_phases) - 1:
                    part = (step - start) / (end - start)
                    values.append(anneal(group[lr0], group[lr1], part))
                    if self.cycle_momentum:
                        self._set_momentum(group, anneal(group[m0], group[m1], part))
                    break
                start = end
        return values


class CyclicLR(LRScheduler):
    """The rate goes from base_lr to max_lr in `step_size_up` steps and back in `step_size_down` (Smith, 2017).

    `mode`: "triangular", "triangular2" (half the height each cycle), "exp_range" (height times gamma^step), unless
    `scale_fn` gives the height of a cycle or, with `scale_mode="iterations"`, of a step.
    """

    def __init__(self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
                 step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0, scale_fn: Any = None,
                 scale_mode: str = "cycle", cycle_momentum: bool = True, base_momentum: Any = 0.8,
                 max_momentum: Any = 0.9, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        bases = _per_group(base_lr, optimizer, "base_lr")
        if last_epoch == -1:
            for group, low in zip(optimizer.param_groups, bases):
                set_option(group, "lr", low)
        self.max_lrs = _per_group(max_lr, optimizer, "max_lr")
        up = float(step_size_up)
        down = float(step_size_down) if step_size_down is not None else up
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._custom_scale = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
                raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
            self.use_beta1 = "betas" in optimizer.defaults
            self.base_momentums = _per_group(base_momentum, optimizer, "base_momentum")
            self.max_momentums = _per_group(max_momentum, optimizer, "max_momentum")
            if last_epoch == -1:
                for group, high, low in zip(optimizer.param_groups, self.max_momentums, self.base_momentums):
                    self._set_momentum(group, high)
                    group["max_momentum"] = high
                    group["base_momentum"] = low
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def _set_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    @property
    def _scale_fn_custom(self) -> Any:
        """The `scale_fn` that was given."""
        return self._custom_scale

    @property
    def _scale_fn_ref(self) -> Any:
        """What scales, given or by the mode."""
        return self.scale_fn

    def scale_fn(self, x: float) -> float:
        """The height of cycle (or step) `x`."""
        if self._custom_scale is not None:
            return self._custom_scale(x)  # type: ignore[no-any-return]
        if self.mode == "triangular":
            return 1.0
        return float(1.0 / 2.0 ** (x - 1)) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self) -> list[Any]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums):
                self._set_momentum(group, high - (high - low) * height * scale)
        return [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of a scale function, its attributes if it is a callable object."""
        made = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_custom_scale")}
        custom = self._custom_scale
        made["_custom_scale"] = None if custom is None or _is_function(custom) else dict(custom.__dict__)
        return made

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what `state_dict` gave; a function stays as it is."""
        rest = dict(state_dict)
        attributes = rest.pop("_custom_scale")
        self.__dict__.update(rest)
        if attributes is not None and self._custom_scale is not None:
            self._custom_scale.__dict__.update(attributes)
