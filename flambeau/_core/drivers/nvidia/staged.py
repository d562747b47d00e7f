"""Pageable memory to a GPU and back by several threads at once: each takes the next piece, fills a page-locked place with it (or empties one) and queues
that piece's copy itself, while the copies of other pieces run.

One thread copies memory at a fifth of what a link carries, and threads that fill one place together wait for one another at each place's end. Here
each thread has two places of its own, in its core's cache, and waits for nothing but the copy that used the place before.

The threads are those of the kernels' pool (`kernels.native`), in machine code: no Python runs between the first piece and the last.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ... import forks
from ...kernels import native
from ...kernels.llvm import arguments
from ...kernels.llvm import compile as compiler
from ...kernels.llvm.translate import translate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .launches import Launches

_THREADS = 8  # at most: what a link of PCIe 5 asks for
PLACES = 2 * _THREADS
_FAR = 8 << 20  # bytes from which what is written goes past the caches
_FILL, _EMPTY = _NAMES = "flambeau_cuda_fill", "flambeau_cuda_empty"

_SHARED = """
; the number of the next piece, or thread
define internal i64 @next_of(ptr %p) {
  %v = atomicrmw add ptr %p, i64 1 monotonic
  ret i64 %v
}
define internal void @stop(ptr %p, i64 %v) {
  store atomic i64 %v, ptr %p monotonic, align 8
  ret void
}
; copies past the caches: what is written is far more than they hold, and need not be read first
define internal void @copy_past(ptr %to, ptr %from, i64 %n) {
entry:
  %a = ptrtoint ptr %to to i64
  %b = sub i64 0, %a
  %c = and i64 %b, 63
  %few = icmp ult i64 %n, %c
  %head = select i1 %few, i64 %n, i64 %c
  %h = call ptr @memcpy(ptr %to, ptr %from, i64 %head)
  %rest = sub i64 %n, %head
  %lines = and i64 %rest, -64
  %past = add i64 %head, %lines
  br label %more
more:
  %i = phi i64 [ %head, %entry ], [ %next, %line ]
  %left = icmp ult i64 %i, %past
  br i1 %left, label %line, label %end
line:
  %p = getelementptr i8, ptr %from, i64 %i
  %q = getelementptr i8, ptr %to, i64 %i
  %p1 = getelementptr i8, ptr %p, i64 32
  %q1 = getelementptr i8, ptr %q, i64 32
  %v0 = load <4 x i64>, ptr %p, align 1
  %v1 = load <4 x i64>, ptr %p1, align 1
  store <4 x i64> %v0, ptr %q, align 32, !nontemporal !0
  store <4 x i64> %v1, ptr %q1, align 32, !nontemporal !0
  %next = add i64 %i, 64
  br label %more
end:
  %tail = sub i64 %n, %past
  %tp = getelementptr i8, ptr %from, i64 %past
  %tq = getelementptr i8, ptr %to, i64 %past
  %t = call ptr @memcpy(ptr %tq, ptr %tp, i64 %tail)
  fence seq_cst
  ret void
}
"""

# args: target, source, bytes, bytes of a piece, stream, what is common, how many pieces, whether what is written goes past the caches
# block: the addresses of cuCtxSetCurrent, the context, cuMemcpy…Async, cuEventRecord, cuEventSynchronize
# common: the numbers of the next piece and the next thread, the code of a failure; then each place's address and event
_TEXT = """
def next_of(p: ptr) -> i64: ...
def stop(p: ptr, v: i64) -> void: ...
def copy_past(to: ptr, source: ptr, n: i64) -> void: ...

def length(p: i64, args: ptr) -> i64:
    left = i64[args + 16] - p * i64[args + 24]
    if left < i64[args + 24]:
        return left
    return i64[args + 24]

def queue(target: i64, source: i64, n: i64, place: ptr, args: ptr, block: ptr) -> i32:
    code = call(i32, ptr[block + 16], target, source, n, ptr[args + 32])
    if code == 0:
        code = call(i32, ptr[block + 24], ptr[place + 8], ptr[args + 32])
    return code

