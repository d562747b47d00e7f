"""PyTorch's `torch.utils`."""

from __future__ import annotations

import importlib
from typing import Any

from . import checkpoint, data

_LATER = frozenset(("_pytree", "benchmark", "dlpack", "flop_counter", "hooks", "model_zoo", "tensorboard"))


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["checkpoint", "data"]
