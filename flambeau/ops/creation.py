"""Factories: tensors from sizes, numbers, ranges and data, made on their device."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..runtime.device import resolve
from ..tensor import Meta, Tensor, meta, new
from . import launch
from .views import sizes_of


def zeros_meta(m: Meta) -> Tensor:
    """Zeros of an exact layout."""
    out = new(m)
    if m.numel:
        launch.fill(out, 0)
    return out


def full(size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of `size` filled with a number; its type is the number's own by default."""
    d = dtypes.of_scalar(fill_value) if dtype is None else dtype
    out = new(meta(sizes_of("full", (size,)), None, d, resolve(device)))
    if out.m.numel:
        launch.fill(out, fill_value)
    return out