def fetch(p: i64, place: ptr, args: ptr, block: ptr) -> i32:
    return queue(i64[place], i64[args + 8] + p * i64[args + 24], length(p, args), place, args, block)

def failed(code: i32, common: ptr) -> void:
    "No thread begins with another piece."
    i64[common + 16] = i64(code)
    stop(common, 1 << 62)

def flambeau_cuda_fill(begin: i64, end: i64, args: ptr, block: ptr) -> void:
    common = ptr[args + 40]
    code = call(i32, ptr[block], ptr[block + 8])
    places = common + 64 + 32 * next_of(common + 8)
    turn = 0
    while code == 0:
        p = next_of(common)
        if p >= i64[args + 48]:
            return
        place = places + 16 * (turn & 1)
        if turn > 1:
            code = call(i32, ptr[block + 32], ptr[place + 8])
        if code == 0:
            at = p * i64[args + 24]
            n = length(p, args)
            memcpy(ptr[place], ptr[args + 8] + at, n)
            code = queue(i64[args] + at, i64[place], n, place, args, block)
        turn = turn + 1
    failed(code, common)

def flambeau_cuda_empty(begin: i64, end: i64, args: ptr, block: ptr) -> void:
    common = ptr[args + 40]
    count = i64[args + 48]
    code = call(i32, ptr[block], ptr[block + 8])
    place = common + 64 + 32 * next_of(common + 8)
    other = place + 16
    p = next_of(common)
    behind = count
    if code == 0 and p < count:
        code = fetch(p, place, args, block)
        behind = next_of(common)
        if code == 0 and behind < count:
            code = fetch(behind, other, args, block)
    while code == 0 and p < count:
        code = call(i32, ptr[block + 32], ptr[place + 8])
        if code == 0:
            to = ptr[args] + p * i64[args + 24]
            if i64[args + 56] != 0:
                copy_past(to, ptr[place], length(p, args))
            else:
                memcpy(to, ptr[place], length(p, args))
            p = behind
            behind = next_of(common)
            if behind < count:
                code = fetch(behind, place, args, block)
            empty = place
            place = other
            other = empty
    if code != 0:
        failed(code, common)
"""

_found: dict[str, int] = {}
_lock = forks.lock()


def _functions() -> dict[str, int]:
    with _lock:
        if not _found:
            text = _SHARED + translate(_TEXT, arguments.LAYOUT)
            _found.update(compiler.functions(("cuda staged", text), _NAMES, lambda: text))
    return _found


class Stager:
    """What copies of one direction need on a device; one at a time."""

    def __init__(self, launches: Launches, device: int, direction: str) -> None:
        driver = launches.driver
        d, cu = driver._use(device), driver._cu
        made = [cu.cuEventCreate(2) for _ in range(PLACES)]  # no time kept; who waits does not sleep
        for code, _ in made:
            driver._check(d, code, "making an event")
        self._common = (ctypes.c_int64 * (8 + 2 * PLACES))()
        for k, (_, event) in enumerate(made):
            self._common[9 + 2 * k] = int(event)
        self._up = direction == "h2d"
        self._block = [launches.address(b"cuCtxSetCurrent"), int(d.context), launches.copy_address(direction), launches.address(b"cuEventRecord"),
                       launches.address(b"cuEventSynchronize")]
        self._entries: dict[int, Any] = {}

    def __call__(self, stream: int, dst: int, src: int, nbytes: int, piece: int, places: Sequence[int]) -> int:
        """Copies, by way of these page-locked places of `piece` bytes, two for each thread.  Gives 0 or the code of a failure."""
        common, count, threads = self._common, -(-nbytes // piece), len(places) // 2
        common[0] = common[1] = common[2] = 0
        common[8:8 + 4 * threads:2] = list(places)
        entry = self._entries.get(threads)
        if entry is None:
            entry = self._entries[threads] = native.make_entry([(_functions()[_FILL if self._up else _EMPTY], threads, 1)], self._block, 8, parallel=True)
        entry(dst, src, nbytes, piece, stream, ctypes.addressof(common), count, nbytes >= _FAR)
        return int(common[2])
