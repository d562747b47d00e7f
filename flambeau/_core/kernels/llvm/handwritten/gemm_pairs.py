"""Products of bfloat16 matrices by the instruction that adds two products of neighbours along K to a float32 sum.

The plan is `gemm`'s: tasks are blocks of C, panels are packed, tiles run along them.  An element of a panel is a pair along K here, 32 bits
wide; after an odd K comes a zero on both sides.  Sums stay in float32, over several blocks of K in scratch memory of the task, and are rounded
once.  The sum for an element of C runs over K in an order that depends on K alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....dtypes import bfloat16, float32
from ... import native
from .. import scratch
from ..casts import cast
from ..emit import Emitter, Module, number
from .gemm import FEW, _task, panel_bytes
from .gemm_tile import TURNS, VECTORS, Tile, prefetch, transposed, write_choice

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "flambeau_gemm_pairs"
DEPTH = 1024  # of K in a block: a panel of A takes 32 KB of the nearest cache, one of B 64 KB of the next
ELEMENT, PAIR = bfloat16.itemsize, 2 * bfloat16.itemsize

# the parameter block; strides in bytes
M, N, K, ROWS, COLUMNS, BLOCK, ROW_BLOCKS, COLUMN_BLOCKS, ADD, BIAS, LDC, C_STEP, A_ROW, A_COL, A_STEP, B_ROW, B_COL, B_STEP = range(18)


def gemm(m: int, n: int, k: int, a: tuple[int, int, int], b: tuple[int, int, int], c: tuple[int, int], batch: int = 1, add: bool = False,
         bias: bool = False) -> Callable[..., None]:
    """A native launch ``entry(C, A, B)``: C = A B, or C += A B where `add`, for `batch` matrices; or ``entry(C, A, B, row)``, C = A B + a row
    of n neighbours, where `bias`.

    a, b: (elements from row to row, from column to column, from matrix to matrix), where rows or columns are neighbours.  c: (from row to row,
    from matrix to matrix); its columns are neighbours.  m, n, k and batch are not zero.
    """
    threads, tile = native.get_num_threads(), Tile(float32)
    depth = -(-k // -(-k // DEPTH))
    depth = -(-depth // 32) * 32
    rows, columns = _task(m, n, depth * ELEMENT, batch, threads, False, False, (tile.rows, tile.lanes, tile.width))
    row_blocks, column_blocks = -(-m // rows), -(-n // columns)
    total = row_blocks * column_blocks * batch
    params = [m, n, k, rows, columns, depth, row_blocks, column_blocks, int(add), int(bias), c[0] * ELEMENT, c[1] * ELEMENT,
              *(s * ELEMENT for s in (*a, *b))]
    return native.make_entry([(_function(), total, max(1, total // (8 * threads)))], params, 4 if bias else 3, parallel=2 * m * n * k * batch > 1 << 21)


def _function() -> int:
    if not _made:
        from .. import compile as compiler
        _made.update(compiler.functions(("gemm_pairs",), (NAME,), text))
    return _made[NAME]


_made: dict[str, int] = {}


def text() -> str:
    """The IR."""
    module, tile = Module(), Tile(float32)
    _write_tiles(module, tile)
    _write_packer(module, tile, "pack_rows", tile.high)
    _write_packer(module, tile, "pack_columns", tile.width)
    _write(module, tile)
    return module.text()


def _write(module: Module, tile: Tile) -> None:
    em = Emitter(module, f"void @{NAME}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    word = [em.word("%block", n) for n in range(B_STEP + 1)]
    c, a, b = (em.pointer("%args", n) for n in range(3))
    biased, added = (em.op(f"icmp ne i64 {word[n]}, 0") for n in (BIAS, ADD))
    bias = em.pointer(em.at("%args", em.op(f"select i1 {biased}, i64 24, i64 0")), 0)
    pairs = em.op(f"sdiv i64 {word[BLOCK]}, 2")
    wide = panel_bytes(em, tile, tile.width, pairs)
    across = em.op(f"sdiv i64 {em.add(word[COLUMNS], str(tile.width - 1))}, {tile.width}")
    # the panels of B, a panel of A, the row that is added, and sums: between blocks of K, or what C holds
    sums_row, at_a = em.mul(across, str(tile.width * tile.item)), em.mul(across, wide)
    at_row = em.add(at_a, panel_bytes(em, tile, tile.high, pairs))
    at_sums = em.add(at_row, sums_row)
    summed = em.op(f"or i1 {added}, {em.op(f'icmp slt i64 {word[BLOCK]}, {word[K]}')}")
    kept = em.op(f"select i1 {summed}, i64 {em.mul(word[ROWS], sums_row)}, i64 0")
    memory, index = scratch.take(em, em.add(at_sums, kept))
    packed_a, row, sums = em.at(memory, at_a), em.at(memory, at_row), em.at(memory, at_sums)
    beside = em.op(f"select i1 {biased}, ptr {row}, ptr {_nothing(em, tile)}")
    beside_step = em.op(f"select i1 {biased}, i64 {tile.width * tile.item}, i64 0")
    with em.loop("%begin", "%end") as task:
        rows, columns, a1, b1, c1, row1 = _block(em, word, c, a, b, bias, task.i)
        _widen(em, tile, em.op(f"select i1 {biased}, i64 1, i64 0"), columns, (row1, "0"), (row, "0"))
        _widen(em, tile, em.op(f"select i1 {added}, i64 {rows}, i64 0"), columns, (c1, word[LDC]), (sums, sums_row))
        with em.loop("0", word[K], word[BLOCK]) as k:
            depth = em.smaller(word[BLOCK], em.sub(word[K], k.i))
            count = em.op(f"sdiv i64 {em.add(depth, '1')}, 2")
            last = em.op(f"icmp sge i64 {em.add(k.i, depth)}, {word[K]}")
            begun = em.op(f"or i1 {added}, {em.op(f'icmp sgt i64 {k.i}, 0')}")
            base_row, base_step = (em.op(f"select i1 {begun}, i64 {more}, i64 {step}")
                                   for more, step in ((sums_row, "0"), (str(tile.width * tile.item), beside_step)))
            _pack_b(em, tile, word, em.at(b1, em.mul(k.i, word[B_ROW])), depth, columns, memory, wide)
            start = [("ptr", em.at(a1, em.mul(k.i, word[A_COL]))), ("ptr", c1), ("ptr", sums)]
            with em.loop("0", rows, str(tile.rows), start) as i:
                high = em.smaller(str(tile.rows), em.sub(rows, i.i))
                em.line(f"call void @pack_rows(ptr {i.vars[0]}, i64 {word[A_ROW]}, i64 {word[A_COL]}, i64 {high}, i64 {depth}, ptr {packed_a})")
                base = em.op(f"select i1 {begun}, ptr {i.vars[2]}, ptr {beside}")
                with em.loop("0", columns, str(tile.width), [("ptr", memory), ("ptr", i.vars[1]), ("ptr", i.vars[2]), ("ptr", base)]) as j:
                    some = em.smaller(str(tile.width), em.sub(columns, j.i))
                    em.line(f"call void @tile(i64 {high}, i64 {count}, ptr {packed_a}, ptr {j.vars[0]}, ptr {j.vars[1]}, i64 {word[LDC]}, i64 {some}, "
                            f"ptr {j.vars[2]}, i64 {sums_row}, ptr {j.vars[3]}, i64 {base_row}, i1 {last})")
                    j.next = [em.at(j.vars[0], wide), em.at(j.vars[1], str(tile.width * ELEMENT)), em.at(j.vars[2], str(tile.width * tile.item)),
                              em.at(j.vars[3], base_step)]
                i.next = [em.at(i.vars[0], em.mul(word[A_ROW], str(tile.rows))), em.at(i.vars[1], em.mul(word[LDC], str(tile.rows))),
                          em.at(i.vars[2], em.mul(sums_row, str(tile.rows)))]
    scratch.give(em, index)
    em.line("ret void")
    em.finish()


def _widen(em: Emitter, tile: Tile, rows: str, columns: str, source: tuple[str, str], target: tuple[str, str]) -> None:
    """Rows of bfloat16 in float32; source, target: where they begin and the bytes from row to row."""
    with em.loop("0", rows, carried=[("ptr", source[0]), ("ptr", target[0])]) as i:
        with em.loop("0", columns, str(tile.lanes)) as j:
            some = em.first_lanes(em.sub(columns, j.i), tile.lanes)
            wide = cast(em, em.load(bfloat16, tile.lanes, em.at(i.vars[0], em.mul(j.i, str(ELEMENT))), some), bfloat16, float32, tile.lanes)
            em.store(float32, tile.lanes, wide, em.at(i.vars[1], em.mul(j.i, str(tile.item))))
        i.next = [em.at(i.vars[0], source[1]), em.at(i.vars[1], target[1])]


def _nothing(em: Emitter, tile: Tile) -> str:
    """A row of -0, which added to a number changes nothing, not even -0."""
    row = ", ".join([f"float {number(-0.0, float32)}"] * tile.width)
    return "@" + em.module.helper("added_to_none", f"@added_to_none = internal constant [{tile.width} x float] [{row}], align 64")


def _block(em: Emitter, word: list[str], c: str, a: str, b: str, bias: str, task: str) -> tuple[str, str, str, str, str, str]:
    """(rows, columns) of a task's block of C, and where its A, B, C and the row that is added begin."""
    per_matrix = em.mul(word[ROW_BLOCKS], word[COLUMN_BLOCKS])
    matrix = em.op(f"sdiv i64 {task}, {per_matrix}")
    rest = em.sub(task, em.mul(matrix, per_matrix))
    block = em.op(f"sdiv i64 {rest}, {word[COLUMN_BLOCKS]}")
    i0, j0 = em.mul(block, word[ROWS]), em.mul(em.sub(rest, em.mul(block, word[COLUMN_BLOCKS])), word[COLUMNS])
    return (em.smaller(word[ROWS], em.sub(word[M], i0)), em.smaller(word[COLUMNS], em.sub(word[N], j0)),
            em.at(em.at(a, em.mul(matrix, word[A_STEP])), em.mul(i0, word[A_ROW])),
            em.at(em.at(b, em.mul(matrix, word[B_STEP])), em.mul(j0, word[B_COL])),
            em.at(em.at(em.at(c, em.mul(matrix, word[C_STEP])), em.mul(i0, word[LDC])), em.mul(j0, str(ELEMENT))),
            em.at(bias, em.mul(j0, str(ELEMENT))))


