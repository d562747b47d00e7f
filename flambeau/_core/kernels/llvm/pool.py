"""The thread pool's machine code: chunks of one loop at a time, handed over in well under a microsecond.

A ticket holds the job's generation and how many chunks were taken from either end: the caller takes from the front,
workers from the back, so that launch after launch a thread finds its part of the data in its own cache.  The job is
done when as many chunks are done as there are, so the caller, who takes part, never waits for a worker that has not
started.  Workers
spin briefly between jobs, then sleep (futex on Linux, a condition variable elsewhere).  A second caller, while a job is
running, runs its own loop by itself.

The workers are Python daemon threads inside `flambeau_worker`, which gives up the GIL and never returns.
"""

from __future__ import annotations

import platform
import sys

MAX_WORKERS = 255
_SPINS = 400  # looks at the job counter, some 20-50 ns each, before a worker sleeps
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None

# Fields that different threads write lie on cache lines of their own.
_STATE = """
@generation = internal global i32 0, align 128
@ticket = internal global i64 0, align 128
@done = internal global i64 0, align 128
@sleeping = internal global i32 0, align 128
@busy = internal global i32 0, align 128
@job_fn = internal global ptr null, align 128
@job_args = internal global ptr null
@job_block = internal global ptr null
@job_total = internal global i64 0
@job_chunk = internal global i64 0
@job_chunks = internal global i64 0
@limit = internal global i64 0
@started = internal global i64 0
@wanted = internal global i64 0
@avoided = internal global i32 -1
@allowed = internal global [16 x i64] zeroinitializer
@spare = internal global i64 0
@threads = internal global [256 x i32] zeroinitializer
"""

# take chunks of the job `generation` until there are none
_WORK = """
define internal void @work(i32 %generation, i1 %back) #0 {
entry:
  %g = zext i32 %generation to i64
  %one = select i1 %back, i64 65536, i64 1
  br label %again
again:
  %t0 = load atomic i64, ptr @ticket acquire, align 8
  br label %try
try:
  %t = phi i64 [ %t0, %again ], [ %seen, %failed ]
  %tg = lshr i64 %t, 32
  %mine = icmp eq i64 %tg, %g
  br i1 %mine, label %current, label %out
current:
  %front = and i64 %t, 65535
  %rest = lshr i64 %t, 16
  %behind = and i64 %rest, 65535
  %taken = add i64 %front, %behind
  %n = load atomic i64, ptr @job_chunks monotonic, align 8
  %left = icmp ult i64 %taken, %n
  br i1 %left, label %claim, label %out
claim:
  %next = add i64 %t, %one
  %pair = cmpxchg ptr @ticket, i64 %t, i64 %next acq_rel acquire
  %seen = extractvalue { i64, i1 } %pair, 0
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %run, label %failed
failed:
  br label %try
run:
  %n1 = sub i64 %n, 1
  %from_end = sub i64 %n1, %behind
  %k = select i1 %back, i64 %from_end, i64 %front
  %chunk = load i64, ptr @job_chunk
  %total = load i64, ptr @job_total
  %begin = mul i64 %k, %chunk
  %past = add i64 %begin, %chunk
  %last = icmp sgt i64 %past, %total
  %end = select i1 %last, i64 %total, i64 %past
  %fn = load ptr, ptr @job_fn
  %args = load ptr, ptr @job_args
  %block = load ptr, ptr @job_block
  call void %fn(i64 %begin, i64 %end, ptr %args, ptr %block)
  %old = atomicrmw add ptr @done, i64 1 acq_rel
  br label %again
out:
  ret void
}
"""

