"""The kinds of calls by machine code (`llvm/kinds.py`)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import lasting, native
from .slots import known, place

if TYPE_CHECKING:
    from collections.abc import Callable


def builtins(meta: type, sizes: type, device: type, cpu: Any, tensor: type, kind: type, most: dict[str, int]) -> tuple[Callable[..., Any], ...] | None:
    """`flambeau_kind` and `flambeau_unseen`; None where there is no machine code.

    meta, sizes, device, tensor: the classes of layouts, shapes, devices and tensors; cpu: the device whose layouts have kinds; kind: the class that has the
    functions of a kind in its slots `native` and `recorded`.  most: how many `sizes` a kind has at most, how many keys are `fresh`, and
    how many `times` a call of one key is carried out.
    """
    if not known():
        return None
    from .llvm import compile as compiler
    from .llvm import kinds
    places = {name: place(of, name) for of, names in ((meta, ("shape", "strides", "dtype", "device", "contiguous")), (kind, ("native", "recorded")))
              for name in names}
    found = {name: at for name, at in places.items() if at is not None}
    if len(found) < len(places):
        return None
    functions = compiler.functions(("kinds", *map(str, (*found.values(), *most.values()))), kinds.NAMES, lambda: kinds.text(found, most))
    told = [meta, sizes, device, cpu, tensor]
    ctypes.PYFUNCTYPE(None, *[ctypes.py_object] * len(told))(functions["flambeau_kinds_know"])(*map(lasting.keep, told))
    return tuple([native.builtin(name, functions[name])(b"", None) for name in kinds.NAMES[:2]])
