"""The one builtin behind every native launch: machine code that turns Python's arguments into a block of 64-bit slots.

Its `self` is a bytes object, the header of the launch:

  word 0  how many arguments it takes
  word 1  which of the first 64 are floats (bit k for argument k); every other argument is an int (`arguments.py`)
  word 2  how many stages
  word 3  0: run here and now, holding the GIL; 1: give up the GIL and share out over the pool
  word 4  where the parameter block begins, in bytes from the header's start
  then for each stage  function, total, chunk
  then the parameter block

A function is called as ``fn(begin, end, args, block)``.
"""

from __future__ import annotations

from . import arguments, pool
from .translate import translate

HEADER_WORDS = 5
RUN = "flambeau_run"  # what runs a launch's stages, for other machine code: f(header, arguments), with the GIL held
NAMES = ("flambeau_entry", "flambeau_over", "flambeau_worker", "flambeau_set_threads", "flambeau_set_starter", "flambeau_reset")


def text() -> str:
    """The IR of the entry, of the pool, and of the builtins that manage it."""
    return pool.text() + translate(arguments.NONE + arguments.READ + _ENTRY + _MANAGED, {**arguments.LAYOUT, "HEAD": 8 * HEADER_WORDS})


_ENTRY = """
starter: ptr = None

def pool_run(f: ptr, total: i64, chunk: i64, args: ptr, block: ptr) -> void: ...
def worker_loop(index: i64) -> void: ...
def init_sleep() -> void: ...
def more_wanted() -> i1: ...
def set_thread(index: i64, id: i32) -> void: ...
def set_cpus(word: i64, cpus: i64) -> void: ...
def set_workers(started: i64, wanted: i64, spare: i64) -> void: ...
def no_workers() -> void: ...

def flambeau_run(head: ptr, args: ptr) -> void:
    stages = i64[head + 16]
    block = head + i64[head + 32]
    stage = head + HEAD
    if i64[head + 24] == 0:
        for k in range(stages):
            call(void, ptr[stage], 0, i64[stage + 8], args, block)
            stage = stage + 24
        return
    if more_wanted():
        got = PyObject_CallNoArgs(starter)
        if got is None:
            PyErr_Clear()
        else:
            Py_DecRef(got)
    state = PyEval_SaveThread()
    for k in range(stages):
        pool_run(ptr[stage], i64[stage + 8], i64[stage + 16], args, block)
        stage = stage + 24
    PyEval_RestoreThread(state)

def flambeau_entry(self: ptr, given: ptr, n: i64) -> ptr:
    head = self + DATA
    if n != i64[head]:
        PyErr_Format(ptr[PyExc_TypeError], "a native launch takes %zd arguments (addresses and numbers), but got %zd", i64[head], n)
        return None
    args = stack(i64, n)
    if not read_words(given, n, i64[head + 8], args):
        return None
    flambeau_run(head, args)
    return none()

def flambeau_over(self: ptr, given: ptr, n: i64) -> ptr:
    "One stage, whose total is the last argument, here and now."
    head = self + DATA
    if n != i64[head]:
        PyErr_Format(ptr[PyExc_TypeError], "a native launch takes %zd arguments (addresses, numbers and a total), but got %zd", i64[head], n)
        return None
    args = stack(i64, n)
    if not read_words(given, n, i64[head + 8], args):
        return None
    call(void, ptr[head + HEAD], 0, i64[args + 8 * (n - 1)], args, head + i64[head + 32])
    return none()
"""

_MANAGED = """
def number(given: ptr, k: i64) -> i64:
    return PyLong_AsUnsignedLongLongMask(ptr[given + 8 * k])

def flambeau_worker(self: ptr, given: ptr, n: i64) -> ptr:
    "worker(index, thread id): becomes worker number `index`; never returns"
    index = number(given, 0)
    set_thread(index, i32(number(given, 1)))
    PyEval_SaveThread()
    worker_loop(index)
    return None

def flambeau_set_threads(self: ptr, given: ptr, n: i64) -> ptr:
    "set_threads(wanted workers, started workers, number of CPUs, 16 words of CPUs)"
    for k in range(16):
        set_cpus(k, number(given, k + 3))
    set_workers(number(given, 1), number(given, 0), i64(number(given, 2) > 1))
    return none()

def flambeau_set_starter(self: ptr, given: ptr, n: i64) -> ptr:
    "set_starter(callable): what starts the workers when the first launch wants them (kept alive by the caller)"
    global starter
    starter = ptr[given]
    init_sleep()
    return none()

def flambeau_reset(self: ptr, given: ptr, n: i64) -> ptr:
    "reset(): in the child of a fork, which has none of the workers, and where a job may seem to be running"
    no_workers()
    init_sleep()
    return none()
"""
