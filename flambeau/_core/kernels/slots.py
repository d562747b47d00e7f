"""Attributes and finalizers in machine code (`llvm/slots.py`), where a call of a Python function would be most of the cost."""

from __future__ import annotations

import ctypes
import os
import struct
from functools import lru_cache
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from . import lasting, native

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# what a getter makes of what lies at the end of its path: the object itself; whether it is not None (where it is None, and the slot beside the path is
# not, the function that is asked otherwise knows); whether it equals the constant; its length; the constant; the object where it is an int, and no kind
# of one.  Of a tensor's node: whether the tensor is a leaf; a leaf's gradient, or, where there is no node, the attribute that the constant names
OBJECT, PRESENT, EQUAL, LENGTH, CONSTANT, LEAF, GRADIENT, NUMBER = range(8)


class _Member(ctypes.Structure):
    """PyMemberDef."""
    _fields_ = (("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", ctypes.c_ssize_t), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class _Descriptor(ctypes.Structure):
    """PyMemberDescrObject, of which the first five are PyDescrObject's."""
    _fields_ = (("references", ctypes.c_ssize_t), ("of", ctypes.c_void_p), ("type", ctypes.py_object), ("name", ctypes.py_object),
                ("qualified", ctypes.c_void_p), ("member", ctypes.POINTER(_Member)))


_OBJECT_EX = 16  # what a slot of `__slots__` is: an object, or empty


def place(class_: type, slot: str) -> int | None:
    """Where a slot lies in an object; None where that is not seen."""
    found: Any = class_.__dict__[slot]
    if type(found) is not MemberDescriptorType:
        return None
    seen = _Descriptor.from_address(id(found))
    if seen.type is not class_ or seen.name != slot:
        return None
    member = seen.member.contents
    return member.offset if member.name == slot.encode() and member.type == _OBJECT_EX else None


@lru_cache(1)
def known() -> bool:
    """Whether there is machine code of this kind."""
    if os.environ.get("FLAMBEAU_KERNELS", "llvm") != "llvm":
        return False
    from .llvm import slots
    return slots.KNOWN


@lru_cache(1)
def _functions(taker: int, given: int) -> dict[str, int]:
    from .llvm import compile as compiler
    from .llvm import slots
    return compiler.functions(("slots", str(taker), str(given)), slots.NAMES, lambda: slots.text(taker, given))


class Slots:
    """Machine code for the slots of some classes.

    freed: a class with two of its slots; `finalizer` appends what the second holds to what the first holds, if that is not `nothing`.
    """

    def __init__(self, freed: type, taker: str, given: str, nothing: Any = None) -> None:
        places = [place(freed, taker), place(freed, given)] if known() else [None]
        self.freed = freed
        self.functions = None if None in places else _functions(places[0] or 0, places[-1] or 0)
        if self.functions:
            ctypes.PYFUNCTYPE(None, ctypes.py_object)(self.functions["flambeau_ignore"])(lasting.keep(nothing))
        self.make = native.builtin("flambeau_attribute", self.functions["flambeau_attribute"], alone=True) if self.functions else None

    def finalizer(self) -> Any:
        """A `__del__` for `freed`; None where there is no machine code."""
        return native.method(self.freed, "__del__", self.functions["flambeau_give_back"]) if self.functions else None

    def getter(self, kind: int, path: Sequence[tuple[type, str]], otherwise: Callable[[Any], Any], constant: Any = None,
               beside: tuple[type, str] | None = None) -> Callable[[Any], Any]:
        """``f(object)``: what `kind` makes of the object at the end of a path of slots, each with the class that has it.
        otherwise: the same in Python, which is asked where a slot is empty or an object is of another class; given back where there is no machine
        code."""
        steps = [*path, beside] if beside else path
        places = [place(*step) for step in steps]
        if self.make is None or None in places:
            return otherwise
        words = [kind, id(otherwise), id(constant), len(path), *[x for (class_, _), place in zip(steps, places, strict=True) for x in (id(class_), place or 0)]]
        words += [0, 0]  # no slot beside the path
        made: Callable[[Any], Any] = self.make(struct.pack(f"<{len(words)}q", *words), (otherwise, constant, tuple(steps)))
        return made
