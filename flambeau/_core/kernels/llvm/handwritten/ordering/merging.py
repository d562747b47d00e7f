"""One long row sorted by several threads: pieces of it are sorted, then merged two by two, every merge in shares that begin where the
elements that lie before them in order end.  What comes out is the one stable order, however many pieces and threads there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .... import native
from ....programs import size_of
from ..code import Code, Value
from . import keys, order, rows, sorting
from .sorting import LEAD, OWN, PLACE_STEP, ROOM, SOURCE_STEP, VALUE_STEP, N, after_keys, functions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .....dtypes import dtype
    from ...emit import Module

    Sizes = tuple[int, ...]

_LEAST = 1 << 14  # elements of a piece
_SHARE = 1 << 14  # elements that a thread merges at a time
_MOST_LEVELS = 6
_BLOCK = 1 << 10  # pairs that are merged before they are written
# of the kernel's own words, behind whether values are left out
PIECES, LENGTH = OWN + 1, OWN + 2


def pieces(n: int, count: int) -> int:
    """Into how many pieces each of `count` rows of n elements is cut; 1 where it is not."""
    threads, made = native.get_num_threads(), 1
    while made * count < threads and 2 * made * _LEAST <= n and made < 1 << _MOST_LEVELS:
        made *= 2
    return made


def sort(d: dtype, domain: Sizes, strides: Sequence[Sizes], descending: bool, many: int, values: bool) -> tuple[Callable[..., None], int, int]:
    """As `sorting.sort` of whole rows, each in `many` pieces, a power of 2."""
    n, count, bits = domain[-1], size_of(domain[:-1]), 8 * d.itemsize
    length = -(-n // many)
    levels = many.bit_length() - 1
    # the keys, what each piece works in, and two arrays of pairs; ahead of them what @write_values asks
    room = order.HEAD + order.key_bytes(n, bits) + many * order.work_bytes(length) + (16 * (n + 8) if levels > 1 else 0) + 4096
    job = sorting.Job(d, domain, strides, descending, n, room, (int(not values), many, length))
    names = ("flambeau_piece_keys", "flambeau_piece_order", *_levels())
    found = functions("merge", bits, names, write)
    stages = [(found["flambeau_piece_keys"], count * many, 1), (found["flambeau_piece_order"], count * many, 1)]
    for level in range(1, levels + 1):
        shares = (many >> level) * -(-(length << level) // _SHARE)
        stages.append((found[f"flambeau_merge_{'last_' if level == levels else ''}{level}"], count * shares, 1))
    return native.make_entry(stages, job.words, 4, parallel=True), count * job.room, job.nbytes


def _levels() -> list[str]:
    return [f"flambeau_merge_{last}{level}" for level in range(1, _MOST_LEVELS + 1) for last in ("", "last_")]


def write(module: Module, bits: int) -> None:
    sorting.write_basics(module, bits)
    sorting.write_values(module, bits)
    _write_keys(module, bits)
    _write_order(module, bits)
    _write_merge(module, bits)
    _write_level(module, bits)
    for level in range(1, _MOST_LEVELS + 1):
        for last in (0, 1):
            c = Code(module, "void", f"flambeau_merge_{'last_' if last else ''}{level}", "i64", "i64", "ptr", "ptr")
            c.function("void", "level", *c.given, c.ints(level), c.ints(last))
            c.back()
            c.finish()


class _Places:
    """Where things lie in the memory of a row."""

    def __init__(self, c: Code, args: Value, block: Value, row: Value, bits: int) -> None:
        self.c, self.bits = c, bits
        self.n, self.pieces, self.length = (c.number(block, k) for k in (N, PIECES, LENGTH))
        self.head = c.address(args, 3) + row * c.number(block, ROOM)
        self.keys = self.head + order.HEAD
        self.work = self.keys + after_keys(self.n, bits)
        self.each = (self.length + 8) * 16 + order.HEAD
        self.arrays = self.work + self.pieces * self.each

    def piece(self, number: Value) -> tuple[Value, Value, Value]:
        """A piece's first element, how many it has, and its memory."""
        first = number * self.length
        return first, self.c.least(self.n - first, self.length), self.work + number * self.each


