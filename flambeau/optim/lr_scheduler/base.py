"""What all schedules share."""

from __future__ import annotations

from typing import Any

from ..._core.errors import warn
from ..._core.tensor import Tensor
from ..optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = ("The epoch parameter of `scheduler.step()` is deprecated: call `scheduler.step()`. Where a schedule has a closed form, "
                             "that is what an epoch is answered by.")
_ORDER = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


def set_option(group: dict[str, Any], name: str, value: Any) -> None:
    """Gives a group's option a new value, inside the tensor where the user made it one."""
    if isinstance(group[name], Tensor):
        group[name].fill_(float(value))
    else:
        group[name] = value


def _plain(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


class LRScheduler:
    """Base class: a subclass's `get_lr` gives the groups' learning rates at step `self.last_epoch`.

    Args:
        optimizer: whose groups are scheduled.
        last_epoch: the step to resume after; -1 starts afresh, with the groups' present rates as `initial_lr`.
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        optimizer.__dict__["_step_then"] = vars(optimizer).get("step")  # one put in its place later may not do what it did
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _plain(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                               f"last_epoch >= 0. This typically happens when: 1. You're trying to resume training "
                               "from a checkpoint but haven't properly loaded the optimizer state")
        self.base_lrs: list[Any] = [_plain(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._is_initial = True
        self._step_count = 0
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what `state_dict` gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates the last step set."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates of this step, one a group; subclasses define it."""
        raise NotImplementedError

    def _now(self) -> list[Any]:
        """The groups' present rates."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Goes on by one step, or to step `epoch`, and sets the rates."""
        if self._step_count == 1 and self.optimizer.__dict__.get("step") is not self.optimizer.__dict__.get("_step_then"):
            warn("Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. Please, make sure to call "
                 f"`optimizer.step()` before `lr_scheduler.step()`. See more details at {_ORDER}")
        elif self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and "
                 "later, you should call them in the opposite order: `optimizer.step()` before "
                 "`lr_scheduler.step()`.  Failure to do this will result in PyTorch skipping the first value "
                 "of the learning rate schedule. "
                 f"See more details at {_ORDER}")
        self._step_count += 1
        if epoch is not None:
            warn(EPOCH_DEPRECATION_WARNING)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        """`step` without its warnings."""
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                values = self.get_lr() if closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        for group, value in zip(self.optimizer.param_groups, values):
            set_option(group, "lr", value)
        self._last_lr: list[Any] = [_plain(group["lr"]) for group in self.optimizer.param_groups]


def _per_group(value: Any, optimizer: Optimizer, name: str) -> list[Any]:
    """`value` for each group: a list of that length, or one for all. Raises ValueError for a wrong length."""
    count = len(optimizer.param_groups)
    if isinstance(value, list | tuple):
        if len(value) != count:
            raise ValueError(f"Expected {count} {name}, but got {len(value)}")
        return list(value)
    return [value] * count


def _is_function(f: Any) -> bool:
    return type(f) is type(_is_function)
