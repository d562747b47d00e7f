"""Matrix products as machine code: blocks of C shared out over the threads, panels packed into the nearest caches.

A task is a block of C.  For each block of K it packs its columns of B into scratch memory (for the second-level cache),
then, row panel after row panel, packs the panel of A (for the first-level cache) and runs the tiles along those rows, so
that C is walked along its rows.
Nothing is shared between tasks, so there is no barrier; and the sum for an element of C runs over K in an order that
depends on K alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....dtypes import float32, float64
from ... import native
from .. import scratch
from ..emit import Emitter, Module
from .gemm_tile import (
    ADDED,
    GATED,
    GATED_SUM,
    PLAIN,
    RECTIFIED,
    RECTIFIED_SUM,
    SHIFTED,
    Tile,
    call_tile,
    panel_elements,
    prefetch,
    sizes,
    write_packer,
    write_tiles,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....dtypes import dtype

NAME, NAME_FEW = "flambeau_gemm", "flambeau_gemm_few"
TYPES = (float32, float64)
DEPTH_BYTES = 1536  # of K in a block: a panel of A takes 24 KB of the nearest cache, one of B 48 KB of the next
BLOCK_BYTES = 3 << 18  # of a task's packed columns of B
MOST_ROWS = 2016  # of a task
MOST_BARE = 1 << 18  # bytes of a matrix read without packing it
FEW_PANELS = 16  # of B for which A is read in place, where its rows are neighbours
MOST_APART = 2048  # bytes between its columns then
NEAR = 1 << 20  # bytes of operands that are in the second-level cache anyway
PIECES = 8  # most tasks a thread, along each side
TILE = 14.5  # cycles of a tile for each k
LEAST_SHARED = 1 << 20  # operations that are shared by threads
FEW_ROWS = 280  # of C, for which all of A is packed at once
FEW = 16  # rows of B packed at a time where they are neighbours in memory

# the parameter block; strides in bytes
(M, N, K, ROWS, COLUMNS, DEPTH, ROW_BLOCKS, COLUMN_BLOCKS, ADD, LDC, C_STEP, A_ROW, A_COL, A_STEP, B_ROW, B_COL, B_STEP, BARE_A, BARE_B, FAR,
 ALONE, LAST, OPERANDS) = range(23)  # ADD: the mode of K's first block; ALONE: where there is one; LAST: of the last of several


def gemm(d: dtype, m: int, n: int, k: int, a: tuple[int, int, int], b: tuple[int, int, int], c: tuple[int, int], batch: int = 1,
         add: bool = False, bias: bool = False, after: str = "") -> Callable[..., None]:
    """A native launch ``entry(C, A, B)``: C = A B, or C += A B where `add`, for `batch` matrices; or ``entry(C, A, B, row)``,
    C = A B + a row of n neighbours, where `bias`.  after: "relu", then max(x, 0), beside `bias`; or "relu gradient", alone: ``entry(C,
    A, B, Y)``, where Y, laid out as C, is not above 0, C is 0.

    a, b: (elements from row to row, from column to column, from matrix to matrix), any numbers.  c: (from row to row, from
    matrix to matrix); its columns are neighbours.  m, n, k and batch are not zero; d is float32, float64, or an integer type of their sizes, which has
    neither `bias` nor `after`.
    """
    item = d.itemsize
    flops = 2 * m * n * k * batch
    threads = native.get_num_threads() if flops > LEAST_SHARED else 1
    blocks = -(-k // (DEPTH_BYTES // item))
    depth = -(-k // blocks)
    depth = -(-depth // 16) * 16
    # of many matrices each is read for the first time, which goes better in order, as packing does
    bare_b = bare(k, n, b[0] * item, b[1] * item, item, k if batch < 8 else 64)
    # its rows are neighbours then; where many panels of columns share the work, packing is worth it
    bare_a = a[0] == 1 and 0 < a[1] * item <= MOST_APART and n <= FEW_PANELS * sizes(item)[2]
    rows, columns = _task(m, n, depth * item, batch, threads, bare_a, bare_b, sizes(item))
    row_blocks, column_blocks = -(-m // rows), -(-n // columns)
    total = row_blocks * column_blocks * batch
    far = (m * k + k * n) * item * batch > NEAR
    first = SHIFTED if bias else ADDED if add else PLAIN
    alone, last = {"": (first, ADDED), "relu": (RECTIFIED, RECTIFIED_SUM), "relu gradient": (GATED, GATED_SUM)}[after]
    operands = 4 if bias or after else 3
    params = [m, n, k, rows, columns, depth, row_blocks, column_blocks, first, c[0] * item, c[1] * item,
              *(s * item for s in a), *(s * item for s in b), int(bare_a), int(bare_b), int(far), alone, last, operands]
    code = _function(d, bool(after))[NAME_FEW if m <= FEW_ROWS and b[0] == 1 and not bare_b else NAME]
    return native.make_entry([(code, total, max(1, total // (8 * threads)))], params, operands, parallel=flops > LEAST_SHARED)


def _task(m: int, n: int, depth_bytes: int, batch: int, threads: int, bare_a: bool, bare_b: bool, tile: tuple[int, int, int]) -> tuple[int, int]:
    """Rows and columns of a task's block of C: the threads are done at the same time, little is packed more than once, and
    the panels of B are no more than the cache holds."""
    high, _, width = tile
    above, across = -(-m // high), -(-n // width)
    most = max(1, BLOCK_BYTES // (depth_bytes * width))
    if threads == 1 and above * high <= MOST_ROWS and across <= most:
        return above * high, across * width  # nothing is packed twice
    best: tuple[float, int, int] | None = None
    for p in sorted({-(-above // i) for i in range(1, PIECES * threads + 1)} | {MOST_ROWS // high}, reverse=True):
        for q in sorted({-(-across // j) for j in range(1, PIECES * threads + 1)} | {most}, reverse=True):
            if p * high > MOST_ROWS or p > above or q > most or q > across:
                continue
            # cycles for each k: of a tile, of packing a panel
            task = TILE * p * q + (0 if bare_a else 4.5 * p) + (0 if bare_b else 9 * q) + 2
            tasks = -(-above // p) * -(-across // q) * batch
            # threads are never quite alike: what is left when the first is done is to be small
            cost = -(-tasks // threads) * task + (task / 16 if threads > 1 else 0)
            if best is None or cost < best[0]:
                best = cost, p, q
    assert best is not None
    return best[1] * high, best[2] * width


def bare(rows: int, columns: int, row: int, column: int, item: int, most_alike: int) -> bool:
    """Whether a matrix is read where it is: small, and its rows do not fall on the same few lines of the nearest cache.

    row, column: steps in bytes.  most_alike: how many rows may lie a multiple of 512 bytes apart.
    """
    return column == item and row > 0 and rows * columns * item <= MOST_BARE and row % 4096 > 0 and (row % 512 > 0 or rows <= most_alike)


_functions: dict[tuple[str, bool], dict[str, int]] = {}


def _function(d: dtype, active: bool) -> dict[str, int]:
    found = _functions.get((d.name, active))
    if found is None:
        from .. import compile as compiler
        found = _functions[d.name, active] = compiler.functions(("gemm", d.name, str(active)), (NAME, NAME_FEW), lambda: text(d, active))
    return found


def text(d: dtype, active: bool = False) -> str:
    """The IR of the products of one element type; a module of its own has what activations add to their stores."""
    module = Module()
    tile = Tile(d)
    write_tiles(module, tile, active=active)
    write_packer(module, tile, "pack_rows", tile.high)
    write_packer(module, tile, "pack_columns", tile.width)
    _write(module, tile)
    _write_few(module, tile)
    return module.text()


def _write(module: Module, tile: Tile) -> None:
    em = Emitter(module, f"void @{NAME}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    word = [em.word("%block", k) for k in range(OPERANDS + 1)]
    operands = _operands(em, word)
    # a panel of B takes this much, all of them together that much
    wide = panel_bytes(em, tile, tile.width, word[DEPTH])
    room = em.mul(em.op(f"sdiv i64 {em.add(word[COLUMNS], str(tile.width - 1))}, {tile.width}"), wide)
    memory, index = scratch.take(em, em.add(room, panel_bytes(em, tile, tile.high, word[DEPTH])))
    packed_a = em.at(memory, room)
    bare_b = em.op(f"icmp ne i64 {word[BARE_B]}, 0")
    bare_a = em.op(f"icmp ne i64 {word[BARE_A]}, 0")
    want = em.op(f"icmp ne i64 {word[FAR]}, 0")
    want_a = em.op(f"and i1 {want}, {em.op(f'xor i1 {bare_a}, true')}")
    with em.loop("%begin", "%end") as task:
        rows, columns, a1, b1, c1, row1 = _block(em, tile, word, operands, task.i)
        with em.loop("0", word[K], word[DEPTH]) as k:
            depth = em.smaller(word[DEPTH], em.sub(word[K], k.i))
            mode = _mode(em, word, k.i, depth)
            a2, b2 = em.at(a1, em.mul(k.i, word[A_COL])), em.at(b1, em.mul(k.i, word[B_ROW]))
            _pack_b(em, tile, word, b2, depth, columns, memory, wide)
            panels = em.op(f"sdiv i64 {em.add(columns, str(tile.width - 1))}, {tile.width}")
            pack_b = em.op(f"icmp eq i64 {word[BARE_B]}, 0")
            heights = em.op(f"sdiv i64 {em.add(rows, str(tile.rows - 1))}, {tile.rows}")
            # the next block of K; where nothing is packed, the next matrix
            lower = em.op(f"select i1 {pack_b}, i64 {em.mul(depth, word[B_ROW])}, i64 {word[B_STEP]}")
            wanted = em.op(f"and i1 {want}, {em.op(f'icmp ne i64 {lower}, 0')}")
            below = _Ahead(em, tile, em.at(b2, lower), columns, word[B_COL], depth, word[B_ROW], wanted, heights)
            with em.loop("0", rows, str(tile.rows), [("ptr", a2), ("ptr", c1), ("i64", "0")]) as i:
                high = em.smaller(str(tile.rows), em.sub(rows, i.i))
                with em.only_if(em.op(f"xor i1 {bare_a}, true")):
                    em.line(f"call void @pack_rows(ptr {i.vars[0]}, i64 {word[A_ROW]}, i64 {word[A_COL]}, i64 {high}, i64 {depth}, ptr {packed_a})")
                left = (em.op(f"select i1 {bare_a}, ptr {i.vars[0]}, ptr {packed_a}"),
                        em.op(f"select i1 {bare_a}, i64 {word[A_COL]}, i64 {tile.high * tile.item}"))
                following = em.at(i.vars[0], em.mul(word[A_ROW], str(tile.rows)))
                ahead = _Ahead(em, tile, following, str(tile.rows), word[A_ROW], depth, word[A_COL], want_a, panels)
                below.write(i.vars[2])
                with em.loop("0", columns, str(tile.width), [("ptr", memory), ("ptr", b2), ("ptr", i.vars[1]), ("i64", "0")]) as j:
                    ahead.write(j.vars[3])
                    count = em.smaller(str(tile.width), em.sub(columns, j.i))
                    whole = em.op(f"icmp eq i64 {count}, {tile.width}")
                    there = em.op(f"and i1 {bare_b}, {whole}")
                    right = em.op(f"select i1 {there}, ptr {j.vars[1]}, ptr {j.vars[0]}")
                    b_k = em.op(f"select i1 {there}, i64 {word[B_ROW]}, i64 {tile.width * tile.item}")
                    call_tile(em, tile, high, count, depth, left, (right, b_k), (j.vars[2], word[LDC]), mode,
                              _beside(em, tile, mode, operands, row1, j.i, j.vars[2]))
                    j.next = [em.at(j.vars[0], wide), em.at(j.vars[1], str(tile.width * tile.item)), em.at(j.vars[2], str(tile.width * tile.item)),
                              em.add(j.vars[3], "1")]
                i.next = [em.at(i.vars[0], em.mul(word[A_ROW], str(tile.rows))), em.at(i.vars[1], em.mul(word[LDC], str(tile.rows))),
                          em.add(i.vars[2], "1")]
    scratch.give(em, index)
    em.line("ret void")
    em.finish()


def _operands(em: Emitter, word: list[str]) -> list[str]:
    """The addresses of C, A, B and the row that is added, or the matrix that gates."""
    more = em.op(f"icmp eq i64 {word[OPERANDS]}, 4")
    return [*(em.pointer("%args", k) for k in range(3)), em.pointer(em.at("%args", em.op(f"select i1 {more}, i64 24, i64 0")), 0)]


def _mode(em: Emitter, word: list[str], k: str, depth: str) -> str:
    """A tile's mode in the block of K that begins at `k`."""
    last = em.op(f"icmp sge i64 {em.add(k, depth)}, {word[K]}")
    begin, rest = em.op(f"select i1 {last}, i64 {word[ALONE]}, i64 {word[ADD]}"), em.op(f"select i1 {last}, i64 {word[LAST]}, i64 {ADDED}")
    return em.op(f"select i1 {em.op(f'icmp eq i64 {k}, 0')}, i64 {begin}, i64 {rest}")


