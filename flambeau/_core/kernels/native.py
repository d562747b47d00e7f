"""Native launches as Python builtins, and the threads they run on.

`make_entry` turns machine-code functions ``void fn(i64 begin, i64 end, u64 *args, i64 *block)`` into a builtin that
takes addresses and numbers.  It serves the kernels we generate and any other native routine (tiles of a library's
matmul, say).
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from typing import TYPE_CHECKING, Any

from .. import collector, forks
from ..unknowns import Unknown
from . import lasting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Words:
    """A builtin that is not made yet, since some of its words are unknown (`unknowns`)."""

    __slots__ = ("words", "keep")

    def __init__(self, words: list[Any], keep: Any) -> None:
        self.words, self.keep = words, keep


def entry_of(header: bytes, keep: Any) -> Callable[..., None]:
    """The builtin of words that are known now."""
    return _new(_entry_method, header, keep)  # type: ignore[no-any-return]


class _Method(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p))


_NONE, _ONE, _FASTCALL = 0x04, 0x08, 0x80  # how a builtin takes its arguments: none, one, or an array of them
_waiting: list[Callable[[], None]] = []
_builtins: dict[str, Any] = {}
_new: Any = None
_entry_method = _over_method = 0
_lock = forks.lock()
_threads = 0  # 0: not asked for yet
_started = 0
MAX_THREADS = 256


def make_entry(stages: Sequence[tuple[int, int, int]], params: Sequence[int], nargs: int, floats: Sequence[int] = (),
               parallel: bool = False, keep: Any = None) -> Callable[..., None]:
    """A builtin that runs `stages` one after another.

    stages: (address, total, chunk): the function at `address` is called for ranges begin..end that make up 0..total;
        in parallel these have `chunk` as length (the last may be shorter), else there is one call for the whole range.
        A stage starts when the one before is finished.
    params: int64 constants that every call finds at `block`; the functions must not write there.
    nargs: how many arguments the builtin takes; every call finds them at `args`, one 64-bit slot each.
    floats: positions (below 64) of arguments that are Python floats; their slot holds a double's bits.  All others are
        ints (addresses, numbers, bools), whose slot holds them modulo 2**64.
    parallel: share the chunks out over the threads and let other Python threads run meanwhile (for work of more than
        some 20 microseconds); otherwise it runs at once, holding the GIL.
    keep: what lives as long as the builtin does, since the parameters hold its address, say.

    The builtin raises TypeError for a wrong number of arguments or for arguments of another type.  It may be called
    from any thread.
    """
    if _new is None:
        _load()
    mask = 0
    for k in floats:
        if k >= 64:
            raise ValueError(f"make_entry: argument {k} is a float; only the first 64 arguments may be")
        mask |= 1 << k
    words: list[int] = [nargs, mask, len(stages), int(parallel), 8 * (5 + 3 * len(stages))]
    for stage in stages:
        words += stage
    words += params
    if any(isinstance(w, Unknown) for w in words):
        return Words(words, keep)  # type: ignore[return-value]
    header = struct.pack(f"<{len(words)}Q", *[w & 0xFFFFFFFFFFFFFFFF for w in words])
    return _new(_entry_method, header, keep)  # type: ignore[no-any-return]


def over(header: bytes, total: int) -> Callable[..., None] | None:
    """A builtin like that of a launch with this header, but that takes the total of its one stage as its last argument.  None where there are several
    stages, or where the total is not `total`."""
    nargs, mask, stages, parallel, begin, function, found, chunk = struct.unpack_from("<8Q", header)
    if stages != 1 or found != total or parallel:
        return None
    made = struct.pack("<8Q", nargs + 1, mask, stages, 0, begin, function, 0, 0) + header[64:]
    return _new(_over_method, made, None)  # type: ignore[no-any-return]


def builtin(name: str, address: int, alone: bool = False) -> Callable[..., Any]:
    """What makes builtins of the function at an address: ``make(self, keep)``, of a bytes object and of what lives as long as the builtin does.
    alone: it takes one argument, and no array."""
    method = _Method(name.encode(), address, _ONE if alone else _FASTCALL, None)
    lasting.keep(method)  # a builtin looks at its method when it is freed
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(("PyCFunction_NewEx", ctypes.pythonapi))
    at = ctypes.addressof(method)
    return lambda words, keep=None: new(at, words, keep)


def method(of: type, name: str, address: int) -> Any:
    """The function at an address as a method of a class: ``function(self, NULL)``, which is called without arguments."""
    made = _Method(name.encode(), address, _NONE, None)
    lasting.keep(made)
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(("PyDescr_NewMethod", ctypes.pythonapi))
    return new(of, ctypes.addressof(made))


def when_loaded(do: Callable[[], None]) -> None:
    """Does something as soon as there is machine code: now, or at the first launch, as importing loads none."""
    with _lock:
        if _new is None:
            _waiting.append(do)
            return
    do()


def join(launches: Sequence[Any], numbers: int) -> Callable[..., None] | None:
    """Many native launches as one: see `llvm/foreach.py`."""
    from .llvm import foreach
    return foreach.join(launches, numbers)


def _load() -> None:
    global _new, _entry_method, _over_method
    with _lock:
        if _new is not None:
            return
        from .llvm import compile as compiler
        from .llvm import entry
        found = compiler.functions(("entry",), (*entry.NAMES, entry.RUN), entry.text)
        _builtins[entry.RUN] = found[entry.RUN]
        # a private prototype: the shared one of pythonapi may be set by anyone
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(
            ("PyCFunction_NewEx", ctypes.pythonapi))
        for name in entry.NAMES:
            method = _Method(name.encode(), found[name], _FASTCALL, None)
            lasting.keep(method)  # a builtin looks at its method when it is freed
            if name == "flambeau_entry":
                _entry_method = ctypes.addressof(method)
            elif name == "flambeau_over":
                _over_method = ctypes.addressof(method)
            else:
                _builtins[name] = new(ctypes.addressof(method), None, None)
        _builtins["flambeau_set_starter"](_start_workers)
        os.register_at_fork(after_in_child=_after_fork)
        _new = new
        _tell()
        for do in _waiting:
            do()


def runner() -> int:
    """Where the function lies that runs a launch's stages (`llvm/entry.py: RUN`)."""
    if _new is None:
        _load()
    address: int = _builtins["flambeau_run"]
    return address


