"""`torch.autograd.function`: operations with a gradient of the user's own."""

from __future__ import annotations

from .._core.autograd.function import Function, FunctionCtx, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
