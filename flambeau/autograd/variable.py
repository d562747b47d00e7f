"""`Variable`, PyTorch's old name for a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.autograd import tape
from .._core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable


class _Engine:
    """What programs ask of PyTorch's backward passes."""

    @staticmethod
    def queue_callback(callback: Callable[[], None]) -> None:
        """Has `callback` called at the end of the backward pass that runs.  Raises RuntimeError outside of one."""
        if not tape.is_running():
            raise RuntimeError("Final callbacks can only be installed during backward pass.")
        tape.at_end(callback)


class _VariableType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableType):
    """``Variable(tensor, requires_grad=False)`` gives the tensor itself; every tensor is an instance."""

    _execution_engine = _Engine

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Any:
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(True) if requires_grad else data
