"""Averages of weights over training (torch.optim.swa_utils): Izmailov et al., 2018."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from .._core import ops
from .._core.runtime.asking import unasked
from ..autograd import no_grad
from ..nn import Module
from ..nn.norm import _BatchNorm
from .lr_scheduler import LRScheduler

_ops: Any = ops


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Any]:
    """decay * average + (1 - decay) * parameter."""
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")

    def update(ema: Any, param: Any, count: Any) -> Any:
        with no_grad():
            return decay * ema + (1 - decay) * param
    return update


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Any]:
    """The equal average of all."""
    def update(average: Any, param: Any, count: Any) -> Any:
        with no_grad():
            return average + (param - average) / (count + 1)
    return update


def _each(f: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], None]:
    def update(averages: Any, params: Any, count: Any) -> None:
        with no_grad():
            for a, p in zip(averages, params, strict=True):
                a.copy_(f(a, p, count))
    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], None]:
    """`get_ema_avg_fn` over lists."""
    return _each(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable[[Any, Any, Any], None]:
    """`get_swa_avg_fn` over lists."""
    return _each(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a module whose parameters (and, with use_buffers, buffers) are averages over `update_parameters` calls."""

    n_averaged: Any

    def __init__(self, model: Module, device: Any = None, avg_fn: Callable[..., Any] | None = None,
                 multi_avg_fn: Callable[..., Any] | None = None, use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = unasked(self.module.to)(device)
        self.register_buffer("n_averaged", _ops.tensor(0, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Takes the model's parameters into the averages."""
        def held(m: Any) -> list[Any]:
            return [*m.parameters(), *m.buffers()] if self.use_buffers else list(m.parameters())
        ours, theirs = held(self.module), [p.detach() for p in held(model)]
        theirs = [unasked(p.to)(a.device) for a, p in zip(ours, theirs, strict=True)]
        if int(self.n_averaged) == 0:
            for a, p in zip(ours, theirs, strict=True):
                a.detach().copy_(p)
        elif self.multi_avg_fn is not None:
            self.multi_avg_fn([a.detach() for a in ours], theirs, self.n_averaged)
        else:
            average = self.avg_fn or get_swa_avg_fn()
            for a, p in zip(ours, theirs, strict=True):
                if a.is_floating_point() or a.is_complex():
                    a.detach().copy_(average(a.detach(), p, unasked(self.n_averaged.to)(a.device)))
                else:
                    a.detach().copy_(p)
        if not self.use_buffers:
            for b, other in zip(self.module.buffers(), model.buffers(), strict=True):
                b.detach().copy_(unasked(other.detach().to)(b.device))
        self.n_averaged += 1


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Fills the running statistics of batch norms by one pass over the loader."""
    momenta: dict[Any, Any] = {}
    for m in model.modules():
        if isinstance(m, _BatchNorm):
            m.reset_running_stats()
            momenta[m] = m.momentum
    if not momenta:
        return
    was = model.training
    model.train()
    for m in momenta:
        m.momentum = None
    for batch in loader:
        x = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(x if device is None else unasked(x.to)(device))
    for m, momentum in momenta.items():
        m.momentum = momentum
    model.train(was)


class SWALR(LRScheduler):
    """Anneals each group's rate to `swa_lr` over `anneal_epochs`, by "cos" or "linear", and keeps it there."""

    def __init__(self, optimizer: Any, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos", last_epoch: int = -1) -> None:
        rates = swa_lr if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(optimizer.param_groups)
        if len(rates) != len(optimizer.param_groups):
            raise ValueError(f"swa_lr must have the same length as optimizer.param_groups: swa_lr has {len(rates)}, "
                             f"optimizer.param_groups has {len(optimizer.param_groups)}")
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        self._anneal_strategy = anneal_strategy  # by its name: a schedule's state is saved
        super().__init__(optimizer, last_epoch)

    def _shape(self, t: float) -> float:
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[float]:
        """From the rates of the step before."""
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before = self._shape(max(0.0, min(1.0, (step - 1) / max(1, self.anneal_epochs))))
        now = self._shape(max(0.0, min(1.0, step / max(1, self.anneal_epochs))))
        found = []
        for group in self.optimizer.param_groups:
            start = group["lr"] if before == 1 else (group["lr"] - before * group["swa_lr"]) / (1 - before)
            found.append(group["swa_lr"] * now + start * (1 - now))
        return found


__all__ = ["SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn"]
