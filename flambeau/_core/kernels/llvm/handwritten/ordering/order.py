"""The order of a row's keys: @order, which all sorting is made of.

A sorted row is an array of 64-bit pairs, the key above its position.  Up to `FEW` keys are compared with one another, each counting
those before it; more go through radix passes from the lowest digit up, but for digits that all keys share.  Of 64-bit keys the 32 highest
bits in which they differ go into the pairs; pairs that are equal are put in order by the whole keys, and where that takes long the lower
bits are sorted first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..code import Code

if TYPE_CHECKING:
    from ...emit import Module
    from ..code import Value

FEW = 144  # keys that are compared with one another; their ranks fit into the narrowest of them
COUNTS = 4 * 256 * 4  # bytes of the counts of four digits
EXACT, UPPER = COUNTS, COUNTS + 8  # of keys of 64 bits: whether the pairs hold all bits in which they differ, and the bits above these
HEAD = COUNTS + 64  # bytes ahead of the pairs


def work_bytes(n: int) -> int:
    """Bytes that @order works in."""
    return HEAD + 2 * 8 * (n + 8)


def key_bytes(n: int, bits: int) -> int:
    """Bytes of n keys, with what a vector may reach beyond them."""
    return -(-(n * bits // 8 + 128) // 64) * 64


def write(module: Module, bits: int) -> None:
    """Adds @order(keys, n, work): the pairs of n keys (below 2**31) in order, as an address within `work`."""
    _write_ranks(module, bits)
    _write_passes(module, min(bits // 8, 4))
    if bits == 64:
        _write_wide(module)
    c = Code(module, "internal ptr", "order", "ptr", "i64", "ptr")
    keys, n, work = c.given
    pairs = work + HEAD
    with c.leave_if(n < FEW + 1):
        c.function("void", "ranks", keys, n, work)
        with c.span(0, n) as v:
            rank = (work + v.i * (bits // 8)).load(f"i{bits}").to("i64")
            key = (keys + v.i * (bits // 8)).load(f"i{bits}")
            # of a wide key the pair has what nobody reads: who has so few looks at the keys
            (pairs + rank * 8).store((key.to("i64") << 32) | v.i)
        if bits == 64:
            (work + EXACT).store(0)
        c.back(pairs)
    if bits == 64:
        c.back(c.function("ptr", "order_wide", keys, n, work))
    else:
        with c.span(0, n) as v:
            (pairs + v.i * 8).store(((keys + v.i * (bits // 8)).load(f"i{bits}").to("i64") << 32) | v.i)
        c.back(c.function("ptr", "passes", pairs, pairs + (n + 8) * 8, n, work))
    c.finish()


def _write_ranks(module: Module, bits: int) -> None:
    """@ranks(keys, n, to): how many of n keys (at most FEW) come before each, equal ones by their position."""
    c = Code(module, "internal void", "ranks", "ptr", "i64", "ptr")
    keys, n, to = c.given
    lanes, size, kind = 512 // bits, bits // 8, f"i{bits}"
    t = f"<{lanes} x {kind}>"
    one, none, places = c.constant(t, 1), c.constant(t, 0), c.lane_count(kind, lanes)

    def key(i: Value) -> Value:
        return (keys + i * size).load(kind).spread(lanes)
    with c.span(0, n, step=lanes) as block:
        mine = (keys + block.i * size).load(t)
        with c.span(0, block.i, none) as before:
            before.next = [c.pick(key(before.i).above(mine), before.vars[0], before.vars[0] + one)]
        end = c.least(block.i + lanes, n)
        with c.span(block.i, end, *before.vars) as among:
            other = key(among.i)
            earlier = (among.i - block.i).to(kind).spread(lanes).below(places)
            less = other.below(mine) | (other.equals(mine) & earlier)
            among.next = [c.pick(less, among.vars[0] + one, among.vars[0])]
        with c.span(end, n, *among.vars) as after:
            after.next = [c.pick(key(after.i).below(mine), after.vars[0] + one, after.vars[0])]
        (to + block.i * size).store(after.vars[0])
    c.back()
    c.finish()


def _write_passes(module: Module, digits: int) -> None:
    """@passes(from, to, n, counts): pairs in order by their keys of so many bytes, in one of the two arrays."""
    c = Code(module, "internal ptr", "passes", "ptr", "ptr", "i64", "ptr")
    start, other, n, counts = c.given
    with c.span(0, c.ints(1024 * digits), step=64) as v:
        (counts + v.i).store(c.constant("<16 x i32>", 0))
    with c.span(0, n) as v:  # all digits are counted in one go
        key = (start + v.i * 8 + 4).load("i32")
        for digit in range(digits):
            at = counts + (((key >> 8 * digit) & 255).to("i64") * 4 + 1024 * digit)
            at.store(at.load("i32") + 1)
    first = (start + 4).load("i32")
    now, then = start, other
    for digit in range(digits):
        table = counts + 1024 * digit
        shared = (table + ((first >> 8 * digit) & 255).to("i64") * 4).load("i32").to("i64")
        with c.when(shared.differs(n), now, then) as part:
            with c.span(0, c.ints(256), c.constant("i32", 0)) as s:
                place = table + s.i * 4
                own = place.load("i32")
                place.store(s.vars[0])
                s.next = [s.vars[0] + own]
            with c.span(0, n) as v:
                pair = (now + v.i * 8).load("i64")
                slot = table + ((pair >> 32 + 8 * digit) & 255) * 4
                to = slot.load("i32")
                slot.store(to + 1)
                (then + to.to("i64") * 8).store(pair)
            part.next = [then, now]
        now, then = part.vars
    c.back(now)
    c.finish()


def _write_wide(module: Module) -> None:
    """@order_wide(keys, n, work): @order for more than FEW keys of 64 bits."""
    _write_settle(module)
    c = Code(module, "internal ptr", "order_wide", "ptr", "i64", "ptr")
    keys, n, work = c.given
    pairs = work + HEAD
    others = pairs + (n + 8) * 8
    # the bits in which keys differ
    first = keys.load("i64")
    with c.span(0, n, c.ints(0)) as v:
        v.next = [v.vars[0] | ((keys + v.i * 8).load("i64") ^ first)]
    above = c.built_in("ctlz", v.vars[0], "false")
    shift = c.pick(above < 32, c.ints(32) - above, 0)

    (work + EXACT).store(shift.equals(0).to("i64"))
    (work + UPPER).store(first & -(1 << 32))

    def pack(lower: bool) -> None:
        with c.span(0, n) as v:
            key = (keys + v.i * 8).load("i64")
            key = key & ((c.ints(1) << shift) - 1) if lower else key >> shift
            (pairs + v.i * 8).store((key << 32) | v.i)
    pack(False)
    made = c.function("ptr", "passes", pairs, others, n, work)
    settled = c.function("i64", "settle", keys, made, n)
    with c.leave_if(settled.differs(0) | shift.equals(0)):
        c.back(made)
    pack(True)
    lower = c.function("ptr", "passes", pairs, others, n, work)
    rest = c.pick(lower.cast("ptrtoint", "i64").equals(pairs.cast("ptrtoint", "i64")), others, pairs)
    with c.span(0, n) as v:
        at = (lower + v.i * 8).load("i64") & 0xFFFFFFFF
        (lower + v.i * 8).store((((keys + at * 8).load("i64") >> shift) << 32) | at)
    c.back(c.function("ptr", "passes", lower, rest, n, work))
    c.finish()


def _write_settle(module: Module) -> None:
    """@settle(keys, pairs, n): puts pairs of equal upper bits in order by whole keys, one after the other; 0 where that takes too long."""
    c = Code(module, "internal i64", "settle", "ptr", "ptr", "i64")
    keys, pairs, n = c.given

    def whole(pair: Value) -> Value:
        return (keys + (pair & 0xFFFFFFFF) * 8).load("i64")
    left = c.array("i64", 1)
    left.store(n * 2 + 64)
    with c.span(1, n) as v:
        place = pairs + v.i * 8
        pair, before = place.load("i64"), (place + -8).load("i64")
        with c.when((pair >> 32).equals(before >> 32)):
            key = whole(pair)
            with c.when(key.below(whole(before))):
                with c.repeat(place) as down:
                    lower = down.vars[0] + -8
                    down.vars[0].store((lower).load("i64"))
                    left.store(left.load("i64") - 1)
                    # the pair in front of the row is never asked: its upper bits are another's, or it is the row's end
                    inside = lower.compare("ugt", pairs)
                    front = (c.pick(inside, lower + -8, lower)).load("i64")
                    down.next = [lower]
                    down.more = inside & (front >> 32).equals(pair >> 32) & key.below(whole(front))
                down.vars[0].store(pair)
            with c.leave_if(left.load("i64") < 0):
                c.back(c.ints(0))
    c.back(c.ints(1))
    c.finish()
