"""The namespace of the Python array API standard, 2024.12 (data-apis.org/array-api/2024.12), over these tensors.

``x.__array_namespace__()`` gives it.  Names, signatures and promotion are the standard's; arrays are tensors, so that the
tensor's own methods and operators stay PyTorch's.
"""

from __future__ import annotations

import sys
from typing import Any

from ..._core import dtypes as _dtypes
from . import arrange, creation, elementwise, fft, linalg, statistics
from .creation import e, inf, nan, newaxis, pi
from .inspection import Info as _Info

__array_api_version__ = "2024.12"

for _module, _names in ((elementwise, elementwise.NAMES), (creation, creation.NAMES), (arrange, arrange.NAMES), (statistics, statistics.NAMES),
                        (linalg, linalg.CORE)):
    for _name in _names:
        globals()[_name] = getattr(_module, _name)
_TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128".split()
for _name in _TYPES:
    globals()[_name] = _dtypes.BY_NAME[_name]

__all__ = ["e", "fft", "inf", "linalg", "nan", "newaxis", "pi", "__array_api_version__", "__array_namespace_info__", *_TYPES, *elementwise.NAMES,
           *creation.NAMES, *arrange.NAMES, *statistics.NAMES, *linalg.CORE]


def __array_namespace_info__() -> Any:
    """Capabilities, devices and types."""
    return _Info()


def answer(api_version: str | None = None) -> Any:
    """The namespace for `__array_namespace__`.  Raises ValueError for a version that is not covered."""
    if api_version is not None and api_version not in ("2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"__array_namespace__: api_version={api_version!r} is not covered; up to {__array_api_version__!r} is")
    return sys.modules[__name__]
