"""Automatic differentiation: recording, backward passes, user-written functions, checks."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .._core.autograd.mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .gradcheck import gradcheck, gradgradcheck


class _Package(ModuleType):
    """A package in which a function keeps its name though a module has the same: imports bind that, by whatever path they come."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "gradcheck" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

_LAZY = {"Function": ".function", "FunctionCtx": ".function", "backward": ".._core.autograd.functions", "grad": ".._core.autograd.functions",
         "detect_anomaly": ".anomaly",
         "set_detect_anomaly": ".anomaly", "Variable": ".variable", "SavedTensor": ".._core.autograd.saved",
         "_calculate_shape": ".asked", "_is_checkpoint_valid": ".asked",
         "kineto_available": ".asked", "_profiler_enabled": ".profiler", "set_multithreading_enabled": ".asked",
         "is_multithreading_enabled": ".asked"}
_MODULES = ("functional", "graph", "function", "profiler", "grad_mode", "anomaly_mode", "variable")


def __getattr__(name: str) -> Any:
    import importlib
    if name in _LAZY:
        module = importlib.import_module(_LAZY[name], __name__)
        globals().update({each: getattr(module, each) for each, where in _LAZY.items() if where == _LAZY[name]})
        return globals()[name]
    if name in _MODULES:
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'flambeau.autograd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


__all__ = ["enable_grad", "gradcheck", "gradgradcheck", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled", *_LAZY]  # noqa: PLE0604
