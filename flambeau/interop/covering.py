"""The answer of a class that wants to hear of no operation."""

from __future__ import annotations

from typing import Any


def disabled_torch_function_impl(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of a class that wants none: `func` as on plain tensors."""
    from .overriding import DisableTorchFunctionSubclass
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))
