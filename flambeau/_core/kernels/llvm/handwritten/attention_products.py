"""The matrix products inside attention: small ones, called from its kernels by address, so that what carries them out can change.

`product` takes a right side already in panels (or read where it is), `pack` makes the panels.  The left side is read where it
is: here it is small and was just written, so that packing it would cost more than it saves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..emit import Emitter, Module, ty
from .gemm_tile import Tile, addend, finish_tile, panel_elements, sizes, write_choice, write_packer

if TYPE_CHECKING:
    from ....dtypes import dtype

PRODUCT, PACK = "attention_product", "attention_pack"


class Right:
    """A right side: its address, and bytes from k to k and from panel to panel."""

    __slots__ = ("address", "k_step", "panel")

    def __init__(self, address: str, k_step: str, panel: str) -> None:
        self.address, self.k_step, self.panel = address, k_step, panel


def width(item: int) -> int:
    """Columns of a panel."""
    return sizes(item)[2]


def panel_bytes(k: int, item: int) -> int:
    """What a panel of k rows takes."""
    return panel_elements(width(item), k) * item


_functions: dict[str, tuple[int, int]] = {}


def addresses(d: dtype) -> tuple[int, int]:
    """Where the product and the packing of one element type are."""
    found = _functions.get(d.name)
    if found is None:
        from .. import compile as compiler
        got = compiler.functions(("attention products", d.name), (PRODUCT, PACK), lambda: text(d))
        found = _functions[d.name] = got[PRODUCT], got[PACK]
    return found


def call_product(em: Emitter, function: str, sizes: tuple[str, str, str], a: tuple[str, str, str], b: Right, c: tuple[str, str], mode: str) -> None:
    """C = A B (mode 0) or C += A B (mode 1).  sizes: rows, columns and the length summed over; a: (address, bytes from row to row,
    from k to k); c: (address, bytes from row to row)."""
    m, n, k = sizes
    em.line(f"call void {function}(i64 {m}, i64 {n}, i64 {k}, ptr {a[0]}, i64 {a[1]}, i64 {a[2]}, ptr {b.address}, i64 {b.k_step}, "
            f"i64 {b.panel}, ptr {c[0]}, i64 {c[1]}, i64 {mode})")


def call_pack(em: Emitter, function: str, source: str, lane_step: str, k_step: str, lanes: str, k: str, target: str, panel: str) -> None:
    """A matrix of `k` by `lanes` as panels at `target`; steps in bytes."""
    em.line(f"call void {function}(ptr {source}, i64 {lane_step}, i64 {k_step}, i64 {lanes}, i64 {k}, ptr {target}, i64 {panel})")


def text(d: dtype) -> str:
    """The IR of both for one element type."""
    module = Module()
    tile = Tile(d)
    _write_tiles(module, tile)
    write_packer(module, tile, "pack_columns", tile.width)
    wide, high = str(tile.width), str(tile.rows)
    em = Emitter(module, f"void @{PRODUCT}(i64 %m, i64 %n, i64 %k, ptr %a, i64 %a_row, i64 %a_k, ptr %b, i64 %b_k, i64 %b_panel, ptr %c, "
                         "i64 %ldc, i64 %mode)")
    with em.loop("0", "%m", high, [("ptr", "%a"), ("ptr", "%c")]) as i:
        rows = em.smaller(high, em.sub("%m", i.i))
        with em.loop("0", "%n", wide, [("ptr", "%b"), ("ptr", i.vars[1])]) as j:
            columns = em.smaller(wide, em.sub("%n", j.i))
            em.line(f"call void @tile(i64 {rows}, i64 %k, ptr {i.vars[0]}, i64 %a_row, i64 %a_k, ptr {j.vars[0]}, i64 %b_k, ptr {j.vars[1]}, "
                    f"i64 %ldc, i64 {columns}, i64 %mode)")
            j.next = [em.at(j.vars[0], "%b_panel"), em.at(j.vars[1], str(tile.width * tile.item))]
        i.next = [em.at(i.vars[0], em.mul("%a_row", high)), em.at(i.vars[1], em.mul("%ldc", high))]
    em.line("ret void")
    em.finish()
    em = Emitter(module, f"void @{PACK}(ptr %src, i64 %lane_step, i64 %k_step, i64 %lanes, i64 %k, ptr %dst, i64 %panel)")
    with em.loop("0", "%lanes", wide, [("ptr", "%src"), ("ptr", "%dst")]) as j:
        columns = em.smaller(wide, em.sub("%lanes", j.i))
        em.line(f"call void @pack_columns(ptr {j.vars[0]}, i64 %lane_step, i64 %k_step, i64 {columns}, i64 %k, ptr {j.vars[1]})")
        j.next = [em.at(j.vars[0], em.mul("%lane_step", wide)), em.at(j.vars[1], "%panel")]
    em.line("ret void")
    em.finish()
    return module.text()


_SIGNATURE = "i64 %k, ptr %a, i64 %a_row, i64 %a_k, ptr %b, i64 %b_k, ptr %c, i64 %ldc, i64 %cols"


def _write_tiles(module: Module, tile: Tile) -> None:
    """Adds @tile: up to tile.rows by tile.width of C."""
    em = Emitter(module, f"internal void @tile(i64 %rows, {_SIGNATURE}, i64 %mode)")
    base, base_row = addend(em, tile)

    def call(rows: int, vectors: int, above: int) -> None:
        a, c, added = (em.at(p, em.mul(str(above), step)) for p, step in (("%a", "%a_row"), ("%c", "%ldc"), (base, base_row)))
        em.line(f"tail call void @tile_{rows}_{vectors}(i64 %k, ptr {a}, i64 %a_row, i64 %a_k, ptr %b, i64 %b_k, ptr {c}, i64 %ldc, i64 %cols, "
                f"ptr {added}, i64 {base_row})")
    for rows, vectors in write_choice(em, tile, call):
        _write_tile(module, tile, rows, vectors)


def _write_tile(module: Module, tile: Tile, rows: int, vectors: int) -> None:
    d, lanes, item = tile.d, tile.lanes, tile.item
    t = ty(d, lanes)
    em = Emitter(module, f"internal void @tile_{rows}_{vectors}({_SIGNATURE}, ptr %base, i64 %base_row)")
    # every third row has a pointer of its own; the two after it are one and two steps from there
    bases = ["%a"]
    for _ in range(3, rows, 3):
        bases.append(em.at(bases[-1], em.mul("%a_row", "3")))
    # else LLVM finds that all are sums of one pointer, and makes of them a chain as long as the tile takes
    bases = [em.op(f'call ptr asm "", "=r,0"(ptr {p})') for p in bases]
    start = [("ptr", p) for p in ("%b", *bases)] + [(t, "zeroinitializer")] * (rows * vectors)
    with em.loop("0", "%k", carried=start) as k:
        b, at, before = k.vars[0], k.vars[1:1 + len(bases)], k.vars[1 + len(bases):]
        right = [em.load(d, lanes, em.at(b, str(v * lanes * item))) for v in range(vectors)]
        sums = []
        for r in range(rows):
            place = at[r // 3]
            if r % 3:
                place = em.op(f"getelementptr i{8 * (r % 3)}, ptr {place}, i64 %a_row", "p")
            left = em.broadcast(em.load(d, 1, place), ty(d, 1), lanes)
            sums += [em.intrinsic("fma", d, lanes, left, right[v], before[r * vectors + v]) for v in range(vectors)]
        k.next = [em.at(b, "%b_k"), *[em.at(p, "%a_k") for p in at], *sums]
    finish_tile(em, tile, rows, vectors, k.vars[1 + len(bases):])
