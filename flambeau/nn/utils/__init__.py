"""Helpers around modules: clipping gradients, parameters as a vector, weight norms, sequences of different lengths."""

from __future__ import annotations

from typing import Any

from . import rnn
from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters

# These build on Module, which itself is built on parts of this package.
_LATER = ("weight_norm", "remove_weight_norm", "spectral_norm", "remove_spectral_norm")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        # not "from . import", which would ask here again
        module = importlib.import_module(f"{__name__}.weight_norms")
        for each in _LATER:
            globals()[each] = getattr(module, each)
        return globals()[name]
    if name in ("parametrize", "parametrizations", "stateless"):
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'flambeau.nn.utils' has no attribute {name!r}")


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


__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
    "parameters_to_vector", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm",
    "vector_to_parameters", "weight_norm",
]
