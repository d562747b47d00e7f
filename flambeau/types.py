"""Names for annotations (torch.types)."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Union

from ._core.dtypes import dtype as _dtype
from ._core.layout import Size
from ._core.ops.memory_format import layout as _layout
from ._core.runtime.device import device as _device
from ._core.tensor import Storage, Tensor

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_symint, _symfloat = builtins.int, builtins.float
_size = Union[Size, list[int], tuple[int, ...]]  # noqa: UP007 (a value at run time)
_dispatchkey = str
Number = int | float | bool
_Number = (int, float, bool)
Device = Union[_device, str, int, None]  # noqa: UP007
FileLike = Union[str, os.PathLike[str], IO[bytes]]  # noqa: UP007
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]  # noqa: UP007
_TensorOrTensorsOrGradEdge = _TensorOrTensors
PySymType = (int, float, bool)
IntLikeType, FloatLikeType, BoolLikeType = int, float, bool
py_sym_types = (int, float, bool)

__all__ = ["BoolLikeType", "Device", "FileLike", "FloatLikeType", "IntLikeType", "Number", "PySymType", "Storage", "Tensor", "_bool", "_complex", "_device",
           "_dispatchkey", "_dtype", "_float", "_int", "_layout", "_size", "_symfloat", "_symint", "py_sym_types"]
