"""The innermost part of products: a tile of C held in registers while K goes by.

A tile is R rows by V vectors of C.  For each k it takes V vectors of a packed panel of B, and R numbers of a packed
panel of A, each broadcast and used V times.  R x V accumulators with the vectors of B just fill the registers:
"Anatomy of High-Performance Matrix Multiplication" (Goto and van de Geijn, 2008), and "BLIS: A Framework for Rapidly
Instantiating BLAS Functionality" (Van Zee and van de Geijn, 2015).

Panels: A's holds, k after k, ROWS neighbouring rows; B's holds, k after k, WIDTH neighbouring columns.  Lanes past the
matrix's edge are computed and never stored, so what lies there (NaN too) does not matter.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..compile import has_masks, is_x86
from ..emit import Emitter, Module, number, ty

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....dtypes import dtype

VECTORS = 2  # of C in a row of the tile
TURNS = 4  # of K in a turn of the innermost loop
IN_FLIGHT = 8  # sums that keep two multipliers of four cycles busy


def sizes(item: int) -> tuple[int, int, int]:
    """(rows, lanes of a vector, columns) of a tile of elements of `item` bytes on the CPU compiled for."""
    # 32 registers of 64 bytes, 16 of 32 (x86), or 32 of 16 (Arm)
    rows, nbytes = (14, 64) if has_masks() else (6, 32) if is_x86() else (12, 16)
    return rows, nbytes // item, VECTORS * nbytes // item


class Tile:
    """The sizes of a tile for an element type."""

    __slots__ = ("d", "rows", "lanes", "width", "item", "high")

    def __init__(self, d: dtype) -> None:
        self.d, self.item = d, d.itemsize
        self.rows, self.lanes, self.width = sizes(d.itemsize)
        self.high = -(-self.rows // self.lanes) * self.lanes  # of a packed panel of A: whole vectors, so that none is stored across lines


def panel_elements(width: int, k: int) -> int:
    """What a packed panel takes, with what packing may write past its end."""
    return width * (k + 15 & ~15) + 64


PLAIN, ADDED, BIASED, SHIFTED, RECTIFIED, RECTIFIED_SUM, GATED, GATED_SUM = range(8)  # modes of a tile; see `call_tile`

_PRODUCT = "i64 %k, ptr %a, i64 %a_k, ptr %b, i64 %b_k, ptr %c, i64 %ldc, i64 %cols"


def _signature(tile: Tile, biased: bool, active: bool) -> str:
    """Of a tile of fixed size: what is added lies at %base, %base_row bytes from row to row."""
    return f"{_PRODUCT}, ptr %base, i64 %base_row" + (", ptr %each" if biased else "") + (f", {ty(tile.d, 1)} %least, ptr %gate" if active else "")


def write_tiles(module: Module, tile: Tile, biased: bool = False, active: bool = False) -> None:
    """Adds @tile: C (rows x columns) = A B, or what more its mode says; `call_tile` calls it.  biased: it has the mode of a number for
    each row; active: it has those of activations."""
    em = Emitter(module, f"internal void @tile(i64 %rows, {_PRODUCT}, i64 %mode, ptr %bias)")
    base, base_row = addend(em, tile, row="%bias")
    each = gate = least = ""
    if biased:
        each = em.op(f"select i1 {_is(em, BIASED)}, ptr %bias, ptr null")
    if active:
        t = ty(tile.d, 1)
        least = f"{t} " + em.op(f"select i1 {_is(em, RECTIFIED, RECTIFIED_SUM)}, {t} {number(0, tile.d)}, {t} {number(-math.inf, tile.d)}")
        gate = em.op(f"select i1 {_is(em, GATED, GATED_SUM)}, ptr %bias, ptr null")

    def call(rows: int, vectors: int, above: int) -> None:
        a, c, added, one, gate_ = "%a", "%c", base, each, gate
        if above:
            a, c, added = em.at(a, str(above * tile.item)), em.at(c, em.mul(str(above), "%ldc")), em.at(base, em.mul(str(above), base_row))
            one, gate_ = (p and em.op(f"select i1 {em.op(f'icmp eq ptr {p}, null')}, ptr null, ptr {em.at(p, step)}")
                          for p, step in ((each, str(above * tile.item)), (gate, em.mul(str(above), "%ldc"))))
        more = (f", ptr {one}" if biased else "") + (f", {least}, ptr {gate_}" if active else "")
        em.line(f"tail call void @tile_{rows}_{vectors}(i64 %k, ptr {a}, i64 %a_k, ptr %b, i64 %b_k, ptr {c}, i64 %ldc, i64 %cols, "
                f"ptr {added}, i64 {base_row}{more})")
    for rows, vectors in write_choice(em, tile, call):
        _write_tile(module, tile, rows, vectors, biased, active)


def write_choice(em: Emitter, tile: Tile, call: Callable[[int, int, int], None]) -> list[tuple[int, int]]:
    """Ends a function that calls the tile of a fixed size by %rows and %cols; gives the sizes, (rows, vectors).

    call(rows, vectors, above): writes the call of the tile of that size, `above` rows below the first of C.
    """
    full, part = em.label("full"), em.label("part")
    em.branch(em.op(f"icmp sgt i64 %cols, {tile.lanes}"), full, part)
    found = []
    for vectors, label in ((VECTORS, full), (1, part)):
        em.start(label)
        names = [em.label(f"rows{vectors}_") for _ in range(tile.rows)]
        em.line(f"switch i64 %rows, label %{names[-1]} [ " + " ".join(
            f"i64 {r + 1}, label %{names[r]}" for r in range(tile.rows - 1)) + " ]")
        for r in range(1, tile.rows + 1):
            em.start(names[r - 1])
            upper = _upper(tile, r, vectors)
            call(upper, vectors, 0)
            if upper < r:
                call(r - upper, vectors, upper)
            else:
                found.append((r, vectors))
            em.line("ret void")
    em.finish()
    return found


def _upper(tile: Tile, rows: int, vectors: int) -> int:
    """How many of an edge tile's rows the first of its two calls does, or all of them: where each half has sums enough to keep the
    multipliers busy, no code of its own is written for it, as the code of tiles is most of what a program's products take to compile."""
    return rows if rows in (8, tile.rows) or rows * vectors < 2 * IN_FLIGHT else -(-rows // 2)


def _is(em: Emitter, *modes: int) -> str:
    """Whether %mode is one of those."""
    found = em.op(f"icmp eq i64 %mode, {modes[0]}")
    for mode in modes[1:]:
        found = em.op(f"or i1 {found}, {em.op(f'icmp eq i64 %mode, {mode}')}")
    return found


def addend(em: Emitter, tile: Tile, row: str = "") -> tuple[str, str]:
    """Where the matrix lies that is added to A B as %mode says, and the bytes from row to row: C itself, the `row` that serves all, or -0,
    which changes no number, not even -0."""
    t = ty(tile.d, 1)
    none = em.module.helper("added_to_none", f"@added_to_none = internal constant [{tile.width} x {t}] ["
                            + ", ".join([f"{t} {number(-0.0 if tile.d.kind == 'f' else 0, tile.d)}"] * tile.width) + "], align 64")
    summed = _is(em, ADDED, RECTIFIED_SUM, GATED_SUM)
    other = em.op(f"select i1 {_is(em, SHIFTED, RECTIFIED)}, ptr {row}, ptr @{none}") if row else f"@{none}"
    return em.op(f"select i1 {summed}, ptr %c, ptr {other}"), em.op(f"select i1 {summed}, i64 %ldc, i64 0")


def call_tile(em: Emitter, tile: Tile, rows: str, columns: str, k: str, a: tuple[str, str] | str, b: tuple[str, str],
              c: tuple[str, str], mode: str, bias: str = "null") -> None:
    """mode: PLAIN C = A B, ADDED C += A B, BIASED C = A B + a number for each row from `bias`, SHIFTED a number for each column,
    RECTIFIED the same and then ReLU, RECTIFIED_SUM C = ReLU(C + A B), GATED C = A B where the matrix at `bias`, laid out as C,
    is not 0 or below, and 0 elsewhere, GATED_SUM the same of C + A B.

    a: a packed panel, or (address, bytes from k to k) of rows that are neighbours in memory.  b: (address, bytes from k to
    k); c: (address, bytes from row to row).
    Whole vectors of B are read, so their last lanes must be readable."""
    a, a_k = (a, str(tile.high * tile.item)) if isinstance(a, str) else a
    em.line(f"call void @tile(i64 {rows}, i64 {k}, ptr {a}, i64 {a_k}, ptr {b[0]}, i64 {b[1]}, ptr {c[0]}, i64 {c[1]}, "
            f"i64 {columns}, i64 {mode}, ptr {bias})")


def prefetch(em: Emitter, address: str, write: bool = False, near: int = 3) -> None:
    """Asks for the cache line of any address, valid or not; near: 3 for the first-level cache, 2 for the second."""
    em.module.declare("llvm.prefetch.p0", "void (ptr, i32 immarg, i32 immarg, i32 immarg)")
    em.line(f"call void @llvm.prefetch.p0(ptr {address}, i32 {int(write)}, i32 {near}, i32 1)")


def _write_tile(module: Module, tile: Tile, rows: int, vectors: int, biased: bool, active: bool) -> None:
    d, lanes, item = tile.d, tile.lanes, tile.item
    t = ty(d, lanes)
    em = Emitter(module, f"internal void @tile_{rows}_{vectors}({_signature(tile, biased, active)})")
    count = rows * vectors
    row = "%c"
    for r in range(rows):  # C's lines are on their way while K goes by
        for v in range(vectors):
            prefetch(em, em.at(row, str(v * lanes * item)), write=True, near=2)
        if r + 1 < rows:
            row = em.at(row, "%ldc")

    def turn(a: str, b: str, sums: list[str]) -> list[str]:
        right = [em.load(d, lanes, em.at(b, str(v * lanes * item))) for v in range(vectors)]
        made = []
        for r in range(rows):
            left = em.broadcast(em.load(d, 1, em.at(a, str(r * item))), ty(d, 1), lanes)
            made += [multiplied(em, tile, left, right[v], sums[r * vectors + v]) for v in range(vectors)]
        return made
    state, begin = [("ptr", "%a"), ("ptr", "%b"), *[(t, "zeroinitializer")] * count], "0"
    if rows == tile.rows and vectors == VECTORS:  # the others are for edges
        begin = em.op(f"and i64 %k, -{TURNS}")
        with em.loop("0", begin, str(TURNS), state) as k:
            a, b, *sums = k.vars
            for _ in range(TURNS):
                sums = turn(a, b, sums)
                a, b = em.at(a, "%a_k"), em.at(b, "%b_k")
            k.next = [a, b, *sums]
        state = [(kind, value) for (kind, _), value in zip(state, k.vars, strict=True)]
    with em.loop(begin, "%k", carried=state) as k:
        a, b, *sums = k.vars
        k.next = [em.at(a, "%a_k"), em.at(b, "%b_k"), *turn(a, b, sums)]
    finish_tile(em, tile, rows, vectors, k.vars[2:], biased, active)


def multiplied(em: Emitter, tile: Tile, a: str, b: str, total: str) -> str:
    """total + a b, rounded once; of integers what the last bits are."""
    if tile.d.kind == "f":
        return em.intrinsic("fma", tile.d, tile.lanes, a, b, total)
    t = ty(tile.d, tile.lanes)
    return em.op(f"add {t} {total}, {em.op(f'mul {t} {a}, {b}')}")


def finish_tile(em: Emitter, tile: Tile, rows: int, vectors: int, sums: list[str], biased: bool = False, active: bool = False) -> None:
    """Stores what a tile has summed, and what is added to it, in the %cols columns of C that there are; ends the function."""
    lanes = tile.lanes
    if not em.module.masks:
        whole, edge = em.label("whole"), em.label("edge")
        em.branch(em.op(f"icmp eq i64 %cols, {vectors * lanes}"), whole, edge)
        em.start(whole)
        _store(em, tile, rows, vectors, sums, [None] * vectors, biased, active)
        em.line("ret void")
        em.start(edge)
    masks: list[str | None] = [em.first_lanes(em.sub("%cols", str(v * lanes)), lanes) for v in range(vectors)]
    _store(em, tile, rows, vectors, sums, masks, biased, active)
    em.line("ret void")
    em.finish()


def _store(em: Emitter, tile: Tile, rows: int, vectors: int, sums: list[str], masks: list[str | None], biased: bool, active: bool) -> None:
    beside = "%each" if biased else "%gate" if active else ""
    if beside:
        without, used, end = em.label("without"), em.label("used"), em.label("end")
        em.branch(em.op(f"icmp eq ptr {beside}, null"), without, used)
        em.start(used)
        _store_as(em, tile, rows, vectors, sums, masks, each="%each" if biased else "", gate="%gate" if active else "")
        em.jump(end)
        em.start(without)
    _store_as(em, tile, rows, vectors, sums, masks, least=em.broadcast("%least", ty(tile.d, 1), tile.lanes) if active else "")
    if beside:
        em.jump(end)
        em.start(end)


def _store_as(em: Emitter, tile: Tile, rows: int, vectors: int, sums: list[str], masks: list[str | None], each: str = "", least: str = "",
              gate: str = "") -> None:
    """each: numbers of which each is added to a row, instead of the matrix; least: nothing smaller is stored, but NaN stays; gate: where a
    matrix laid out as C is not above 0, 0 is stored."""
    d, lanes, item = tile.d, tile.lanes, tile.item
    t = ty(d, lanes)
    row, base = "%c", "%base"
    for r in range(rows):
        own = em.broadcast(em.load(d, 1, em.at(each, str(r * item))), ty(d, 1), lanes) if each else ""
        for v in range(vectors):
            offset = str(v * lanes * item)
            added = own or em.load(d, lanes, em.at(base, offset), masks[v])
            value = em.op(f"{'fadd' if d.kind == 'f' else 'add'} {t} {added}, {sums[r * vectors + v]}")
            if least:
                low = em.op(f"fcmp ole {t} {value}, {least}")
                value = em.op(f"select <{lanes} x i1> {low}, {t} {least}, {t} {value}")
            if gate:
                above = em.op(f"fcmp ugt {t} {em.load(d, lanes, em.at(gate, offset), masks[v])}, zeroinitializer")
                value = em.op(f"select <{lanes} x i1> {above}, {t} {value}, {t} zeroinitializer")
            em.store(d, lanes, value, em.at(row, offset), masks[v])
        if r + 1 < rows:
            row, base = em.at(row, "%ldc"), em.at(base, "%base_row")
            gate = gate and em.at(gate, "%ldc")


# ---------------------------------------------------------------------------------------------------------------- packing
def write_packer(module: Module, tile: Tile, name: str, width: int, across: bool = False) -> None:
    """Adds @name(src, lane_step, k_step, count, k, dst): a panel of `width` lanes a k, of which `count` are the matrix's.

    Steps are in bytes.  Writes past the panel's end, as `panel_elements` allows.  across: k_step is always an element's size.
    """
    em = Emitter(module, f"internal void @{name}(ptr %src, i64 %lane_step, i64 %k_step, i64 %count, i64 %k, ptr %dst)")
    if not across:
        for step, pack in (("lane_step", _pack_along), ("k_step", _pack_across)):
            near, far = em.label("near"), em.label("far")
            em.branch(em.op(f"icmp eq i64 %{step}, {tile.item}"), near, far)
            em.start(near)
            pack(em, tile, width)
            em.line("ret void")
            em.start(far)
    (_pack_across if across else _pack_strided)(em, tile, width)
    em.line("ret void")
    em.finish()


def _parts(tile: Tile, width: int) -> range:
    return range(0, width, tile.lanes)


def _pack_along(em: Emitter, tile: Tile, width: int) -> None:
    """Lanes are neighbours in memory."""
    d, lanes, item = tile.d, tile.lanes, tile.item
    if not em.module.masks:
        whole, edge = em.label("whole"), em.label("edge")
        em.branch(em.op(f"icmp eq i64 %count, {width}"), whole, edge)
        em.start(whole)
        with em.loop("0", "%k", carried=[("ptr", "%src"), ("ptr", "%dst")]) as k:
            for at in _parts(tile, width):
                em.store(d, lanes, em.load(d, lanes, em.at(k.vars[0], str(at * item))), em.at(k.vars[1], str(at * item)))
            k.next = [em.at(k.vars[0], "%k_step"), em.at(k.vars[1], str(width * item))]
        em.line("ret void")
        em.start(edge)
    masks = [em.first_lanes(em.sub("%count", str(at)), lanes) for at in _parts(tile, width)]
    with em.loop("0", "%k", carried=[("ptr", "%src"), ("ptr", "%dst")]) as k:
        for at, mask in zip(_parts(tile, width), masks, strict=True):
            em.store(d, lanes, em.load(d, lanes, em.at(k.vars[0], str(at * item)), mask), em.at(k.vars[1], str(at * item)))
        k.next = [em.at(k.vars[0], "%k_step"), em.at(k.vars[1], str(width * item))]


def _pack_across(em: Emitter, tile: Tile, width: int) -> None:
    """Neighbours in memory are neighbours in k: squares are transposed in registers.

    A lane past the edge reads the last one's row.  After the last k come zeros.
    """
    lanes, item = tile.lanes, tile.item
    last = em.sub("%count", "1")
    with em.loop("0", str(width), str(lanes)) as part:
        rows = [em.at("%src", em.mul(em.smaller(em.add(part.i, str(r)), last), "%lane_step")) for r in range(lanes)]
        to = em.at("%dst", em.mul(part.i, str(item)))
        with em.loop("0", "%k", str(lanes)) as k:
            offset = em.mul(k.i, str(item))
            target = em.at(to, em.mul(k.i, str(width * item)))
            left = em.sub("%k", k.i)
            if em.module.masks:
                _turn_square(em, tile, width, rows, offset, target, em.first_lanes(left, lanes))
            else:
                whole, edge, done = em.label("whole"), em.label("edge"), em.label("done")
                em.branch(em.op(f"icmp sge i64 {left}, {lanes}"), whole, edge)
                for label in (whole, edge):
                    em.start(label)
                    _turn_square(em, tile, width, rows, offset, target, None if label == whole else em.first_lanes(left, lanes))
                    em.jump(done)
                em.start(done)


def _turn_square(em: Emitter, tile: Tile, width: int, rows: list[str], offset: str, target: str, mask: str | None) -> None:
    square = [em.load(tile.d, tile.lanes, em.at(row, offset), mask) for row in rows]
    for n, line in enumerate(transposed(em, square, ty(tile.d, tile.lanes), tile.lanes)):
        em.store(tile.d, tile.lanes, line, em.at(target, str(n * width * tile.item)))


def transposed(em: Emitter, lines: list[str], kind: str, t: int) -> list[str]:
    """A square of t vectors of t lanes, transposed: off-diagonal blocks of pairs of lines change places."""
    lines, half = list(lines), t // 2
    while half:
        upper = ", ".join(f"i32 {n if not n & half else t + n - half}" for n in range(t))
        lower = ", ".join(f"i32 {n + half if not n & half else t + n}" for n in range(t))
        for r in range(t):
            if not r & half:
                pair = f"{kind} {lines[r]}, {kind} {lines[r + half]}, <{t} x i32>"
                lines[r], lines[r + half] = em.op(f"shufflevector {pair} <{upper}>"), em.op(f"shufflevector {pair} <{lower}>")
        half //= 2
    return lines


def _pack_strided(em: Emitter, tile: Tile, width: int) -> None:
    d, lanes, item = tile.d, tile.lanes, tile.item
    offsets = [em.ramp(em.mul("%lane_step", str(at)), lanes, "%lane_step") for at in _parts(tile, width)]
    masks = [em.first_lanes(em.sub("%count", str(at)), lanes) for at in _parts(tile, width)]
    with em.loop("0", "%k", carried=[("ptr", "%src"), ("ptr", "%dst")]) as k:
        for at, offset, mask in zip(_parts(tile, width), offsets, masks, strict=True):
            em.store(d, lanes, em.load_each(d, lanes, k.vars[0], offset, mask), em.at(k.vars[1], str(at * item)))
        k.next = [em.at(k.vars[0], "%k_step"), em.at(k.vars[1], str(width * item))]