def _beside(em: Emitter, tile: Tile, mode: str, operands: list[str], row: str, j: str, c: str) -> str:
    """What a tile of C at `c`, `j` columns on in its task, reads beside: of the row that is added, or of the matrix that gates."""
    offset = em.op(f"sub i64 {em.op(f'ptrtoint ptr {c} to i64')}, {em.op(f'ptrtoint ptr {operands[0]} to i64')}")
    gated = em.op(f"icmp sge i64 {mode}, {GATED}")
    return em.op(f"select i1 {gated}, ptr {em.at(operands[3], offset)}, ptr {em.at(row, em.mul(j, str(tile.item)))}")


def _block(em: Emitter, tile: Tile, word: list[str], operands: list[str], task: str) -> tuple[str, str, str, str, str, str]:
    """(rows, columns) of a task's block of C, and where its A, B, C and the row that is added begin."""
    c, a, b, row = operands
    per_matrix = em.mul(word[ROW_BLOCKS], word[COLUMN_BLOCKS])
    matrix = em.op(f"sdiv i64 {task}, {per_matrix}")
    rest = em.sub(task, em.mul(matrix, per_matrix))
    i_block = em.op(f"sdiv i64 {rest}, {word[COLUMN_BLOCKS]}")
    i0, j0 = em.mul(i_block, word[ROWS]), em.mul(em.sub(rest, em.mul(i_block, word[COLUMN_BLOCKS])), word[COLUMNS])
    return (em.smaller(word[ROWS], em.sub(word[M], i0)), em.smaller(word[COLUMNS], em.sub(word[N], j0)),
            em.at(em.at(a, em.mul(matrix, word[A_STEP])), em.mul(i0, word[A_ROW])),
            em.at(em.at(b, em.mul(matrix, word[B_STEP])), em.mul(j0, word[B_COL])),
            em.at(em.at(em.at(c, em.mul(matrix, word[C_STEP])), em.mul(i0, word[LDC])), em.mul(j0, str(tile.item))),
            em.at(row, em.mul(j0, str(tile.item))))


