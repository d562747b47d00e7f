"""Rows in order, with the positions their elements came from: stable, NaN the greatest, in CUDA C.

CUB's device-wide sorts need a C++ program on the host that drives them; these kernels are plain text, so that they can also be
carried out and checked without a GPU.

Three forms by the length of a row.  Short rows: each element counts those that go before it.  Rows that fit into a block's shared
memory: a block sorts one by digits of four bits.  Long rows: digits of eight bits, lowest first; each digit takes three launches:
blocks count the digits of their tiles, the counts are summed over the tiles, and the tiles, sorted by the digit, are written to where
their runs belong.  Nothing waits for another block, and the order of threads never shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....dtypes import int64
from ...kernel import Kernel
from ...loops.operands import NARROW
from ...programs import size_of
from . import blocks, keys
from .templates import Room, Written, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....dtypes import dtype

COUNTED = 64  # elements of a row up to which each is compared with all
SHORT = 1024  # elements of short rows that a block has
THREADS = 256
DIGITS = 256

ACCESS = """
__device__ __forceinline__ void write_element(const Args& a, int row, int place, int from) {
  unsigned char* const values = (unsigned char*)$values + row_at(a, row, 0) + place * $value_step;
  *(Key*)values = *(const Key*)((const unsigned char*)$source + row_at(a, row, 2) + from * $source_step);
  *(long long*)((unsigned char*)$places + row_at(a, row, 1) + place * $place_step) = from;
}
__device__ __forceinline__ Key read_key(const Args& a, int row, int i) {
  return key_of(*(const Key*)((const unsigned char*)$source + row_at(a, row, 2) + i * $source_step));
}"""

_COUNTED = """
  __shared__ Key key[$short];
  const int n = $n, per = $short / n, first = (int)blockIdx.x * per;
  const int count = ($rows - first < per ? $rows - first : per) * n;
  for (int i = (int)threadIdx.x; i < count; i += $threads) key[i] = read_key(a, first + i / n, i % n);
  __syncthreads();
  for (int i = (int)threadIdx.x; i < count; i += $threads) {
    const int row = i / n, own = i - row * n;
    const Key k = key[i];
    int place = 0;
    for (int j = 0; j < n; j++) {
      const Key other = key[row * n + j];
      place += other < k || (other == k && j < own);
    }
    if (place < $width) write_element(a, first + row, place, own);
  }"""

_BLOCK = """
  __shared__ Key key[$gapped];
  __shared__ unsigned short order[$gapped];
  __shared__ unsigned long long counts[4 * $threads];
  __shared__ unsigned long long warps[$threads / 32];
  const int row = (int)blockIdx.x, n = $n;
  #pragma unroll
  for (int e = 0; e < $each; e++) {
    const int i = e * $threads + (int)threadIdx.x;
    key[gapped(i)] = i < n ? read_key(a, row, i) : $all;
  }
  __syncthreads();
  #pragma unroll 1
  for (int shift = 0; shift < $bits; shift += 4) sort_digit<$threads, $each>(key, order, counts, warps, shift, shift == 0);
  for (int i = (int)threadIdx.x; i < $width; i += $threads) write_element(a, row, i, order[gapped(i)]);"""

# Several counters for a digit, so that the threads of a block seldom meet at one
_COUNT = """
  __shared__ int count[8 * $digits];
  const int me = (int)threadIdx.x, row = $row, tile = (int)blockIdx.x - row * $tiles;
  const int begin = tile * $tile, left = $n - begin < $tile ? $n - begin : $tile;
  $begins
  for (int i = me; i < 8 * $digits; i += $threads) count[i] = 0;
  __syncthreads();
  for (int i = me; i < left; i += $threads) {
    const Key k = $read;
    atomicAdd(count + (me >> 5 & 7) * $digits + ((int)(k >> shift) & ($digits - 1)), 1);
  }
  __syncthreads();
  if (me < $digits) {
    int sum = 0;
    #pragma unroll
    for (int k = 0; k < 8; k++) sum += count[k * $digits + me];
    $counts[((long long)row * $digits + me) * $tiles + tile] = sum;
  }"""

# A warp for each digit of a row: what comes before each of its tiles
_SUMS = """
  const int lane = (int)threadIdx.x & 31, digit = (int)blockIdx.x * ($threads / 32) + ((int)threadIdx.x >> 5);
  int* const counts = $counts + (long long)digit * $tiles;
  int carry = 0;
  for (int start = 0; start < $tiles; start += 128) {
    int own[4], sum = 0;
    #pragma unroll
    for (int e = 0; e < 4; e++) {
      const int i = start + 4 * lane + e;
      own[e] = i < $tiles ? counts[i] : 0;
      sum += own[e];
    }
    int ahead = sum;
    #pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const int x = __shfl_up_sync(0xffffffffu, ahead, by);
      if (lane >= by) ahead += x;
    }
    const int all = __shfl_sync(0xffffffffu, ahead, 31);
    ahead += carry - sum;
    #pragma unroll
    for (int e = 0; e < 4; e++) {
      const int i = start + 4 * lane + e;
      if (i < $tiles) counts[i] = ahead;
      ahead += own[e];
    }
    carry += all;
  }
  if (lane == 0) $totals[digit] = carry;
  $next"""

# The runs of a tile begin where the digit differs from the one before.  A digit that all elements of a row have leaves all in place.
_MOVE = """
  __shared__ Key key[$gapped];
  __shared__ unsigned short order[$gapped];
  __shared__ unsigned long long counts[4 * $threads];
  __shared__ unsigned long long warps[$threads / 32];
  __shared__ int sums[$threads / 32];
  __shared__ int to[$digits];
  __shared__ int run[$digits];
  __shared__ int same[1];
  const int me = (int)threadIdx.x, row = $row, tile = (int)blockIdx.x - row * $tiles;
  const int begin = tile * $tile, left = $n - begin < $tile ? $n - begin : $tile;
  const long long base = (long long)row * $n;
  $begins
  if (me == 0) same[0] = 0;
  #pragma unroll 4
  for (int e = 0; e < $each; e++) {
    const int i = e * $threads + me;
    key[gapped(i)] = i < left ? $read : $all;
  }
  int total;
  const int all = me < $digits ? $totals[row * $digits + me] : 0;
  const int smaller = sum_before<int, $threads / 32>(all, sums, total);
  if (me < $digits) {
    to[me] = smaller + $counts[((long long)row * $digits + me) * $tiles + tile];
    if (all == $n) same[0] = 1;
  }
  __syncthreads();
  const bool stay = same[0] != 0;
  if (!stay) {
    #pragma unroll 1
    for (int part = 0; part < 2; part++) sort_digit<$threads, $each>(key, order, counts, warps, shift + 4 * part, part == 0);
    #pragma unroll 2
    for (int i = me; i < left; i += $threads) {
      const int digit = (int)(key[gapped(i)] >> shift) & ($digits - 1);
      if (i == 0 || ((int)(key[gapped(i - 1)] >> shift) & ($digits - 1)) != digit) run[digit] = i;
    }
    __syncthreads();
  }
  #pragma unroll 2
  for (int i = me; i < left; i += $threads) {
    const Key k = key[gapped(i)];
    const int digit = (int)(k >> shift) & ($digits - 1);
    const int place = stay ? begin + i : to[digit] + i - run[digit];
    const int from = begin + (stay ? i : order[gapped(i)]);
    const int position = $position;
    $write
  }"""

# The pass, which is the digit, is counted in the workspace: the first tells the next, and each sum moves it on.  The first
# and the last pass read and write the operands, the others two arrays in turn.
_FIRST = "const int shift = 0;\n  if (blockIdx.x == 0 && me == 0) $pass[0] = 1;"
_NEXT = "const int pass = $pass[0] - "
_FROM = """
  const int shift = 8 * pass;
  const Key* const from_keys = $from_keys;
  const int* const from_positions = $from_positions;"""
_LAST = "if (place < $width) write_element(a, row, place, position);"


def longest(d: dtype) -> int:
    """How long a row a block sorts by itself."""
    return THREADS * (8 if d.itemsize == 8 else 16)


def sort(d: dtype, domain: tuple[int, ...], strides: Sequence[tuple[int, ...]], descending: bool, width: int) -> Kernel:
    """``entry(values, places, source, [workspace])``: the first `width` elements in order of each row of `source`, and where in the
    row they were (int64).

    domain: source's shape with the axis of the rows last.  strides: of values, places and source over it, in elements.
    Raises NotImplementedError for complex types and rows of 2**30 elements.
    """
    n, count = domain[-1], size_of(domain[:-1])
    itemsizes = (d.itemsize, int64.itemsize, d.itemsize)
    nbytes = size_of(domain) * d.itemsize + count * width * (d.itemsize + 8)
    each = longest(d) // THREADS
    long = n > longest(d)
    if max(n, count) >= NARROW // 2:
        raise NotImplementedError("rows of 2**30 elements")
    w = Written("PPPP" if long else "PPP")
    if not count or not width:
        return w.kernel()
    keys.add(w, d, descending)
    rows(w, "row_at", domain[:-1], [s[:-1] for s in strides], itemsizes)
    w.words(n=n, rows=count, width=width)
    w.words("long long", value_step=strides[0][-1] * itemsizes[0], place_step=strides[1][-1] * 8, source_step=strides[2][-1] * itemsizes[2])
    w.constants(values="a.w[0]", places="a.w[1]", source="a.w[2]", threads=THREADS, digits=DIGITS, short=SHORT, bits=keys.bits(d))
    w.add(ACCESS)
    if n <= COUNTED:
        w.function("sort_short", THREADS, _COUNTED)
        w.launch("sort_short", -(-count // (SHORT // n)), THREADS)
        return w.kernel(0, nbytes)
    w.add(blocks.SUMS)
    w.add(blocks.DIGIT)
    if not long:
        threads = next(t for t in (64, 128, 256) if t * each >= n or t == 256)
        each = 8 if threads * 8 >= n else each
        _tile(w, threads, each)
        w.function("sort_rows", threads, _BLOCK, 2 * THREADS // threads)
        w.launch("sort_rows", count, threads)
        return w.kernel(0, nbytes)
    room = Room()
    by_digits(w, keys.bits(d), d.itemsize, n, count, "a.w[3]", room, "read_key(a, row, begin + i)", _LAST)
    return w.kernel(room.size, nbytes)


def _tile(w: Written, threads: int, each: int) -> None:
    tile = threads * each
    w.constants(threads=threads, each=each, tile=tile, gapped=tile + tile // 32)


def by_digits(w: Written, bits: int, itemsize: int, n: int, count: int, work: str, room: Room, read: str, write: str, mark: str = "") -> None:
    """The launches that sort `count` rows of n keys of type Key by their lowest bits, stably.

    work: the workspace's address as C; room: what is taken of it.  read: the key of element begin + i of row `row` as the rows are
    given; write: what becomes of key `k`, from `position` in its row, which belongs to `place`.  mark: what the functions' names end in."""
    threads = 256 if itemsize == 8 else 512  # what shared memory has room for
    _tile(w, threads, 8)
    tiles = -(-n // (threads * 8))
    passes = -(-bits // 8)
    w.words(n=n, tiles=tiles)
    w.constants(row="(int)blockIdx.x / $tiles" if count > 1 else "0")

    def array(name: str, kind: str, nbytes: int) -> None:
        at = w.word(room.array(nbytes), "long long")
        w.constants(**{name: f"(({kind}*)((unsigned char*){work} + {at}))"})
    array("counts", "int", 4 * count * DIGITS * tiles)
    array("totals", "int", 4 * count * DIGITS)
    for side in range(min(passes - 1, 2)):
        array(f"keys{side}", "Key", itemsize * count * n)
        array(f"positions{side}", "int", 4 * count * n)
    array("pass", "int", 4)  # which digit the launches between the first and the last are at
    w.constants(passes=passes, next="" if passes == 1 else "if (blockIdx.x == 0 && threadIdx.x == 0) $pass[0] += 1;")
    w.constants(threads=THREADS)
    w.function(f"sort_sums{mark}", THREADS, _SUMS)
    w.constants(threads=threads)
    w.constants(begins=_FIRST if passes > 1 else "const int shift = 0;", read=read, position="from",
                write="$keys0[base + place] = k;\n    $positions0[base + place] = position;" if passes > 1 else write)
    w.function(f"sort_count_first{mark}", threads, _COUNT.replace("$begins", "const int shift = 0;"))
    w.function(f"sort_move_first{mark}", threads, _MOVE)
    if passes > 1:
        def turn(odd: str, even: str) -> str:
            return f"(pass & 1 ? {odd} : {even})" if passes > 2 else odd if odd.endswith("0") else even
        w.constants(read="from_keys[(long long)row * $n + begin + i]", position="from_positions[base + from]", begins=_NEXT + "0;" + _FROM,
                    from_keys=turn("$keys0", "$keys1"), from_positions=turn("$positions0", "$positions1"), to_keys=turn("$keys1", "$keys0"),
                    to_positions=turn("$positions1", "$positions0"),
                    write="if (pass < $passes - 1) {\n      $to_keys[base + place] = k;\n      $to_positions[base + place] = position;\n    } else {\n      "
                          + write + "\n    }")
        w.function(f"sort_count{mark}", threads, _COUNT)
        w.constants(begins=_NEXT + "1;" + _FROM)
        w.function(f"sort_move{mark}", threads, _MOVE)
    for p in range(passes):
        w.launch(f"sort_count{mark}" if p else f"sort_count_first{mark}", count * tiles, threads)
        w.launch(f"sort_sums{mark}", count * DIGITS // (THREADS // 32), THREADS)
        w.launch(f"sort_move{mark}" if p else f"sort_move_first{mark}", count * tiles, threads)


# Rows that a block sorts at once
_ALONE = """
  __shared__ Key key[$gapped];
  __shared__ unsigned short order[$gapped];
  __shared__ unsigned long long counts[4 * $threads];
  __shared__ unsigned long long warps[$threads / 32];
  const int me = (int)threadIdx.x, begin = 0;
  #pragma unroll
  for (int e = 0; e < $each; e++) {
    const int i = e * $threads + me;
    key[gapped(i)] = i < $n ? $read : $all;
  }
  __syncthreads();
  #pragma unroll 1
  for (int shift = 0; shift < $bits; shift += 4) sort_digit<$threads, $each>(key, order, counts, warps, shift, shift == 0);
  for (int place = me; place < $n; place += $threads) {
    const Key k = key[gapped(place)];
    const int position = order[gapped(place)];
    $write
  }"""


def alone(itemsize: int) -> int:
    """How many keys a block sorts by itself."""
    return 2048 if itemsize == 8 else 4096


def by_a_block(w: Written, bits: int, itemsize: int, n: int, read: str, write: str, mark: str = "") -> None:
    """The launch that sorts up to `alone` keys; read and write as for `by_digits`."""
    threads = next(t for t in (64, 128, 256, 512) if t * 8 >= n)
    _tile(w, threads, 8)
    w.words(n=n)
    w.constants(bits=w.word(bits), read=read, write=write)
    w.function(f"sort_few{mark}", threads, _ALONE)
    w.launch(f"sort_few{mark}", 1, threads)
