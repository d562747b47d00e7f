"""The order of a row's keys: @order, which all sorting is made of.

A sorted row is an array of 64-bit pairs, the key above its position.  Up to `FEW` keys are compared with one another, each counting
those before it; more go through radix passes from the lowest digit up, but for digits that all keys share.  Of 64-bit keys the 32 highest
bits in which they differ go into the pairs.  Where the highest digits alone are likely to tell most keys apart the passes begin with these.
What the passes leave out of order is put right by comparing neighbours; where that takes long all digits are sorted, from the lowest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..code import Code, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...emit import Module

FEW = 144  # keys that are compared with one another; their ranks fit into the narrowest of them
COUNTS = 4 * 256 * 4  # bytes of the counts of four digits
EXACT, UPPER = COUNTS, COUNTS + 8  # of keys of 64 bits: whether the pairs hold all bits in which they differ, and the bits above these
SKIPPED = COUNTS + 16  # how many of the lowest digits the passes have left out
RESULT, DIFFERENCE = COUNTS + 24, COUNTS + 32  # of a piece: where its pairs are, and `difference`
HEAD = COUNTS + 64  # bytes ahead of the pairs
_LANES = 8  # pairs that are made at a time
_LIKELY = 0.25  # other keys with the same highest digits, for each, with which the lower ones are left to comparing neighbours
_SEVERAL = 1 << 10  # keys for which that is looked into


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
    _write_settle(module, bits)
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
        def packed() -> None:
            _pack(c, pairs, n, lambda i: (keys + i * (bits // 8)).load(f"<{_LANES} x i{bits}>").to("i64"))
        packed()
        made = c.function("ptr", "passes", pairs, pairs + (n + 8) * 8, n, work, c.ints(1))
        with c.when((work + SKIPPED).load("i64").differs(0), made) as part:
            settled = c.function("i64", "settle", keys, made, n)
            with c.when(settled.equals(0), made) as anew:
                packed()
                anew.next = [c.function("ptr", "passes", pairs, pairs + (n + 8) * 8, n, work, c.ints(0))]
            part.next = anew.vars
        c.back(part.vars[0])
    c.finish()


def _pack(c: Code, pairs: Value, n: Value, keys_at: Callable[[Value], Value]) -> None:
    """The pairs of n keys, some at a time: what lies behind the keys may be read, and what lies behind the pairs be written."""
    numbers = c.lane_count("i64", _LANES)
    with c.span(0, n, step=_LANES) as v:
        (pairs + v.i * 8).store((keys_at(v.i) << 32) | (v.i.spread(_LANES) + numbers))


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
    """@passes(from, to, n, work, few): pairs in order by their keys of so many bytes, in one of the two arrays; few: lower digits may be left
    out, SKIPPED of them are."""
    c = Code(module, "internal ptr", "passes", "ptr", "ptr", "i64", "ptr", "i64")
    start, other, n, counts, few = c.given
    with c.span(0, c.ints(1024 * digits), step=64) as v:
        (counts + v.i).store(c.constant("<16 x i32>", 0))
    with c.span(0, n) as v:  # all digits are counted in one go
        key = (start + v.i * 8 + 4).load("i32")
        for digit in range(digits):
            at = counts + (((key >> 8 * digit) & 255).to("i64") * 4 + 1024 * digit)
            at.store(at.load("i32") + 1)
    skipped = counts + SKIPPED
    skipped.store(0)
    if digits > 1:
        with c.when(few.differs(0) & (c.ints(_SEVERAL) < n)):
            skipped.store(_dispensable(c, counts, n, digits))
    left_out = skipped.load("i64")
    first = (start + 4).load("i32")
    now, then = start, other
    for digit in range(digits):
        table = counts + 1024 * digit
        shared = (table + ((first >> 8 * digit) & 255).to("i64") * 4).load("i32").to("i64")
        with c.when(shared.differs(n) & (left_out < digit + 1), now, then) as part:
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


def _dispensable(c: Code, counts: Value, n: Value, digits: int) -> Value:
    """How many of the lowest digits can be left out: those below the highest ones in which few keys are likely to agree."""
    size = n.cast("uitofp", "double")
    one = Value(c, "double", c.op(f"fmul double {size.name}, {size.name}"))
    alike, found, several = size, c.ints(0), c.constant("i1", 1)
    for digit in reversed(range(1, digits)):
        with c.span(0, c.ints(1024), Value(c, "<8 x double>", "zeroinitializer"), step=32) as v:
            x = (counts + 1024 * digit + v.i).load("<8 x i32>").cast("uitofp", "double")
            square = Value(c, x.type, c.op(f"fmul {x.type} {x.name}, {x.name}"))
            v.next = [Value(c, x.type, c.op(f"fadd {x.type} {v.vars[0].name}, {square.name}"))]
        lanes = [Value(c, "double", c.op(f"extractelement <8 x double> {v.vars[0].name}, i64 {k}")) for k in range(8)]
        total = lanes[0]
        for lane in lanes[1:]:
            total = Value(c, "double", c.op(f"fadd double {total.name}, {lane.name}"))
        share = Value(c, "double", c.op(f"fdiv double {total.name}, {one.name}"))
        alike = Value(c, "double", c.op(f"fmul double {alike.name}, {share.name}"))
        enough = alike.compare("olt", Value(c, "double", str(_LIKELY)))
        found = c.pick(several & enough, c.ints(digit), found)
        several = several & (enough ^ 1)
    return found


def _write_wide(module: Module) -> None:
    """@order_wide(keys, n, work): @order for more than FEW keys of 64 bits; @order_upper(keys, n, work, shift), where the bits in which they
    differ begin `shift` bits above the lowest, or are 32."""
    c = Code(module, "internal ptr", "order_wide", "ptr", "i64", "ptr")
    keys, n, work = c.given
    first = keys.load("i64")
    shift = shift_of(c, difference(c, keys, n, first))
    (work + EXACT).store(shift.equals(0).to("i64"))
    (work + UPPER).store(first & -(1 << 32))
    c.back(c.function("ptr", "order_upper", keys, n, work, shift))
    c.finish()
    c = Code(module, "internal ptr", "order_upper", "ptr", "i64", "ptr", "i64")
    keys, n, work, shift = c.given
    pairs = work + HEAD
    others = pairs + (n + 8) * 8

    far, low = shift.spread(_LANES), ((c.ints(1) << shift) - 1).spread(_LANES)

    def pack(lower: bool) -> None:
        def keys_at(i: Value) -> Value:
            key = (keys + i * 8).load(f"<{_LANES} x i64>")
            return key & low if lower else key >> far
        _pack(c, pairs, n, keys_at)
    pack(False)
    made = c.function("ptr", "passes", pairs, others, n, work, c.ints(1))
    whole = shift.equals(0) & (work + SKIPPED).load("i64").equals(0)
    with c.leave_if(whole):
        c.back(made)
    with c.leave_if(c.function("i64", "settle", keys, made, n).differs(0)):
        c.back(made)
    pack(True)
    lower = c.function("ptr", "passes", pairs, others, n, work, c.ints(0))
    rest = c.pick(lower.cast("ptrtoint", "i64").equals(pairs.cast("ptrtoint", "i64")), others, pairs)
    with c.span(0, n) as v:
        at = (lower + v.i * 8).load("i64") & 0xFFFFFFFF
        (lower + v.i * 8).store((((keys + at * 8).load("i64") >> shift) << 32) | at)
    c.back(c.function("ptr", "passes", lower, rest, n, work, c.ints(0)))
    c.finish()


def difference(c: Code, keys: Value, n: Value, first: Value) -> Value:
    """The bits in which n keys of 64 bits differ from the first."""
    t = f"<{_LANES} x i64>"
    firsts, whole = first.spread(_LANES), n & -_LANES
    with c.span(0, whole, c.constant(t, 0), step=_LANES) as v:
        v.next = [v.vars[0] | ((keys + v.i * 8).load(t) ^ firsts)]
    found = Value(c, "i64", c.call(f"llvm.vector.reduce.or.v{_LANES}i64", "i64", (t, v.vars[0].name)))
    with c.span(whole, n, found) as v:
        v.next = [v.vars[0] | ((keys + v.i * 8).load("i64") ^ first)]
    return v.vars[0]


def shift_of(c: Code, bits: Value) -> Value:
    """How far keys are shifted so that the highest bit of these is at most the 32nd."""
    above = c.built_in("ctlz", bits, "false")
    return c.pick(above < 32, c.ints(32) - above, 0)


def _write_settle(module: Module, bits: int) -> None:
    """@settle(keys, pairs, n): moves each pair in front of those that it belongs before, one after the other; 0 where that takes too long."""
    c = Code(module, "internal i64", "settle", "ptr", "ptr", "i64")
    keys, pairs, n = c.given

    def belongs_before(pair: Value, other: Value) -> Value:
        if bits < 64:
            return pair.below(other)
        # of wide keys a pair has the upper bits
        with c.when((pair >> 32).equals(other >> 32), (pair >> 32).below(other >> 32)) as alike:
            whole = [(keys + (p & 0xFFFFFFFF) * 8).load("i64") for p in (pair, other)]
            alike.next = [whole[0].below(whole[1])]
        return alike.vars[0]
    left = c.array("i64", 1)
    left.store(n * 2 + 64)
    with c.span(1, n) as v:
        place = pairs + v.i * 8
        pair, before = place.load("i64"), (place + -8).load("i64")
        with c.when(belongs_before(pair, before)):
            with c.repeat(place) as down:
                lower = down.vars[0] + -8
                down.vars[0].store(lower.load("i64"))
                left.store(left.load("i64") - 1)
                inside = lower.compare("ugt", pairs)
                front = c.pick(inside, lower + -8, lower).load("i64")
                down.next = [lower]
                down.more = inside & belongs_before(pair, front)
            down.vars[0].store(pair)
            with c.leave_if(left.load("i64") < 0):
                c.back(c.ints(0))
    c.back(c.ints(1))
    c.finish()
