"""Keeping gradients small: by the norm of all of them together, or value by value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..._core import ops
from ..._core.errors import warn
from ..._core.ops import foreach as _foreach
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor
from ...autograd import no_grad


def _grads(parameters: Any) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


def get_total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Any:
    """The norm of all tensors together, as if they were one vector; 0-dim, on the first one's device.

    Raises RuntimeError if it is NaN or infinite and `error_if_nonfinite`.
    """
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return ops.tensor(0.0)
    with no_grad():
        norms = _foreach.norms(tensors, norm_type)
        if norms is None:
            where = tensors[0].device
            each = [n if (n := t.norm(norm_type)).device == where else unasked(n.to)(where) for t in tensors]
            norms = each[0] if len(each) == 1 else ops.stack(each)
        total = norms.norm(norm_type) if norms.dim() else norms
    if error_if_nonfinite and not math.isfinite(float(total)):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
                           "cannot be clipped. To disable this error and scale the gradients by the non-finite norm "
                           "anyway, set `error_if_nonfinite=False`")
    return total


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any, foreach: bool | None = None) -> None:
    """Scales the gradients by max_norm / (total_norm + 1e-6) where that is below 1."""
    grads = _grads(parameters)
    with no_grad():
        # Always multiplied, by 1 if nothing is to be clipped: asking whether would wait for a GPU.
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        if grads and not _foreach.scale(grads, factor):
            for grad in grads:
                grad.mul_(factor if factor.device == grad.device else unasked(factor.to)(grad.device))


def clip_grad_norm_(parameters: Iterable[Tensor] | Tensor, max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: bool | None = None) -> Any:
    """Scales the gradients in place so that their norm together is at most `max_norm`; returns the norm before.

    `norm_type` may be any p, or `inf`. `foreach` is accepted and makes no difference.
    """
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_value_(parameters: Iterable[Tensor] | Tensor, clip_value: float, foreach: bool | None = None) -> None:
    """Clamps every gradient to [-clip_value, clip_value], in place."""
    clip_value = float(clip_value)
    with no_grad():
        for grad in _grads(parameters):
            grad.clamp_(-clip_value, clip_value)


def clip_grad_norm(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Any:
    """The old name of `clip_grad_norm_`."""

    warn("torch.nn.utils.clip_grad_norm is now deprecated in favor of torch.nn.utils.clip_grad_norm_.",
         FutureWarning)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