def _pack_b(em: Emitter, tile: Tile, word: list[str], source: str, depth: str, columns: str, memory: str, wide: str) -> None:
    """The panels of a task's columns."""
    # rows of B that are neighbours in memory are read whole, a few at a time
    along = em.op(f"icmp eq i64 {word[B_COL]}, {ELEMENT}")
    few = em.op(f"select i1 {along}, i64 {FEW}, i64 {depth}")
    with em.loop("0", depth, few) as part:
        here = em.smaller(few, em.sub(depth, part.i))
        first, target = em.at(source, em.mul(part.i, word[B_ROW])), em.at(memory, em.mul(part.i, str(tile.width * ELEMENT)))
        with em.loop("0", columns, str(tile.width), [("ptr", first), ("ptr", target)]) as j:
            count = em.smaller(str(tile.width), em.sub(columns, j.i))
            em.line(f"call void @pack_columns(ptr {j.vars[0]}, i64 {word[B_COL]}, i64 {word[B_ROW]}, i64 {count}, i64 {here}, ptr {j.vars[1]})")
            j.next = [em.at(j.vars[0], em.mul(word[B_COL], str(tile.width))), em.at(j.vars[1], wide)]


# ------------------------------------------------------------------------------------------------------------------ tiles
_SIGNATURE = ("i64 %k, ptr %a, ptr %b, ptr %c, i64 %ldc, i64 %cols, ptr %sums, i64 %sums_row, ptr %base, i64 %base_row, i1 %last")


