"""Copies between the host and a GPU, and within one, as builtins that call the driver themselves: one step from Python to ``cuMemcpy…Async``, and, where
the host is to wait, to ``cuStreamSynchronize`` in the same call.

The builtin's `self` is a bytes object:

  word 0  the address of the function that copies: all take where to, where from, how many bytes, the stream
  word 1  the address of cuStreamSynchronize; 0: the host does not wait
  word 2  the address of how much the device was given since the host last waited for it (`direct.Streams`)

It takes the stream's number, where to, where from and how many bytes, and gives 0, the code with which the copy failed, or less than 0 that of the wait.

Other threads run Python while it waits, and where the device's queue may be full.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ... import forks
from ...kernels import native
from ...kernels.llvm import arguments
from ...kernels.llvm import compile as compiler
from ...kernels.llvm.translate import translate
from .direct import MANY

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = "flambeau_cuda_copy"
_TEXT = f"""
def {_NAME}(self: ptr, given: ptr, n: i64) -> ptr:
    head = self + DATA
    if n != 4:
        PyErr_Format(ptr[PyExc_TypeError], "a copy takes 4 arguments (stream, target, source and bytes), but got %zd", n)
        return None
    words = stack(i64, 4)
    if not read_words(given, n, 0, words):
        return None
    wait = ptr[head + 8]
    queued = i64[ptr[head + 16]] + 1
    i64[ptr[head + 16]] = queued
    thread = ptr(0)
    if wait is not None or queued > {MANY}:
        thread = PyEval_SaveThread()
    code = i64(call(i32, ptr[head], i64[words + 8], i64[words + 16], i64[words + 24], i64[words]))
    if code == 0 and wait is not None:
        code = 0 - i64(call(i32, wait, i64[words]))
        if code == 0:
            queued = 0
    if thread is not None:
        PyEval_RestoreThread(thread)
    if queued == 0:
        i64[ptr[head + 16]] = 0
    return PyLong_FromLongLong(code)
"""

_RECORD = "flambeau_cuda_record"
_RECORDS = f"""
def {_RECORD}(self: ptr, given: ptr, n: i64) -> ptr:
    if n != 2:
        PyErr_Format(ptr[PyExc_TypeError], "a record takes 2 arguments (event and stream), but got %zd", n)
        return None
    words = stack(i64, 2)
    if not read_words(given, n, 0, words):
        return None
    return PyLong_FromLongLong(i64(call(i32, ptr[self + DATA], i64[words], i64[words + 8])))
"""

_made: dict[str, Any] = {}
_lock = forks.lock()


def copier(function: int, wait: int, queued: int) -> Callable[[int, int, int, int], int]:
    """The builtin of these words."""
    return _builtin(_NAME)(struct.pack("<3Q", function, wait, queued))  # type: ignore[no-any-return]


def recorder(function: int) -> Callable[[int, int], int]:
    """The builtin that records events: it takes the numbers of an event and a stream, and gives the code of cuEventRecord, whose address is given."""
    return _builtin(_RECORD)(struct.pack("<Q", function))  # type: ignore[no-any-return]


def _builtin(name: str) -> Any:
    with _lock:
        if not _made:
            text = translate(arguments.READ + _TEXT + _RECORDS, arguments.LAYOUT)
            found = compiler.functions(("cuda copy", text), (_NAME, _RECORD), lambda: text)
            _made.update((each, native.builtin(each, address)) for each, address in found.items())
    return _made[name]
