"""Optimizers and learning-rate schedulers: PyTorch's `torch.optim`."""

from __future__ import annotations

from typing import Any

from . import lr_scheduler, optimizer
from .adam import Adam, Adamax, AdamW, NAdam, RAdam
from .adaptive import Adadelta, Adagrad, RMSprop, Rprop
from .optimizer import Optimizer
from .sgd import ASGD, SGD

_LATE = {"LBFGS": "lbfgs", "Adafactor": "factored", "Muon": "factored", "SparseAdam": "sparse"}


def __getattr__(name: str) -> Any:
    """What few programs need is loaded when first named."""
    import importlib

    if name in _LATE:
        found = globals()[name] = getattr(importlib.import_module("." + _LATE[name], __name__), name)
        return found
    if name in ("swa_utils", "lbfgs", "factored"):
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'flambeau.optim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATE})


__all__ = ["ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer", "RAdam",
           "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "optimizer", "swa_utils"]
