"""Memory that a native function borrows while it runs: kept between calls, one piece for each thread that asks at once.

`take` claims a piece of at least so many bytes, aligned to 64; `give` hands it back.  A piece stays in the cache of the
thread that had it last, and its pages were touched before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .emit import Emitter, Module

PIECES = 256


def declare(module: Module) -> None:
    module.declare("malloc", "ptr (i64)")
    module.declare("free", "void (ptr)")
    module.helper("scratch", _TEXT)


def take(em: Emitter, nbytes: str) -> tuple[str, str]:
    """(the memory, what `give` wants)."""
    declare(em.module)
    index = em.op(f"call i64 @scratch_take(i64 {nbytes})")
    slot = em.op(f"getelementptr [{PIECES} x i64], ptr @scratch_memory, i64 0, i64 {index}")
    return em.op(f"inttoptr i64 {em.op(f'load i64, ptr {slot}')} to ptr"), index


def give(em: Emitter, index: str) -> None:
    em.line(f"call void @scratch_give(i64 {index})")


# a piece's block begins at its memory less the word before it
_TEXT = f"""
@scratch_busy = internal global [{PIECES} x i32] zeroinitializer
@scratch_memory = internal global [{PIECES} x i64] zeroinitializer
@scratch_size = internal global [{PIECES} x i64] zeroinitializer

define internal i64 @scratch_take(i64 %size) #0 {{
entry:
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %other ]
  %flag = getelementptr [{PIECES} x i32], ptr @scratch_busy, i64 0, i64 %k
  %pair = cmpxchg ptr %flag, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %mine, label %have, label %other
other:
  %up = add i64 %k, 1
  %next = urem i64 %up, {PIECES}
  br label %look
have:
  %sp = getelementptr [{PIECES} x i64], ptr @scratch_size, i64 0, i64 %k
  %mp = getelementptr [{PIECES} x i64], ptr @scratch_memory, i64 0, i64 %k
  %has = load i64, ptr %sp
  %enough = icmp sge i64 %has, %size
  br i1 %enough, label %done, label %grow
grow:
  %old = load i64, ptr %mp
  %some = icmp ne i64 %old, 0
  br i1 %some, label %drop, label %get
drop:
  %before = sub i64 %old, 8
  %bp = inttoptr i64 %before to ptr
  %block = load ptr, ptr %bp
  call void @free(ptr %block)
  br label %get
get:
  %more = add i64 %size, 4224
  %new = call ptr @malloc(i64 %more)
  %n = ptrtoint ptr %new to i64
  %n1 = add i64 %n, 4159
  %at = and i64 %n1, -4096
  %word = sub i64 %at, 8
  %wp = inttoptr i64 %word to ptr
  store ptr %new, ptr %wp
  store i64 %at, ptr %mp
  store i64 %size, ptr %sp
  br label %done
done:
  ret i64 %k
}}

define internal void @scratch_give(i64 %k) #0 {{
  %flag = getelementptr [{PIECES} x i32], ptr @scratch_busy, i64 0, i64 %k
  store atomic i32 0, ptr %flag release, align 4
  ret void
}}
"""
