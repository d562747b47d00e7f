"""`torch.autograd.grad_mode`: where PyTorch keeps what turns recording on and off."""

from __future__ import annotations

from .._core.autograd.mode import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]
