"""How a Fourier transform along one axis is carried out: which operations of `kernels.llvm.handwritten.fourier.program`, in which memory.

A column of n elements, a transform a lane, takes a pass for each factor of n (`Column`).  A single transform whose numbers lie side by side is
made of columns too: n = n1 n2 as a matrix, its columns of n1 elements first, times twiddle factors, then its rows, as columns of n2 elements
(Bailey, "FFTs in external or hierarchical memory", 1990).  A size with a large prime factor becomes a convolution of a size without (Bluestein,
"A linear filtering approach to the computation of the discrete Fourier transform", 1970).

Steps are in bytes.  Twiddle factors are worked out in float64, from angles below an eighth of a turn.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from ...kernels.llvm.handwritten.fourier import moves, passes, program
from ...kernels.llvm.handwritten.fourier.passes import LARGEST, lanes_of
from ...kernels.llvm.handwritten.fourier.program import LOOP_SOURCE, LOOP_TARGET, MINE, NOWHERE, SOURCE, Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype
    from ...kernels.llvm.handwritten.fourier.program import Slot, Word

    Side = tuple[str, Slot, int]  # the kind of a column, where it begins, bytes from element to element

# cycles that an element of a column takes in a pass of this radix, about: with twiddle factors, and in the last pass, which has none
_COST = {2: (4.0, 2.5), 3: (3.9, 2.7), 4: (3.6, 2.8), 5: (4.4, 3.2), 6: (5.0, 3.6), 7: (5.4, 4.0), 8: (4.4, 3.1), 9: (5.9, 4.2), 10: (6.3, 4.4),
         12: (5.5, 4.1)}
_PASS = 40.0  # cycles that a pass takes besides


LARGE = 1 << 17  # numbers of a table, or of a launch's tables, that are not kept for ever


class Numbers:
    """The type of a transform, what its numbers are multiplied by, and the tables that its operations read.

    sign: -1.0 where the imaginary parts of what is read are to change their sign; scale: for the parts of what is written.
    """

    __slots__ = ("d", "lanes", "pair", "row", "sign", "scale", "tables")

    def __init__(self, d: dtype, sign: float = 1.0, scale: tuple[float, float] = (1.0, 1.0)) -> None:
        self.d, self.sign, self.scale = d, sign, scale
        self.lanes = lanes_of(d.itemsize)
        self.pair = 2 * d.itemsize  # a complex number
        self.row = self.lanes * self.pair  # an element of a column
        self.tables: list[Any] = []

    def but(self, sign: float = 1.0, scale: tuple[float, float] = (1.0, 1.0)) -> Numbers:
        """The same with other factors; tables are kept together."""
        made = Numbers(self.d, sign, scale)
        made.tables = self.tables
        return made

    def table(self, values: Any) -> int:
        """The address of a complex table in the transform's type, which lives as long as the launch."""
        self.tables.append(values)
        return int(values.__array_interface__["data"][0])