# run fn over 0 .. total by chunks
_RUN = """
define internal void @pool_run(ptr %fn, i64 %total, i64 %chunk, ptr %args, ptr %block) #0 {
entry:
  %single = icmp sge i64 %chunk, %total
  %workers = load atomic i64, ptr @limit monotonic, align 8
  %alone = icmp sle i64 %workers, 0
  %inline = or i1 %single, %alone
  br i1 %inline, label %self, label %lock
lock:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %share, label %self
self:
  call void %fn(i64 0, i64 %total, ptr %args, ptr %block)
  ret void
share:
  %old = load atomic i32, ptr @generation monotonic, align 4
  %g = add i32 %old, 1
  %g64 = zext i32 %g to i64
  %high = shl i64 %g64, 32
  ; a worker late from the job before must not claim a chunk while the fields change
  %closed = or i64 %high, 4294967295
  %was = atomicrmw xchg ptr @ticket, i64 %closed seq_cst
  store ptr %fn, ptr @job_fn
  store ptr %args, ptr @job_args
  store ptr %block, ptr @job_block
  store i64 %total, ptr @job_total
  ; each end of the ticket counts in 16 bits
  %least = udiv i64 %total, 65535
  %enough = add i64 %least, 1
  %coarse = icmp slt i64 %chunk, %enough
  %size = select i1 %coarse, i64 %enough, i64 %chunk
  store i64 %size, ptr @job_chunk
  %up = add i64 %total, %size
  %up1 = sub i64 %up, 1
  %chunks = sdiv i64 %up1, %size
  store atomic i64 %chunks, ptr @job_chunks monotonic, align 8
  store atomic i64 0, ptr @done monotonic, align 8
  store atomic i64 %high, ptr @ticket release, align 8
  store atomic i32 %g, ptr @generation seq_cst, align 4
  %asleep = load atomic i32, ptr @sleeping seq_cst, align 4
  %wake = icmp sgt i32 %asleep, 0
  br i1 %wake, label %call, label %join
call:
  call void @stay_away()
  call void @wake_all()
  br label %join
join:
  call void @work(i32 %g, i1 false)
  br label %wait
wait:
  %spins = phi i32 [ 0, %join ], [ %spins1, %idle ], [ 0, %yield ]
  %now = load atomic i64, ptr @done acquire, align 8
  %all = icmp eq i64 %now, %chunks
  br i1 %all, label %finish, label %pause
pause:
  call void @relax()
  %spins1 = add i32 %spins, 1
  %long = icmp sgt i32 %spins1, 400
  br i1 %long, label %yield, label %idle
idle:
  br label %wait
yield:
  %y = call i32 @sched_yield()
  br label %wait
finish:
  store atomic i32 0, ptr @busy release, align 4
  ret void
}
declare i32 @sched_yield()
"""

_WORKER = f"""
define internal void @worker_loop(i64 %index) #0 {{
entry:
  br label %next
next:
  %seen = phi i32 [ 0, %entry ], [ %g, %did ]
  br label %look
look:
  %spins = phi i32 [ 0, %next ], [ %spins1, %again ]
  %g0 = load atomic i32, ptr @generation acquire, align 4
  %same = icmp eq i32 %g0, %seen
  br i1 %same, label %idle, label %go
idle:
  %spins1 = add i32 %spins, 1
  %long = icmp sgt i32 %spins1, {_SPINS}
  br i1 %long, label %sleep, label %again
again:
  call void @relax()
  br label %look
sleep:
  %s0 = atomicrmw add ptr @sleeping, i32 1 seq_cst
  call void @sleep_while(i32 %seen)
  %s1 = atomicrmw sub ptr @sleeping, i32 1 seq_cst
  br label %go
go:
  %g = load atomic i32, ptr @generation acquire, align 4
  %most = load atomic i64, ptr @limit monotonic, align 8
  %wanted = icmp slt i64 %index, %most
  br i1 %wanted, label %do, label %did
do:
  call void @work(i32 %g, i1 true)
  br label %did
did:
  br label %next
}}
"""

_FUTEX_SLEEP = f"""
declare i64 @syscall(i64, ...)
define internal void @sleep_while(i32 %seen) #0 {{
entry:
  br label %check
check:
  %g = load atomic i32, ptr @generation seq_cst, align 4
  %same = icmp eq i32 %g, %seen
  br i1 %same, label %wait, label %out
wait:
  %r = call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr @generation, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  br label %check
out:
  ret void
}}
define internal void @wake_all() #0 {{
  %r = call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr @generation, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
}}
define internal void @init_sleep() #0 {{
  ret void
}}
"""

# The wakener cannot be forced off the waker's CPU by any hint but affinity: without it the kernel likes to queue the
# worker behind the very thread that is about to compute.
_AFFINITY = """
declare i32 @sched_getcpu()
declare i32 @sched_setaffinity(i32, i64, ptr)
define internal void @stay_away() #0 {
entry:
  %set = alloca [16 x i64], align 8
  %spare = load i64, ptr @spare
  %can = icmp ne i64 %spare, 0
  br i1 %can, label %ask, label %out
ask:
  %cpu = call i32 @sched_getcpu()
  %before = load i32, ptr @avoided
  %same = icmp eq i32 %cpu, %before
  %known = icmp ult i32 %cpu, 1024
  %not = xor i1 %same, true
  %move = and i1 %known, %not
  br i1 %move, label %change, label %out
change:
  store i32 %cpu, ptr @avoided
  call void @llvm.memcpy.p0.p0.i64(ptr %set, ptr @allowed, i64 128, i1 false)
  %c64 = zext i32 %cpu to i64
  %word = lshr i64 %c64, 6
  %bit = and i64 %c64, 63
  %p = getelementptr i64, ptr %set, i64 %word
  %w = load i64, ptr %p
  %one = shl i64 1, %bit
  %off = xor i64 %one, -1
  %w1 = and i64 %w, %off
  store i64 %w1, ptr %p
  br label %loop
loop:
  %i = phi i64 [ 0, %change ], [ %i1, %each ]
  %n = load atomic i64, ptr @started monotonic, align 8
  %more = icmp slt i64 %i, %n
  br i1 %more, label %each, label %out
each:
  %tp = getelementptr i32, ptr @threads, i64 %i
  %tid = load i32, ptr %tp
  %r = call i32 @sched_setaffinity(i32 %tid, i64 128, ptr %set)
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}
"""

