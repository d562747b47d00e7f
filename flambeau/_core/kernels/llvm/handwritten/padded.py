"""Parts of images, with their borders, copied to where windows are read from: what both kinds of convolution share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..emit import Emitter, Module, vec

if TYPE_CHECKING:
    from .gemm_tile import Tile


def write_image(module: Module, tile: Tile, slices: int, size_word: int, step_word: int, dilation_word: int) -> None:
    """Adds @copy_image(x, channels, d, h, w, high, wide, dst, channel, block): what some windows see of an image, borders as
    zeros: rows (channel, kernel slice, row) of `wide` elements, `channel` bytes from channel to channel.

    d, h, w: where it begins; high: rows of each slice.  A row's last vector may reach past it.  In the parameter block the
    image's three sizes begin at `size_word`, its steps from channel to channel and along depth and height at `step_word`.
    """
    em = Emitter(module, "internal void @copy_image(ptr %x, i64 %channels, i64 %d, i64 %h, i64 %w, i64 %high, i64 %wide, ptr %dst, i64 %channel, ptr %block)")
    size = [em.word("%block", size_word + k) for k in range(3)]
    x_channel, x_d, x_h = (em.word("%block", step_word + k) for k in range(3))
    lanes, item = tile.lanes, tile.item
    numbers = "<" + ", ".join(f"i32 {k}" for k in range(lanes)) + ">"
    with em.loop("0", "%channels", carried=[("ptr", "%x"), ("ptr", "%dst")]) as c:
        with em.loop("0", str(slices), carried=[("i64", "%d"), ("ptr", c.vars[1])]) as kd:
            with em.loop("0", "%high", carried=[("i64", "%h"), ("ptr", kd.vars[1])]) as r:
                inside = em.op(f"and i1 {em.op(f'icmp ult i64 {kd.vars[0]}, {size[0]}')}, {em.op(f'icmp ult i64 {r.vars[0]}, {size[1]}')}")
                width = em.op(f"trunc i64 {em.op(f'select i1 {inside}, i64 {size[2]}, i64 0')} to i32")
                limit = em.broadcast(width, "i32", lanes)
                line = em.at(em.at(em.at(c.vars[0], em.mul(kd.vars[0], x_d)), em.mul(r.vars[0], x_h)), em.mul("%w", str(item)))
                with em.loop("0", "%wide", str(lanes)) as k:
                    first = em.broadcast(em.op(f"trunc i64 {em.add(k.i, '%w')} to i32"), "i32", lanes)
                    places = em.op(f"add {vec('i32', lanes)} {first}, {numbers}")
                    mask = em.op(f"icmp ult {vec('i32', lanes)} {places}, {limit}")
                    offset = em.mul(k.i, str(item))
                    # past the row's end this reaches into the next, which is written after it
                    em.store(tile.d, lanes, em.load(tile.d, lanes, em.at(line, offset), mask), em.at(r.vars[1], offset))
                r.next = [em.add(r.vars[0], "1"), em.at(r.vars[1], em.mul("%wide", str(item)))]
            kd.next = [em.add(kd.vars[0], em.word("%block", dilation_word)), r.vars[1]]
        c.next = [em.at(c.vars[0], x_channel), em.at(c.vars[1], "%channel")]
    em.line("ret void")
    em.finish()


def write_flat(module: Module, tile: Tile, kernel_word: int, dilation_word: int) -> None:
    """Adds @pack_flat(x, row, start, gap, vectors, channels, channel, dst, block): windows at `vectors` vectors of
    neighbouring places of the output, at stride 1, out of a padded copy of the image.

    x: the first channel's copy, at the first place's row; row: the elements of a row of it; start: the first place's column;
    gap: `row` less the output's width.  Lanes of a vector lie at most two vectors apart in the copy, so that two loads and
    one permutation, the same for all taps and channels, give them.
    """
    em = Emitter(module, "internal void @pack_flat(ptr %x, i64 %row, i64 %start, i64 %gap, i64 %vectors, i64 %channels, i64 %channel, ptr %dst, ptr %block)")
    item, lanes = tile.item, tile.lanes
    rows, columns = em.word("%block", kernel_word + 1), em.word("%block", kernel_word + 2)
    down, right = em.mul(em.mul(em.word("%block", dilation_word + 1), "%row"), str(item)), em.mul(em.word("%block", dilation_word + 2), str(item))
    taps = em.mul(rows, columns)
    line = tile.width * item
    step = em.mul(taps, str(line))
    width = em.sub("%row", "%gap")
    integers = "i32" if item == 4 else "i64"
    t, f = vec(integers, lanes), vec("float" if item == 4 else "double", lanes)
    numbers = "<" + ", ".join(f"{integers} {k}" for k in range(lanes)) + ">"

    def spread(value: str) -> str:
        return em.broadcast(value if integers == "i64" else em.op(f"trunc i64 {value} to i32"), integers, lanes)
    # a lane's row, counted from the first lane's: columns are few enough for the quotient to be exact
    one = vec("float" if item == 4 else "double", lanes)
    half = em.broadcast("0.5", "float" if item == 4 else "double", lanes)
    by = em.op(f"sitofp {t} {spread(width)} to {f}")
    gaps = spread("%gap")
    with em.loop("0", "%vectors", carried=[("i64", "%start"), ("i64", "0")]) as v:
        columns_at = em.op(f"add {t} {spread(v.vars[0])}, {numbers}")
        place = em.op(f"fadd {one} {em.op(f'sitofp {t} {columns_at} to {f}')}, {half}")
        below = em.op(f"fptosi {f} {em.op(f'fdiv {f} {place}, {by}')} to {t}")
        index = em.op(f"add {t} {em.op(f'mul {t} {below}, {gaps}')}, {numbers}")
        first = em.at("%x", em.mul(em.add(v.vars[0], v.vars[1]), str(item)))
        with em.loop("0", rows, carried=[("ptr", first), ("ptr", em.at("%dst", em.mul(v.i, str(lanes * item))))]) as kh:
            with em.loop("0", columns, carried=[("ptr", kh.vars[0]), ("ptr", kh.vars[1])]) as kw:
                with em.loop("0", "%channels", carried=[("ptr", kw.vars[0]), ("ptr", kw.vars[1])]) as c:
                    low = em.load(tile.d, lanes, c.vars[0])
                    high = em.load(tile.d, lanes, em.at(c.vars[0], str(lanes * item)))
                    name = f"llvm.x86.avx512.vpermi2var.{'ps' if item == 4 else 'pd'}.512"
                    em.store(tile.d, lanes, em.call(name, f, (f, low), (t, index), (f, high)), c.vars[1])
                    c.next = [em.at(c.vars[0], "%channel"), em.at(c.vars[1], step)]
                kw.next = [em.at(kw.vars[0], right), em.at(kw.vars[1], str(line))]
            kh.next = [em.at(kh.vars[0], down), kw.vars[1]]
        # the next vector's first lane: its column, and how far its row lies from this one's
        column = em.add(v.vars[0], str(lanes))
        skipped = em.op(f"sdiv i64 {column}, {width}")
        v.next = [em.sub(column, em.mul(skipped, width)), em.add(v.vars[1], em.mul(skipped, "%row"))]
    em.line("ret void")
    em.finish()


def fits_flat(lanes: int, width: int, gap: int) -> bool:
    """Whether the lanes of any vector of places lie at most two vectors apart in the padded copy."""
    return lanes - 1 + (width + lanes - 2) // width * gap < 2 * lanes
