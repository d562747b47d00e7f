"""Planned calls as builtins in machine code (`llvm/calls.py`), where Python's steps would be most of their cost."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from . import cache, lasting, native
from .slots import known, place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NEW, VIEW, DETACHED, SAME, OBJECT, APART, TURNED, ON_ARRAY, ON_BUFFER = range(9)  # what a result is: see `llvm/calls.py`
MOST = 62  # arguments
_MASK = (1 << 64) - 1


class Block(NamedTuple):
    """Memory that a call takes. free: the list of free addresses; grow: gives one where that is empty; meta: of the storage that is made of it (None:
    it is given back when the call is done)."""

    free: list[int]
    grow: Callable[[], int]
    meta: Any


class Made(NamedTuple):
    """A result. what: see above; of: its meta, or the object; number: of the argument or the block; offset: bytes added; mark: what is said of a view."""

    what: int
    of: Any
    number: int = 0
    offset: int = 0
    mark: Any = None


class Classes(NamedTuple):
    """What calls are made with: the classes of tensors, storages, metas, metas that hold the address, and dtypes; the variable that says
    whether operations are recorded; what puts a view on its base's list; the kinds of types that have gradients; what memory is given back to that is
    somebody's; of inference mode the variable, the list of who is in it, the version of a storage that is made there, and what is said of a view that is."""

    tensor: type
    storage: type
    meta: type
    lazy: type
    dtype: type
    recording: Any
    note: Callable[[Any, Any], None]
    real: str
    complex: str
    nobody: Any
    inference: Any
    entered: list[None]
    untracked: int
    unseen: tuple[str, int, str]


@functools.cache
def _kinds(roles: str) -> tuple[int, ...]:
    """Which arguments are tensors, floats, other objects, and small numbers: a bit for each."""
    return tuple([sum(1 << i for i, role in enumerate(roles) if role in letters) for letters in ("t", "fF", "x", "FI")])


class Calls:
    """Makes builtins that carry out calls. A process has one of these: the machine code knows one set of classes."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self._asked = False
        self._functions: dict[str, int] = {}
        self._sharers: dict[str, Callable[[bytes, Any], Callable[..., Any]]] = {}
        self._maker: Callable[[bytes, Any], Callable[..., Any]] | None = None

    def builtin(self, roles: str, blocks: Sequence[Block], steps: Sequence[tuple[list[int], Any]], results: Sequence[Made], gather: Any,
                otherwise: Callable[..., Any], watch: bool, written: Sequence[tuple[int, int]] = ()) -> Callable[..., Any]:
        """``f(*arguments)``; `otherwise` itself where there is no machine code.

        roles: a letter for each argument: "t" a tensor, "f" a number that launches take as a float, "i" as an integer, "F" and "I" the same where it is so
        small that any type holds it, "x" any other object.  steps:
        those of `llvm/sequence.py`, on the arguments and the blocks.  gather: None for a single result, `tuple`, `list`, or what is called with the tuple.
        otherwise: does the same in Python, for arguments and modes that the machine code leaves to it.  watch: calls that are recorded are left to it.
        written: arguments that are written, each with how much its version rises.
        """
        make = self._make if known() and len(roles) <= MOST else None
        if make is None:
            return otherwise
        *bits, small = _kinds(roles)
        parts = [w for step, _ in steps for w in step]
        shape = 0 if gather is None else 1 if gather is tuple else 2 if gather is list else id(gather)
        words = [len(roles), id(otherwise), *bits, int(watch), len(blocks), 8 * len(parts), len(results), shape, len(written), small]
        words += [w for b in blocks for w in (id(b.free), id(b.grow), 0 if b.meta is None else id(b.meta))]
        words += [w for number, rise in written for w in (number, id(rise))]
        words += parts
        words += [w for r in results for w in (r.what, id(r.of), r.number, r.offset & _MASK, 0 if r.mark is None else id(r.mark))]
        alive = otherwise, gather, tuple(blocks), tuple([kept for _, kept in steps]), tuple(results), tuple(written)
        return make(struct.pack(f"<{len(words)}Q", *words), alive)

    @property
    def _make(self) -> Callable[[bytes, Any], Callable[..., Any]] | None:
        """What makes the builtins; None where slots are not where they are looked for."""
        # no lock, and no functools.cached_property, which has one up to Python 3.11: a child of a fork beside a thread that is in here found it
        # held, and loading machine code, which has its own, comes here too. Two threads make the same.
        if not self._asked:
            with cache.preparing():
                self._maker = self._made()
            self._asked = True
        return self._maker

    def shares(self, name: str, words: Sequence[int], keep: Any = None, alone: bool = False) -> Callable[..., Any] | None:
        """A builtin of `llvm/sharing.py` with these words, and what must live as long; None where there is no machine code. alone: it takes one argument."""
        if not known() or self._make is None:
            return None
        if name not in self._sharers:
            self._sharers[name] = native.builtin(name, self._functions[name], alone)
        return self._sharers[name](struct.pack(f"<{len(words)}Q", *[w & _MASK for w in words]), keep)

    def _made(self) -> Callable[[bytes, Any], Callable[..., Any]] | None:
        from .llvm import calls
        from .llvm import compile as compiler
        classes = self.classes
        tensor, storage = classes.tensor, classes.storage
        places = {**{name: place(tensor, name) for name in ("meta", "store", "ptr", "node", "base")},
                  "version": place(storage, "version"), "free": place(storage, "free"), "kept": place(storage, "meta"), "address": place(storage, "ptr"),
                  "owner": place(storage, "keep"),
                  "lazy_address": place(classes.lazy, "address"), "dtype": place(classes.meta, "dtype"), "kind": place(classes.dtype, "kind")}
        found = {name: at for name, at in places.items() if at is not None}
        if len(found) < len(places):
            return None
        found["lazy_slots"] = (classes.lazy.__basicsize__ - object.__basicsize__) // 8
        functions = self._functions = compiler.functions(("calls", *map(str, found.values())), calls.NAMES, lambda: calls.text(found))
        told = [tensor, storage, classes.recording, classes.note, classes.real, classes.complex, "_made", "_views", 0, classes.nobody, classes.inference,
                classes.entered, classes.untracked, classes.unseen]
        ctypes.PYFUNCTYPE(None, *[ctypes.py_object] * len(told))(functions["flambeau_call_knows"])(*map(lasting.keep, told))
        return native.builtin("flambeau_call", functions["flambeau_call"])
