"""Small questions and switches that PyTorch's programs ask of `torch.autograd`."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from .._core.autograd import tape
from .._core.autograd.functions import shapes_to_match as _shapes

_multithreading: ContextVar[bool] = ContextVar("multithreading", default=True)


def _calculate_shape(output: Any, grad: Any, is_grads_batched: bool) -> tuple[Any, Any]:
    """The shapes of an output and of its gradient, without the axis of a batch of gradients."""
    return _shapes(output, grad, is_grads_batched)


def _is_checkpoint_valid() -> bool:
    """Whether a checkpoint may run in this thread's backward pass: not in one that is asked for some gradients only."""
    this = tape.running_pass()
    return this is None or (this.captures is None and this.needed is None)


def kineto_available() -> bool:
    """Whether PyTorch's profiling library is there: no."""
    return False


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` said last."""
    return _multithreading.get()


class set_multithreading_enabled:
    """Whether backward passes may use several threads: remembered; a pass here runs in the thread that starts it.  At once, or as a context."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self._token = _multithreading.set(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _multithreading.reset(self._token)