def _write_keys(module: Module, bits: int) -> None:
    """The keys of each piece, and of wide ones in which bits they differ from the row's first."""
    c = Code(module, "void", "flambeau_piece_keys", "i64", "i64", "ptr", "ptr")
    begin, end, args, block = c.given
    at = c.array("i64", 3)
    step = c.number(block, SOURCE_STEP)
    k = keys.Keys(c, block, bits)
    with c.span(begin, end) as task:
        row = task.i.over(c.number(block, PIECES))
        p = _Places(c, args, block, row, bits)
        first, many, work = p.piece(task.i - row * p.pieces)
        source = c.address(args, 2) + rows.offsets(c, row, block + 8 * LEAD, at, 3)[2]
        mine = p.keys + first * (bits // 8)
        c.function("void", "keys", source + first * step, step, many, mine, block)
        if bits == 64:
            (work + order.DIFFERENCE).store(order.difference(c, mine, many, k.of(source.load("i64"))))
    c.back()
    c.finish()


def _write_order(module: Module, bits: int) -> None:
    """Each piece in order."""
    c = Code(module, "void", "flambeau_piece_order", "i64", "i64", "ptr", "ptr")
    begin, end, args, block = c.given
    with c.span(begin, end) as task:
        row = task.i.over(c.number(block, PIECES))
        p = _Places(c, args, block, row, bits)
        number = task.i - row * p.pieces
        first, many, work = p.piece(number)
        mine = p.keys + first * (bits // 8)
        if bits == 64:
            with c.span(0, p.pieces, c.ints(0)) as v:
                v.next = [v.vars[0] | (p.work + v.i * p.each + order.DIFFERENCE).load("i64")]
            shift = order.shift_of(c, v.vars[0])
            pairs = c.function("ptr", "order_upper", mine, many, work, shift)
            with c.when(number.equals(0)):
                (p.head + order.EXACT).store(shift.equals(0).to("i64"))
                (p.head + order.UPPER).store(p.keys.load("i64") & -(1 << 32))
        else:
            pairs = c.function("ptr", "order", mine, many, work)
        (work + order.RESULT).store(pairs)
    c.back()
    c.finish()


def _precedes(c: Code, bits: int, b: Value, a: Value, found: Value, exact: Value, valid: Value) -> Value:
    """Whether pair b, of the later run, goes before pair a; their positions are the row's."""
    before = (b >> 32).below(a >> 32)
    if bits < 64:
        return before
    with c.when((b >> 32).equals(a >> 32) & valid & exact.equals(0), before) as alike:
        whole = [(found + (x & 0xFFFFFFFF) * 8).load("i64") for x in (b, a)]
        alike.next = [whole[0].below(whole[1])]
    return alike.vars[0]


def _write_merge(module: Module, bits: int) -> None:
    """@merge(a, n, b, m, base of a, base of b, i, i after, begin, end, to, keys, exact): of the pairs of both runs in order those from `begin`
    to `end`, where i and `i after` of them are a's; from both ends at once, since each step waits for the one before.
    @split(a, n, b, m, bases, count, keys, exact): how many of the first `count` in order are a's."""
    c = Code(module, "internal void", "merge", "ptr", "i64", "ptr", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "ptr", "ptr", "i64")
    a, n, b, m, a_base, b_base, i, i_after, begin, end, to, found, exact = c.given
    count = end - begin
    back = (count >> 1)
    behind = to + count * 8

    def pair(run: Value, at: Value, base: Value) -> Value:
        return (run + at * 8).load("i64") + base

    def forth(k: Value, i_now: Value, j_now: Value) -> tuple[Value, Value]:
        one, two = pair(a, i_now, a_base), pair(b, j_now, b_base)
        left, right = i_now < n, j_now < m
        second = right & (_precedes(c, bits, two, one, found, exact, left & right) | (left ^ 1))
        (to + k * 8).store(c.pick(second, two, one))
        return i_now + (second ^ 1).to("i64"), j_now + second.to("i64")
    with c.span(0, back, i, begin - i, i_after - 1, end - i_after - 1) as v:
        # what lies ahead of a run is not read as a pair: it is not taken
        i_last, j_last = v.vars[2:]
        left, right = c.ints(-1) < i_last, c.ints(-1) < j_last
        one, two = pair(a, c.pick(left, i_last, 0), a_base), pair(b, c.pick(right, j_last, 0), b_base)
        first = left & (_precedes(c, bits, two, one, found, exact, left & right) | (right ^ 1))
        (behind + (v.i + 1) * -8).store(c.pick(first, one, two))
        v.next = [*forth(v.i, *v.vars[:2]), i_last - first.to("i64"), j_last - (first ^ 1).to("i64")]
    with c.when(count.differs(back * 2)):
        forth(back, *v.vars[:2])
    c.back()
    c.finish()
    c = Code(module, "internal i64", "split", "ptr", "i64", "ptr", "i64", "i64", "i64", "i64", "ptr", "i64")
    a, n, b, m, a_base, b_base, count, found, exact = c.given
    low, high = c.pick(count < m, c.ints(0), count - m), c.least(count, n)
    with c.when(low < high, low) as some:
        with c.repeat(low, high) as v:
            middle = (v.vars[0] + v.vars[1]) >> 1
            one, two = (a + middle * 8).load("i64") + a_base, (b + (count - middle - 1) * 8).load("i64") + b_base
            second = _precedes(c, bits, two, one, found, exact, c.constant("i1", 1))
            v.next = [c.pick(second, v.vars[0], middle + 1), c.pick(second, middle, v.vars[1])]
            v.more = v.next[0] < v.next[1]
        some.next = [v.vars[0]]
    c.back(some.vars[0])
    c.finish()


def _write_level(module: Module, bits: int) -> None:
    """@level(begin, end, args, block, level, last): shares of the merges of runs of 2 ** (level - 1) pieces; the last one's go to where the
    results belong."""
    c = Code(module, "internal void", "level", "i64", "i64", "ptr", "ptr", "i64", "i64")
    begin, end, args, block, level, last = c.given
    at, merged = c.array("i64", 3), c.array("i64", _BLOCK)
    value_step, place_step = c.number(block, VALUE_STEP), c.number(block, PLACE_STEP)
    with c.span(begin, end) as task:
        count, length = c.number(block, PIECES), c.number(block, LENGTH)
        span = length << level
        shares = (span + (_SHARE - 1)).over(_SHARE)
        each = (count >> level) * shares
        row = task.i.over(each)
        p = _Places(c, args, block, row, bits)
        within = task.i - row * each
        pair = within.over(shares)
        start = pair * span
        half = length << (level - 1)
        n = c.least(p.n - start, half)
        m = c.least(p.n - start - n, half)
        exact = (p.head + order.EXACT).load("i64") if bits == 64 else c.ints(1)
        # runs of the first level are where pieces were sorted, with positions of their own; later ones lie in one array or the other
        single = level.equals(1)
        left, right = (p.work + (pair * 2 + k) * p.each for k in range(2))
        array = p.arrays + (p.n + 8) * 8 * (level & 1)
        beyond = c.least(start + half, p.n)
        a, b = (c.pick(single, (work + order.RESULT).load("ptr"), array + first * 8) for work, first in ((left, start), (right, beyond)))
        a_base, b_base = c.pick(single, start, 0), c.pick(single, beyond, 0)
        to = p.arrays + (p.n + 8) * 8 * ((level + 1) & 1)
        begun = (within - pair * shares) * _SHARE
        ended = c.least(n + m, begun + _SHARE)
        with c.when(begun < ended):
            i = c.function("i64", "split", a, n, b, m, a_base, b_base, begun, p.keys, exact)
            with c.when(last.equals(0)):
                i_after = c.function("i64", "split", a, n, b, m, a_base, b_base, ended, p.keys, exact)
                c.function("void", "merge", a, n, b, m, a_base, b_base, i, i_after, begun, ended, to + (start + begun) * 8, p.keys, exact)
            with c.when(last.differs(0)):
                values, places, source = (c.address(args, k) + offset for k, offset in
                                          enumerate(rows.offsets(c, row, block + 8 * LEAD, at, 3)))
                with c.span(begun, ended, i, step=_BLOCK) as v:
                    until = c.least(v.i + _BLOCK, ended)
                    i_after = c.function("i64", "split", a, n, b, m, a_base, b_base, until, p.keys, exact)
                    c.function("void", "merge", a, n, b, m, a_base, b_base, v.vars[0], i_after, v.i, until, merged, p.keys, exact)
                    c.function("void", "write_values", merged, until - v.i, values + v.i * value_step, places + v.i * place_step, source, p.head, block)
                    v.next = [i_after]
    c.back()
    c.finish()
