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

HEADER_WORDS = 5
NAMES = ("flambeau_entry", "flambeau_worker", "flambeau_set_threads", "flambeau_set_starter", "flambeau_reset")


def text() -> str:
    """The IR of the entry, of the pool, and of the builtins that manage it."""
    reading = arguments.reading("read", "%floats", "%args")
    return pool.text() + arguments.DECLARED + _ENTRY.replace("$DATA", str(arguments.DATA)).replace("$COUNT", arguments.COUNT_NONE).replace("$READING", reading)


_ENTRY = """
@PyExc_TypeError = external global ptr
@wanted = internal global i64 0
@starter = internal global ptr null
@bad_count = internal constant [73 x i8] c"a native launch takes %zd arguments (addresses and numbers), but got %zd\\00"
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare ptr @PyErr_Format(ptr, ptr, ...)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare void @Py_DecRef(ptr)

define ptr @flambeau_entry(ptr %self, ptr %given, i64 %n) #0 {
entry:
  %head = getelementptr i8, ptr %self, i64 $DATA
  %needs = load i64, ptr %head
  %args = alloca i64, i64 %n, align 16
  %right = icmp eq i64 %needs, %n
  br i1 %right, label %read, label %count
count:
  %type = load ptr, ptr @PyExc_TypeError
  %e = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %type, ptr @bad_count, i64 %needs, i64 %n)
  ret ptr null
read:
  %fp = getelementptr i64, ptr %head, i64 1
  %floats = load i64, ptr %fp
  br label %each
$READINGready:
  %sp = getelementptr i64, ptr %head, i64 2
  %stages = load i64, ptr %sp
  %mp = getelementptr i64, ptr %head, i64 3
  %shared = load i64, ptr %mp
  %bp = getelementptr i64, ptr %head, i64 4
  %boff = load i64, ptr %bp
  %block = getelementptr i8, ptr %head, i64 %boff
  %first = getelementptr i64, ptr %head, i64 5
  %here = icmp eq i64 %shared, 0
  br i1 %here, label %stage, label %big
stage:
  %s = phi i64 [ 0, %ready ], [ %s1, %stage_run ]
  %sq = phi ptr [ %first, %ready ], [ %sq1, %stage_run ]
  %s_more = icmp slt i64 %s, %stages
  br i1 %s_more, label %stage_run, label %none
stage_run:
  %fn = load ptr, ptr %sq
  %tp = getelementptr i64, ptr %sq, i64 1
  %total = load i64, ptr %tp
  call void %fn(i64 0, i64 %total, ptr %args, ptr %block)
  %s1 = add i64 %s, 1
  %sq1 = getelementptr i64, ptr %sq, i64 3
  br label %stage
big:
  %have = load atomic i64, ptr @started monotonic, align 8
  %want = load atomic i64, ptr @wanted monotonic, align 8
  %enough = icmp sge i64 %have, %want
  br i1 %enough, label %release, label %start
start:
  %starter = load ptr, ptr @starter
  %got = call ptr @PyObject_CallNoArgs(ptr %starter)
  %none_got = icmp eq ptr %got, null
  br i1 %none_got, label %forget, label %drop
forget:
  call void @PyErr_Clear()
  br label %release
drop:
  call void @Py_DecRef(ptr %got)
  br label %release
release:
  %state = call ptr @PyEval_SaveThread()
  br label %bstage
bstage:
  %b = phi i64 [ 0, %release ], [ %b1, %bstage_run ]
  %bq = phi ptr [ %first, %release ], [ %bq1, %bstage_run ]
  %b_more = icmp slt i64 %b, %stages
  br i1 %b_more, label %bstage_run, label %back
bstage_run:
  %bfn = load ptr, ptr %bq
  %btp = getelementptr i64, ptr %bq, i64 1
  %btotal = load i64, ptr %btp
  %bcp = getelementptr i64, ptr %bq, i64 2
  %bchunk = load i64, ptr %bcp
  call void @pool_run(ptr %bfn, i64 %btotal, i64 %bchunk, ptr %args, ptr %block)
  %b1 = add i64 %b, 1
  %bq1 = getelementptr i64, ptr %bq, i64 3
  br label %bstage
back:
  call void @PyEval_RestoreThread(ptr %state)
  br label %none
none:$COUNT
  ret ptr @_Py_NoneStruct
}

; worker(index, thread id): becomes worker number `index`; never returns
define ptr @flambeau_worker(ptr %self, ptr %given, i64 %n) #0 {
  %o0 = load ptr, ptr %given
  %index = call i64 @PyLong_AsUnsignedLongLongMask(ptr %o0)
  %p1 = getelementptr ptr, ptr %given, i64 1
  %o1 = load ptr, ptr %p1
  %tid = call i64 @PyLong_AsUnsignedLongLongMask(ptr %o1)
  %t32 = trunc i64 %tid to i32
  %slot = getelementptr i32, ptr @threads, i64 %index
  store i32 %t32, ptr %slot
  %state = call ptr @PyEval_SaveThread()
  call void @worker_loop(i64 %index)
  ret ptr null
}

; set_threads(wanted workers, started workers, number of CPUs, 16 words of CPUs)
define ptr @flambeau_set_threads(ptr %self, ptr %given, i64 %n) #0 {
entry:
  %o0 = load ptr, ptr %given
  %wanted = call i64 @PyLong_AsUnsignedLongLongMask(ptr %o0)
  %p1 = getelementptr ptr, ptr %given, i64 1
  %o1 = load ptr, ptr %p1
  %started = call i64 @PyLong_AsUnsignedLongLongMask(ptr %o1)
  %p2 = getelementptr ptr, ptr %given, i64 2
  %o2 = load ptr, ptr %p2
  %cpus = call i64 @PyLong_AsUnsignedLongLongMask(ptr %o2)
  %some = icmp sgt i64 %cpus, 1
  %spare = zext i1 %some to i64
  store i64 %spare, ptr @spare
  br label %each
each:
  %k = phi i64 [ 0, %entry ], [ %k1, %one ]
  %more = icmp slt i64 %k, 16
  br i1 %more, label %one, label %last
one:
  %at = add i64 %k, 3
  %p = getelementptr ptr, ptr %given, i64 %at
  %o = load ptr, ptr %p
  %w = call i64 @PyLong_AsUnsignedLongLongMask(ptr %o)
  %slot = getelementptr i64, ptr @allowed, i64 %k
  store i64 %w, ptr %slot
  %k1 = add i64 %k, 1
  br label %each
last:
  store i32 -1, ptr @avoided
  store atomic i64 %started, ptr @started monotonic, align 8
  store atomic i64 %wanted, ptr @wanted monotonic, align 8
  %fewer = icmp slt i64 %started, %wanted
  %limit = select i1 %fewer, i64 %started, i64 %wanted
  store atomic i64 %limit, ptr @limit monotonic, align 8$COUNT
  ret ptr @_Py_NoneStruct
}

; set_starter(callable): what starts the workers when the first launch wants them (kept alive by the caller)
define ptr @flambeau_set_starter(ptr %self, ptr %given, i64 %n) #0 {
  %o = load ptr, ptr %given
  store ptr %o, ptr @starter
  call void @init_sleep()$COUNT
  ret ptr @_Py_NoneStruct
}

; reset(): in the child of a fork, which has none of the workers, and where a job may seem to be running
define ptr @flambeau_reset(ptr %self, ptr %given, i64 %n) #0 {
  store atomic i64 0, ptr @started monotonic, align 8
  store atomic i64 0, ptr @limit monotonic, align 8
  store atomic i32 0, ptr @sleeping monotonic, align 4
  store atomic i32 0, ptr @busy monotonic, align 4
  store i32 -1, ptr @avoided
  call void @init_sleep()$COUNT
  ret ptr @_Py_NoneStruct
}
"""
