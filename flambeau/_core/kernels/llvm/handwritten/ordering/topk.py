"""Selection without sorting the row: the first k elements in order, the k-th, medians; and the most frequent element.

For a handful, the first so far are kept in order, and whatever comes before the last of them is put into its place.  For a small k, elements below a
threshold go into a buffer.  When the buffer is full, its first k are kept, and the last of them is the new threshold.  The k-th element of a
long row is found digit by digit, the highest digit first, among the elements whose higher digits match.  For a large k, the k-th is found in that way, and
all elements before it are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....specs import PARTED
from ..code import Code
from . import keys, order, sorting
from .sorting import OWN, Job, Rows, after_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .....dtypes import dtype
    from ...emit import Module
    from ..code import Value

    Sizes = tuple[int, ...]

BLOCK = 256  # elements whose keys are made at a time
_KEPT = 128  # elements that are kept at least
_FEW = 256  # elements of a row that is sorted rather than selected from
_HANDFUL, _SHORT = 8, 24  # elements that are kept in order; of a row that is sorted rather than selected from even for so few
_SMALL = 32  # elements that are collected behind a threshold; of more, the last is found first


def worth(n: int, k: int) -> bool:
    """Whether the first k of n are had sooner by selecting than by sorting."""
    return n > (_SHORT if k <= _HANDFUL else _FEW) and 0 < 4 * k <= n


# ------------------------------------------------------------------------------------------------------------- the first k
def first(d: dtype, domain: Sizes, strides: Sequence[Sizes], descending: bool, k: int) -> tuple[Callable[..., None], int, int]:
    """``entry(values, places, source[, workspace])``, the bytes of its workspace, and those it goes through: the first k elements of each
    row in order; `worth` says of which rows."""
    n, bits = domain[-1], 8 * d.itemsize
    if k <= _HANDFUL:
        job = Job(d, domain, strides, descending, k, order.key_bytes(BLOCK, bits) + order.key_bytes(k, bits) + order.key_bytes(k, 32))
        return job.entry(sorting.functions("handful", bits, ("flambeau_handful",), write_handful)["flambeau_handful"]), job.workspace, job.nbytes
    many = k > _SMALL
    most = max(2 * k, _KEPT)
    kept = k if many else most + BLOCK
    room = order.key_bytes(BLOCK, bits) + 2 * (order.key_bytes(kept, bits) + order.key_bytes(kept, 32)) + order.work_bytes(kept)
    if many:
        room += _room_of_many(n, bits)
    job = Job(d, domain, strides, descending, k, room, (k - 1 if many else most, 0))
    found = sorting.functions("first", bits, ("flambeau_first_few", "flambeau_first_many"), write_first)
    return job.entry(found["flambeau_first_many" if many else "flambeau_first_few"]), job.workspace, job.nbytes


def write_first(module: Module, bits: int) -> None:
    sorting.write_basics(module, bits)
    _write_rank(module)
    _write_bin(module)
    _write_many(module, bits)
    _write_squeeze(module, bits)
    _write_collect(module, bits)
    _write_put(module, bits)
    _write_first_few(module, bits)
    _write_first_many(module, bits)


def write_handful(module: Module, bits: int) -> None:
    sorting.write_basics(module, bits)
    _write_insert(module, bits)
    _write_keep(module, bits)
    _write_put(module, bits)
    size, t = bits // 8, f"i{bits}"
    r = Rows(module, "flambeau_handful", bits)
    c = r.code
    with r.each() as (values, places, source, work):
        found = work + order.key_bytes(BLOCK, bits)
        at = found + after_keys(r.width, bits)
        with c.span(0, r.n, step=BLOCK) as v:
            many = c.least(r.n - v.i, BLOCK)
            c.function("void", "keys", source + v.i * r.source_step, r.source_step, many, work, r.block)
            with c.span(0, c.pick(v.i.equals(0), r.width, c.ints(0))) as first:
                key = work + first.i * size
                c.function("void", "insert", found, at, first.i, key.load(t), first.i.to("i32"))
                key.store(c.constant(t, -1))  # behind all others from now on
            c.function("void", "keep", work, many, v.i, found, at, r.width)
        c.function("void", "put", at, values, places, source, r.block)
    r.finish()


def _write_insert(module: Module, bits: int) -> None:
    """@insert(keys, positions, n, key, position): puts a key into its place among n in order, behind those equal to it."""
    size, t = bits // 8, f"i{bits}"
    c = Code(module, "internal void", "insert", "ptr", "ptr", "i64", t, "i32")
    found, at, n, key, position = c.given

    def comes_before(i: Value) -> Value:
        return (c.ints(0) < i) & key.below((found + (i - 1) * size).load(t))
    with c.when(comes_before(n), n) as some:
        with c.repeat(n) as v:
            i = v.vars[0] - 1
            (found + v.vars[0] * size).store((found + i * size).load(t))
            (at + v.vars[0] * 4).store((at + i * 4).load("i32"))
            v.next, v.more = [i], comes_before(i)
        some.next = v.next
    (found + some.vars[0] * size).store(key)
    (at + some.vars[0] * 4).store(position)
    c.back()
    c.finish()


def _write_keep(module: Module, bits: int) -> None:
    """@keep(block, n, from, keys, positions, width): puts those of n keys that come before the last of so many into their places."""
    lanes, size, t = 512 // bits, bits // 8, f"i{bits}"
    c = Code(module, "internal void", "keep", "ptr", "i64", "i64", "ptr", "ptr", "i64")
    block, n, start, found, at, width = c.given
    last, places = found + (width - 1) * size, c.lane_count(t, lanes)
    with c.span(0, n, last.load(t), step=lanes) as v:
        inside = places.below(c.least(n - v.i, lanes).to(t).spread(lanes))
        hits = ((block + v.i * size).load(f"<{lanes} x {t}>").below(v.vars[0].spread(lanes)) & inside).bits(f"i{lanes}")
        with c.when(hits.differs(0), v.vars[0]) as some:
            with c.repeat(hits) as each:
                mask = each.vars[0]
                i = v.i + c.built_in("cttz", mask, "true").to("i64")
                key = (block + i * size).load(t)
                with c.when(key.below(last.load(t))):
                    c.function("void", "insert", found, at, width - 1, key, (start + i).to("i32"))
                each.next = [mask & (mask - 1)]
                each.more = each.next[0].differs(0)
            some.next = [last.load(t)]
        v.next = [some.vars[0]]
    c.back()
    c.finish()


def _write_first_few(module: Module, bits: int) -> None:
    size = bits // 8
    r = Rows(module, "flambeau_first_few", bits)
    c = r.code
    most = c.number(r.block, OWN)
    kept = most + BLOCK
    with r.each() as (values, places, source, work):
        block = work
        found = block + order.key_bytes(BLOCK, bits)
        spare = found + after_keys(kept, bits)
        at = spare + after_keys(kept, bits)
        spare_at = at + after_keys(kept, 32)
        room = spare_at + after_keys(kept, 32)
        start = c.least(r.n, most)
        c.function("void", "keys", source, r.source_step, start, found, r.block)
        with c.span(0, start) as v:
            (at + v.i * 4).store(v.i.to("i32"))
        c.function("void", "squeeze", found, at, start, r.width, spare, spare_at, room)
        with c.span(start, r.n, r.width, step=BLOCK) as v:
            many = c.least(r.n - v.i, BLOCK)
            c.function("void", "keys", source + v.i * r.source_step, r.source_step, many, block, r.block)
            bound = (found + (r.width - 1) * size).load(f"i{bits}")
            count = c.function("i64", "collect", block, many, bound, v.i, c.ints(-1), found, at, v.vars[0])
            with c.when(most < count, count) as full:
                c.function("void", "squeeze", found, at, count, r.width, spare, spare_at, room)
                full.next = [r.width]
            v.next = [full.vars[0]]
        with c.when(r.width < v.vars[0]):
            c.function("void", "squeeze", found, at, v.vars[0], r.width, spare, spare_at, room)
        c.function("void", "put", at, values, places, source, r.block)
    r.finish()


def _write_first_many(module: Module, bits: int) -> None:
    r = Rows(module, "flambeau_first_many", bits)
    c = r.code
    with r.each() as (values, places, source, work):
        block = work
        found = block + order.key_bytes(BLOCK, bits)
        spare = found + after_keys(r.width, bits)
        at = spare + after_keys(r.width, bits)
        spare_at = at + after_keys(r.width, 32)
        room = spare_at + after_keys(r.width, 32)
        # the last of those that are wanted; of elements equal to it, those ahead of it are too
        last = c.function("i64", "of_many", source, r.source_step, r.n, room, r.block)
        bound = r.keys.of((source + last * r.source_step).load(f"i{bits}"))
        with c.span(0, r.n, c.ints(0), step=BLOCK) as v:
            many = c.least(r.n - v.i, BLOCK)
            c.function("void", "keys", source + v.i * r.source_step, r.source_step, many, block, r.block)
            v.next = [c.function("i64", "collect", block, many, bound, v.i, last, found, at, v.vars[0])]
        c.function("void", "squeeze", found, at, r.width, r.width, spare, spare_at, room)
        c.function("void", "put", at, values, places, source, r.block)
    r.finish()


def _write_put(module: Module, bits: int) -> None:
    """@put(positions, values, places, source, block): the elements at so many positions."""
    c = Code(module, "internal void", "put", "ptr", "ptr", "ptr", "ptr", "ptr")
    at, values, places, source, block = c.given
    width, value_step, place_step, source_step = (c.number(block, w) for w in range(sorting.WIDTH, sorting.SOURCE_STEP + 1))
    with c.span(0, width, values, places) as v:
        position = (at + v.i * 4).load("i32").to("i64")
        v.vars[1].store(position)
        v.vars[0].store((source + position * source_step).load(f"i{bits}"))
        v.next = [v.vars[0] + value_step, v.vars[1] + place_step]
    c.back()
    c.finish()


def _write_squeeze(module: Module, bits: int) -> None:
    """@squeeze(keys, positions, n, k, spare keys, spare positions, work): keeps the k first of n, in order."""
    c = Code(module, "internal void", "squeeze", "ptr", "ptr", "i64", "i64", "ptr", "ptr", "ptr")
    found, at, n, k, spare, spare_at, work = c.given
    size = bits // 8
    pairs = c.function("ptr", "order", found, n, work)
    with c.span(0, k) as v:
        i = (pairs + v.i * 8).load("i64") & 0xFFFFFFFF
        (spare + v.i * size).store((found + i * size).load(f"i{bits}"))
        (spare_at + v.i * 4).store((at + i * 4).load("i32"))
    with c.span(0, k) as v:
        (found + v.i * size).store((spare + v.i * size).load(f"i{bits}"))
        (at + v.i * 4).store((spare_at + v.i * 4).load("i32"))
    c.back()
    c.finish()


def _write_collect(module: Module, bits: int) -> None:
    """@collect(block, n, bound, from, last, keys, positions, count): appends the keys below the bound, those equal to it up to position
    `last`, and their positions; how many there are then."""
    c = Code(module, "internal i64", "collect", "ptr", "i64", f"i{bits}", "i64", "i64", "ptr", "ptr", "i64")
    block, n, bound, start, last, found, at, count = c.given
    lanes, size = 512 // bits, bits // 8
    t = f"i{bits}"
    bounds, places = bound.spread(lanes), c.lane_count(t, lanes)

    def first_lanes(many: Value) -> Value:
        return places.below(c.pick(many < 0, c.ints(0), c.least(many, lanes)).to(t).spread(lanes))
    with c.span(0, n, count, step=lanes) as v:
        block_keys = (block + v.i * size).load(f"<{lanes} x {t}>")
        hits = (block_keys.below(bounds) & first_lanes(n - v.i)) | (block_keys.equals(bounds) & first_lanes(c.least(n - v.i, last - start - v.i + 1)))
        hits = hits.bits(f"i{lanes}")
        with c.when(hits.differs(0), v.vars[0]) as some:
            with c.repeat(hits, v.vars[0]) as each:
                mask, now = each.vars
                i = v.i + c.built_in("cttz", mask, "true").to("i64")
                (found + now * size).store((block + i * size).load(t))
                (at + now * 4).store((start + i).to("i32"))
                each.next = [mask & (mask - 1), now + 1]
                each.more = each.next[0].differs(0)
            some.next = [each.vars[1]]
        v.next = [some.vars[0]]
    c.back(v.vars[0])
    c.finish()


# ------------------------------------------------------------------------------------------------------------- one element
_MIDDLE = {"": 0, "median": 1, "nanmedian": 2}


def element(d: dtype, domain: Sizes, strides: Sequence[Sizes], k: int, which: str) -> tuple[Callable[..., None], int, int]:
    """``entry(values, places, source[, workspace])``, the bytes of its workspace, and those it goes through: see `specs.Element`."""
    n, bits = domain[-1], 8 * d.itemsize
    sorted_room = order.key_bytes(n, bits) + order.work_bytes(n)
    if which == "mode":
        job = Job(d, domain, strides, False, 1, sorted_room)
        return job.entry(sorting.functions("mode", bits, ("flambeau_mode",), write_mode)["flambeau_mode"]), job.workspace, job.nbytes
    if not which and n <= PARTED:
        job = Job(d, domain, strides, False, 1, order.key_bytes(n, bits) + order.key_bytes(n, 32), (k,))
        return job.entry(sorting.functions("kth", bits, ("flambeau_kth",), write_kth)["flambeau_kth"]), job.workspace, job.nbytes
    job = Job(d, domain, strides, False, 1, _room_of_many(n, bits), ((n - 1) // 2 if which else k, _MIDDLE[which] if d.kind == "f" else 0))
    return job.entry(sorting.functions("element", bits, ("flambeau_element",), write_element)["flambeau_element"]), job.workspace, job.nbytes


def _room_of_many(n: int, bits: int) -> int:
    """The keys of a block; those that agree and their positions; what sorts the last of them."""
    return order.key_bytes(BLOCK, bits) + order.key_bytes(n, bits) + order.key_bytes(n, 32) + order.work_bytes(_FEW) + 4096


def write_element(module: Module, bits: int) -> None:
    sorting.write_basics(module, bits)
    _write_rank(module)
    _write_bin(module)
    _write_few(module, bits)
    _write_many(module, bits)
    r = Rows(module, "flambeau_element", bits)
    c = r.code
    few = r.n < _FEW + 1
    with r.each() as (values, places, source, work):
        with c.when(few, c.ints(0)) as short:
            short.next = [c.function("i64", "of_few", source, r.source_step, r.n, work, r.block)]
        with c.when(few ^ 1, short.vars[0]) as long:
            long.next = [c.function("i64", "of_many", source, r.source_step, r.n, work, r.block)]
        position = long.vars[0]
        places.store(position)
        values.store((source + position * r.source_step).load(f"i{bits}"))
    r.finish()


def write_kth(module: Module, bits: int) -> None:
    """The k-th element of short rows.  Of equal elements it is the one that parting the row by pivots finds: C. A. R. Hoare's selection, with
    the median of three as R. Sedgewick chooses it, as PyTorch's positions tell."""
    sorting.write_basics(module, bits)
    _write_part(module, bits)
    r = Rows(module, "flambeau_kth", bits)
    c = r.code
    with r.each() as (values, places, source, work):
        c.function("void", "keys", source, r.source_step, r.n, work, r.block)
        position = c.function("i64", "part", work, work + after_keys(r.n, bits), r.n, c.number(r.block, OWN))
        places.store(position)
        values.store((source + position * r.source_step).load(f"i{bits}"))
    r.finish()


