"""Padding layers. `padding` is one number for every side, or pairs (before, after) from the last dimension back."""

from __future__ import annotations

from typing import Any

from . import functional as F
from .module import Module
from .sizes import ntuple


class _Pad(Module):
    dims: int
    mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = ntuple(padding, 2 * self.dims)

    def forward(self, input: Any) -> Any:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(Module):
    dims: int

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__()
        self.padding = ntuple(padding, 2 * self.dims)
        self.value = value

    def forward(self, input: Any) -> Any:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    """Pads the last dimension with the number `value`.

    Each size becomes `out = size + before + after`.
    """

    dims = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last 2 dimensions with the number `value`.

    Each size becomes `out = size + before + after`.
    """

    dims = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last 3 dimensions with the number `value`.

    Each size becomes `out = size + before + after`.
    """

    dims = 3


class ZeroPad1d(_ZeroPad):
    """Pads the last dimension with zeros.

    Each size becomes `out = size + before + after`.
    """

    dims = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last 2 dimensions with zeros.

    Each size becomes `out = size + before + after`.
    """

    dims = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last 3 dimensions with zeros.

    Each size becomes `out = size + before + after`.
    """

    dims = 3


class ReflectionPad1d(_Pad):
    """Pads the last dimension with the input mirrored at its edges.

    Each size becomes `out = size + before + after`.
    """

    dims = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """Pads the last 2 dimensions with the input mirrored at its edges.

    Each size becomes `out = size + before + after`.
    """

    dims = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """Pads the last 3 dimensions with the input mirrored at its edges.

    Each size becomes `out = size + before + after`.
    """

    dims = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """Pads the last dimension with the input's edge values.

    Each size becomes `out = size + before + after`.
    """

    dims = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """Pads the last 2 dimensions with the input's edge values.

    Each size becomes `out = size + before + after`.
    """

    dims = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """Pads the last 3 dimensions with the input's edge values.

    Each size becomes `out = size + before + after`.
    """

    dims = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """Pads the last dimension with the input repeated.

    Each size becomes `out = size + before + after`.
    """

    dims = 1
    mode = "circular"


class CircularPad2d(_Pad):
    """Pads the last 2 dimensions with the input repeated.

    Each size becomes `out = size + before + after`.
    """

    dims = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """Pads the last 3 dimensions with the input repeated.

    Each size becomes `out = size + before + after`.
    """

    dims = 3
    mode = "circular"