_CONDITION_SLEEP = """
@mutex = internal global [128 x i8] zeroinitializer, align 64
@condition = internal global [128 x i8] zeroinitializer, align 64
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
define internal void @sleep_while(i32 %seen) #0 {
entry:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  br label %check
check:
  %g = load atomic i32, ptr @generation seq_cst, align 4
  %same = icmp eq i32 %g, %seen
  br i1 %same, label %wait, label %out
wait:
  %r = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %check
out:
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
define internal void @wake_all() #0 {
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %r = call i32 @pthread_cond_broadcast(ptr @condition)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
define internal void @init_sleep() #0 {
  %a = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}
"""

_NO_AFFINITY = "\ndefine internal void @stay_away() #0 {\n  ret void\n}\n"

# how a CPU is told that a thread is spinning
_RELAX = {name: f"declare void @{call.split('(')[0]}({types})\n"
                f"define internal void @relax() #0 {{\n  call void @{call}\n  ret void\n}}\n"
          for names, call, types in ((("x86_64", "amd64"), "llvm.x86.sse2.pause()", ""),
                                     (("aarch64", "arm64"), "llvm.aarch64.hint(i32 1)", "i32"))
          for name in names}

# what the entry asks, and is told by the builtins that manage the pool
_MANAGED = """
define internal i1 @more_wanted() #0 {
  %have = load atomic i64, ptr @started monotonic, align 8
  %want = load atomic i64, ptr @wanted monotonic, align 8
  %fewer = icmp slt i64 %have, %want
  ret i1 %fewer
}
define internal void @set_thread(i64 %index, i32 %id) #0 {
  %slot = getelementptr i32, ptr @threads, i64 %index
  store i32 %id, ptr %slot
  ret void
}
define internal void @set_cpus(i64 %word, i64 %cpus) #0 {
  %slot = getelementptr i64, ptr @allowed, i64 %word
  store i64 %cpus, ptr %slot
  ret void
}
define internal void @set_workers(i64 %started, i64 %wanted, i64 %spare) #0 {
  store i64 %spare, ptr @spare
  store i32 -1, ptr @avoided
  store atomic i64 %started, ptr @started monotonic, align 8
  store atomic i64 %wanted, ptr @wanted monotonic, align 8
  %fewer = icmp slt i64 %started, %wanted
  %limit = select i1 %fewer, i64 %started, i64 %wanted
  store atomic i64 %limit, ptr @limit monotonic, align 8
  ret void
}
define internal void @no_workers() #0 {
  store atomic i64 0, ptr @started monotonic, align 8
  store atomic i64 0, ptr @limit monotonic, align 8
  store atomic i32 0, ptr @sleeping monotonic, align 4
  store atomic i32 0, ptr @busy monotonic, align 4
  store i32 -1, ptr @avoided
  ; what a thread was at that the fork left behind is nobody's: its arguments lay on that thread's stack
  %generation = load atomic i32, ptr @generation monotonic, align 4
  %g64 = zext i32 %generation to i64
  %high = shl i64 %g64, 32
  %closed = or i64 %high, 4294967295
  store atomic i64 %closed, ptr @ticket seq_cst, align 8
  ret void
}
"""


def text(futex: bool = _FUTEX is not None) -> str:
    """The pool's functions and state: @pool_run, @worker_loop and what they need."""
    relax = _RELAX.get(platform.machine().lower(), "define internal void @relax() #0 {\n  ret void\n}\n")
    return (_STATE + relax + _WORK + (_FUTEX_SLEEP if futex else _CONDITION_SLEEP)
            + (_AFFINITY if sys.platform == "linux" else _NO_AFFINITY) + _RUN + _WORKER + _MANAGED)
