"""Launches on the thread's current stream as builtins that call the driver themselves: no line of Python runs between an operation and
``cuLaunchKernel``.

The builtin's `self` is a bytes object, the launch's header:

  word 0  how many arguments it takes
  word 1  which of the first 64 are floats (bit k for argument k)
  word 2  how many words follow the arguments in the parameter
  word 3  how many kernels it launches, one after another
  word 4  the address of cuLaunchKernel
  word 5  the stream of threads that have chosen none
  word 6  where a failure's code goes
  word 7  what is called after a failure; the launch is then tried again, unless it raised
  word 8  what is called when it fails again
  word 9  the address of pthread_getspecific
  word 10 the key by which it gives the stream that this thread has chosen, or 0 (`Streams`)
  word 11 the address of how many launches the device was given since the host last waited for it
  then for each kernel  function, grid (3), block (3), bytes of shared memory
  then the words that follow the arguments

Nothing is asked before a launch: whether the device's context is current in this thread, whether the device still lives and whether
the process has forked, the driver itself tells by refusing.

The driver lets a thread wait that launches while the device's queue of launches is full, some thousand of them.  Where so many may be queued the
builtin lets other threads run Python meanwhile.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any

from ... import forks
from ...kernels import native
from ...kernels.llvm import arguments
from ...kernels.llvm import compile as compiler
from ...kernels.llvm.translate import translate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NAME = "flambeau_cuda_enter"
_HEAD = 12
MANY = 512  # launches since the host last waited, after which one may block
_LEGACY = 1  # the driver's other name of stream 0


class Streams:
    """What machine code reads of the streams of one device: which one each thread has chosen, in a word of the thread's own, and how many
    launches were queued since the host last waited."""

    def __init__(self) -> None:
        lib, self._key = ctypes.CDLL(None), ctypes.c_uint(0)
        if lib.pthread_key_create(ctypes.byref(self._key), None):
            raise OSError("there is no room for another word of each thread")
        self._set = lib.pthread_setspecific
        self._set.argtypes = (ctypes.c_uint, ctypes.c_void_p)
        self._queued = ctypes.c_longlong(0)
        self.queued = ctypes.addressof(self._queued)
        self.words = ctypes.cast(lib.pthread_getspecific, ctypes.c_void_p).value or 0, self._key.value, self.queued

    def choose(self, stream: int | None) -> None:
        """From now on this thread's launches go to the stream of this number; None: to the default one."""
        if self._set(self._key, stream if stream is None else stream or _LEGACY):
            raise MemoryError("there is no memory for the thread's current stream")

    def waited(self) -> None:
        """The host has waited for the device, or for one of its streams."""
        self._queued.value = 0


class _Header(bytes):
    """A launch's header, and what must live as long as it."""

    keep: Any = None


def _text() -> str:
    return translate(arguments.NONE + arguments.READ + _ENTER, {**arguments.LAYOUT, "HEAD": 8 * _HEAD})


_ENTER = f"""
def {_NAME}(self: ptr, given: ptr, n: i64) -> ptr:
    head = self + DATA
    if n != i64[head]:
        PyErr_Format(ptr[PyExc_TypeError], "a launch takes %zd arguments (addresses and numbers), but got %zd", i64[head], n)
        return None
    more = i64[head + 16]
    count = i64[head + 24]
    buffer = stack(i64, n + more)
    params = stack(ptr, 1)
    ptr[params] = buffer
    if not read_words(given, n, i64[head + 8], buffer):
        return None
    stream = call(ptr, ptr[head + 72], i32(i64[head + 80]))
    if stream is None:
        stream = ptr[head + 40]
    kernel = head + HEAD
    memcpy(buffer + 8 * n, kernel + 64 * count, 8 * more)
    for j in range(count):
        told = 56
        while True:
            queued = i64[ptr[head + 88]] + 1
            i64[ptr[head + 88]] = queued
            thread = ptr(0)
            if queued > {MANY}:
                thread = PyEval_SaveThread()
            code = call(i32, ptr[head + 32], ptr[kernel], {", ".join(f"i32(i64[kernel + {8 * k}])" for k in range(1, 8))}, stream, params, ptr(0))
            if thread is not None:
                PyEval_RestoreThread(thread)
            if code == 0:
                break
            i32[ptr[head + 48]] = code
            said = PyObject_CallNoArgs(ptr[head + told])
            if said is None:
                return None
            Py_DecRef(said)
            told = 64
        kernel = kernel + 64
    return none()
"""


_new: Any = None
_method: Any = None
_lock = forks.lock()


def _load() -> Any:
    """PyCFunction_NewEx, once the machine code is there."""
    global _new, _method
    with _lock:
        if _new is None:
            text = _text()
            address = compiler.functions(("cuda enter", text), (_NAME,), lambda: text)[_NAME]
            _method = native._Method(_NAME.encode(), address, native._FASTCALL, None)
            _new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(("PyCFunction_NewEx", ctypes.pythonapi))
    return _new


def launcher(call: int, kernels: Sequence[tuple[int, int, int, int, int, int, int, int]], stream: int, arguments: str, tail: Sequence[int],
             result: Any, again: Callable[[], None], failed: Callable[[], None], streams: Streams) -> Callable[..., None]:
    """The builtin that takes a launch's arguments.

    call: the address of cuLaunchKernel.  stream: that of threads that chose none of `streams`.  kernels: (function, grid, block, shared bytes) each.
    arguments: a letter for each, "d" a float, others ints.  tail: the words that follow them.  result: a ctypes int that gets the code of a
    failure.  again, failed: see above.
    """
    make = _new or _load()
    floats = sum(1 << k for k, letter in enumerate(arguments) if letter == "d")
    if floats >> 64:
        raise NotImplementedError("a float behind the first 64 arguments")
    words = [len(arguments), floats, len(tail), len(kernels), call, stream, ctypes.addressof(result), id(again), id(failed),
             *streams.words, *[w for kernel in kernels for w in kernel], *tail]
    header = _Header(struct.pack(f"<{len(words)}Q", *(w & 0xFFFFFFFFFFFFFFFF for w in words)))
    header.keep = result, again, failed, streams
    return make(ctypes.addressof(_method), header, None)  # type: ignore[no-any-return]
