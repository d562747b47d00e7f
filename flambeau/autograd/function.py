"""`torch.autograd.function`: operations with a gradient of the user's own."""

from __future__ import annotations

from .._core.autograd.function import Function, FunctionCtx, once_differentiable
from .._core.autograd.graph import BackwardCFunction


class InplaceFunction(Function):
    """A Function whose forward changes its operands, by the name that PyTorch keeps for older programs."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


__all__ = ["BackwardCFunction", "Function", "FunctionCtx", "InplaceFunction", "once_differentiable"]
