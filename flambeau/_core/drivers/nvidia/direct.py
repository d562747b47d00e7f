"""Launches on the default stream as builtins that call the driver themselves: no line of Python runs between an operation and
``cuLaunchKernel``.

The builtin's `self` is a bytes object, the launch's header:

  word 0  how many arguments it takes
  word 1  which of the first 64 are floats (bit k for argument k)
  word 2  how many words follow the arguments in the parameter
  word 3  how many kernels it launches, one after another
  word 4  the address of cuLaunchKernel
  word 5  the stream
  word 6  where a failure's code goes
  word 7  what is called after a failure; the launch is then tried again, unless it raised
  word 8  what is called when it fails again
  then for each kernel  function, grid (3), block (3), bytes of shared memory
  then the words that follow the arguments

Nothing is asked before a launch: whether the device's context is current in this thread, whether the device still lives and whether
the process has forked, the driver itself tells by refusing.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any

from ... import forks
from ...kernels import native
from ...kernels.llvm import arguments
from ...kernels.llvm import compile as compiler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NAME = "flambeau_cuda_enter"
_HEAD = 9


class _Header(bytes):
    """A launch's header, and what must live as long as it."""

    keep: Any = None


def _text() -> str:
    heads = "".join(f"  %h{k}.at = getelementptr i64, ptr %head, i64 {k}\n  %h{k} = load i64, ptr %h{k}.at\n" for k in range(_HEAD))
    words = "".join(f"  %k{k}.at = getelementptr i64, ptr %kernel, i64 {k}\n  %k{k} = load i64, ptr %k{k}.at\n" for k in range(8))
    sizes = "".join(f"  %n{k} = trunc i64 %k{k} to i32\n" for k in range(1, 8))
    return f"""
@PyExc_TypeError = external global ptr
@wrong = internal constant [69 x i8] c"a launch takes %zd arguments (addresses and numbers), but got %zd\\00\\00\\00\\00"
{arguments.DECLARED}declare ptr @PyErr_Format(ptr, ptr, ...)
declare ptr @PyObject_CallNoArgs(ptr)
declare void @Py_DecRef(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @{_NAME}(ptr %self, ptr %given, i64 %n) {{
entry:
  %head = getelementptr i8, ptr %self, i64 {arguments.DATA}
{heads}  %total = add i64 %h0, %h2
  %buffer = alloca i64, i64 %total, align 16
  %params = alloca ptr, align 8
  store ptr %buffer, ptr %params
  %right = icmp eq i64 %h0, %n
  br i1 %right, label %each, label %count
count:
  %type = load ptr, ptr @PyExc_TypeError
  %e = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %type, ptr @wrong, i64 %h0, i64 %n)
  ret ptr null
{arguments.reading("entry", "%h1", "%buffer")}ready:
  %first = getelementptr i64, ptr %head, i64 {_HEAD}
  %spread = shl i64 %h3, 3
  %tail = getelementptr i64, ptr %first, i64 %spread
  %to = getelementptr i64, ptr %buffer, i64 %n
  %bytes = shl i64 %h2, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %tail, i64 %bytes, i1 false)
  %launch = inttoptr i64 %h4 to ptr
  %stream = inttoptr i64 %h5 to ptr
  %result = inttoptr i64 %h6 to ptr
  br label %kernels
kernels:
  %j = phi i64 [ 0, %ready ], [ %j1, %enter ], [ %j, %again ]
  %tries = phi i64 [ 0, %ready ], [ 0, %enter ], [ 1, %again ]
  %left = icmp slt i64 %j, %h3
  br i1 %left, label %enter, label %done
enter:
  %place = shl i64 %j, 3
  %kernel = getelementptr i64, ptr %first, i64 %place
{words}{sizes}  %function = inttoptr i64 %k0 to ptr
  %code = call i32 %launch(ptr %function, i32 %n1, i32 %n2, i32 %n3, i32 %n4, i32 %n5, i32 %n6, i32 %n7, ptr %stream, ptr %params, ptr null)
  %j1 = add i64 %j, 1
  %refused = icmp ne i32 %code, 0
  br i1 %refused, label %tell, label %kernels
tell:
  store i32 %code, ptr %result
  %fresh = icmp eq i64 %tries, 0
  %whom = select i1 %fresh, i64 %h7, i64 %h8
  %call = inttoptr i64 %whom to ptr
  %said = call ptr @PyObject_CallNoArgs(ptr %call)
  %threw = icmp eq ptr %said, null
  br i1 %threw, label %raise, label %again
again:
  call void @Py_DecRef(ptr %said)
  br label %kernels
done:{arguments.COUNT_NONE}
  ret ptr @_Py_NoneStruct
}}
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
             result: Any, again: Callable[[], None], failed: Callable[[], None]) -> Callable[..., None]:
    """The builtin that takes a launch's arguments.

    call: the address of cuLaunchKernel.  kernels: (function, grid, block, shared bytes) each.  arguments: a letter for each, "d" a float,
    others ints.  tail: the words that follow them.  result: a ctypes int that gets the code of a failure.  again, failed: see above.
    """
    make = _new or _load()
    floats = sum(1 << k for k, letter in enumerate(arguments) if letter == "d")
    if floats >> 64:
        raise NotImplementedError("a float behind the first 64 arguments")
    words = [len(arguments), floats, len(tail), len(kernels), call, stream, ctypes.addressof(result), id(again), id(failed),
             *[w for kernel in kernels for w in kernel], *tail]
    header = _Header(struct.pack(f"<{len(words)}Q", *(w & 0xFFFFFFFFFFFFFFFF for w in words)))
    header.keep = result, again, failed
    return make(ctypes.addressof(_method), header, None)  # type: ignore[no-any-return]
