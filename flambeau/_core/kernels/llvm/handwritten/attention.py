"""Attention as machine code: for a block of queries, scores against a block of keys, their exponentials, the sum of values.

The scores of a block never leave the nearest caches: each block of keys moves the running maximum of its rows, and what was
summed before is scaled to it (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al.,
"FlashAttention", 2022).  The logarithm of each row's sum is kept, so that the gradient can make the weights again.

Exponents are of two: scores are multiplied by scale * log2(e), and the logarithms kept are log2.  A row that sees nothing
has a sum of 0, gives 0, and keeps +inf, so that its weights in the gradient are 0.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from ....dtypes import bool_, uint64
from ... import expr as E
from ... import native, philox
from .. import scratch
from ..emit import Emitter, Module, constant, suffix, ty, vec
from ..functions import emit as function
from ..lower import lower
from ..values import Mask, Value
from .attention_products import Right, addresses, call_pack, call_product, panel_bytes, width

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....dtypes import dtype

Steps = tuple[int, ...]
ROWS = 128  # queries of a block
COLUMNS = 256  # keys of a block: a multiple of every tile's width
LEAST_TASKS = 16  # of a gradient, whatever the threads: its sums must not depend on them
_LOG2E = 1.0 / math.log(2.0)

_WORDS = (
    "product pack heads group length source depth value_depth row_blocks splits split_blocks ld scale scale2 "
    "q_batch q_head q_row q_col k_batch k_head k_row k_col v_batch v_head v_row v_col o_batch o_head o_row "
    "mask_batch mask_head mask_row g_batch g_head g_row dq_batch dq_head dq_row dk_split dk_batch dk_head dk_row dv_split dv_batch dv_head dv_row "
    "kt_panel vt_panel key_panel query_panel k_bare v_bare q_bare g_bare k_block v_block "
    "at_stats at_scores at_weights at_kt at_vt at_k at_v at_q at_g room").split()


class Variant:
    """What a kernel is compiled for: the element type, the mask's type if any, and whether causal and with dropout."""

    __slots__ = ("d", "mask", "causal", "drop", "lanes")

    def __init__(self, d: dtype, mask: dtype | None, causal: bool, drop: bool) -> None:
        self.d, self.mask, self.causal, self.drop = d, mask, causal, drop
        self.lanes = width(d.itemsize) // 2

    def parts(self) -> tuple[str, ...]:
        return (self.d.name, self.mask.name if self.mask is not None else "-", str(self.causal), str(self.drop))


class Shape:
    """Sizes and steps (in elements) of one attention; mask steps are 0 where it is broadcast, its columns are neighbours."""

    __slots__ = ("batch", "heads", "group", "length", "source", "depth", "value_depth", "scale", "steps")

    def __init__(self, sizes: tuple[int, ...], scale: float, steps: dict[str, Steps]) -> None:
        """sizes: in the order of the slots.  steps: "q", "k", "v" of four numbers; "o", "mask", "g", "dq" of three (columns are
        neighbours); "dk" and "dv" of four (from split to split, batch, head, row)."""
        self.batch, self.heads, self.group, self.length, self.source, self.depth, self.value_depth = sizes
        self.scale, self.steps = scale, steps

    def flops(self, products: int) -> int:
        return products * self.batch * self.heads * self.length * self.source * (self.depth + self.value_depth)


