"""Elements of host memory as Python's numbers and lists, and back, and as NumPy's arrays.

Each function here makes one that is called with addresses.  They are builtins in machine code (`llvm/objects.py`), or Python where there is none.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import bfloat16
from . import lasting
from .slots import place

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
    return {name: native.builtin(name, found[name], alone=name in objects.ALONE) for name in objects.NAMES}


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


def element_reader(shape: tuple[int, ...], strides: tuple[int, ...], d: dtype, tensor: type, convert: type | None, watching: dict[Any, Any],
                   otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``f(tensor)``: what `reader` gives of its memory, made a `convert` if that is a class.  tensor: the class that has the address, as `ptr`.
    otherwise: does the same in Python; it is asked for tensors without an address and while there is anything in `watching`, and given back where there
    is no machine code."""
    make = _builtins()
    kind = None if make is None else _kind(d)
    at = place(tensor, "ptr")
    if kind is None or at is None or not all(shape):
        return otherwise
    words = _words(id(otherwise), id(watching), id(tensor), at, 0 if convert is None else id(convert), kind, len(shape), *_axes(shape, strides, d))
    return make["flambeau_element"](words, (otherwise, watching, tensor, convert))  # type: ignore[no-any-return]


@lru_cache(4096)
def writer(shape: tuple[int, ...], strides: tuple[int, ...], d: dtype) -> Callable[[int, Any], bool] | None:
    """``f(address, nested)``: writes the numbers in nested lists and tuples, and tells whether they are of this shape, and numbers that the type
    takes as they are; where not, some elements may have been written.  None for types of which this is not known."""
    make, how = _builtins(), written(shape, strides, d)
    return None if how is None else make["flambeau_write"](_words(how[0], len(shape), *how[1]))


# ------------------------------------------------------------------------------------------------------------------ arrays
@lru_cache(1)
def _numpy() -> tuple[int, int] | None:
    """The addresses of NumPy's `PyArray_NewFromDescr` and `PyArray_SetBaseObject`; None where its table, or an array's head, is another than known."""
    if _builtins() is None:
        return None
    library: Any = sys.modules.get("numpy._core._multiarray_umath") or sys.modules.get("numpy.core._multiarray_umath")  # NumPy 2, NumPy 1
    if library is None:
        return None
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    table = (ctypes.c_void_p * 283).from_address(pointer(library._ARRAY_API, None))
    if table[2] != id(np.ndarray):
        return None
    probe = np.zeros((2, 3))[:, ::2]
    head = (ctypes.c_int64 * 9).from_address(id(probe))
    shown = probe.__array_interface__
    axes = (ctypes.c_int64 * 2).from_address(head[4])[:], (ctypes.c_int64 * 2).from_address(head[5])[:]
    known = head[2] == shown["data"][0] and head[3] & 0xFFFFFFFF == 2 and axes == ([2, 2], [24, 16]) and head[7] == id(probe.dtype)
    return (table[94] or 0, table[282] or 0) if known and head[8] & 0xFFFFFFFF == probe.flags.num else None


@lru_cache(4096)
def viewer(shape: tuple[int, ...], strides: tuple[int, ...], d: dtype) -> Callable[[int, Any], Any]:
    """``f(address, owner)``: the elements there as an array that shares them and keeps the owner alive (types that NumPy lacks as unsigned integers)."""
    from .interpret import memory
    make, found = _builtins(), _numpy()
    if make is None or found is None or not all(shape):
        return lambda address, owner: memory(address, shape, strides, d, owner)
    kind = np.dtype(d.np)
    lasting.keep(kind)
    return make["flambeau_show"](_words(*found, id(np.ndarray), id(kind), len(shape), *shape, *[s * d.itemsize for s in strides]))  # type: ignore[no-any-return]


def known_arrays() -> bool:
    """Whether an array's head is where machine code looks for it."""
    return _numpy() is not None


def written(shape: Sequence[int], strides: Sequence[int], d: dtype) -> tuple[int, list[int]] | None:
    """The kind of numbers and the axes of memory of this layout, as the machine code knows them that writes numbers of lists; None for types of which
    it writes none.  strides: in elements."""
    from .llvm import objects
    kind = _kind(d)
    return None if _builtins() is None or kind is None or kind not in objects.WRITTEN else (kind, _axes(shape, strides, d))
