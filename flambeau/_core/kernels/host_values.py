"""Elements of host memory as Python's numbers and lists, and back.

Each function here makes one that is called with addresses.  They are builtins in machine code (`llvm/objects.py`), or Python where there is none.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..dtypes import bfloat16

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype


@lru_cache(1)
def _builtins() -> Any:
    """What makes a builtin of a name and words; None where there is no machine code of this kind."""
    if os.environ.get("FLAMBEAU_KERNELS", "llvm") != "llvm":
        return None
    from . import native
    from .llvm import objects
    if not objects.KNOWN:
        return None
    from .llvm import compile as compiler
    found = compiler.functions(("objects",), objects.NAMES, objects.text)
    return {name: native.builtin(name, found[name], alone=name == "flambeau_read") for name in objects.NAMES}


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}q", *words)


def _kind(d: dtype) -> int | None:
    from .llvm import objects
    return objects.BFLOAT16 if d is bfloat16 else objects.KINDS.get((d.kind, d.itemsize))


def _axes(shape: Sequence[int], strides: Sequence[int], d: dtype) -> list[int]:
    return [x for n, s in zip(shape, strides, strict=True) for x in (n, s * d.itemsize)]


@lru_cache(4096)
def reader(shape: tuple[int, ...], strides: tuple[int, ...], d: dtype) -> Callable[[int], Any]:
    """``f(address)``: the elements as nested lists, or the number where there are no axes.  strides: in elements."""
    make = _builtins()
    kind = None if make is None else _kind(d)
    if kind is None or not all(shape):
        from .interpret import load, memory
        return lambda address: load(memory(address, shape, strides, d), d).tolist()
    return make["flambeau_read"](_words(kind, len(shape), *_axes(shape, strides, d)))  # type: ignore[no-any-return]


@lru_cache(4096)
def writer(shape: tuple[int, ...], strides: tuple[int, ...], d: dtype) -> Callable[[int, Any], bool] | None:
    """``f(address, nested)``: writes the numbers in nested lists and tuples, and tells whether they are of this shape, and numbers that the type
    takes as they are; where not, some elements may have been written.  None for types of which this is not known."""
    make = _builtins()
    if make is None:
        return None
    from .llvm import objects
    kind = _kind(d)
    if kind not in objects.WRITTEN:
        return None
    return make["flambeau_write"](_words(kind, len(shape), *_axes(shape, strides, d)))  # type: ignore[no-any-return]