def _write_part(module: Module, bits: int) -> None:
    """@part(keys, positions, n, k): the position of the k-th of n keys, which are reordered."""
    c = Code(module, "internal i64", "part", "ptr", "ptr", "i64", "i64")
    found, at, n, k = c.given
    size, kind = bits // 8, f"i{bits}"

    def key(i: Value) -> Value:
        return (found + i * size).load(kind)

    def exchange(i: Value, j: Value) -> None:
        for place, width, t in ((found, size, kind), (at, 4, "i32")):
            one, other = (place + i * width).load(t), (place + j * width).load(t)
            (place + i * width).store(other)
            (place + j * width).store(one)

    def in_order(i: Value, j: Value) -> None:
        with c.when(key(j).below(key(i))):
            exchange(i, j)
    with c.span(0, n) as v:
        (at + v.i * 4).store(v.i.to("i32"))
    low, high = c.ints(0), n - 1
    with c.when(low + 1 < high, low, high) as several:
        with c.repeat(low, high) as parts:
            left, right = parts.vars
            second = left + 1
            exchange(left + ((right - left) >> 1), second)
            in_order(second, right)
            in_order(left, right)
            in_order(second, left)
            pivot = key(left)
            with c.repeat(second, right) as ends:
                with c.repeat(ends.vars[0]) as up:
                    up.next = [up.vars[0] + 1]
                    up.more = key(up.next[0]).below(pivot)
                with c.repeat(ends.vars[1]) as down:
                    down.next = [down.vars[0] - 1]
                    down.more = pivot.below(key(down.next[0]))
                ends.next = [up.vars[0], down.vars[0]]
                ends.more = (down.vars[0] < up.vars[0]) ^ 1
                with c.when(ends.more):
                    exchange(*ends.next)
            first, last = ends.vars
            exchange(left, last)
            parts.next = [c.pick(k < last, left, first), c.pick(last < k, right, last - 1)]
            parts.more = parts.next[0] + 1 < parts.next[1]
        several.next = parts.vars
    left, right = several.vars
    with c.when(left < right):
        in_order(left, right)
    c.back((at + k * 4).load("i32").to("i64"))
    c.finish()


