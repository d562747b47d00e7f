"""torch.utils.deterministic.  fill_uninitialized_memory: whether, under `use_deterministic_algorithms(True)`, tensors that nothing has filled (`empty`,
what `resize_` adds) hold NaN, or of integers the largest number.  Setting it raises RuntimeError for anything but a bool.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .._core.runtime import backend_flags

fill_uninitialized_memory: bool


class _Deterministic(ModuleType):
    """This module, whose switch is read where tensors are made."""

    @property
    def fill_uninitialized_memory(self) -> bool:
        return bool(backend_flags.values["deterministic.fill"])

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: Any) -> None:
        if not isinstance(mode, bool):
            raise RuntimeError(f"fill_uninitialized_memory: expected a bool, but got {type(mode).__name__}")
        backend_flags.put("deterministic.fill", mode)


sys.modules[__name__].__class__ = _Deterministic
