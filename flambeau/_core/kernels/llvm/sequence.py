"""Many small launches one after another as one builtin: what a learned call does, without Python between its launches.

The builtin's `self` is a bytes object of 64-bit words: how many addresses it takes; which of the first 64 of them are floating-point numbers (a bit
each), which launches are given as they are; how many bytes the steps have; the steps, each of

  0, the launch's header, how many arguments, and for each the number of an address (-1: none) and what is added to it
  1, the number of an address, what is added to it, bytes to be copied there, how many
  2, the same: the bytes that must be there
  3, the number of an address, what is added to it, the number of nested lists whose address is in its place, a kind of numbers, how many axes, and for
     each its size and its stride in bytes (`objects.py`): the lists' numbers are written there

A header is that of a launch's own builtin (`entry.py`).  It gives True, or False from the first bytes on that are others, and from lists on that are others.
"""

from __future__ import annotations

import struct
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from ...unknowns import NoTrace, Unknown
from ..native import Words
from ..sized import Head
from . import arguments, objects
from .entry import HEADER_WORDS
from .translate import translate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAMES = ("flambeau_sequence",)
LAUNCH, MOVE, SAME, FILL = 0, 1, 2, 3
_MOST_ARGUMENTS = 64
_MASK = (1 << 64) - 1


def native(launch: Any) -> bool:
    """Whether a launch is machine code, which raises nothing."""
    return isinstance(launch, BuiltinFunctionType) and launch.__name__ == "flambeau_entry"


def header(launch: Any) -> bytes | None:
    """The header of a launch that may be a step; None where there is another function behind it, or the threads share its work."""
    head = launch.__self__ if native(launch) else None
    if not isinstance(head, bytes):
        return None
    count, _, _, parallel, _ = struct.unpack_from(f"<{HEADER_WORDS}Q", head)
    return head if count <= _MOST_ARGUMENTS and not parallel else None


def steppable(launch: Any) -> bool:
    """Whether a launch may be a step of a call of known sizes, or of unknown ones (`native.Words`), whose work the threads may share too."""
    if launch.__class__ is Words:
        return launch.words[0].__class__ is int and launch.words[0] <= _MOST_ARGUMENTS
    head = launch.__self__ if native(launch) else None
    return isinstance(head, bytes) and struct.unpack_from("<Q", head)[0] <= _MOST_ARGUMENTS


def takes_float(launch: Any, number: int) -> bool:
    """Whether an argument of a launch that has a header is a floating-point number."""
    floats = launch.words[1] if launch.__class__ is Words else struct.unpack_from("<2Q", launch.__self__)[1]
    return number < 64 and bool(floats >> number & 1)


def launch_step(launch: Any, args: Sequence[tuple[int, Any]]) -> tuple[list[Any], Any]:
    """The words of a launch that has a header, and what must live as long.  args: the number of an address and what is added to it, or -1 and
    a number."""
    unknown = launch.__class__ is Words
    head: Any = None if unknown else launch.__self__
    floats = launch.words[1] if unknown else struct.unpack_from("<2Q", head)[1]
    words = [LAUNCH, Head(launch) if unknown else id(head) + arguments.DATA, len(args)]
    for k, (address, value) in enumerate(args):
        if value.__class__ is Unknown:
            if floats >> k & 1:
                value = value * 1.0
            elif value.value.__class__ is not int:
                raise NoTrace("a floating-point number where there is none")
            words += [address & _MASK, value]
        else:
            bits = struct.unpack("<Q", struct.pack("<d", value))[0] if floats >> k & 1 else int(value)
            words += [address & _MASK, bits & _MASK]
    return words, launch.keep if unknown else launch


def bytes_step(kind: int, address: int, offset: int, data: bytes) -> tuple[list[int], Any]:
    """The words of bytes that are copied (MOVE) or compared (SAME)."""
    return [kind, address, offset & _MASK, id(data) + arguments.DATA, len(data)], data


def fill_step(address: int, data: int, kind: int, axes: Sequence[int]) -> tuple[list[int], Any]:
    """The words of numbers in nested lists, which are the object at address `data`, written from `address` on.  kind, axes: see `objects.py`."""
    return [FILL, address, 0, data, kind, len(axes) // 2, *axes], None


def joined(addresses: int, steps: Sequence[tuple[list[int], Any]], floats: int = 0) -> Callable[..., bool]:
    """The builtin, ``f(*addresses)``.  floats: bits, which of the first 64 are floating-point numbers."""
    from .. import native
    from . import compile as compiler
    global _make
    if _make is None:
        found = compiler.functions(("sequence",), NAMES, text)
        _make = native.builtin(NAMES[0], found[NAMES[0]])
    words = [w for step, _ in steps for w in step]
    return _make(struct.pack(f"<{3 + len(words)}Q", addresses, floats, 8 * len(words), *words), tuple([kept for _, kept in steps]))  # type: ignore[no-any-return]


_make: Any = None


def text() -> str:
    """The IR of the builtin."""
    return translate(arguments.READ + objects.FILL + STEPS + _SEQUENCE, arguments.LAYOUT)


# does the steps that lie there; 0 where bytes, or lists, were others than they must be
STEPS = f"""
runner: ptr = None  # of launches whose work the threads share

def steps(begin: ptr, end: ptr, bases: ptr) -> i1:
    args = stack(i64, {_MOST_ARGUMENTS})
    p = begin
    while p != end:
        if i64[p] == {LAUNCH}:
            words = ptr[p + 8]
            count = i64[p + 16]
            p = p + 24
            for k in range(count):
                which = i64[p]
                value = i64[p + 8]
                if which >= 0:
                    value += i64[bases + 8 * which]
                i64[args + 8 * k] = value
                p = p + 16
            if i64[words + 24] != 0:
                call(void, runner, words, args)
            else:
                stage = words + {8 * HEADER_WORDS}
                for k in range(i64[words + 16]):
                    call(void, ptr[stage], 0, i64[stage + 8], args, words + i64[words + 32])
                    stage = stage + 24
        elif i64[p] == {FILL}:
            axes = i64[p + 40]
            if not fill(ptr(i64[bases + 8 * i64[p + 24]]), ptr(i64[bases + 8 * i64[p + 8]] + i64[p + 16]), p + 48, axes, i64[p + 32]):
                return False
            p = p + 48 + 16 * axes
        else:
            there = ptr(i64[bases + 8 * i64[p + 8]] + i64[p + 16])
            if i64[p] == {MOVE}:
                memcpy(there, ptr[p + 24], i64[p + 32])
            elif memcmp(there, ptr[p + 24], i64[p + 32]) != 0:
                return False
            p = p + 40
    return True
"""

_SEQUENCE = """
def flambeau_sequence(self: ptr, given: ptr, n: i64) -> ptr:
    head = self + DATA
    if n != i64[head]:
        PyErr_Format(ptr[PyExc_TypeError], "a sequence of launches takes %zd addresses, but got %zd", i64[head], n)
        return None
    bases = stack(i64, n)
    if not read_words(given, n, i64[head + 8], bases):
        return None
    begin = head + 24
    return PyBool_FromLong(i64(steps(begin, begin + i64[head + 16], bases)))
"""