def get_num_threads() -> int:
    """How many threads a launch may use, the caller's included.

    At first FLAMBEAU_NUM_THREADS, or OMP_NUM_THREADS, or the number of CPUs this process may run on.
    """
    global _threads
    if _threads == 0:
        _threads = _default_threads()
    return _threads


def set_num_threads(n: int) -> None:
    """Sets how many threads a launch may use.  Raises RuntimeError unless n is a positive int."""
    global _threads
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    if n <= 0:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {n}")
    with _lock:
        _threads = min(n, MAX_THREADS)
        if _new is not None:
            _tell()


def _default_threads() -> int:
    for name in ("FLAMBEAU_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "").split(",")[0].strip()
        if value.isdigit() and int(value) > 0:
            return min(int(value), MAX_THREADS)
    return min(len(_cpus()) or os.cpu_count() or 1, MAX_THREADS)


def _cpus() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _tell() -> None:
    """Tells the native side how many workers are wanted and started, and which CPUs they may use."""
    cpus = _cpus()
    mask = sum(1 << c for c in cpus if c < 1024)
    words = [mask >> 64 * k & 0xFFFFFFFFFFFFFFFF for k in range(16)]
    _builtins["flambeau_set_threads"](get_num_threads() - 1, _started, len(cpus), *words)


def _start_workers() -> None:
    """Called by the first launch that wants workers (and by the first after a fork)."""
    global _started
    with _lock:
        while _started < get_num_threads() - 1:
            with collector.held():  # this waits for the thread, and a finalizer there would wait for the lock
                threading.Thread(target=_work, args=(_started,), name=f"flambeau-{_started + 1}", daemon=True).start()
            _started += 1
        _tell()


def _work(index: int) -> None:
    _builtins["flambeau_worker"](index, threading.get_native_id())


def _after_fork() -> None:
    global _started
    _started = 0
    _builtins["flambeau_reset"]()
    _tell()
