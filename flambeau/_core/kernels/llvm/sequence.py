"""Many small launches one after another as one builtin: what a learned call does, without Python between its launches.

The builtin's `self` is a bytes object of 64-bit words: how many addresses it takes; which of the first 64 of them are floating-point numbers (a bit
each), which launches are given as they are; how many bytes the steps have; the steps, each of

  0, the launch's header, how many arguments, and for each the number of an address (-1: none) and what is added to it
  1, the number of an address, what is added to it, bytes to be copied there, how many
  2, the same: the bytes that must be there

A header is that of a launch's own builtin (`entry.py`).  It gives True, or False from the first bytes on that are others.
"""

from __future__ import annotations

import struct
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from . import arguments
from .entry import HEADER_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAMES = ("flambeau_sequence",)
LAUNCH, MOVE, SAME = 0, 1, 2
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


def takes_float(launch: Any, number: int) -> bool:
    """Whether an argument of a launch that has a header is a floating-point number."""
    return number < 64 and bool(struct.unpack_from("<2Q", launch.__self__)[1] >> number & 1)


def launch_step(launch: Any, args: Sequence[tuple[int, int | float]]) -> tuple[list[int], Any]:
    """The words of a launch that has a header, and what must live as long.  args: the number of an address and what is added to it, or -1 and
    a number."""
    head = launch.__self__
    floats = struct.unpack_from("<2Q", head)[1]
    words = [LAUNCH, id(head) + arguments.DATA, len(args)]
    for k, (address, value) in enumerate(args):
        bits = struct.unpack("<Q", struct.pack("<d", value))[0] if floats >> k & 1 else int(value)
        words += [address & _MASK, bits & _MASK]
    return words, launch


def bytes_step(kind: int, address: int, offset: int, data: bytes) -> tuple[list[int], Any]:
    """The words of bytes that are copied (MOVE) or compared (SAME)."""
    return [kind, address, offset & _MASK, id(data) + arguments.DATA, len(data)], data


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


def steps() -> str:
    """The IR of ``i1 steps(begin, end, addresses)``, which does the steps that lie there: 0 where bytes were others than they must be."""
    return _STEPS.replace("$MOST", str(_MOST_ARGUMENTS))


def text() -> str:
    """The IR of the builtin."""
    return (arguments.DECLARED + steps() + _TEXT.replace("$DATA", str(arguments.DATA))
            .replace("$READING", arguments.reading("read", "%floats", "%bases")))


_STEPS = """
declare ptr @memcpy(ptr, ptr, i64)
declare i32 @memcmp(ptr, ptr, i64)

define internal i1 @steps(ptr %begin, ptr %end, ptr %bases) #0 {
entry:
  %args = alloca [$MOST x i64], align 16
  br label %step
step:
  %p = phi ptr [ %begin, %entry ], [ %past, %stages ], [ %after, %move ], [ %after, %same ]
  %over = icmp eq ptr %p, %end
  br i1 %over, label %yes, label %which
which:
  %kind = load i64, ptr %p
  %p1 = getelementptr i64, ptr %p, i64 1
  %w1 = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %p, i64 2
  %w2 = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %p, i64 3
  %is_launch = icmp eq i64 %kind, 0
  br i1 %is_launch, label %launch, label %bytes
bytes:
  %base.at = getelementptr i64, ptr %bases, i64 %w1
  %base = load i64, ptr %base.at
  %where = add i64 %base, %w2
  %target = inttoptr i64 %where to ptr
  %source = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %p, i64 4
  %nbytes = load i64, ptr %p4
  %after = getelementptr i64, ptr %p, i64 5
  %is_move = icmp eq i64 %kind, 1
  br i1 %is_move, label %move, label %same
move:
  %ignored = call ptr @memcpy(ptr %target, ptr %source, i64 %nbytes)
  br label %step
same:
  %differ = call i32 @memcmp(ptr %target, ptr %source, i64 %nbytes)
  %equal = icmp eq i32 %differ, 0
  br i1 %equal, label %step, label %no
launch:
  %words = inttoptr i64 %w1 to ptr
  br label %arg
arg:
  %at = phi i64 [ 0, %launch ], [ %at.next, %put ]
  %q = phi ptr [ %p3, %launch ], [ %q2, %put ]
  %some = icmp slt i64 %at, %w2
  br i1 %some, label %get, label %go
get:
  %which.base = load i64, ptr %q
  %q1 = getelementptr i64, ptr %q, i64 1
  %added = load i64, ptr %q1
  %q2 = getelementptr i64, ptr %q, i64 2
  %number = icmp slt i64 %which.base, 0
  br i1 %number, label %put, label %address
address:
  %from.at = getelementptr i64, ptr %bases, i64 %which.base
  %from = load i64, ptr %from.at
  %there = add i64 %from, %added
  br label %put
put:
  %given.value = phi i64 [ %added, %get ], [ %there, %address ]
  %arg.slot = getelementptr i64, ptr %args, i64 %at
  store i64 %given.value, ptr %arg.slot
  %at.next = add i64 %at, 1
  br label %arg
go:
  %past = getelementptr i8, ptr %q, i64 0
  %sp = getelementptr i64, ptr %words, i64 2
  %count.stages = load i64, ptr %sp
  %bp = getelementptr i64, ptr %words, i64 4
  %boff = load i64, ptr %bp
  %block = getelementptr i8, ptr %words, i64 %boff
  %first = getelementptr i64, ptr %words, i64 5
  br label %stages
stages:
  %s = phi i64 [ 0, %go ], [ %s1, %stage ]
  %sq = phi ptr [ %first, %go ], [ %sq1, %stage ]
  %more_stages = icmp slt i64 %s, %count.stages
  br i1 %more_stages, label %stage, label %step
stage:
  %fn = load ptr, ptr %sq
  %tp = getelementptr i64, ptr %sq, i64 1
  %total = load i64, ptr %tp
  call void %fn(i64 0, i64 %total, ptr %args, ptr %block)
  %s1 = add i64 %s, 1
  %sq1 = getelementptr i64, ptr %sq, i64 3
  br label %stages
no:
  ret i1 0
yes:
  ret i1 1
}
"""

_TEXT = """
@PyExc_TypeError = external global ptr
@bad_count = internal constant [56 x i8] c"a sequence of launches takes %zd addresses, but got %zd\\00"
declare ptr @PyErr_Format(ptr, ptr, ...)
declare ptr @PyBool_FromLong(i64)

define ptr @flambeau_sequence(ptr %self, ptr %given, i64 %n) #0 {
entry:
  %head = getelementptr i8, ptr %self, i64 $DATA
  %needs = load i64, ptr %head
  %bases = alloca i64, i64 %n, align 16
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
  %lp = getelementptr i64, ptr %head, i64 2
  %length = load i64, ptr %lp
  %begin = getelementptr i64, ptr %head, i64 3
  %end = getelementptr i8, ptr %begin, i64 %length
  %fits = call i1 @steps(ptr %begin, ptr %end, ptr %bases)
  br i1 %fits, label %yes, label %no
no:
  %false = call ptr @PyBool_FromLong(i64 0)
  ret ptr %false
yes:
  %true = call ptr @PyBool_FromLong(i64 1)
  ret ptr %true
}
"""
