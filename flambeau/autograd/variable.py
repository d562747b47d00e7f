"""`Variable`, PyTorch's old name for a tensor."""

from __future__ import annotations

from typing import Any

from .._core.tensor import Tensor


class _VariableType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableType):
    """``Variable(tensor, requires_grad=False)`` gives the tensor itself; every tensor is an instance."""

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Any:
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(True) if requires_grad else data
