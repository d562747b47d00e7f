"""Matrix products as machine code: blocks of C shared out over the threads, panels packed into the nearest caches.

A task is a block of C.  For each block of K it packs its columns of B into scratch memory (for the second-level cache),
then, row panel after row panel, packs the panel of A (for the first-level cache) and runs the tiles along those rows, so
that C is walked along its rows.
Nothing is shared between tasks, so there is no barrier; and the sum for an element of C runs over K in an order that
depends on K alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import float32, float64
from .. import native
from . import scratch
from .emit import Emitter, Module
from .gemm_tile import Tile, panel_elements, write_packer, write_tiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype

NAME = "flambeau_gemm"
TYPES = (float32, float64)
# sizes of blocks: multiples of the tiles of every CPU (rows 6 and 14; columns up to 32)
ROWS_STEP, COLUMNS_STEP = 42, 32
DEPTH_BYTES = 1280  # of K in a block: a panel of B of 32 columns takes 40 KB
BLOCK_BYTES = 1 << 19  # of a task's packed columns of B
MOST_ROWS = 2016  # of a task
FEW = 8  # rows of B packed at a time where they are neighbours in memory

# the parameter block; strides in bytes
M, N, K, ROWS, COLUMNS, DEPTH, ROW_BLOCKS, COLUMN_BLOCKS, ADD, LDC, C_STEP, A_ROW, A_COL, A_STEP, B_ROW, B_COL, B_STEP = range(17)


def gemm(d: dtype, m: int, n: int, k: int, a: tuple[int, int, int], b: tuple[int, int, int], c: tuple[int, int], batch: int = 1,
         add: bool = False) -> Callable[..., None]:
    """A native launch ``entry(C, A, B)``: C = A B, or C += A B where `add`, for `batch` matrices.

    a, b: (elements from row to row, from column to column, from matrix to matrix), any numbers.  c: (from row to row, from
    matrix to matrix); its columns are neighbours.  m, n, k and batch are not zero; d is float32 or float64.
    """
    item = d.itemsize
    threads = native.get_num_threads()
    blocks = -(-k // (DEPTH_BYTES // item))
    depth = -(-k // blocks)
    depth = -(-depth // 16) * 16
    rows, columns = _task(m, n, depth * item, batch, threads)
    row_blocks, column_blocks = -(-m // rows), -(-n // columns)
    total = row_blocks * column_blocks * batch
    params = [m, n, k, rows, columns, depth, row_blocks, column_blocks, int(add), c[0] * item, c[1] * item,
              *(s * item for s in a), *(s * item for s in b)]
    flops = 2 * m * n * k * batch
    return native.make_entry([(_function(d), total, max(1, total // (8 * threads)))], params, 3, parallel=flops > 1 << 20)


def _task(m: int, n: int, depth_bytes: int, batch: int, threads: int) -> tuple[int, int]:
    """Rows and columns of a task's block of C: enough tasks for the threads, panels of B as many as the cache holds."""
    most = max(1, BLOCK_BYTES // depth_bytes // COLUMNS_STEP) * COLUMNS_STEP
    rows, columns = _even(m, MOST_ROWS, ROWS_STEP), _even(n, most, COLUMNS_STEP)
    if threads == 1:
        return rows, columns
    have, wanted = -(-m // rows) * -(-n // columns) * batch, 3 * threads
    if have < wanted:
        need = -(-wanted // have)
        if m >= columns:
            rows = max(ROWS_STEP, _even(m, -(-rows // need), ROWS_STEP))
        else:
            columns = max(2 * COLUMNS_STEP, _even(n, -(-columns // need), COLUMNS_STEP))
    return rows, columns


def _even(size: int, most: int, step: int) -> int:
    """The length of equal pieces of `size`, each at most `most` where that is a multiple of `step`."""
    pieces = -(-size // most)
    return -(-(-(-size // pieces)) // step) * step


_functions: dict[str, int] = {}


def _function(d: dtype) -> int:
    found = _functions.get(d.name)
    if found is None:
        from . import compile as compiler
        found = _functions[d.name] = compiler.functions(("gemm", d.name), (NAME,), lambda: text(d))[NAME]
    return found


def text(d: dtype) -> str:
    """The IR of the products of one element type."""
    module = Module()
    tile = Tile(module, d)
    write_tiles(module, tile)
    write_packer(module, tile, "pack_rows", tile.rows)
    write_packer(module, tile, "pack_columns", tile.width)
    _write(module, tile)
    return module.text()


def _write(module: Module, tile: Tile) -> None:
    em = Emitter(module, f"void @{NAME}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    c, a, b = (em.pointer("%args", k) for k in range(3))
    word = [em.word("%block", k) for k in range(B_STEP + 1)]
    # a panel of B takes this much, all of them together that much
    wide = panel_bytes(em, tile, tile.width, word[DEPTH])
    room = em.mul(em.op(f"sdiv i64 {em.add(word[COLUMNS], str(tile.width - 1))}, {tile.width}"), wide)
    memory, index = scratch.take(em, em.add(room, panel_bytes(em, tile, tile.rows, word[DEPTH])))
    packed_a = em.at(memory, room)
    per_matrix = em.mul(word[ROW_BLOCKS], word[COLUMN_BLOCKS])
    along = em.op(f"icmp eq i64 {word[B_COL]}, {tile.item}")
    with em.loop("%begin", "%end") as task:
        matrix = em.op(f"sdiv i64 {task.i}, {per_matrix}")
        rest = em.sub(task.i, em.mul(matrix, per_matrix))
        i_block = em.op(f"sdiv i64 {rest}, {word[COLUMN_BLOCKS]}")
        j_block = em.sub(rest, em.mul(i_block, word[COLUMN_BLOCKS]))
        i0, j0 = em.mul(i_block, word[ROWS]), em.mul(j_block, word[COLUMNS])
        rows = em.smaller(word[ROWS], em.sub(word[M], i0))
        columns = em.smaller(word[COLUMNS], em.sub(word[N], j0))
        a1 = em.at(em.at(a, em.mul(matrix, word[A_STEP])), em.mul(i0, word[A_ROW]))
        b1 = em.at(em.at(b, em.mul(matrix, word[B_STEP])), em.mul(j0, word[B_COL]))
        c1 = em.at(em.at(em.at(c, em.mul(matrix, word[C_STEP])), em.mul(i0, word[LDC])), em.mul(j0, str(tile.item)))
        with em.loop("0", word[K], word[DEPTH]) as k:
            depth = em.smaller(word[DEPTH], em.sub(word[K], k.i))
            first = em.op(f"icmp eq i64 {k.i}, 0")
            add = em.op(f"select i1 {first}, i64 {word[ADD]}, i64 1")
            a2, b2 = em.at(a1, em.mul(k.i, word[A_COL])), em.at(b1, em.mul(k.i, word[B_ROW]))
            # rows of B that are neighbours in memory are read whole, a few at a time
            few = em.op(f"select i1 {along}, i64 {FEW}, i64 {depth}")
            with em.loop("0", depth, few) as part:
                here = em.smaller(few, em.sub(depth, part.i))
                source, target = em.at(b2, em.mul(part.i, word[B_ROW])), em.at(memory, em.mul(part.i, str(tile.width * tile.item)))
                with em.loop("0", columns, str(tile.width), [("ptr", source), ("ptr", target)]) as j:
                    count = em.smaller(str(tile.width), em.sub(columns, j.i))
                    em.line(f"call void @pack_columns(ptr {j.vars[0]}, i64 {word[B_COL]}, i64 {word[B_ROW]}, i64 {count}, i64 {here}, ptr {j.vars[1]})")
                    j.next = [em.at(j.vars[0], em.mul(word[B_COL], str(tile.width))), em.at(j.vars[1], wide)]
            with em.loop("0", rows, str(tile.rows), [("ptr", a2), ("ptr", c1)]) as i:
                high = em.smaller(str(tile.rows), em.sub(rows, i.i))
                em.line(f"call void @pack_rows(ptr {i.vars[0]}, i64 {word[A_ROW]}, i64 {word[A_COL]}, i64 {high}, i64 {depth}, ptr {packed_a})")
                with em.loop("0", columns, str(tile.width), [("ptr", memory), ("ptr", i.vars[1])]) as j:
                    count = em.smaller(str(tile.width), em.sub(columns, j.i))
                    em.line(f"call void @tile(i64 {high}, i64 {count}, i64 {depth}, ptr {packed_a}, ptr {j.vars[0]}, ptr {j.vars[1]}, "
                            f"i64 {word[LDC]}, i64 {add})")
                    j.next = [em.at(j.vars[0], wide), em.at(j.vars[1], str(tile.width * tile.item))]
                i.next = [em.at(i.vars[0], em.mul(word[A_ROW], str(tile.rows))), em.at(i.vars[1], em.mul(word[LDC], str(tile.rows)))]
    scratch.give(em, index)
    em.line("ret void")
    em.finish()


def panel_bytes(em: Emitter, tile: Tile, rows: int, k: str) -> str:
    """`panel_elements` in bytes, for a k that is a multiple of 16."""
    return em.mul(em.add(em.mul(k, str(rows)), str(panel_elements(0, 0))), str(tile.item))