def _write_tiles(module: Module, tile: Tile) -> None:
    """Adds @tile: the sums of %k pairs of a panel of A and one of B and what lies at %base, %base_row bytes from row to row, in float32; they go to
    %sums, or rounded to %c where these are the %last."""
    em = Emitter(module, f"internal void @tile(i64 %rows, {_SIGNATURE})")

    def call(rows: int, vectors: int, above: int) -> None:
        a, c, sums, base = "%a", "%c", "%sums", "%base"
        if above:
            a = em.at(a, str(above * tile.item))
            c, sums, base = (em.at(p, em.mul(str(above), step)) for p, step in ((c, "%ldc"), (sums, "%sums_row"), (base, "%base_row")))
        em.line(f"tail call void @tile_{rows}_{vectors}(i64 %k, ptr {a}, ptr %b, ptr {c}, i64 %ldc, i64 %cols, ptr {sums}, i64 %sums_row, "
                f"ptr {base}, i64 %base_row, i1 %last)")
    for rows, vectors in write_choice(em, tile, call):
        _write_tile(module, tile, rows, vectors)


def _write_tile(module: Module, tile: Tile, rows: int, vectors: int) -> None:
    lanes, item = tile.lanes, tile.item
    t, pairs = f"<{lanes} x float>", f"<{2 * lanes} x bfloat>"
    em = Emitter(module, f"internal void @tile_{rows}_{vectors}({_SIGNATURE})")
    row = "%c"
    for r in range(rows):  # C's lines are on their way while K goes by
        prefetch(em, row, write=True, near=2)
        if r + 1 < rows:
            row = em.at(row, "%ldc")

    def turn(a: str, b: str, sums: list[str]) -> list[str]:
        right = [em.op(f"load {pairs}, ptr {em.at(b, str(v * lanes * item))}, align {item}") for v in range(vectors)]
        made = []
        for r in range(rows):
            one = em.op(f"load i32, ptr {em.at(a, str(r * item))}, align {item}")
            left = em.op(f"bitcast <{lanes} x i32> {em.broadcast(one, 'i32', lanes)} to {pairs}")
            made += [em.call(f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", t, (t, sums[r * vectors + v]), (pairs, left), (pairs, right[v]))
                     for v in range(vectors)]
        return made
    a_k, b_k = str(tile.high * item), str(tile.width * item)
    state, begin = [("ptr", "%a"), ("ptr", "%b"), *[(t, "zeroinitializer")] * (rows * vectors)], "0"
    if rows == tile.rows and vectors == VECTORS:  # the others are for edges
        begin = em.op(f"and i64 %k, -{TURNS}")
        with em.loop("0", begin, str(TURNS), state) as k:
            a, b, *sums = k.vars
            for _ in range(TURNS):
                sums = turn(a, b, sums)
                a, b = em.at(a, a_k), em.at(b, b_k)
            k.next = [a, b, *sums]
        state = [(kind, value) for (kind, _), value in zip(state, k.vars, strict=True)]
    with em.loop(begin, "%k", carried=state) as k:
        a, b, *sums = k.vars
        k.next = [em.at(a, a_k), em.at(b, b_k), *turn(a, b, sums)]
    masks = [em.first_lanes(em.sub("%cols", str(v * lanes)), lanes) for v in range(vectors)]
    done, kept = em.label("done"), em.label("kept")
    em.branch("%last", done, kept)
    for label in (done, kept):
        em.start(label)
        _store(em, tile, rows, vectors, k.vars[2:], None if label is kept else masks)
        em.line("ret void")
    em.finish()


def _store(em: Emitter, tile: Tile, rows: int, vectors: int, sums: list[str], masks: list[str] | None) -> None:
    """masks: of the columns that C has; None where sums are kept, whose memory has room for whole vectors."""
    lanes, t = tile.lanes, f"<{tile.lanes} x float>"
    to, base = "%c" if masks else "%sums", "%base"
    for r in range(rows):
        for v in range(vectors):
            value = em.op(f"fadd {t} {em.load(float32, lanes, em.at(base, str(v * lanes * tile.item)))}, {sums[r * vectors + v]}")
            if masks:
                em.store(bfloat16, lanes, cast(em, value, float32, bfloat16, lanes), em.at(to, str(v * lanes * ELEMENT)), masks[v])
            else:
                em.store(float32, lanes, value, em.at(to, str(v * lanes * tile.item)))
        if r + 1 < rows:
            to, base = em.at(to, "%ldc" if masks else "%sums_row"), em.at(base, "%base_row")


# ---------------------------------------------------------------------------------------------------------------- packing
def _write_packer(module: Module, tile: Tile, name: str, width: int) -> None:
    """Adds @name(src, lane_step, k_step, count, k, dst): a panel of `width` lanes a pair, of which `count` are the matrix's; one step, in bytes, is an
    element's size.  Writes past the panel's end, as `panel_elements` allows."""
    em = Emitter(module, f"internal void @{name}(ptr %src, i64 %lane_step, i64 %k_step, i64 %count, i64 %k, ptr %dst)")
    near, far = em.label("near"), em.label("far")
    em.branch(em.op(f"icmp eq i64 %lane_step, {ELEMENT}"), near, far)
    em.start(near)
    _pack_along(em, width)
    em.line("ret void")
    em.start(far)
    _pack_across(em, tile, width)
    em.line("ret void")
    em.finish()


def _pack_along(em: Emitter, width: int) -> None:
    """Lanes are neighbours in memory: two rows become one of pairs."""
    some = em.first_lanes("%count", width)
    t = f"<{width} x i16>"
    turns = ", ".join(f"i32 {n // 2 + width * (n % 2)}" for n in range(2 * width))

    def pair(source: str, target: str, second: str) -> None:
        both = em.op(f"shufflevector {t} {em.load(bfloat16, width, source, some)}, {t} {second}, <{2 * width} x i32> <{turns}>")
        em.line(f"store <{2 * width} x i16> {both}, ptr {target}, align {ELEMENT}")
    whole = em.op("and i64 %k, -2")
    with em.loop("0", whole, "2", [("ptr", "%src"), ("ptr", "%dst")]) as k:
        source, target = k.vars
        following = em.at(source, "%k_step")
        pair(source, target, em.load(bfloat16, width, following, some))
        k.next = [em.at(following, "%k_step"), em.at(target, str(width * PAIR))]
    with em.only_if(em.op(f"icmp slt i64 {whole}, %k")):
        pair(k.vars[0], k.vars[1], "zeroinitializer")


def _pack_across(em: Emitter, tile: Tile, width: int) -> None:
    """Neighbours in memory are neighbours in k, pairs as they are: squares are transposed in registers.

    A lane past the edge reads the last one's row.  After the last k come zeros.
    """
    lanes = tile.lanes
    last = em.sub("%count", "1")
    with em.loop("0", str(width), str(lanes)) as part:
        rows = [em.at("%src", em.mul(em.smaller(em.add(part.i, str(r)), last), "%lane_step")) for r in range(lanes)]
        to = em.at("%dst", em.mul(part.i, str(PAIR)))
        with em.loop("0", "%k", str(2 * lanes)) as k:
            some = em.first_lanes(em.sub("%k", k.i), 2 * lanes)
            offset, target = em.mul(k.i, str(ELEMENT)), em.at(to, em.mul(k.i, str(width * ELEMENT)))
            square = [em.op(f"bitcast <{2 * lanes} x i16> {em.load(bfloat16, 2 * lanes, em.at(row, offset), some)} to <{lanes} x i32>") for row in rows]
            for n, line in enumerate(transposed(em, square, f"<{lanes} x i32>", lanes)):
                em.line(f"store <{lanes} x i32> {line}, ptr {em.at(target, str(n * width * PAIR))}, align {PAIR}")
