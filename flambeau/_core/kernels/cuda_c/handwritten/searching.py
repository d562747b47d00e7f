"""Places in sorted rows, occurrences of integers, and integers that are out of range, in CUDA C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...loops.operands import NARROW
from ...programs import size_of
from . import keys
from .templates import Written, rows

if TYPE_CHECKING:
    from ....dtypes import dtype
    from ...kernel import Kernel

THREADS = 256
BINS = 4096  # counters that a block keeps for itself
_MOST_BLOCKS = 1024

_SEARCH = """
  const int i = (int)blockIdx.x * $threads + (int)threadIdx.x;
  if (i >= $n) return;
  const Key wanted = key_of(*(const Key*)((const unsigned char*)a.w[2] + place(a, i, 1)));
  const unsigned char* const row = (const unsigned char*)a.w[1] + place(a, i, 2);
  int low = 0, high = $length;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    const Key here = key_of(*(const Key*)(row + middle * $step));
    if (here $before wanted$odd) low = middle + 1;
    else high = middle;
  }
  *($result*)((unsigned char*)a.w[0] + place(a, i, 0)) = low;"""

_OCCURRENCES = """
  const unsigned long long* const source = (const unsigned long long*)a.w[1];
  unsigned long long* const counts = (unsigned long long*)a.w[0];
  for (long long i = (long long)blockIdx.x * $threads + (int)threadIdx.x; i < $n; i += $stride) atomicAdd(counts + source[i], 1ULL);"""

_OCCURRENCES_OF_FEW = """
  __shared__ int own[$bins];
  const unsigned long long* const source = (const unsigned long long*)a.w[1];
  unsigned long long* const counts = (unsigned long long*)a.w[0];
  for (int i = (int)threadIdx.x; i < $bins; i += $threads) own[i] = 0;
  __syncthreads();
  for (long long i = (long long)blockIdx.x * $threads + (int)threadIdx.x; i < $n; i += $stride) atomicAdd(own + source[i], 1);
  __syncthreads();
  for (int i = (int)threadIdx.x; i < $bins; i += $threads)
    if (own[i] != 0) atomicAdd(counts + i, (unsigned long long)own[i]);"""

# The slot is the host's memory: an atomic there needs a bus that carries it, and on one that does not is no atomic at all.  Both words are one
# store, so what is told belongs together whichever of several threads comes last; who finds a complaint already there adds nothing.
_TELL = """
#ifndef FLAMBEAU_HOST
__device__ __forceinline__ void tell_host(unsigned long long* slot, unsigned long long number, unsigned long long value) {
  if (*(volatile unsigned long long*)slot == 0)
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" :: "l"(__cvta_generic_to_global(slot)), "l"(number), "l"(value) : "memory");
}
#endif"""

_CHECK = """
  for (long long i = (long long)blockIdx.x * $threads + (int)threadIdx.x; i < $n; i += $stride) {
    const long long v = *(const long long*)((const unsigned char*)a.w[0] + place(a, (int)i, 0));
    if ((v < $low || v >= $high) && v != $spared) {
      tell_host((unsigned long long*)$slot, (unsigned long long)$number, (unsigned long long)v);
    }
  }"""


def search(d: dtype, result: dtype, shape: tuple[int, ...], length: int, out: tuple[int, ...], sequence: tuple[int, ...], values: tuple[int, ...],
           right: bool) -> Kernel:
    """``entry(out, sequence, values)``: where each value of `shape` goes in its sorted row of `length` elements, before elements equal to
    it, or after them (`right`).  out, values: strides over the shape; sequence: over the rows' axes, and the last along a row."""
    n = size_of(shape)
    if max(n, length) >= NARROW // 2:
        raise NotImplementedError("2**30 elements")
    w = Written("PPP")
    if not n:
        return w.kernel()
    keys.add(w, d)
    rows(w, "place", shape, [out, values, (*sequence[:-1], *(0,) * (len(shape) - len(sequence) + 1))], [result.itemsize, d.itemsize, d.itemsize])
    w.words(n=n, length=length)
    w.words("long long", step=sequence[-1] * d.itemsize)
    w.constants(threads=THREADS, before="<=" if right else "<", odd=" || here == $nan" if d.kind == "f" else "",
                result="int" if result.itemsize == 4 else "long long")
    w.function("searchsorted", THREADS, _SEARCH)
    w.launch("searchsorted", -(-n // THREADS), THREADS)
    return w.kernel(0, n * (d.itemsize + result.itemsize) + length * d.itemsize)


def _many(w: Written, n: int) -> int:
    """Blocks for n elements, some to each thread."""
    count = max(1, min(_MOST_BLOCKS, -(-n // (4 * THREADS))))
    w.words("long long", n=n, stride=count * THREADS)
    w.constants(threads=THREADS)
    return count


def occurrences(n: int, bins: int) -> Kernel:
    """``entry(counts, source)``: adds to counts (int64) how often each of 0 .. bins - 1 is among the n numbers (int64) of source."""
    w = Written("PP")
    count = _many(w, n)
    if bins <= BINS:
        w.constants(bins=next(b for b in (256, 1024, BINS) if b >= bins))
    w.function("occurrences", THREADS, _OCCURRENCES_OF_FEW if bins <= BINS else _OCCURRENCES)
    if n:
        w.launch("occurrences", count, THREADS)
    return w.kernel(0, 8 * n)


def check(shape: tuple[int, ...], strides: tuple[int, ...], low: int, high: int, spared: int, slot: int, number: int) -> Kernel:
    """``entry(source)``: where an int64 of source is outside [low, high) and not `spared`, and the word at address `slot` is 0, that
    becomes `number` and the next word the int."""
    n = size_of(shape)
    if n >= NARROW - 1:
        raise NotImplementedError("2**31 elements")
    w = Written("P")
    rows(w, "place", shape, [strides], [8])
    count = _many(w, n)
    w.words("long long", low=low, high=high, spared=spared, slot=slot, number=number)
    w.add(_TELL)
    w.function("check", THREADS, _CHECK)
    if n:
        w.launch("check", count, THREADS)
    return w.kernel(0, 8 * n)
