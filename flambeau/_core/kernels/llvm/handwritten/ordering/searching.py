"""Places in sorted rows, and membership: binary searches of many values at once, a vector's lanes side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .... import native
from ....programs import size_of
from ...emit import vec
from ..code import Code, Value
from . import keys, order, rows
from .sorting import functions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .....dtypes import dtype
    from ...emit import Module

    Sizes = tuple[int, ...]

BLOCK = 256  # values that are looked for at a time
_PIECE = 1 << 12  # values that a thread takes at a time
_SHARED = 1 << 12  # values that are worth more threads
_TOGETHER = 2  # vectors whose searches run side by side, since each step of one waits for memory
# the parameter block, behind the words of keys; steps in bytes
(N, RIGHT, COLUMNS, PIECES, OUT_STEP, VALUE_STEP, LEAD) = range(keys.WORDS, keys.WORDS + 7)


def _walk(shape: Sizes, steps: Sequence[Sizes], sizes: Sequence[int], still: int | None = None) -> tuple[int, list[int], list[int]]:
    """The length of the last axis after merging, each operand's step along it in bytes, and the words of @row for the others.

    still: an operand that is at one place for all of that axis.  Where the axis of a row's values has one element, merging leaves it out,
    and the last axis is one of rows."""
    kept, walks = rows.merged(shape, [tuple(x * size for x in s) for s, size in zip(steps, sizes, strict=True)])
    if kept and still is not None and walks[still][-1]:
        kept, walks = (*kept, 1), [(*w, 0) for w in walks]
    if not kept:
        kept, walks = (1,), [(0,) for _ in steps]
    return kept[-1], [w[-1] for w in walks], rows.numbers(kept[:-1], [w[:-1] for w in walks])


def search(d: dtype, result: dtype, shape: Sizes, n: int, strides: tuple[Sizes, Sizes, Sizes], right: bool) -> Callable[..., None]:
    """``entry(out, sequence, values)``: see `specs.Search`.  The sequence's rows have their elements side by side."""
    axes = (*strides[1][:-1], *[0] * (len(shape) - len(strides[1]) + 1))
    if not shape:
        shape, axes, strides = (1,), (0,), ((1,), strides[1], (1,))
    columns, (out_step, _, value_step), lead = _walk(shape, (strides[0], axes, strides[2]), (result.itemsize, d.itemsize, d.itemsize), still=1)
    count, pieces = size_of(shape) // columns, -(-columns // _PIECE)
    words = [*keys.numbers(d), n, int(right), columns, pieces, out_step, value_step, *lead]
    name = f"flambeau_search_{result.name}"
    code = functions("search", 8 * d.itemsize, ("flambeau_search_int32", "flambeau_search_int64"), write)[name]
    total = count * pieces
    return native.make_entry([(code, total, max(1, _PIECE // columns))], words, 3, parallel=total > 1 and size_of(shape) >= _SHARED)


def write(module: Module, bits: int) -> None:
    keys.write(module, bits)
    rows.write(module, 3)
    _write_find(module, bits, raw=True)
    for result in ("i32", "i64"):
        _write_search(module, bits, result)


def _write_search(module: Module, bits: int, result: str) -> None:
    c = Code(module, "void", f"flambeau_search_{result.replace('i', 'int')}", "i64", "i64", "ptr", "ptr")
    begin, end, args, block = c.given
    wanted, found, at = c.array(f"i{bits}", BLOCK + 128), c.array("i32", BLOCK + 64), c.array("i64", 3)
    out, sequence, values = (c.address(args, k) for k in range(3))
    n, right, columns, pieces, out_step, value_step = (c.number(block, k) for k in range(N, LEAD))
    with c.span(begin, end) as task:
        row = task.i.over(pieces)
        to, within, source = rows.offsets(c, row, block + 8 * LEAD, at, 3)
        first = (task.i - row * pieces) * _PIECE
        with c.span(first, c.least(columns, first + _PIECE), step=BLOCK) as v:
            many = c.least(columns - v.i, BLOCK)
            c.function("void", "keys", values + (source + v.i * value_step), value_step, many, wanted, block)
            c.function("void", "find_raw", sequence + within, n, wanted, many, found, right, block)
            with c.span(0, many, out + (to + v.i * out_step)) as w:
                w.vars[0].store((found + w.i * 4).load("i32").to(result))
                w.next = [w.vars[0] + out_step]
    c.back()
    c.finish()


def _write_find(module: Module, bits: int, raw: bool) -> None:
    """@find_raw(elements, n, keys, many, to, right, block): how many of n sorted elements lie before each of many keys; @find_keys, the same of
    keys instead of elements.  An element that is NaN lies before every key."""
    c = Code(module, "internal void", "find_raw" if raw else "find_keys", "ptr", "i64", "ptr", "i64", "ptr", "i64", "ptr")
    elements, n, wanted, many, to, right, block = c.given
    lanes, size, kind = (8, 8, "i64") if bits == 64 else (16, bits // 8, f"i{bits}")
    place = "i64" if bits == 64 else "i32"
    k = keys.Keys(c, block, bits)
    k.spread(lanes)
    after = right.to("i1").spread(lanes)
    none = c.constant(vec(place, lanes), 0)

    odd = k.turned.differs(0).spread(lanes)  # only numbers with a point have a key that is NaN's

    def further(at: Value, key: Value) -> Value:
        got = elements.gather(kind, at)
        if not raw:
            return got.below(key) | (got.equals(key) & after)
        other = k.of(got)
        return other.below(key) | (other.equals(key) & after) | (other.equals(-1) & odd)
    with c.span(0, many, step=lanes * _TOGETHER) as v:
        mine = [(wanted + (v.i + j * lanes) * size).load(vec(kind, lanes)) for j in range(_TOGETHER)]
        with c.when(c.ints(0) < n, *[none] * _TOGETHER) as some:
            count, last = n.to(place).spread(lanes), (n - 1).to(place).spread(lanes)
            # the middle is rounded as PyTorch rounds it, so that rows out of order give its places too
            with c.repeat(n, *[none] * _TOGETHER, *[count] * _TOGETHER) as step:
                left, bases, counts = step.vars[0], step.vars[1:_TOGETHER + 1], step.vars[_TOGETHER + 1:]
                next_bases, next_counts = [], []
                for base, size_left, key in zip(bases, counts, mine, strict=True):
                    half = size_left >> 1
                    middle = base + half  # behind the end for a lane that is done
                    later = further(c.pick(middle.above(last), last, middle), key) & size_left.differs(0)
                    next_bases.append(c.pick(later, middle + 1, base))
                    next_counts.append(c.pick(later, size_left - half - 1, half))
                step.next = [left >> 1, *next_bases, *next_counts]
                step.more = c.ints(0) < step.next[0]
            some.next = step.vars[1:_TOGETHER + 1]
        for j, found in enumerate(some.vars):
            (to + (v.i + j * lanes) * 4).store(found.to("i32"))
    c.back()
    c.finish()


# -------------------------------------------------------------------------------------------------------------- membership
# the parameter block: THOSE is how many there are; NUMBERS says whether the greatest key is a number rather than NaN, which is not even among
# its like; @row's words for the elements lie at the end, and behind them, from B_LEAD on, those for the others
(A_COLUMNS, A_PIECES, TO_STEP, A_STEP, THOSE, B_ROWS, B_COLUMNS, B_STEP, INVERT, NUMBERS, B_LEAD, A_LEAD) = range(keys.WORDS, keys.WORDS + 12)


def among(d: dtype, shape: Sizes, strides: Sizes, those: Sizes, those_strides: Sizes, to: Sizes, invert: bool) -> tuple[Callable[..., None], int]:
    """``entry(out, elements, those, workspace)`` and the bytes of its workspace: see `specs.Among`."""
    item = d.itemsize
    columns, (to_step, step), lead = _walk(shape, (to, strides), (1, item))
    b_columns, (b_step,), b_lead = _walk(those, (those_strides,), (item,))
    m, pieces = size_of(those), -(-columns // _PIECE)
    words = [*keys.numbers(d), columns, pieces, to_step, step, m, m // b_columns if m else 0, b_columns, b_step, int(invert), int(d.kind != "f"),
             A_LEAD + len(lead), *lead, *b_lead]
    found = functions("among", 8 * item, ("flambeau_those", "flambeau_among"), write_among)
    total = size_of(shape) // columns * pieces
    entry = native.make_entry([(found["flambeau_those"], 1, 1), (found["flambeau_among"], total, max(1, _PIECE // columns))], words, 4,
                              parallel=total > 1 and size_of(shape) >= _SHARED)
    return entry, 2 * order.key_bytes(m, 8 * item) + order.work_bytes(m) + 128


def write_among(module: Module, bits: int) -> None:
    keys.write(module, bits)
    rows.write(module, 1)
    rows.write(module, 2)
    order.write(module, bits)
    _write_find(module, bits, raw=False)
    _write_those(module, bits)
    _write_members(module, bits)


def _write_those(module: Module, bits: int) -> None:
    """The keys of those, in order, at the beginning of the workspace."""
    c = Code(module, "void", "flambeau_those", "i64", "i64", "ptr", "ptr")
    _, _, args, block = c.given
    at = c.array("i64", 1)
    those, room = c.address(args, 2), c.address(args, 3)
    m, count, columns, step, lead = (c.number(block, k) for k in (THOSE, B_ROWS, B_COLUMNS, B_STEP, B_LEAD))
    size = bits // 8
    each = (m * size + 191) & -64
    mine = room + each
    with c.span(0, count) as v:
        (source,) = rows.offsets(c, v.i, block + lead * 8, at, 1)
        c.function("void", "keys", those + source, step, columns, mine + v.i * columns * size, block)
    with c.when(c.ints(0) < m):
        pairs = c.function("ptr", "order", mine, m, mine + each)
        with c.span(0, m) as v:
            (room + v.i * size).store((mine + ((pairs + v.i * 8).load("i64") & 0xFFFFFFFF) * size).load(f"i{bits}"))
    c.back()
    c.finish()


def _write_members(module: Module, bits: int) -> None:
    c = Code(module, "void", "flambeau_among", "i64", "i64", "ptr", "ptr")
    begin, end, args, block = c.given
    size = bits // 8
    wanted, found = c.array(f"i{bits}", BLOCK + 128), c.array("i32", BLOCK + 64)
    out, elements, those = (c.address(args, k) for k in (0, 1, 3))
    columns, pieces, to_step, step, m, invert, numbers = (c.number(block, k) for k in (A_COLUMNS, A_PIECES, TO_STEP, A_STEP, THOSE, INVERT, NUMBERS))
    at = c.array("i64", 2)
    with c.span(begin, end) as task:
        row = task.i.over(pieces)
        to, source = rows.offsets(c, row, block + 8 * A_LEAD, at, 2)
        first = (task.i - row * pieces) * _PIECE
        with c.span(first, c.least(columns, first + _PIECE), step=BLOCK) as v:
            many = c.least(columns - v.i, BLOCK)
            c.function("void", "keys", elements + (source + v.i * step), step, many, wanted, block)
            c.function("void", "find_keys", those, m, wanted, many, found, c.ints(0), block)
            with c.span(0, many, out + (to + v.i * to_step)) as w:
                place = (found + w.i * 4).load("i32").to("i64")
                key = (wanted + w.i * size).load(f"i{bits}")
                inside = place < m
                other = (those + c.pick(inside, place, 0) * size).load(f"i{bits}")
                hit = inside & other.equals(key) & (key.differs(-1) | numbers.differs(0))
                w.vars[0].store(hit.to("i8") ^ invert.to("i8"))
                w.next = [w.vars[0] + to_step]
    c.back()
    c.finish()
