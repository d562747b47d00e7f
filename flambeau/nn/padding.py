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


class _ConstantPadNd(Module):
    dims: int

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__()
        self.padding = ntuple(padding, 2 * self.dims)
        self.value = value

    def forward(self, input: Any) -> Any:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ReflectionPadNd(_Pad):
    mode = "reflect"


class _ReplicationPadNd(_Pad):
    mode = "replicate"


class _CircularPadNd(_Pad):
    mode = "circular"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with the number `value`.

    Each size becomes `out = size + before + after`.
    """

    dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last 2 dimensions with the number `value`.

    Each size becomes `out = size + before + after`.
    """

    dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last 3 dimensions with the number `value`.

    Each size becomes `out = size + before + after`.
    """

    dims = 3


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Pads the last dimension with zeros.

    Each size becomes `out = size + before + after`.
    """


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Pads the last 2 dimensions with zeros.

    Each size becomes `out = size + before + after`.
    """


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Pads the last 3 dimensions with zeros.

    Each size becomes `out = size + before + after`.
    """


class ReflectionPad1d(_ReflectionPadNd):
    """Pads the last dimension with the input mirrored at its edges.

    Each size becomes `out = size + before + after`.
    """

    dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Pads the last 2 dimensions with the input mirrored at its edges.

    Each size becomes `out = size + before + after`.
    """

    dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Pads the last 3 dimensions with the input mirrored at its edges.

    Each size becomes `out = size + before + after`.
    """

    dims = 3


class ReplicationPad1d(_ReplicationPadNd):
    """Pads the last dimension with the input's edge values.

    Each size becomes `out = size + before + after`.
    """

    dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Pads the last 2 dimensions with the input's edge values.

    Each size becomes `out = size + before + after`.
    """

    dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Pads the last 3 dimensions with the input's edge values.

    Each size becomes `out = size + before + after`.
    """

    dims = 3


class CircularPad1d(_CircularPadNd):
    """Pads the last dimension with the input repeated.

    Each size becomes `out = size + before + after`.
    """

    dims = 1


class CircularPad2d(_CircularPadNd):
    """Pads the last 2 dimensions with the input repeated.

    Each size becomes `out = size + before + after`.
    """

    dims = 2


class CircularPad3d(_CircularPadNd):
    """Pads the last 3 dimensions with the input repeated.

    Each size becomes `out = size + before + after`.
    """

    dims = 3
