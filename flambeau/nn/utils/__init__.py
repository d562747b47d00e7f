"""Helpers around modules: clipping gradients, parameters as a vector, weight norms, sequences of different lengths."""

from __future__ import annotations

from typing import Any

from . import rnn
from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters

# These build on Module, which itself is built on parts of this package.
_FUSED = ("fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights")
_LATER = ("weight_norm", "remove_weight_norm", "spectral_norm", "remove_spectral_norm")
_MODULES = ("parametrize", "parametrizations", "stateless", "prune", "fusion")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        # not "from . import", which would ask here again
        module = importlib.import_module(f"{__name__}.weight_norms")
        for each in _LATER:
            globals()[each] = getattr(module, each)
        return globals()[name]
    if name in _FUSED:
        from . import fusion
        return getattr(fusion, name)
    if name in _MODULES:
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'flambeau.nn.utils' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, *_LATER, *_FUSED})


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module made without drawing its values: its parameters hold uninitialised memory on `device`."""
    device = kwargs.pop("device", "cpu")
    made = module_cls.__new__(module_cls)
    reset = module_cls.reset_parameters
    try:
        module_cls.reset_parameters = lambda self: None
        made.__init__(*args, device=device, **kwargs)
    finally:
        module_cls.reset_parameters = reset
    return made


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Gives the weights of the 2-d convolutions in a module a memory format; the module."""
    return _formatted(module, memory_format, 4)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Gives the weights of the 3-d convolutions in a module a memory format; the module."""
    return _formatted(module, memory_format, 5)


def _formatted(module: Any, memory_format: Any, rank: int) -> Any:
    for m in module.modules():
        if "Conv" in type(m).__name__ and getattr(m, "weight", None) is not None and m.weight.dim() == rank:
            m.weight.data = m.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


__all__ = [
    "convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format", "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
    "parameters_to_vector", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm",
    "vector_to_parameters", "weight_norm",
]
