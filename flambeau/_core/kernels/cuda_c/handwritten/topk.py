"""Selection in CUDA C, without sorting the row: the first k elements in order, the k-th, medians.

A block takes a row.  It finds the k-th key digit by digit, the highest digit first: each pass counts the next digit of the elements whose
higher digits match.  Then it collects the elements before that key in the row's order, and sorts them.  Where rows are few and long, each
row is cut into pieces, and blocks first reduce each piece to k elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....dtypes import int64
from ...loops.operands import NARROW
from ...programs import size_of
from . import blocks, keys, sorting
from .templates import Room, Written, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....dtypes import dtype
    from ...kernel import Kernel

THREADS = 512
MOST = 2048  # elements that are selected of a row
PIECE = 4096  # elements of a row that are worth a block of their own, and as many times k they must be at least:
TIMES = 8
BLOCKS = 264  # two for each multiprocessor of the larger GPUs

# What `rank` elements go before: `prefix` is its key without the lowest `shift` bits, `rank` becomes how many of those that agree
# with it lie before it, `have` how many agree.  Elements are read as $read of i < n.
_FIND = """
  Key prefix = 0;
  int shift = $width, have = n;
  bool open = true;
  #pragma unroll 1
  while (open) {
    const bool first = shift == $width;
    shift -= 8;
    for (int i = me; i < 8 * $digits; i += $threads) count[i] = 0;
    __syncthreads();
    for (int i = me; i < n; i += $threads) {
      const Key k = $read;
      if (first || (Key)(k >> (shift + 8) % $width) == prefix) atomicAdd(count + (me >> 5 & 7) * $digits + ((int)(k >> shift) & ($digits - 1)), 1);
    }
    __syncthreads();
    int mine = 0, total;
    if (me < $digits) {
      #pragma unroll
      for (int k = 0; k < 8; k++) mine += count[k * $digits + me];
    }
    const int ahead = sum_before<int, $threads / 32>(mine, sums, total);
    if (me < $digits && ahead <= rank && rank < ahead + mine) {
      found[0] = me;
      found[1] = rank - ahead;
      found[2] = mine;
    }
    __syncthreads();
    prefix = (Key)((first ? 0 : prefix << 8 % $width) | (Key)found[0]);
    rank = found[1];
    have = found[2];
    open = shift > 0 && $undecided;
  }"""

# Elements in the row's order, some to each thread: those before the one that was found, and of those that agree as many as are needed
_FIRST = """
  __shared__ Key key[$gapped];
  __shared__ unsigned short order[$gapped];
  __shared__ int from[$capacity];
  __shared__ unsigned long long counts[4 * $threads];
  __shared__ unsigned long long warps[$threads / 32];
  __shared__ int sums[$threads / 32];
  __shared__ int found[3];
  int* const count = (int*)counts;
  const int me = (int)threadIdx.x, $place;
  int rank = $k - 1;
  $find
  const int needed = rank + 1;
  int before = 0, agree = 0;
  #pragma unroll 1
  for (int start = 0; start < n && before + (agree < needed ? agree : needed) < $k; start += 4 * $threads) {
    Key k[4];
    unsigned int what = 0, own = 0;
    #pragma unroll
    for (int e = 0; e < 4; e++) {
      const int i = start + 4 * me + e;
      k[e] = i < n ? $read : $all;
      const Key top = (Key)(k[e] >> shift);
      if (i < n && top <= prefix) {
        what |= (top < prefix ? 1u : 2u) << 2 * e;
        own += top < prefix ? 1u : 0x10000u;
      }
    }
    unsigned int total;
    const unsigned int ahead = sum_before<unsigned int, $threads / 32>(own, (unsigned int*)sums, total);
    int b = before + (int)(ahead & 0xffff), q = agree + (int)(ahead >> 16);
    #pragma unroll
    for (int e = 0; e < 4; e++) {
      const int i = start + 4 * me + e, kind = (int)(what >> 2 * e) & 3;
      if (kind == 1 || (kind == 2 && q < needed)) {
        const int to = b + (q < needed ? q : needed);
        key[gapped(to)] = k[e];
        from[to] = $position;
      }
      b += kind == 1;
      q += kind == 2;
    }
    before += (int)(total & 0xffff);
    agree += (int)(total >> 16);
    __syncthreads();
  }"""

_KEEP = """
  for (int i = me; i < $k; i += $threads) {
    $keys[(long long)blockIdx.x * $k + i] = key[gapped(i)];
    $positions[(long long)blockIdx.x * $k + i] = from[i];
  }"""

_SORT = """
  for (int i = $k + me; i < $capacity; i += $threads) key[gapped(i)] = $all;
  __syncthreads();
  #pragma unroll 1
  for (int low = 0; low < $bits; low += 4) sort_digit<$threads, $each>(key, order, counts, warps, low, low == 0);
  for (int i = me; i < $k; i += $threads) write_element(a, row, i, from[order[gapped(i)]]);"""

_NANS = """
  int nans = 0;
  for (int i = me; i < n; i += $threads) nans += $read == $nan;
  int all;
  sum_before<int, $threads / 32>(nans, sums, all);
  rank = $rank;"""

_ONE = """
  __shared__ int count[8 * $digits];
  __shared__ int sums[$threads / 32];
  __shared__ int found[3];
  const int me = (int)threadIdx.x, row = (int)blockIdx.x, n = $n;
  int rank = $k;
  $nans
  $find
  int agree = 0;
  #pragma unroll 1
  for (int start = 0; start < n && agree <= rank; start += 4 * $threads) {
    int own = 0, total;
    bool like[4];
    #pragma unroll
    for (int e = 0; e < 4; e++) {
      const int i = start + 4 * me + e;
      like[e] = i < n && (Key)((i < n ? $read : $all) >> shift) == prefix;
      own += like[e];
    }
    int ahead = agree + sum_before<int, $threads / 32>(own, sums, total);
    #pragma unroll
    for (int e = 0; e < 4; e++) {
      if (like[e] && ahead == rank) write_element(a, row, 0, start + 4 * me + e);
      ahead += like[e];
    }
    agree += total;
    __syncthreads();
  }"""

_MIDDLE = {"": "", "median": "all ? n - all : (n - 1) / 2", "nanmedian": "n - all > 0 ? (n - all - 1) / 2 : 0"}


def _start(d: dtype, domain: tuple[int, ...], strides: Sequence[tuple[int, ...]], descending: bool, arguments: str) -> Written:
    if domain[-1] >= NARROW // 2:
        raise NotImplementedError("rows of 2**30 elements")
    itemsizes = (d.itemsize, int64.itemsize, d.itemsize)
    w = Written(arguments)
    keys.add(w, d, descending)
    rows(w, "row_at", domain[:-1], [s[:-1] for s in strides], itemsizes)
    w.words(n=domain[-1])
    w.words("long long", value_step=strides[0][-1] * itemsizes[0], place_step=strides[1][-1] * 8, source_step=strides[2][-1] * itemsizes[2])
    w.constants(values="a.w[0]", places="a.w[1]", source="a.w[2]", threads=THREADS, digits=sorting.DIGITS, width=8 * d.itemsize, bits=keys.bits(d))
    w.add(sorting.ACCESS)
    w.add(blocks.SUMS)
    return w


def first(d: dtype, domain: tuple[int, ...], strides: Sequence[tuple[int, ...]], descending: bool, k: int) -> Kernel:
    """``entry(values, places, source, [workspace])``: the first k elements in order of each row, as `sorting.sort` of that width.

    Raises NotImplementedError for k above `MOST`, complex types and rows of 2**30 elements.
    """
    n, count = domain[-1], size_of(domain[:-1])
    if k > MOST:
        raise NotImplementedError(f"selecting {k} elements")
    pieces = max(1, min(n // max(PIECE, TIMES * k), BLOCKS // max(count, 1)))  # the last has k elements too
    w = _start(d, domain, strides, descending, "PPPP" if pieces > 1 else "PPP")
    if not count or not k:
        return Written("PPP").kernel()
    each = next(e for e in (1, 2, 4) if e * THREADS >= k)
    capacity = each * THREADS
    w.words(k=k)
    w.constants(each=each, capacity=capacity, gapped=capacity + capacity // 32, undecided="have > rank + 1", find=_FIND,
                read="read_key(a, row, i)", position="i", place="row = (int)blockIdx.x, n = $n")
    w.add(blocks.DIGIT)
    room = Room()
    if pieces > 1:
        w.words(pieces=pieces, piece=-(-n // pieces))
        array, positions = (w.word(room.array(size * count * pieces * k), "long long") for size in (d.itemsize, 4))
        w.constants(keys=f"((Key*)((unsigned char*)a.w[3] + {array}))", positions=f"((int*)((unsigned char*)a.w[3] + {positions}))",
                    read="read_key(a, row, begin + i)", position="begin + i",
                    place="row = (int)blockIdx.x / $pieces, begin = ((int)blockIdx.x - row * $pieces) * $piece,\n    "
                          "n = $n - begin < $piece ? $n - begin : $piece")
        w.function("select_piece", THREADS, _FIRST + _KEEP)
        w.launch("select_piece", count * pieces, THREADS)
        w.constants(read="$keys[(long long)row * $pieces * $k + i]", position="$positions[(long long)row * $pieces * $k + i]",
                    place="row = (int)blockIdx.x, n = $pieces * $k")
    w.function("select_first", THREADS, _FIRST + _SORT)
    w.launch("select_first", count, THREADS)
    return w.kernel(room.size, size_of(domain) * d.itemsize + count * k * (d.itemsize + 8))


def one(d: dtype, domain: tuple[int, ...], strides: Sequence[tuple[int, ...]], k: int, middle: str = "") -> Kernel:
    """``entry(values, places, source)``: the k-th smallest element of each row (from 0) and its position, the first of equal ones by
    their order; with `middle` "median" or "nanmedian" that instead of the k-th.  NaN of a float type counts as the greatest."""
    count = size_of(domain[:-1])
    w = _start(d, domain, strides, False, "PPP")
    if not count:
        return Written("PPP").kernel()
    w.words(k=(domain[-1] - 1) // 2 if middle else k)
    w.constants(undecided="have > 1", read="read_key(a, row, i)", rank=_MIDDLE[middle], nans=_NANS if middle and d.kind == "f" else "", find=_FIND)
    w.function("select_one", THREADS, _ONE)
    w.launch("select_one", count, THREADS)
    return w.kernel(0, size_of(domain) * d.itemsize + count * (d.itemsize + 8))
