"""The few names of PyTorch's compiled core that Python programs use."""

from __future__ import annotations

from .interop.overriding import DisableTorchFunctionSubclass
from .interop.protocols import disabled_torch_function_impl as _disabled_torch_function_impl
from .runtime.device import device
from .tensor import Tensor as TensorBase

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "TensorBase", "_disabled_torch_function_impl", "device"]

DisableTorchFunction = DisableTorchFunctionSubclass