def _write_rank(module: Module) -> None:
    """@rank(n, nans, block): which element in order is asked for."""
    c = Code(module, "internal i64", "rank", "i64", "i64", "ptr")
    n, nans, block = c.given
    wanted, middle = c.number(block, OWN), c.number(block, OWN + 1)
    numbers = n - nans
    c.back(c.pick(middle.equals(0), wanted,
                  c.pick(middle.equals(1), c.pick(nans.equals(0), wanted, numbers), c.pick(numbers < 1, c.ints(0), (numbers - 1) >> 1))))
    c.finish()


def _write_bin(module: Module) -> None:
    """@bin(counts, rank, found): the digit of the element of this rank, of 256 counts; found: the rank among those that have it, and how
    many they are."""
    c = Code(module, "internal i64", "bin", "ptr", "i64", "ptr")
    counts, rank, found = c.given
    with c.repeat(c.ints(0), rank) as v:
        digit, left = v.vars
        own = (counts + digit * 4).load("i32").to("i64")
        found.store(left)
        (found + 8).store(own)
        v.next = [digit + 1, left - own]
        v.more = (left < own) ^ 1
    c.back(v.vars[0] - 1)
    c.finish()


def _nans(c: Code, k: keys.Keys, found: Value, n: Value) -> Value:
    with c.span(0, n, c.ints(0)) as v:
        v.next = [v.vars[0] + (found + v.i * (k.bits // 8)).load(k.kind).equals(k.nan).to("i64")]
    return v.vars[0]


def _write_few(module: Module, bits: int) -> None:
    """@of_few(source, step, n, work, block): the position of the element that is asked for, in a short row."""
    c = Code(module, "internal i64", "of_few", "ptr", "i64", "i64", "ptr", "ptr")
    source, step, n, work, block = c.given
    c.function("void", "keys", source, step, n, work, block)
    rank = c.function("i64", "rank", n, _nans(c, keys.Keys(c, block, bits), work, n), block)
    pairs = c.function("ptr", "order", work, n, work + order.key_bytes(_FEW, bits))
    c.back((pairs + rank * 8).load("i64") & 0xFFFFFFFF)
    c.finish()


def _write_many(module: Module, bits: int) -> None:
    """@of_many(source, step, n, work, block): the position of the element that is asked for, in a long row."""
    c = Code(module, "internal i64", "of_many", "ptr", "i64", "i64", "ptr", "ptr")
    source, step, n, work, block = c.given
    size, kind = bits // 8, f"i{bits}"
    k = keys.Keys(c, block, bits)
    told = c.array("i64", 2)
    ahead = work
    found = ahead + order.key_bytes(BLOCK, bits)
    at = found + after_keys(n, bits)
    counts = at + after_keys(n, 32)
    room = counts + 1024

    def cleared() -> None:
        with c.span(0, c.ints(1024), step=64) as v:
            (counts + v.i).store(c.constant("<16 x i32>", 0))

    def digit_of(key: Value, shift: Value) -> Value:
        return (key >> shift.to(kind)).to("i64") & 255 if bits < 64 else (key >> shift) & 255

    def tally(key: Value, shift: Value) -> None:
        slot = counts + digit_of(key, shift) * 4
        slot.store(slot.load("i32") + 1)

    def append(key: Value, position: Value, digit: Value, shift: Value, now: Value) -> Value:
        (found + now * size).store(key)
        (at + now * 4).store(position)
        return now + digit_of(key, shift).equals(digit).to("i64")
    # the highest digit, of keys that are made twice
    cleared()
    top = c.ints(bits - 8)
    with c.span(0, n, c.ints(0), step=BLOCK) as b:
        many = c.least(n - b.i, BLOCK)
        c.function("void", "keys", source + b.i * step, step, many, ahead, block)
        with c.span(0, many, b.vars[0]) as v:
            key = (ahead + v.i * size).load(kind)
            tally(key, top)
            v.next = [v.vars[0] + key.equals(k.nan).to("i64")]
        b.next = [v.vars[0]]
    rank = c.function("i64", "rank", n, b.vars[0], block)
    digit = c.function("i64", "bin", counts, rank, told)
    with c.span(0, n, c.ints(0), step=BLOCK) as b:
        many = c.least(n - b.i, BLOCK)
        c.function("void", "keys", source + b.i * step, step, many, ahead, block)
        with c.span(0, many, b.vars[0]) as v:
            v.next = [append((ahead + v.i * size).load(kind), (b.i + v.i).to("i32"), digit, top, v.vars[0])]
        b.next = [v.vars[0]]
    shift, have, rank = top, b.vars[0], told.load("i64")
    # the next digits, of what agrees, until that is little or nothing is left to tell it apart
    more = (c.ints(order.FEW) < have) & (c.ints(0) < shift)
    with c.when(more, shift, have, rank) as deep:
        with c.repeat(shift, have, rank) as level:
            lower, have_now = level.vars[0] - 8, level.vars[1]
            cleared()
            with c.span(0, have_now) as v:
                tally((found + v.i * size).load(kind), lower)
            digit = c.function("i64", "bin", counts, level.vars[2], told)
            with c.span(0, have_now, c.ints(0)) as v:
                v.next = [append((found + v.i * size).load(kind), (at + v.i * 4).load("i32"), digit, lower, v.vars[0])]
            level.next = [lower, v.vars[0], told.load("i64")]
            level.more = (c.ints(order.FEW) < v.vars[0]) & (c.ints(0) < lower)
        deep.next = level.vars
    shift, have, rank = deep.vars
    with c.leave_if(c.ints(order.FEW) < have):  # these are all equal
        c.back((at + rank * 4).load("i32").to("i64"))
    pairs = c.function("ptr", "order", found, have, room)
    c.back((at + ((pairs + rank * 8).load("i64") & 0xFFFFFFFF) * 4).load("i32").to("i64"))
    c.finish()


# ---------------------------------------------------------------------------------------------------- the most frequent one
def write_mode(module: Module, bits: int) -> None:
    sorting.write_basics(module, bits)
    _write_commonest(module, bits)
    r = Rows(module, "flambeau_mode", bits)
    c = r.code
    with r.each() as (values, places, source, work):
        pairs, room = r.ordered(source, work)
        position = c.function("i64", "commonest", pairs, r.n, work, room)
        places.store(position)
        values.store((source + position * r.source_step).load(f"i{bits}"))
    r.finish()


def _write_commonest(module: Module, bits: int) -> None:
    """@commonest(pairs, n, keys, work): where the first of the longest runs of pairs ends."""
    c = Code(module, "internal i64", "commonest", "ptr", "i64", "ptr", "ptr")
    pairs, n, found, work = c.given
    if bits == 64:
        exact = (work + order.EXACT).load("i64").differs(0)
    head = pairs.load("i64")
    with c.span(0, n, head, c.ints(0), c.ints(-1), c.ints(0)) as v:
        before, start, longest, best = v.vars
        pair = (pairs + v.i * 8).load("i64")
        same: Any = (pair >> 32).equals(before >> 32)
        if bits == 64:
            with c.when(same & (exact ^ 1), same) as doubt:
                whole = [(found + (p & 0xFFFFFFFF) * 8).load("i64") for p in (pair, before)]
                doubt.next = [whole[0].equals(whole[1])]
            same = doubt.vars[0]
        begun = c.pick(same, start, v.i)
        length = v.i - begun
        longer = longest < length
        v.next = [pair, begun, c.pick(longer, length, longest), c.pick(longer, pair & 0xFFFFFFFF, best)]
    c.back(v.vars[3])
    c.finish()
