"""Arguments' parts in the keys of plans by machine code (`llvm/keys.py`), for calls whose arguments are more than tensors and integers."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from . import lasting, native
from .slots import known, place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def part(tensor: type, sizes: type, plain: Iterable[type], otherwise: Callable[[Any], Any], tells: bool, most: int) -> Callable[[Any], Any]:
    """``f(argument)``: what `otherwise` gives in Python, which is asked for unusual arguments; that one itself where there is no machine code.

    tensor: the class whose `meta` is a tensor's part; sizes: a subclass of tuple that is as a tuple; plain: classes that are their own part.
    tells: whether lists, slices and truths are told from tuples and integers.  most: parts of a list or tuple.
    """
    make = _maker(tensor, sizes) if known() else None
    if make is None:
        return otherwise
    classes = tuple(plain)
    words = [id(otherwise), int(tells), most, len(classes), *map(id, classes)]
    return make(struct.pack(f"<{len(words)}Q", *words), (otherwise, classes))


@lru_cache(1)
def _maker(tensor: type, sizes: type) -> Callable[[bytes, Any], Callable[[Any], Any]] | None:
    """What makes the builtins; None where a tensor's meta is not where it is looked for."""
    from .llvm import compile as compiler
    from .llvm import keys
    at = place(tensor, "meta")
    if at is None:
        return None
    functions = compiler.functions(("keys", str(at)), keys.NAMES, lambda: keys.text(at))
    ctypes.PYFUNCTYPE(None, ctypes.py_object, ctypes.py_object)(functions["flambeau_key_knows"])(lasting.keep(tensor), lasting.keep(sizes))
    return native.builtin("flambeau_key", functions["flambeau_key"], alone=True)
