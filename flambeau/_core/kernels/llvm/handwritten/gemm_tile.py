"""The innermost part of products: a tile of C held in registers while K goes by.

A tile is R rows by V vectors of C.  For each k it takes V vectors of a packed panel of B, and R numbers of a packed
panel of A, each broadcast and used V times.  R x V accumulators with the vectors of B just fill the registers:
"Anatomy of High-Performance Matrix Multiplication" (Goto and van de Geijn, 2008), and "BLIS: A Framework for Rapidly
Instantiating BLAS Functionality" (Van Zee and van de Geijn, 2015).

Panels: A's holds, k after k, ROWS neighbouring rows; B's holds, k after k, WIDTH neighbouring columns.  Lanes past the
matrix's edge are computed and never stored, so what lies there (NaN too) does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..compile import has_masks, is_x86
from ..emit import Emitter, Module, ty

if TYPE_CHECKING:
    from ....dtypes import dtype

VECTORS = 2  # of C in a row of the tile
TURNS = 4  # of K in a turn of the innermost loop


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


_SIGNATURE = "i64 %k, ptr %a, i64 %a_k, ptr %b, i64 %b_k, ptr %c, i64 %ldc, i64 %cols, i64 %mode, ptr %bias"


PLAIN, ADDED, BIASED, SHIFTED, RECTIFIED, RECTIFIED_SUM, GATED, GATED_SUM = range(8)  # modes of a tile; see `call_tile`
_MODES = (PLAIN, ADDED, BIASED, SHIFTED)
_ACTIVE = (PLAIN, ADDED, SHIFTED, RECTIFIED, RECTIFIED_SUM, GATED, GATED_SUM)  # of the tiles for products with activations


def write_tiles(module: Module, tile: Tile, active: bool = False) -> None:
    """Adds @tile: C (rows x columns) = A B, or what more its mode says; `call_tile` calls it.  active: it has the modes of
    activations, but not that of a number for each row."""
    em = Emitter(module, f"internal void @tile(i64 %rows, {_SIGNATURE})")
    full, part = em.label("full"), em.label("part")
    em.branch(em.op(f"icmp sgt i64 %cols, {tile.lanes}"), full, part)
    for vectors, label in ((2, full), (1, part)):
        em.start(label)
        names = [em.label(f"rows{vectors}_") for _ in range(tile.rows)]
        em.line(f"switch i64 %rows, label %{names[-1]} [ " + " ".join(
            f"i64 {r + 1}, label %{names[r]}" for r in range(tile.rows - 1)) + " ]")
        for r in range(1, tile.rows + 1):
            em.start(names[r - 1])
            em.line(f"call void @tile_{r}_{vectors}({_SIGNATURE})")
            em.line("ret void")
    em.finish()
    for vectors in (1, VECTORS):
        for r in range(1, tile.rows + 1):
            _write_tile(module, tile, r, vectors, _ACTIVE if active else _MODES)


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


def _write_tile(module: Module, tile: Tile, rows: int, vectors: int, modes: tuple[int, ...]) -> None:
    d, lanes, item = tile.d, tile.lanes, tile.item
    t = ty(d, lanes)
    em = Emitter(module, f"internal void @tile_{rows}_{vectors}({_SIGNATURE})")
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
            made += [em.intrinsic("fma", d, lanes, left, right[v], sums[r * vectors + v]) for v in range(vectors)]
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
    sums = k.vars[2:]
    if not module.masks:
        whole, edge = em.label("whole"), em.label("edge")
        em.branch(em.op(f"icmp eq i64 %cols, {vectors * lanes}"), whole, edge)
        em.start(whole)
        _store(em, tile, rows, vectors, sums, [None] * vectors, modes)
        em.line("ret void")
        em.start(edge)
    masks: list[str | None] = [em.first_lanes(em.sub("%cols", str(v * lanes)), lanes) for v in range(vectors)]
    _store(em, tile, rows, vectors, sums, masks, modes)
    em.line("ret void")
    em.finish()


def _store(em: Emitter, tile: Tile, rows: int, vectors: int, sums: list[str], masks: list[str | None], modes: tuple[int, ...]) -> None:
    d, lanes, item = tile.d, tile.lanes, tile.item
    labels = {mode: em.label("store") for mode in modes}
    end, t = em.label("end"), ty(d, lanes)
    em.line(f"switch i64 %mode, label %{labels[PLAIN]} [ " + " ".join(f"i64 {mode}, label %{label}" for mode, label in labels.items() if mode) + " ]")
    for mode, label in labels.items():
        em.start(label)
        row, gate = "%c", "%bias"
        shift = [em.load(d, lanes, em.at("%bias", str(v * lanes * item)), masks[v]) for v in range(vectors)] if mode in (SHIFTED, RECTIFIED) else []
        for r in range(rows):
            base = em.broadcast(em.load(d, 1, em.at("%bias", str(r * item))), ty(d, 1), lanes) if mode == BIASED else ""
            for v in range(vectors):
                place = em.at(row, str(v * lanes * item))
                value = sums[r * vectors + v]
                if mode in (ADDED, RECTIFIED_SUM, GATED_SUM):
                    base = em.load(d, lanes, place, masks[v])
                added = shift[v] if shift else base
                if added:
                    value = em.op(f"fadd {t} {added}, {value}")
                if mode in (RECTIFIED, RECTIFIED_SUM):  # NaN stays
                    low = em.op(f"fcmp ole {t} {value}, zeroinitializer")
                    value = em.op(f"select <{lanes} x i1> {low}, {t} zeroinitializer, {t} {value}")
                if mode in (GATED, GATED_SUM):
                    above = em.op(f"fcmp ugt {t} {em.load(d, lanes, em.at(gate, str(v * lanes * item)), masks[v])}, zeroinitializer")
                    value = em.op(f"select <{lanes} x i1> {above}, {t} {value}, {t} zeroinitializer")
                em.store(d, lanes, value, place, masks[v])
            if r + 1 < rows:
                row = em.at(row, "%ldc")
                if mode in (GATED, GATED_SUM):
                    gate = em.at(gate, "%ldc")
        em.jump(end)
    em.start(end)


# ---------------------------------------------------------------------------------------------------------------- packing
def write_packer(module: Module, tile: Tile, name: str, width: int) -> None:
    """Adds @name(src, lane_step, k_step, count, k, dst): a panel of `width` lanes a k, of which `count` are the matrix's.

    Steps are in bytes.  Writes past the panel's end, as `panel_elements` allows.
    """
    em = Emitter(module, f"internal void @{name}(ptr %src, i64 %lane_step, i64 %k_step, i64 %count, i64 %k, ptr %dst)")
    along, others, across, strided = (em.label(s) for s in ("along", "others", "across", "strided"))
    em.branch(em.op(f"icmp eq i64 %lane_step, {tile.item}"), along, others)
    em.start(others)
    em.branch(em.op(f"icmp eq i64 %k_step, {tile.item}"), across, strided)
    em.start(along)
    _pack_along(em, tile, width)
    em.line("ret void")
    em.start(across)
    _pack_across(em, tile, width)
    em.line("ret void")
    em.start(strided)
    _pack_strided(em, tile, width)
    em.line("ret void")
    em.finish()


def _parts(tile: Tile, width: int) -> range:
    return range(0, width, tile.lanes)


def _pack_along(em: Emitter, tile: Tile, width: int) -> None:
    """Lanes are neighbours in memory.  The last vector of a k may reach into the next k, which is written after it."""
    d, lanes, item = tile.d, tile.lanes, tile.item
    if width % lanes == 0:
        whole, edge = em.label("whole"), em.label("edge")
        em.branch(em.op(f"icmp eq i64 %count, {width}"), whole, edge)
        em.start(whole)
        with em.loop("0", "%k", carried=[("ptr", "%src"), ("ptr", "%dst")]) as k:
            for at in _parts(tile, width):
                em.store(d, lanes, em.load(d, lanes, em.at(k.vars[0], str(at * item))), em.at(k.vars[1], str(at * item)))
            k.next = [em.at(k.vars[0], "%k_step"), em.at(k.vars[1], str(width * item))]
        em.line("ret void")
        em.start(edge)
    masks = [em.first_lanes(em.smaller(em.sub("%count", str(at)), str(min(lanes, width - at))), lanes) for at in _parts(tile, width)]
    with em.loop("0", "%k", carried=[("ptr", "%src"), ("ptr", "%dst")]) as k:
        for at, mask in zip(_parts(tile, width), masks, strict=True):
            em.store(d, lanes, em.load(d, lanes, em.at(k.vars[0], str(at * item)), mask), em.at(k.vars[1], str(at * item)))
        k.next = [em.at(k.vars[0], "%k_step"), em.at(k.vars[1], str(width * item))]


def _pack_across(em: Emitter, tile: Tile, width: int) -> None:
    """Neighbours in memory are neighbours in k: squares are transposed in registers.

    A lane past the edge reads the last one's row.  After the last k come zeros.
    """
    d, lanes, item = tile.d, tile.lanes, tile.item
    last = em.sub("%count", "1")
    rows = [em.at("%src", em.mul(em.smaller(str(r), last), "%lane_step")) for r in range(-(-width // lanes) * lanes)]
    with em.loop("0", "%k", str(lanes)) as k:
        offset = em.mul(k.i, str(item))
        target = em.at("%dst", em.mul(k.i, str(width * item)))
        left = em.sub("%k", k.i)
        whole, edge, done = em.label("whole"), em.label("edge"), em.label("done")
        em.branch(em.op(f"icmp sge i64 {left}, {lanes}"), whole, edge)
        for label in (whole, edge):
            em.start(label)
            mask = None if label == whole else em.first_lanes(left, lanes)
            squares = []
            for at in _parts(tile, width):
                square = [em.load(d, lanes, em.at(rows[at + r], offset), mask) for r in range(lanes)]
                squares.append(transposed(em, square, ty(d, lanes), lanes))
                if width % lanes == 0:
                    _lines(em, tile, width, target, [(at, squares.pop())])
            # a vector that reaches into the next k must be stored before it
            _lines(em, tile, width, target, list(zip(_parts(tile, width), squares, strict=False)))
            em.jump(done)
        em.start(done)


def _lines(em: Emitter, tile: Tile, width: int, target: str, squares: list[tuple[int, list[str]]]) -> None:
    for n in range(tile.lanes):
        for at, square in squares:
            em.store(tile.d, tile.lanes, square[n], em.at(target, str((n * width + at) * tile.item)))


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
    masks = [em.first_lanes(em.smaller(em.sub("%count", str(at)), str(min(lanes, width - at))), lanes) for at in _parts(tile, width)]
    with em.loop("0", "%k", carried=[("ptr", "%src"), ("ptr", "%dst")]) as k:
        for at, offset, mask in zip(_parts(tile, width), offsets, masks, strict=True):
            em.store(d, lanes, em.load_each(d, lanes, k.vars[0], offset, mask), em.at(k.vars[1], str(at * item)))
        k.next = [em.at(k.vars[0], "%k_step"), em.at(k.vars[1], str(width * item))]