def _kept(most: int, size: Callable[..., int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Keeps the last `most` results of a function that makes tables, but for tables of LARGE numbers or more: who asks keeps those."""
    def wrap(make: Callable[..., Any]) -> Callable[..., Any]:
        kept = lru_cache(most)(make)
        return lambda *args: (kept if size(*args) < LARGE else make)(*args)
    return wrap


def roots(n: int, k: Any) -> Any:
    """exp(-2 pi i k / n) of integers, as complex128."""
    import numpy as np
    k = k % n
    quarter = (8 * k // n + 1) // 2
    angle = np.pi * (8 * k - 2 * quarter * n) / (4 * n)
    c, s = np.cos(angle), np.sin(angle)
    out = np.empty(k.shape, np.complex128)
    turn = quarter % 4
    for q, (re, im) in enumerate(((c, s), (-s, c), (-c, -s), (s, -c))):
        at = turn == q
        out.real[at], out.imag[at] = re[at], -im[at]
    return out


def _typed(values: Any, item: int) -> Any:
    import numpy as np
    return np.ascontiguousarray(values, np.complex64 if item == 4 else np.complex128)


@_kept(256, lambda item, radix, m: radix * m)
def _pass_table(item: int, radix: int, m: int) -> Any:
    import numpy as np
    return _typed(roots(radix * m, np.arange(m)[:, None] * np.arange(1, radix)[None, :]), item)


@_kept(64, lambda item, radix: radix * radix // 4)
def _odd_table(item: int, radix: int) -> Any:
    import numpy as np
    half = np.arange(1, radix // 2 + 1)
    return _typed(roots(radix, half[:, None] * half[None, :]).conj(), item)


def split(values: Any, lanes: int) -> Any:
    """Rows of complex numbers as blocks of lanes: their real parts, then their imaginary parts."""
    import numpy as np
    rows, n = values.shape
    blocks = width(n, lanes)
    out = np.zeros((rows, blocks, 2, lanes), np.float32 if values.dtype == np.complex64 else np.float64)
    for part, x in enumerate((values.real, values.imag)):
        whole = np.zeros((rows, blocks * lanes), out.dtype)
        whole[:, :n] = x
        out[:, :, part] = whole.reshape(rows, blocks, lanes)
    return out


@_kept(64, lambda item, n1, n2: n1 * n2)
def _turn_table(item: int, n1: int, n2: int) -> Any:
    import numpy as np
    return split(_typed(roots(n1 * n2, np.arange(n1)[:, None] * np.arange(n2)[None, :]), item), lanes_of(item))


@cache
def factors(n: int) -> tuple[int, ...]:
    """The radices of a column of n elements, in the order of their passes, as cost least; () where n has a prime factor above LARGEST."""
    return (1,) if n == 1 else _passes(n, 1)[1]


@cache
def _passes(n: int, last: int) -> tuple[float, tuple[int, ...]]:
    """The cheapest passes of n elements, and what they cost an element.  last: 1 where the last one is the column's last."""
    if n == 1:
        return 0.0, ()
    found: tuple[float, tuple[int, ...]] = (float("inf"), ())
    for r in (*_COST, *(p for p in _powers(n) if 7 < p <= LARGEST)):
        if n % r == 0:
            before, radices = _passes(n // r, 0)
            here = before + _PASS / 64 + (_COST[r][last] if r in _COST else 4 + 0.8 * r)
            if here < found[0]:
                found = here, (*radices, r)
    return found


@cache
def cost(n: int) -> float:
    """Cycles of a column of n elements, about."""
    if n == 1:
        return _PASS
    return sum(n * (_COST[r][i == len(factors(n)) - 1] if r in _COST else 4 + 0.8 * r) + _PASS for i, r in enumerate(factors(n)))


@cache
def halves(n: int, lanes: int) -> tuple[int, int] | None:
    """The factors (n1, n2) that a single transform is best split by; None where it cannot be."""
    if not factors(n):
        return None
    pairs = [(a, n // a) for a in _divisors(n)]
    return min(pairs, key=lambda p: split_cost(p[0], p[1], lanes))


def split_cost(n1: int, n2: int, lanes: int) -> float:
    """Cycles of a transform split in columns of n1 elements and rows of n2, about."""
    return 0.87 * (width(n2, lanes) * (cost(n1) + 4.5 * n1 + 50) + width(n1, lanes) * (cost(n2) + 7 * n2 + 70))


def _divisors(n: int) -> list[int]:
    made = [1]
    for p, k in _powers(n).items():
        made = [a * p ** i for a in made for i in range(k + 1)]
    return sorted(made)


def _powers(n: int) -> dict[int, int]:
    found: dict[int, int] = {}
    p = 2
    while p * p <= n:
        while n % p == 0:
            found[p] = found.get(p, 0) + 1
            n //= p
        p += 1
    if n > 1:
        found[n] = found.get(n, 0) + 1
    return found


def width(n: int, lanes: int) -> int:
    """How many blocks of lanes n numbers take."""
    return -(-n // lanes)


def column_bytes(x: Numbers, n: int) -> int:
    """What a column in memory of our own takes, with what moves write beyond its end."""
    return (n + x.lanes) * x.row


def column(x: Numbers, n: int, source: Side, target: Side, memory: int, ahead: int = 0) -> list[Operation]:
    """The passes of a column of n elements.  memory: where two columns' room begins in the task's own memory; what is read may be the first.
    ahead: how far on in a tensor lies what is read soon; 0 for what is no tensor's."""
    radices = factors(n)
    rooms = (MINE, memory), (MINE, memory + column_bytes(x, n))
    made, s = [], 1
    kind, place, step = source
    for i, r in enumerate(radices):
        m = n // (s * r)
        last = i == len(radices) - 1
        to_kind, to, to_step = target if last else ("S", rooms[0 if place == rooms[1] or i == 0 and place != rooms[0] else 1], x.row)
        table = 0 if m == 1 else x.table(_pass_table(x.d.itemsize, r, m))
        words: list[Word] = [m, s, table, step, to_step, x.sign, *x.scale, ahead]
        if r not in passes.RADICES:
            words += [r, x.table(_odd_table(x.d.itemsize, r))]
        made.append(Operation(passes.address(x.d, r, kind, to_kind), place, to, words))
        kind, place, step = "S", to, to_step
        s *= r
    return made


def move(x: Numbers, name: str, source: Slot, target: Slot, count: int, row: int = 0, step: int = 0, fill: int = 0, table: int = 0) -> Operation:
    """An operation of `moves`."""
    return Operation(moves.address(x.d, name), source, target, [count, row, step, x.sign, *x.scale, fill, table])


def first_half(x: Numbers, n1: int, n2: int, source: Slot, target: Slot, memory: int, ahead: int) -> list[Operation]:
    """A block of the columns of a transform that is split: n1 elements, n2 numbers apart, times twiddle factors."""
    return column(x.but(x.sign), n1, ("I", source, n2 * x.pair), ("T", target, width(n2, x.lanes) * x.row), memory, ahead)


def second_half(x: Numbers, n1: int, n2: int, source: Slot, target: Slot, memory: int) -> list[Operation]:
    """A block of its rows, as columns of n2 elements, which come to lie n1 numbers apart."""
    rows = move(x, "turn", source, (MINE, memory), n2, width(n2, x.lanes) * x.row)
    return [rows, *column(x.but(1.0, x.scale), n2, ("S", (MINE, memory), x.row), ("I", target, n1 * x.pair), memory)]


def turn_table(x: Numbers, n1: int, n2: int) -> int:
    """The address of the twiddle factors between the halves."""
    return x.table(_turn_table(x.d.itemsize, n1, n2))


def row(x: Numbers, n: int, source: Slot, target: Slot, memory: int) -> tuple[list[Operation], int]:
    """A transform of n numbers that lie side by side; and what memory it needs from `memory` on."""
    parts = halves(n, x.lanes)
    if parts is None:
        return _bluestein(x, n, source, target, memory)
    n1, n2 = parts
    step = width(n2, x.lanes) * x.row
    between = n1 * step
    own = memory + between
    room = 2 * max(column_bytes(x, n1), column_bytes(x, n2))
    first = program.loop(x.d, width(n2, x.lanes), n2, (*source, x.row), (MINE, memory, x.row), (NOWHERE, turn_table(x, n1, n2), x.row),
                             first_half(x, n1, n2, (LOOP_SOURCE, 0), (LOOP_TARGET, 0), own, n * x.pair if source[0] == SOURCE else 0))
    second = program.loop(x.d, width(n1, x.lanes), n1, (MINE, memory, x.lanes * step), (*target, x.row), (NOWHERE, 0, 0),
                              second_half(x, n1, n2, (LOOP_SOURCE, 0), (LOOP_TARGET, 0), own))
    return [first, second], between + room


@_kept(64, lambda item, n, m: n + m)
def _chirps(item: int, n: int, m: int) -> tuple[Any, Any]:
    """exp(-pi i k k / n), and the transform of the filter, over m."""
    import numpy as np
    k = np.arange(n, dtype=np.int64)
    chirp = roots(2 * n, k * k % (2 * n))
    filter_ = np.zeros(m, np.complex128)
    filter_[:n] = chirp.conj()
    filter_[m - n + 1:] = chirp.conj()[:0:-1]
    return _typed(chirp, item), _typed(np.fft.fft(filter_) / m, item)


@cache
def convolution_size(n: int, lanes: int) -> int:
    """The cheapest size of at least 2 n - 1 for Bluestein's algorithm."""
    low = 2 * n - 1
    best, least = 0, 0.0
    top = 1 << (low - 1).bit_length()
    for three in (1, 3, 9, 27):
        for five in (1, 5, 25):
            m = three * five
            while m < low:
                m *= 2
            if m <= top and m % 16 == 0 or m == top:
                c = split_cost(*(halves(m, lanes) or (1, m)), lanes)
                if not best or c < least:
                    best, least = m, c
    return best


def _bluestein(x: Numbers, n: int, source: Slot, target: Slot, memory: int) -> tuple[list[Operation], int]:
    m = convolution_size(n, x.lanes)
    chirp, filter_ = _chirps(x.d.itemsize, n, m)
    chirp_at, filter_at = x.table(chirp), x.table(filter_)
    one, two = (MINE, memory), (MINE, memory + m * x.pair)
    own = memory + 2 * m * x.pair
    plain = x.but()
    there, size = row(plain, m, one, two, own)
    back, _ = row(plain, m, one, two, own)
    return [move(x.but(x.sign), "times", source, one, n, fill=m, table=chirp_at), *there,
            move(x.but(1.0, (1.0, -1.0)), "times", two, one, m, table=filter_at), *back,
            move(x.but(-1.0, x.scale), "times", two, target, n, table=chirp_at)], 2 * m * x.pair + size


def flops(n: int) -> float:
    """Operations of a complex transform of n numbers, as they are usually counted."""
    return 5.0 * n * max(n - 1, 1).bit_length()


def rows_or_lanes(n: int, rows: int, lanes: int) -> str:
    """Whether rows of n numbers are better transformed one after another, "row", or as many at a time as there are lanes, "lanes"."""
    parts = halves(n, lanes)
    if parts is None:
        return "row"
    # columns of all lanes leave the nearest cache, then the next one; a single transform seldom does
    slow = 1.0 if n <= 64 else 1.5 if n <= 128 else 1.8 if n <= 256 else 2.1
    side_by_side = (cost(n) + 13 * n + 60) * slow * (-(-rows // lanes) / rows)
    return "lanes" if side_by_side <= split_cost(*parts, lanes) + 80 else "row"


@_kept(64, lambda item, h, back: h // 2)
def _half_factors(item: int, h: int, back: bool) -> Any:
    """What `real` multiplies by: the factors, or their halves."""
    import numpy as np
    made = roots(2 * h, np.arange(1, h // 2 + 1))
    return _typed(made if back else made / 2, item)


@_kept(64, lambda item, h, back: h // 2)
def _half_blocks(item: int, h: int, back: bool) -> Any:
    return split(_half_factors(item, h, back)[None], lanes_of(item))


def half_table(x: Numbers, h: int, back: bool) -> int:
    """The address of the factors of a real transform in columns, of length 2 h."""
    return x.table(_half_factors(x.d.itemsize, h, back))


def half_row_table(x: Numbers, h: int, back: bool) -> int:
    """The same for rows."""
    return x.table(_half_blocks(x.d.itemsize, h, back))