def splits(batch: int, heads: int, length: int) -> int:
    """How many partial gradients of keys and values there are, a run of queries each."""
    return max(1, min(-(-length // ROWS), -(-LEAST_TASKS // (batch * heads))))


def forward(v: Variant, s: Shape) -> Callable[..., None]:
    """A native launch ``entry(O, LSE, Q, K, V, [mask], [seed, offset, p])``; LSE is (batch, heads, length), contiguous."""
    total = s.batch * s.heads * -(-s.length // ROWS)
    chunk = max(1, total // (8 * native.get_num_threads()))
    return _entry("attention_forward", _write_forward, v, s, total, chunk, 5, s.flops(2))


def backward(v: Variant, s: Shape) -> Callable[..., None]:
    """A native launch ``entry(DQ, DK, DV, DO, O, LSE, Q, K, V, [mask], [seed, offset, p])``."""
    return _entry("attention_backward", _write_backward, v, s, s.batch * s.heads * splits(s.batch, s.heads, s.length), 1, 9, s.flops(5))


def _entry(name: str, write: Callable[[Emitter, Variant], None], v: Variant, s: Shape, total: int, chunk: int, nargs: int,
           flops: int) -> Callable[..., None]:
    from .. import compile as compiler

    def text() -> str:
        module = Module()
        em = Emitter(module, f"void @{name}(i64 %begin, i64 %end, ptr %args, ptr %block)")
        write(em, v)
        em.line("ret void")
        em.finish()
        return module.text()
    address = compiler.functions((name, *v.parts()), (name,), text)[name]
    nargs += (v.mask is not None) + 3 * v.drop
    return native.make_entry([(address, total, chunk)], _params(v, s), nargs, floats=(nargs - 1,) if v.drop else (), parallel=flops > 1 << 18)


def _params(v: Variant, s: Shape) -> list[int]:
    item = v.d.itemsize
    wide = width(item)
    w = dict.fromkeys(_WORDS, 0)
    w["product"], w["pack"] = addresses(v.d)
    w["scale"], w["scale2"] = (struct.unpack("<Q", struct.pack("<d", x))[0] for x in (s.scale, s.scale * _LOG2E))
    w.update(heads=s.heads, group=s.group, length=s.length, source=s.source, depth=s.depth, value_depth=s.value_depth)
    w["row_blocks"] = -(-s.length // ROWS)
    parts = splits(s.batch, s.heads, s.length)
    w["split_blocks"] = -(-w["row_blocks"] // parts)
    w["splits"] = parts
    for name, steps in s.steps.items():
        size = v.mask.itemsize if name == "mask" and v.mask is not None else item
        names = ("split", "batch", "head", "row") if name in ("dk", "dv") else ("batch", "head", "row", "col")
        for axis, distance in zip(names, steps, strict=False):
            w[f"{name}_{axis}"] = distance * size
    columns = min(COLUMNS, -(-s.source // wide) * wide)
    w["ld"] = (columns + 16) * item
    for name, step, size in (("k", s.steps["k"], s.depth), ("v", s.steps["v"], s.value_depth), ("q", s.steps["q"], s.depth),
                             ("g", (*s.steps.get("g", ()), 1), s.value_depth)):
        w[f"{name}_bare"] = int(step[-1] == 1 and size % wide == 0)
    rows = min(ROWS, s.length)
    key_blocks, deep, value_deep = -(-s.source // COLUMNS), -(-s.depth // wide), -(-s.value_depth // wide)
    w["kt_panel"], w["vt_panel"] = panel_bytes(s.depth, item), panel_bytes(s.value_depth, item)
    w["key_panel"], w["query_panel"] = panel_bytes(columns, item), panel_bytes(rows, item)
    w["k_block"], w["v_block"] = deep * w["key_panel"], value_deep * w["key_panel"]
    panels = -(-s.source // wide)
    at = 0
    back = "g" in s.steps
    for name, size in (("stats", 4 * ROWS * item), ("scores", rows * w["ld"]), ("weights", rows * w["ld"] * back), ("kt", panels * w["kt_panel"]),
                       ("vt", panels * w["vt_panel"] * back), ("k", key_blocks * w["k_block"] * (back and not w["k_bare"])),
                       ("v", key_blocks * w["v_block"] * (not back and not w["v_bare"])), ("q", deep * w["query_panel"] * (back and not w["q_bare"])),
                       ("g", value_deep * w["query_panel"] * (back and not w["g_bare"]))):
        w[f"at_{name}"] = at
        at += size + 63 & ~63
    w["room"] = at
    return list(w.values())


# ----------------------------------------------------------------------------------------------------------- what both share
class _Kernel:
    """A kernel being written: the words of its block, its scratch memory, and where a task lies."""

    def __init__(self, em: Emitter, v: Variant, extra: int) -> None:
        self.em, self.v, self.d, self.lanes, self.item = em, v, v.d, v.lanes, v.d.itemsize
        self.w = {name: em.word("%block", k) for k, name in enumerate(_WORDS)}
        w = self.w
        self.product, self.pack = (em.op(f"inttoptr i64 {w[n]} to ptr") for n in ("product", "pack"))
        self.memory, self.piece = scratch.take(em, w["room"])
        self.scale, self.scale2 = (self._number(w[n]) for n in ("scale", "scale2"))
        if v.mask is not None:
            self.mask = em.pointer("%args", extra)
            extra += 1
        if v.drop:
            self.seed, self.offset = (em.word("%args", extra + k) for k in range(2))
            self.chance = em.parameter(v.d, "%args", extra + 2, v.lanes)
        self.wide = str(width(self.item))
        self.columns = str(COLUMNS)

    def _number(self, bits: str) -> str:
        """A number of the element type from a double's bits."""
        em = self.em
        x = em.op(f"bitcast i64 {bits} to double")
        return x if self.item == 8 else em.op(f"fptrunc double {x} to float")

    def many(self, v: str) -> Value:
        return Value(self.em, self.em.broadcast(v, ty(self.d, 1), self.lanes), self.d, self.lanes)

    def plain(self, x: float) -> Value:
        return Value(self.em, constant(x, self.d, self.lanes), self.d, self.lanes)

    def one(self, v: str) -> Value:
        return Value(self.em, v, self.d, 1)

    def exp2(self, x: Value) -> Value:
        return x.of(function("exp2", x.d, x.lanes, self.em, [x.v]))

    def at(self, name: str) -> str:
        return self.em.at(self.memory, self.w[f"at_{name}"])

    def end(self) -> None:
        scratch.give(self.em, self.piece)

    def start(self, address: str, name: str, batch: str, head: str) -> str:
        """Where a head of an operand begins."""
        em, w = self.em, self.w
        return em.at(em.at(address, em.mul(batch, w[f"{name}_batch"])), em.mul(head, w[f"{name}_head"]))

    def load(self, address: str, x: str, mask: str | None) -> Value:
        return Value(self.em, self.em.load(self.d, self.lanes, self.em.at(address, self.em.mul(x, str(self.item))), mask), self.d, self.lanes)

    def store(self, value: Value, address: str, x: str, mask: str | None) -> None:
        self.em.store(self.d, self.lanes, value.v, self.em.at(address, self.em.mul(x, str(self.item))), mask)

    def along(self, n: str, body: Callable[[str, str | None, list[Value]], list[Value]], start: list[Value] | None = None,
              begin: str = "0") -> list[Value]:
        """`body(x, mask, carried)` for x = begin, begin + lanes, ... below n; mask is None where all lanes are inside."""
        em, start = self.em, start or []
        t = ty(self.d, self.lanes)
        whole = em.add(begin, em.op(f"and i64 {em.sub(n, begin)}, {-self.lanes}"))
        values = start
        for first, last in ((begin, whole), (whole, n)):
            with em.loop(first, last, str(self.lanes), [(t, s.v) for s in values]) as loop:
                mask = None if last is whole else em.first_lanes(em.sub(n, loop.i), self.lanes)
                loop.next = [s.v for s in body(loop.i, mask, [self.plain(0).of(c) for c in loop.vars])]
            values = [self.plain(0).of(c) for c in loop.vars]
        return values

    def inside(self, mask: str | None, value: Value, other: float) -> Value:
        return value if mask is None else Mask(self.em, mask, self.lanes).pick(value, other)

    def across(self, how: str, value: Value) -> str:
        """All lanes as one: fadd or fmax."""
        em, t = self.em, ty(self.d, 1)
        name, v = f"llvm.vector.reduce.{how}.{suffix(t, self.lanes)}", vec(t, self.lanes)
        if how == "fadd":
            em.module.declare(name, f"{t} ({t}, {v})")
            return em.op(f"call reassoc {t} @{name}({t} {constant(-0.0, self.d, 1)}, {v} {value.v})")
        em.module.declare(name, f"{t} ({v})")
        return em.op(f"call {t} @{name}({v} {value.v})")

    def shown(self, row: str, column: str, n: str) -> str:
        """How many of the n keys from `column` on query `row` sees."""
        if not self.v.causal:
            return n
        em = self.em
        seen = em.smaller(n, em.sub(em.add(row, "1"), column))
        return em.op(f"select i1 {em.op(f'icmp sgt i64 {seen}, 0')}, i64 {seen}, i64 0")

    def score(self, scores: str, hidden: str, x: str, mask: str | None) -> Value:
        """Scores times scale, in powers of two, with the mask applied.  hidden: the mask's row."""
        em = self.em
        s = self.load(scores, x, mask) * self.many(self.scale2)
        if self.v.mask is bool_:
            keep = em.load(bool_, self.lanes, em.at(hidden, x), mask)
            return Mask(em, keep, self.lanes).pick(s, -math.inf)
        return self.load(hidden, x, mask).fma(_LOG2E, s)

    def kept(self, head: str, row: str, column: str, x: str) -> Value:
        """1 / (1 - p) for weights that dropout keeps, else 0: element i of the (batch, heads, length, source) weights from counter i."""
        em, w = self.em, self.w
        first = em.add(em.mul(em.add(em.mul(head, w["length"]), row), w["source"]), em.add(column, x))
        place, p = em.ramp(first, self.lanes), E.scalar(2, self.d)
        words = philox.words(philox.counter_at(E.coord(-1), E.scalar(1, uint64)), E.scalar(0, uint64))
        keep = E.where(philox.uniform(words, self.d) >= p, 1.0 / (1.0 - p), E.const(0, self.d))
        known = {E.coord(-1): place, E.scalar(0, uint64): em.broadcast(self.seed, "i64", self.lanes),
                 E.scalar(1, uint64): em.broadcast(self.offset, "i64", self.lanes), p: self.chance}
        return self.plain(0).of(lower(em, (keep,), self.lanes, lambda e, args: known[e], dict(known))[0])

    def right(self, name: str, bare_at: str, step: str, packed_at: str, panel: str) -> Right:
        """A right side, where it is or packed."""
        em, w = self.em, self.w
        bare = em.op(f"icmp ne i64 {w[f'{name}_bare']}, 0")
        own = em.mul(self.wide, str(self.item))
        return Right(em.op(f"select i1 {bare}, ptr {bare_at}, ptr {packed_at}"), em.op(f"select i1 {bare}, i64 {w[step]}, i64 {own}"),
                     em.op(f"select i1 {bare}, i64 {own}, i64 {w[panel]}"))

    def turned(self, name: str, column: str) -> Right:
        """Packed keys or values, turned, from key `column` on."""
        em = self.em
        panel = self.w[f"{name}_panel"]
        return Right(em.at(self.at(name), em.mul(em.op(f"sdiv i64 {column}, {self.wide}"), panel)), em.mul(self.wide, str(self.item)), panel)

    def keys(self, name: str, address: str, column: str) -> Right:
        """The keys or values from `column` on, as they are or packed."""
        em, w = self.em, self.w
        there = em.at(self.at(name), em.mul(em.op(f"sdiv i64 {column}, {self.columns}"), w[f"{name}_block"]))
        return self.right(name, em.at(address, em.mul(column, w[f"{name}_row"])), f"{name}_row", there, "key_panel")

    def pack_keys(self, name: str, address: str, depth: str) -> None:
        """All blocks of keys or values, unless they are read as they are."""
        em, w = self.em, self.w
        with em.only_if(em.op(f"icmp eq i64 {w[f'{name}_bare']}, 0")), em.loop("0", w["source"], self.columns, [("ptr", self.at(name))]) as j:
            n = em.smaller(self.columns, em.sub(w["source"], j.i))
            call_pack(em, self.pack, em.at(address, em.mul(j.i, w[f"{name}_row"])), w[f"{name}_col"], w[f"{name}_row"], depth, n, j.vars[0], w["key_panel"])
            j.next = [em.at(j.vars[0], w[f"{name}_block"])]

    def pack_turned(self, name: str, source: str, address: str, depth: str) -> None:
        em, w = self.em, self.w
        call_pack(em, self.pack, address, w[f"{source}_row"], w[f"{source}_col"], w["source"], depth, self.at(name), w[f"{name}_panel"])

    def pack_queries(self, name: str, address: str, column: str, depth: str, rows: str) -> Right:
        """A block of queries or of the output's gradient as a right side."""
        em, w = self.em, self.w
        with em.only_if(em.op(f"icmp eq i64 {w[f'{name}_bare']}, 0")):
            call_pack(em, self.pack, address, column, w[f"{name}_row"], depth, rows, self.at(name), w["query_panel"])
        return self.right(name, address, f"{name}_row", self.at(name), "query_panel")

    def clear(self, address: str, n: str, begin: str = "0") -> None:
        def body(x: str, mask: str | None, _: list[Value]) -> list[Value]:
            self.store(self.plain(0.0), address, x, mask)
            return []
        self.along(n, body, begin=begin)

    def hidden(self, batch: str, head: str, row: str, column: str) -> str:
        """The mask's row from `column` on."""
        if self.v.mask is None:
            return ""
        em = self.em
        line = em.at(self.start(self.mask, "mask", batch, head), em.mul(row, self.w["mask_row"]))
        return em.at(line, em.mul(column, str(self.v.mask.itemsize)))


# -------------------------------------------------------------------------------------------------------------------- forward
def _write_forward(em: Emitter, v: Variant) -> None:
    k = _Kernel(em, v, 5)
    w, item, d = k.w, str(k.item), k.d
    out, lse, q, key, value = (em.pointer("%args", i) for i in range(5))
    stats, scores = _Stats(k), k.at("scores")
    with em.loop("%begin", "%end", carried=[("i64", "-1")]) as task:
        index = em.op(f"sdiv i64 {task.i}, {w['row_blocks']}")
        first = em.mul(em.sub(task.i, em.mul(index, w["row_blocks"])), str(ROWS))
        batch = em.op(f"sdiv i64 {index}, {w['heads']}")
        head = em.sub(index, em.mul(batch, w["heads"]))
        shared = em.op(f"sdiv i64 {head}, {w['group']}")
        packed = em.add(em.mul(batch, w["heads"]), shared)
        k1, v1 = k.start(key, "k", batch, shared), k.start(value, "v", batch, shared)
        with em.only_if(em.op(f"icmp ne i64 {packed}, {task.vars[0]}")):
            k.pack_turned("kt", "k", k1, w["depth"])
            k.pack_keys("v", v1, w["value_depth"])
        task.next = [packed]
        rows = em.smaller(str(ROWS), em.sub(w["length"], first))
        q1 = em.at(k.start(q, "q", batch, head), em.mul(first, w["q_row"]))
        o1 = em.at(k.start(out, "o", batch, head), em.mul(first, w["o_row"]))
        with em.loop("0", rows) as r:
            em.store(d, 1, constant(-math.inf, d, 1), em.at(stats.tops, em.mul(r.i, item)))
            em.store(d, 1, constant(0.0, d, 1), em.at(stats.sums, em.mul(r.i, item)))
        last = em.smaller(w["source"], em.add(first, rows)) if v.causal else w["source"]
        with em.loop("0", last, k.columns) as j:
            n = em.smaller(k.columns, em.sub(last, j.i))
            call_product(em, k.product, (rows, n, w["depth"]), (q1, w["q_row"], w["q_col"]), k.turned("kt", j.i), (scores, w["ld"]), "0")
            again = em.op(f"icmp sgt i64 {j.i}, 0")
            # three passes over the rows, as one row after another would wait for each maximum
            with em.loop("0", rows) as r:
                _highest(k, stats, _Line(k, r.i, batch, head, index, first, j.i, n))

            def power(x: str, mask: str | None, _: list[Value]) -> list[Value]:
                k.store(k.exp2(k.load(stats.factors, x, mask)), stats.factors, x, mask)
                return []
            k.along(rows, power)
            with em.loop("0", rows) as r:
                _soften(k, stats, _Line(k, r.i, batch, head, index, first, j.i, n), em.at(o1, em.mul(r.i, w["o_row"])), again)
            mode = em.op(f"zext i1 {again} to i64")
            call_product(em, k.product, (rows, w["value_depth"], n), (scores, w["ld"], item), k.keys("v", v1, j.i), (o1, w["o_row"]), mode)
        l1 = em.at(lse, em.mul(em.add(em.mul(index, w["length"]), first), item))
        with em.loop("0", rows) as r:
            place = em.mul(r.i, item)
            top, total = (k.one(em.load(d, 1, em.at(p, place))) for p in (stats.tops, stats.sums))
            none = total.equals(0.0)
            kept = none.pick(k.one(constant(math.inf, d, 1)), top + k.one(function("log2", d, 1, em, [total.v])))
            em.store(d, 1, kept.v, em.at(l1, place))
            _scaled(k, em.at(o1, em.mul(r.i, w["o_row"])), none.pick(0.0, k.one(constant(1.0, d, 1)) / total).v)
    k.end()


def _scaled(k: _Kernel, line: str, factor: str) -> None:
    f = k.many(factor)

    def body(x: str, mask: str | None, _: list[Value]) -> list[Value]:
        k.store(k.load(line, x, mask) * f, line, x, mask)
        return []
    k.along(k.w["value_depth"], body)


class _Line:
    """A row of a block of scores: its number in the block, its scores and its mask, the element it begins with, and how many keys it sees."""

    __slots__ = ("place", "scores", "hidden", "index", "row", "column", "seen", "n")

    def __init__(self, k: _Kernel, r: str, batch: str, head: str, index: str, first: str, column: str, n: str) -> None:
        em = k.em
        self.index, self.row, self.column, self.n = index, em.add(first, r), column, n
        self.place, self.scores = em.mul(r, str(k.item)), em.at(k.at("scores"), em.mul(r, k.w["ld"]))
        self.hidden, self.seen = k.hidden(batch, head, self.row, column), k.shown(self.row, column, n)


class _Stats:
    """Numbers of the block's rows: the maximum so far, the sum so far, what to add before taking powers, and what the maximum's
    move makes of what was summed before."""

    __slots__ = ("tops", "sums", "shifts", "factors")

    def __init__(self, k: _Kernel) -> None:
        self.tops, self.sums, self.shifts, self.factors = (k.em.at(k.at("stats"), str(i * ROWS * k.item)) for i in range(4))


def _highest(k: _Kernel, stats: _Stats, line: _Line) -> None:
    """The row's new maximum; where there is a mask, its scores become the masked ones."""
    em, d, v = k.em, k.d, k.v
    scale = k.many(k.scale2)

    def body(x: str, mask: str | None, had: list[Value]) -> list[Value]:
        if v.mask is None:
            s = k.load(line.scores, x, mask) * scale
        else:
            s = k.score(line.scores, line.hidden, x, mask)
            k.store(s, line.scores, x, mask)
        s = k.inside(mask, s, -math.inf)
        return [(s > had[0]).pick(s, had[0])]  # NaN is left out here: the sum has it
    found = k.one(k.across("fmax", k.along(line.seen, body, [k.plain(-math.inf)])[0]))
    before = k.one(em.load(d, 1, em.at(stats.tops, line.place)))
    top = (found > before).pick(found, before)
    finite = top.equals(-math.inf).pick(0.0, top)
    for value, place in ((top, stats.tops), (-finite, stats.shifts), (before - finite, stats.factors)):
        em.store(d, 1, value.v, em.at(place, line.place))


def _soften(k: _Kernel, stats: _Stats, line: _Line, out: str, again: str) -> None:
    """The row's scores become weights relative to its maximum so far; its output so far is scaled to that."""
    em, d, v = k.em, k.d, k.v
    scale = k.many(k.scale2)
    minus = k.many(em.load(d, 1, em.at(stats.shifts, line.place)))

    def body(x: str, mask: str | None, had: list[Value]) -> list[Value]:
        s = k.load(line.scores, x, mask)
        p = k.exp2(s.fma(scale, minus) if v.mask is None else s + minus)
        total = had[0] + k.inside(mask, p, 0.0)
        if v.drop:
            p = p * k.kept(line.index, line.row, line.column, x)
        k.store(p, line.scores, x, mask)
        return [total]
    total = k.one(k.across("fadd", k.along(line.seen, body, [k.plain(0.0)])[0]))
    if v.causal:
        k.clear(line.scores, line.n, line.seen)
    factor = k.one(em.load(d, 1, em.at(stats.factors, line.place)))
    place = em.at(stats.sums, line.place)
    em.store(d, 1, k.one(em.load(d, 1, place)).fma(factor, total).v, place)
    moved = factor.differs(1.0).v
    with em.only_if(em.op(f"and i1 {again}, {moved}")):
        _scaled(k, out, factor.v)


# ------------------------------------------------------------------------------------------------------------------- backward
def _write_backward(em: Emitter, v: Variant) -> None:
    k = _Kernel(em, v, 9)
    w, item, d = k.w, str(k.item), k.d
    dq, dk, dv, g, out, lse, q, key, value = (em.pointer("%args", i) for i in range(9))
    deltas, scores, weights = k.at("stats"), k.at("scores"), k.at("weights")
    with em.loop("%begin", "%end", carried=[("i64", "-1")]) as task:
        index = em.op(f"sdiv i64 {task.i}, {w['splits']}")
        part = em.sub(task.i, em.mul(index, w["splits"]))
        batch = em.op(f"sdiv i64 {index}, {w['heads']}")
        head = em.sub(index, em.mul(batch, w["heads"]))
        shared = em.op(f"sdiv i64 {head}, {w['group']}")
        packed = em.add(em.mul(batch, w["heads"]), shared)
        k1, v1 = k.start(key, "k", batch, shared), k.start(value, "v", batch, shared)
        with em.only_if(em.op(f"icmp ne i64 {packed}, {task.vars[0]}")):
            k.pack_turned("kt", "k", k1, w["depth"])
            k.pack_turned("vt", "v", v1, w["value_depth"])
            k.pack_keys("k", k1, w["depth"])
        task.next = [packed]
        dk1, dv1 = (em.at(k.start(p, name, batch, head), em.mul(part, w[f"{name}_split"])) for p, name in ((dk, "dk"), (dv, "dv")))
        with em.loop("0", w["source"]) as c:
            k.clear(em.at(dk1, em.mul(c.i, w["dk_row"])), w["depth"])
            k.clear(em.at(dv1, em.mul(c.i, w["dv_row"])), w["value_depth"])
        tall = em.mul(w["split_blocks"], str(ROWS))
        start = em.mul(part, tall)
        with em.loop(start, em.smaller(w["length"], em.add(start, tall)), str(ROWS)) as block:
            first = block.i
            rows = em.smaller(str(ROWS), em.sub(w["length"], first))
            q1, g1, o1, dq1 = (em.at(k.start(p, name, batch, head), em.mul(first, w[f"{name}_row"]))
                               for p, name in ((q, "q"), (g, "g"), (out, "o"), (dq, "dq")))
            l1 = em.at(lse, em.mul(em.add(em.mul(index, w["length"]), first), item))
            with em.loop("0", rows) as r:
                em.store(d, 1, _dot(k, em.at(g1, em.mul(r.i, w["g_row"])), em.at(o1, em.mul(r.i, w["o_row"]))), em.at(deltas, em.mul(r.i, item)))
            queries = k.pack_queries("q", q1, w["q_col"], w["depth"], rows)
            gradients = k.pack_queries("g", g1, item, w["value_depth"], rows)
            last = em.smaller(w["source"], em.add(first, rows)) if v.causal else w["source"]
            with em.loop("0", last, k.columns) as j:
                n = em.smaller(k.columns, em.sub(last, j.i))
                call_product(em, k.product, (rows, n, w["depth"]), (q1, w["q_row"], w["q_col"]), k.turned("kt", j.i), (scores, w["ld"]), "0")
                call_product(em, k.product, (rows, n, w["value_depth"]), (g1, w["g_row"], item), k.turned("vt", j.i), (weights, w["ld"]), "0")
                with em.loop("0", rows) as r:
                    line = _Line(k, r.i, batch, head, index, first, j.i, n)
                    _slope(k, line, em.at(weights, em.mul(r.i, w["ld"])), em.load(d, 1, em.at(l1, line.place)), em.load(d, 1, em.at(deltas, line.place)))
                dk2, dv2 = em.at(dk1, em.mul(j.i, w["dk_row"])), em.at(dv1, em.mul(j.i, w["dv_row"]))
                mode = em.op(f"zext i1 {em.op(f'icmp sgt i64 {j.i}, 0')} to i64")
                call_product(em, k.product, (n, w["value_depth"], rows), (scores, item, w["ld"]), gradients, (dv2, w["dv_row"]), "1")
                call_product(em, k.product, (n, w["depth"], rows), (weights, item, w["ld"]), queries, (dk2, w["dk_row"]), "1")
                call_product(em, k.product, (rows, w["depth"], n), (weights, w["ld"], item), k.keys("k", k1, j.i), (dq1, w["dq_row"]), mode)
    k.end()


def _dot(k: _Kernel, a: str, b: str) -> str:
    def body(x: str, mask: str | None, had: list[Value]) -> list[Value]:
        return [k.load(a, x, mask).fma(k.load(b, x, mask), had[0])]
    return k.across("fadd", k.along(k.w["value_depth"], body, [k.plain(0.0)])[0])


def _slope(k: _Kernel, line: _Line, slopes: str, lse: str, delta: str) -> None:
    """A row of scores becomes weights again, and the weights' gradient in `slopes` that of the scores before scaling."""
    v = k.v
    scale2, scale, minus, mean = k.many(k.scale2), k.many(k.scale), k.many((-k.one(lse)).v), k.many(delta)

    def body(x: str, mask: str | None, _: list[Value]) -> list[Value]:
        p = k.exp2(k.load(line.scores, x, mask).fma(scale2, minus) if v.mask is None else k.score(line.scores, line.hidden, x, mask) + minus)
        dp = k.load(slopes, x, mask)
        kept = p
        if v.drop:
            keep = k.kept(line.index, line.row, line.column, x)
            dp, kept = dp * keep, p * keep
        k.store(kept, line.scores, x, mask)
        k.store(p * (dp - mean) * scale, slopes, x, mask)
        return []
    k.along(line.seen, body)
    if v.causal:
        k.clear(line.scores, line.n, line.seen)
        k.clear(slopes, line.n, line.seen)
