"""The few names of PyTorch's compiled core that Python programs use."""

from __future__ import annotations

from flambeau._core.runtime.device import device
from flambeau._core.tensor import Tensor as TensorBase
from flambeau.interop.covering import disabled_torch_function_impl as _disabled_torch_function_impl
from flambeau.interop.overriding import DisableTorchFunctionSubclass

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "TensorBase", "_disabled_torch_function_impl", "device"]

DisableTorchFunction = DisableTorchFunctionSubclass


def _get_tracing_state() -> None:
    """No tracer records Python here."""


def _log_api_usage_once(event: str) -> None:
    """Nothing is logged."""


def _jit_set_profiling_mode(on: bool) -> bool:
    """Switches of a compiler that is not here: accepted."""
    return False


_jit_set_profiling_executor = _jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_profiling_mode
_jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _debug_set_autodiff_subgraph_inlining = _jit_set_profiling_mode