def _write_few(module: Module, tile: Tile) -> None:
    """For few rows, which read B's columns from far: all of A is packed, then panel after panel of B, while the next is fetched."""
    em = Emitter(module, f"void @{NAME_FEW}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    word = [em.word("%block", k) for k in range(OPERANDS + 1)]
    operands = _operands(em, word)
    tall = panel_bytes(em, tile, tile.high, word[DEPTH])
    room = em.mul(em.op(f"sdiv i64 {em.add(word[ROWS], str(tile.rows - 1))}, {tile.rows}"), tall)
    packed_a, index = scratch.take(em, em.add(room, panel_bytes(em, tile, tile.width, word[DEPTH])))
    packed_b = em.at(packed_a, room)
    with em.loop("%begin", "%end") as task:
        rows, columns, a1, b1, c1, row1 = _block(em, tile, word, operands, task.i)
        heights = em.op(f"sdiv i64 {em.add(rows, str(tile.rows - 1))}, {tile.rows}")
        with em.loop("0", word[K], word[DEPTH]) as k:
            depth = em.smaller(word[DEPTH], em.sub(word[K], k.i))
            mode = _mode(em, word, k.i, depth)
            with em.loop("0", rows, str(tile.rows), [("ptr", em.at(a1, em.mul(k.i, word[A_COL]))), ("ptr", packed_a)]) as i:
                high = em.smaller(str(tile.rows), em.sub(rows, i.i))
                em.line(f"call void @pack_rows(ptr {i.vars[0]}, i64 {word[A_ROW]}, i64 {word[A_COL]}, i64 {high}, i64 {depth}, ptr {i.vars[1]})")
                i.next = [em.at(i.vars[0], em.mul(word[A_ROW], str(tile.rows))), em.at(i.vars[1], tall)]
            step = em.mul(word[B_COL], str(tile.width))
            with em.loop("0", columns, str(tile.width), [("ptr", em.at(b1, em.mul(k.i, word[B_ROW]))), ("ptr", c1)]) as j:
                count = em.smaller(str(tile.width), em.sub(columns, j.i))
                left = em.smaller(str(tile.width), em.sub(em.sub(columns, j.i), str(tile.width)))
                em.line(f"call void @pack_columns(ptr {j.vars[0]}, i64 {word[B_COL]}, i64 {word[B_ROW]}, i64 {count}, i64 {depth}, ptr {packed_b})")
                following = em.at(j.vars[0], step)
                ahead = _Ahead(em, tile, following, left, word[B_COL], depth, word[B_ROW], em.op(f"icmp sgt i64 {left}, 0"), heights)
                with em.loop("0", rows, str(tile.rows), [("ptr", packed_a), ("ptr", j.vars[1]), ("i64", "0")]) as i:
                    ahead.write(i.vars[2])
                    high = em.smaller(str(tile.rows), em.sub(rows, i.i))
                    call_tile(em, tile, high, count, depth, i.vars[0], (packed_b, str(tile.width * tile.item)), (i.vars[1], word[LDC]), mode,
                              _beside(em, tile, mode, operands, row1, j.i, i.vars[1]))
                    i.next = [em.at(i.vars[0], tall), em.at(i.vars[1], em.mul(word[LDC], str(tile.rows))), em.add(i.vars[2], "1")]
                j.next = [following, em.at(j.vars[1], str(tile.width * tile.item))]
    scratch.give(em, index)
    em.line("ret void")
    em.finish()


class _Ahead:
    """Fetches the lines of what is to be packed next while tiles are computed, in so many shares: packing would wait for
    each line else.

    A block of `lanes` by `depth` elements: steps in bytes between neighbours along each; whichever are neighbours in
    memory make a run.
    """

    def __init__(self, em: Emitter, tile: Tile, source: str, lanes: str, lane_step: str, depth: str, k_step: str, wanted: str, shares: str) -> None:
        self.em, self.source = em, source
        along = em.op(f"icmp eq i64 {lane_step}, {tile.item}")

        def either(a: str, b: str) -> str:
            return em.op(f"select i1 {along}, i64 {a}, i64 {b}")
        self.runs, self.step, self.length = either(depth, lanes), either(k_step, lane_step), em.mul(either(lanes, depth), str(tile.item))
        self.runs = em.op(f"select i1 {wanted}, i64 {self.runs}, i64 0")
        self.share = em.op(f"sdiv i64 {em.sub(em.add(self.runs, shares), '1')}, {shares}")

    def write(self, index: str) -> None:
        em = self.em
        first = em.mul(index, self.share)
        with em.loop(first, em.smaller(em.add(first, self.share), self.runs)) as run:
            start = em.at(self.source, em.mul(run.i, self.step))
            with em.loop("0", self.length, "256") as line:
                for k in range(0, 256, 64):
                    prefetch(em, em.at(start, em.add(line.i, str(k))), near=2)


def _pack_b(em: Emitter, tile: Tile, word: list[str], source: str, depth: str, columns: str, memory: str, wide: str) -> None:
    """The panels of a task's columns; where B is read in place, only the last, incomplete one."""
    bare = em.op(f"icmp ne i64 {word[BARE_B]}, 0")
    start = em.op(f"select i1 {bare}, i64 {em.mul(em.op(f'sdiv i64 {columns}, {tile.width}'), str(tile.width))}, i64 0")
    source = em.at(source, em.mul(start, word[B_COL]))
    memory = em.at(memory, em.mul(em.op(f"sdiv i64 {start}, {tile.width}"), wide))
    # rows of B that are neighbours in memory are read whole, a few at a time
    along = em.op(f"icmp eq i64 {word[B_COL]}, {tile.item}")
    few = em.op(f"select i1 {along}, i64 {FEW}, i64 {depth}")
    with em.loop("0", depth, few) as part:
        here = em.smaller(few, em.sub(depth, part.i))
        first, target = em.at(source, em.mul(part.i, word[B_ROW])), em.at(memory, em.mul(part.i, str(tile.width * tile.item)))
        with em.loop(start, columns, str(tile.width), [("ptr", first), ("ptr", target)]) as j:
            count = em.smaller(str(tile.width), em.sub(columns, j.i))
            em.line(f"call void @pack_columns(ptr {j.vars[0]}, i64 {word[B_COL]}, i64 {word[B_ROW]}, i64 {count}, i64 {here}, ptr {j.vars[1]})")
            j.next = [em.at(j.vars[0], em.mul(word[B_COL], str(tile.width))), em.at(j.vars[1], wide)]


def panel_bytes(em: Emitter, tile: Tile, rows: int, k: str) -> str:
    """`panel_elements` in bytes, for a k that is a multiple of 16."""
    return em.mul(em.add(em.mul(k, str(rows)), str(panel_elements(0, 0))), str(tile.item))
