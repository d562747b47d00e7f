"""Planned calls as builtins in machine code (`llvm/calls.py`), where Python's steps would be most of their cost."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ..unknowns import NoTrace, Unknown
from . import cache, lasting, native
from .sized import Part, Program
from .slots import known, place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..unknowns import Trace

NEW, VIEW, DETACHED, SAME, OBJECT, APART, TURNED, ON_ARRAY, ON_BUFFER = range(9)  # what a result is: see `llvm/calls.py`
_META = ("shape", "strides", "dtype", "device", "numel", "contiguous", "nbytes", "sizes", "plain")  # its slots
_SHOWN = frozenset((NEW, VIEW, DETACHED))  # those that have a meta, which may be of unknown sizes
MOST = 62  # arguments
_MASK = (1 << 64) - 1


class Block(NamedTuple):
    """Memory that a call takes. free: the list of free addresses; grow: gives one where that is empty; meta: of the storage that is made of it (None:
    it is given back when the call is done).  Of unknown sizes: free is their meta, grow None."""

    free: Any
    grow: Any
    meta: Any


class Made(NamedTuple):
    """A result. what: see above; of: its meta, or the object; number: of the argument or the block; offset: bytes added; mark: what is said of a view."""

    what: int
    of: Any
    number: int = 0
    offset: Any = 0
    mark: Any = None


class Classes(NamedTuple):
    """What calls are made with: the classes of tensors, storages, metas, metas that hold the address, and dtypes; the variable that says
    whether operations are recorded; what puts a view on its base's list; the kinds of types that have gradients; what memory is given back to that is
    somebody's; of inference mode the variable, the list of who is in it, the version of a storage that is made there, and what is said of a view that is.
    metas: what makes them."""

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
    metas: Metas


class Metas(NamedTuple):
    """What makes metas of the CPU. kept: the dictionary of them all, by sizes, strides, type and device; most: a list of the number of them beyond which
    `start_over` is called; the classes of metas and of shapes; the CPU's device; the classes of memory: those of up to 8,192 bytes in steps of 64, the
    function that gives those of up to `middle` bytes, and their class, which has a list of free addresses and is called for more."""

    kept: dict[Any, Any]
    most: list[int]
    start_over: Callable[[], None]
    meta: type
    shape: type
    cpu: Any
    by_64: list[Any]
    size_class: Callable[[int], Any]
    middle: int
    memory: type


@functools.cache
def _kinds(roles: str) -> tuple[int, ...]:
    """Which arguments are tensors, floats, other objects, and small numbers: a bit for each."""
    return tuple([sum(1 << i for i, role in enumerate(roles) if role in letters) for letters in ("t", "fF", "x", "FI")])


def _meta(m: Any) -> Any:
    """What stands for a meta in words."""
    return Part("META", m) if _unknown(m) else id(m)


def _unknown(m: Any) -> bool:
    """Whether an object is a meta of unknown sizes."""
    return hasattr(m, "strides") and any(x.__class__ is Unknown for x in (*m.shape, *m.strides))


def _words(roles: str, otherwise: Any, blocks: Sequence[Block], steps: Sequence[tuple[list[Any], Any]], results: Sequence[Made], gather: Any, watch: bool,
           written: Sequence[tuple[int, int]]) -> list[Any]:
    """The words of `flambeau_call`; in the place of what follows from unknown sizes is an `Unknown`, or what stands for it (`sized`)."""
    *bits, small = _kinds(roles)
    parts = [w for step, _ in steps for w in step]
    shape = 0 if gather is None else 1 if gather is tuple else 2 if gather is list else id(gather)
    words: list[Any] = [len(roles), id(otherwise), *bits, int(watch), len(blocks), 8 * len(parts), len(results), shape, len(written), small]
    for b in blocks:
        listed = [Part("FREE", b.free), Part("GROW", b.free)] if b.grow is None else [id(b.free), id(b.grow)]
        words += [*listed, 0 if b.meta is None else _meta(b.meta)]
    words += [w for number, rise in written for w in (number, id(rise))]
    words += parts
    for r in results:
        of, offset = _meta(r.of) if r.what in _SHOWN else id(r.of), r.offset
        words += [r.what, of, r.number, offset if isinstance(offset, Unknown) else offset & _MASK, 0 if r.mark is None else id(r.mark)]
    return words


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
        words = _words(roles, otherwise, blocks, steps, results, gather, watch, written)
        if any(w.__class__ is not int for w in words):  # it is being traced
            return otherwise
        alive = otherwise, gather, tuple(blocks), tuple([kept for _, kept in steps]), tuple(results), tuple(written)
        return make(struct.pack(f"<{len(words)}Q", *words), alive)

    def sized(self, trace: Trace, sizes: int, roles: str, blocks: Sequence[Block], steps: Sequence[tuple[list[Any], Any]], results: Sequence[Made],
              gather: Any, watch: bool, written: Sequence[tuple[int, int]] = ()) -> Callable[..., Any]:
        """``f(sizes, *arguments)``, of metas, launches and numbers that follow from the sizes by a trace; where one is unknown, the meta of a block is in
        its `free` and `grow` too.  It gives NotImplemented for sizes that take another turn, and for what `builtin` leaves to `otherwise`.  Raises
        NoTrace where there is no machine code for it."""
        if not known() or len(roles) > MOST or self._make is None:
            raise NoTrace("no machine code")
        words = _words(roles, None, blocks, steps, results, gather, watch, written)
        known_metas = [m for b in blocks for m in (b.free, b.grow, b.meta)] + [x for r in results for x in (r.of, r.mark)]
        # nothing of the trace, which is large
        alive = gather, [m for m in known_metas if not _unknown(m)], tuple([kept for _, kept in steps]), tuple(written)
        if "flambeau_sized" not in self._sharers:
            self._sharers["flambeau_sized"] = native.builtin("flambeau_sized", self._functions["flambeau_sized"])
        return self._sharers["flambeau_sized"](Program(trace, sizes).packed(1 + len(roles), words), alive)

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
                  "lazy_address": place(classes.lazy, "address"), "kind": place(classes.dtype, "kind"),
                  "free_list": place(classes.metas.memory, "free"),
                  **{name: place(classes.meta, name) for name in _META}}
        found = {name: at for name, at in places.items() if at is not None}
        if len(found) < len(places):
            return None
        found["lazy_slots"] = (classes.lazy.__basicsize__ - object.__basicsize__) // 8
        found["middle"] = classes.metas.middle
        functions = self._functions = compiler.functions(("calls", *map(str, found.values())), calls.NAMES, lambda: calls.text(found))
        told = [tensor, storage, classes.recording, classes.note, classes.real, classes.complex, "_made", "_views", 0, classes.nobody, classes.inference,
                classes.entered, classes.untracked, classes.unseen]
        ctypes.PYFUNCTYPE(None, *[ctypes.py_object] * len(told))(functions["flambeau_call_knows"])(*map(lasting.keep, told))
        m = classes.metas
        more = [m.kept, m.most, m.start_over, m.meta, m.shape, tuple.__new__, m.cpu, m.by_64, m.size_class]
        told_more = ctypes.PYFUNCTYPE(None, *[ctypes.py_object] * len(more), ctypes.c_void_p)(functions["flambeau_sized_knows"])
        told_more(*map(lasting.keep, more), native.runner())
        return native.builtin("flambeau_call", functions["flambeau_call"])
