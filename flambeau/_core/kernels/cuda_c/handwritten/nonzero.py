"""The places of nonzero elements, in CUDA C: each block counts its elements, the counts are summed, and each block writes its places.

The first launch gives the count, which the host needs to allocate the result; the second launch does not wait for the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...loops.operands import NARROW
from ...programs import size_of
from . import blocks
from .templates import Written, rows

if TYPE_CHECKING:
    from ....dtypes import dtype
    from ...kernel import Kernel

THREADS = 256
EACH = 8
TILE = THREADS * EACH
_UNSIGNED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}

_IS_SET = """
__device__ __forceinline__ bool is_set(const Args& a, int i) {
  const Part* const p = (const Part*)((const unsigned char*)$source + place(a, i, 0));
  return $test;
}
// which of a thread's elements are set, a bit for each
__device__ __forceinline__ unsigned int own_set(const Args& a, int begin) {
  unsigned int set = 0;
  #pragma unroll
  for (int e = 0; e < $each; e++)
    if (begin < $n - e && is_set(a, begin + e)) set |= 1u << e;
  return set;
}"""

_COUNT = """
  __shared__ int warps[$threads / 32];
  int total;
  sum_before<int, $threads / 32>(__popc(own_set(a, (int)blockIdx.x * $tile + (int)threadIdx.x * $each)), warps, total);
  if (threadIdx.x == 0) $counts[1 + blockIdx.x] = total;"""

_SUMS = """
  __shared__ long long warps[$threads / 32];
  long long carry = 0;
  for (int start = 0; start < $blocks; start += $threads) {
    const int i = start + (int)threadIdx.x;
    long long total;
    const long long x = i < $blocks ? $counts[1 + i] : 0;
    const long long ahead = carry + sum_before<long long, $threads / 32>(x, warps, total);
    if (i < $blocks) $counts[1 + i] = ahead;
    carry += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) $counts[0] = carry;"""

_WRITE = """
  __shared__ int warps[$threads / 32];
  const int begin = (int)blockIdx.x * $tile + (int)threadIdx.x * $each;
  const unsigned int set = own_set(a, begin);
  int total;
  long long to = $counts[1 + blockIdx.x] + sum_before<int, $threads / 32>(__popc(set), warps, total);
  #pragma unroll
  for (int e = 0; e < $each; e++) {
    if (set >> e & 1u) {
      if (to < $most) {
        long long* const out = (long long*)a.w[0] + to * $step;
        int left = begin + e;
        $coordinates
      }
      to++;
    }
  }"""

# what comes to distinct places of a vector
_SPREAD = """
  const long long i = (long long)blockIdx.x * $threads + (int)threadIdx.x;
  if (i < $n) ((long long*)a.w[0])[((const long long*)a.w[1])[i]] = ((const long long*)a.w[2])[i];"""

_PLACE = """
  const int i = (int)blockIdx.x * $threads + (int)threadIdx.x;
  if (i >= $n) return;
  const long long at = *(const long long*)((const unsigned char*)a.w[1] + place(a, i, 1));
  if (at < 0 || at >= $length) return;
  *(Part*)((unsigned char*)a.w[0] + place(a, i, 0) + at * $step) = *(const Part*)((const unsigned char*)a.w[2] + place(a, i, 2));"""


def room(n: int) -> int:
    """How many int64 the counts of n elements take: the first is that of all."""
    return 1 + -(-n // TILE)


def _start(arguments: str, source: int, d: dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> Written:
    n = size_of(shape)
    if n >= NARROW - TILE:
        raise NotImplementedError("2**31 elements")
    w = Written(arguments)
    part = d.itemsize // 2 if d.kind == "c" else d.itemsize
    mask = f" & {(1 << (8 * part - 1)) - 1:#x}{'ULL' if part == 8 else 'U'}" if d.kind in "fc" else ""
    w.add(f"typedef {_UNSIGNED[part]} Part;")
    rows(w, "place", shape, [strides], [d.itemsize])
    w.words(n=n)
    w.constants(source=f"a.w[{source}]", threads=THREADS, each=EACH, tile=TILE,
                test=" || ".join(f"(p[{k}]{mask}) != 0" for k in range(2 if d.kind == "c" else 1)))
    w.add(_IS_SET)
    w.add(blocks.SUMS)
    return w


def count(d: dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> Kernel:
    """``entry(counts, source)``: how many elements are not 0, and what comes before each block's; `room` int64."""
    w = _start("PP", 1, d, shape, strides)
    n = size_of(shape)
    w.words(blocks=-(-n // TILE))
    w.constants(counts="((long long*)a.w[0])")
    w.function("nonzero_count", THREADS, _COUNT)
    w.function("nonzero_sums", THREADS, _SUMS)
    if n:
        w.launch("nonzero_count", -(-n // TILE), THREADS)
    w.launch("nonzero_sums", 1, THREADS)
    return w.kernel(0, n * d.itemsize)


def write(d: dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> Kernel:
    """``entry(out, source, counts, most, step, apart)``: the places, in order, of the first `most` elements that are not 0: coordinate k
    of the i-th at ``out[i * step + k * apart]``, int64."""
    w = _start("PPPqqq", 1, d, shape, strides)
    n = size_of(shape)
    w.constants(counts="((const long long*)a.w[2])", most="(long long)a.w[3]", step="(long long)a.w[4]", apart="(long long)a.w[5]")
    lines = []
    for k in range(len(shape) - 1, 0, -1):
        size = w.word(shape[k])
        lines += [f"out[{k} * $apart] = left % {size};", f"left /= {size};"]
    w.constants(coordinates="\n        ".join([*lines, "out[0] = left;"] if shape else []))
    w.function("nonzero_write", THREADS, _WRITE)
    if n:
        w.launch("nonzero_write", -(-n // TILE), THREADS)
    return w.kernel(0, n * d.itemsize)


def spread(n: int) -> Kernel:
    """``entry(out, places, values)``: n values (int64) at as many different places."""
    w = Written("PPP")
    w.words("long long", n=n)
    w.constants(threads=THREADS)
    w.function("spread", THREADS, _SPREAD)
    if n:
        w.launch("spread", -(-n // THREADS), THREADS)
    return w.kernel(0, 24 * n)


def put(d: dtype, domain: tuple[int, ...], length: int, strides: tuple[tuple[int, ...], ...]) -> Kernel:
    """``entry(out, places, values)``: each value over the domain goes to its place (int64) in its row of `out`, the domain's last axis,
    where no two of a row go to one.  strides: of out, places and values, in elements; length: how long the rows of out are."""
    n = size_of(domain)
    if n >= NARROW - THREADS or d.itemsize > 8:
        raise NotImplementedError("2**31 elements, or elements of 16 bytes")
    w = Written("PPP")
    w.add(f"typedef {_UNSIGNED[d.itemsize]} Part;")
    out, places, values = strides
    rows(w, "place", domain, [(*out[:-1], 0), places, values], [d.itemsize, 8, d.itemsize])
    w.words(n=n)
    w.words("long long", length=length, step=out[-1] * d.itemsize)
    w.constants(threads=THREADS)
    w.function("put", THREADS, _PLACE)
    if n:
        w.launch("put", -(-n // THREADS), THREADS)
    return w.kernel(0, n * (2 * d.itemsize + 8))
