"""Parts of images, with their borders, copied to where windows are read from: what both kinds of convolution share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..emit import Emitter, Module, base, vec

if TYPE_CHECKING:
    from .gemm_tile import Tile


def write_image(module: Module, tile: Tile, slices: int, size_word: int, step_word: int, dilation_word: int, stride_word: int | None = None) -> None:
    """Adds @copy_image(x, channels, d, h, w, high, wide, dst, channel, block): what some windows see of an image, borders as
    zeros: rows (channel, kernel slice, row) of `wide` elements, `channel` bytes from channel to channel.

    d, h, w: where it begins; high: rows of each slice.  A row's last vector may reach past it.  In the parameter block the
    image's three sizes begin at `size_word`, its steps from channel to channel and along depth and height at `step_word`.
    stride_word: where the step of windows along the width stands.  A row is so many rows of `wide` elements then, the first of
    each so many places in the first of them, and so on: what neighbouring windows read for a tap are neighbours.  `wide` is a
    multiple of the lanes where the step is not 1.
    """
    em = Emitter(module, "internal void @copy_image(ptr %x, i64 %channels, i64 %d, i64 %h, i64 %w, i64 %high, i64 %wide, ptr %dst, i64 %channel, ptr %block)")
    size = [em.word("%block", size_word + k) for k in range(3)]
    x_channel, x_d, x_h = (em.word("%block", step_word + k) for k in range(3))
    lanes, item = tile.lanes, tile.item
    with em.loop("0", "%channels", carried=[("ptr", "%x"), ("ptr", "%dst")]) as c:
        with em.loop("0", str(slices), carried=[("i64", "%d"), ("ptr", c.vars[1])]) as kd:
            with em.loop("0", "%high", carried=[("i64", "%h"), ("ptr", kd.vars[1])]) as r:
                inside = em.op(f"and i1 {em.op(f'icmp ult i64 {kd.vars[0]}, {size[0]}')}, {em.op(f'icmp ult i64 {r.vars[0]}, {size[1]}')}")
                width = em.op(f"trunc i64 {em.op(f'select i1 {inside}, i64 {size[2]}, i64 0')} to i32")
                limit = em.broadcast(width, "i32", lanes)
                line = em.at(em.at(em.at(c.vars[0], em.mul(kd.vars[0], x_d)), em.mul(r.vars[0], x_h)), em.mul("%w", str(item)))
                if stride_word is None:
                    _write_row(em, tile, line, limit, r.vars[1])
                    below = em.at(r.vars[1], em.mul("%wide", str(item)))
                else:
                    step = em.word("%block", stride_word)
                    _write_rows(em, tile, line, limit, r.vars[1], step)
                    below = em.at(r.vars[1], em.mul(em.mul("%wide", str(item)), step))
                r.next = [em.add(r.vars[0], "1"), below]
            kd.next = [em.add(kd.vars[0], em.word("%block", dilation_word)), r.vars[1]]
        c.next = [em.at(c.vars[0], x_channel), em.at(c.vars[1], "%channel")]
    em.line("ret void")
    em.finish()


def _seen(em: Emitter, tile: Tile, place: str, limit: str, step: str = "1") -> str:
    """Which lanes lie within a row of `limit` elements (in all lanes), the first at `place`."""
    t = vec("i32", tile.lanes)
    numbers = "<" + ", ".join(f"i32 {k}" for k in range(tile.lanes)) + ">"
    if step != "1":
        numbers = em.op(f"mul {t} {numbers}, {em.broadcast(em.op(f'trunc i64 {step} to i32'), 'i32', tile.lanes)}")
    first = em.broadcast(em.op(f"trunc i64 {place} to i32"), "i32", tile.lanes)
    return em.op(f"icmp ult {t} {em.op(f'add {t} {first}, {numbers}')}, {limit}")


def _write_row(em: Emitter, tile: Tile, line: str, limit: str, target: str) -> None:
    with em.loop("0", "%wide", str(tile.lanes)) as k:
        mask, offset = _seen(em, tile, em.add(k.i, "%w"), limit), em.mul(k.i, str(tile.item))
        # past the row's end this reaches into the next, which is written after it
        em.store(tile.d, tile.lanes, em.load(tile.d, tile.lanes, em.at(line, offset), mask), em.at(target, offset))


def _write_rows(em: Emitter, tile: Tile, line: str, limit: str, target: str, step: str) -> None:
    """A row as `step` rows; two at once where these are all."""
    lanes, item, d = tile.lanes, tile.item, tile.d
    one, other, two, more, done = (em.label(name) for name in ("one", "other", "two", "more", "written"))
    em.branch(em.op(f"icmp eq i64 {step}, 1"), one, other)
    em.start(one)
    _write_row(em, tile, line, limit, target)
    em.jump(done)
    em.start(other)
    em.branch(em.op(f"icmp eq i64 {step}, 2"), two, more)
    em.start(two)
    with em.loop("0", "%wide", str(lanes)) as k:
        pair = []
        for half in range(2):
            at = em.add(em.mul(k.i, "2"), str(half * lanes))
            pair.append(em.load(d, lanes, em.at(line, em.mul(at, str(item))), _seen(em, tile, em.add(at, "%w"), limit)))
        t = vec(base(d), lanes)
        for first in range(2):
            places = ", ".join(f"i32 {n}" for n in range(first, 2 * lanes, 2))
            value = em.op(f"shufflevector {t} {pair[0]}, {t} {pair[1]}, <{lanes} x i32> <{places}>")
            em.store(d, lanes, value, em.at(target, em.mul(em.add(k.i, em.mul("%wide", str(first))), str(item))))
    em.jump(done)
    em.start(more)
    offsets = em.ramp("0", lanes, em.mul(step, str(item)))
    with em.loop("0", step, carried=[("ptr", target)]) as phase:
        with em.loop("0", "%wide", str(lanes)) as k:
            at = em.add(em.mul(k.i, step), phase.i)
            mask = _seen(em, tile, em.add(at, "%w"), limit, step)
            value = em.load_each(d, lanes, em.at(line, em.mul(at, str(item))), offsets, mask)
            em.store(d, lanes, value, em.at(phase.vars[0], em.mul(k.i, str(item))))
        phase.next = [em.at(phase.vars[0], em.mul("%wide", str(item)))]
    em.jump(done)
    em.start(done)


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


def write_joined(module: Module, tile: Tile, kernel_word: int, stride_word: int, dilation_word: int) -> None:
    """Adds @pack_flat(x, row, start, gap, vectors, channels, channel, dst, block) for CPUs that cannot choose any lanes of two vectors,
    and for windows at any step: neighbouring places of the output are neighbours in each of the rows that `write_image` makes of a row.

    x: the first channel's copy, at the first place's row; row: the elements of such a row; start: the first place's column; gap: from the
    last place of a row of the output to the first of the next, in elements of the copy.  A vector of places lies in at most two rows of the
    output: it is one load, or two that are joined at the same lane for all taps and channels.
    """
    em = Emitter(module, "internal void @pack_flat(ptr %x, i64 %row, i64 %start, i64 %gap, i64 %vectors, i64 %channels, i64 %channel, ptr %dst, ptr %block)")
    item, lanes = tile.item, tile.lanes
    rows, columns = em.word("%block", kernel_word + 1), em.word("%block", kernel_word + 2)
    stride, dilation = em.word("%block", stride_word + 2), em.word("%block", dilation_word + 2)
    image_row = em.mul("%row", stride)
    down = em.mul(em.mul(em.word("%block", dilation_word + 1), image_row), str(item))
    # a tap's row among those of a row, and its place there: both grow by the dilation, divided by the step
    whole = em.op(f"udiv i64 {dilation}, {stride}")
    rest = em.sub(dilation, em.mul(whole, stride))
    line = tile.width * item
    step = em.mul(em.mul(rows, columns), str(line))
    between = em.mul(em.word("%block", stride_word + 1), image_row)
    width = em.sub(between, "%gap")
    t, kept = vec(base(tile.d), lanes), vec("i1", lanes)
    beyond = em.mul("%gap", str(item))
    with em.loop("0", "%vectors", carried=[("i64", "%start"), ("i64", "0")]) as v:
        first = em.at("%x", em.mul(em.add(v.vars[0], v.vars[1]), str(item)))
        here = em.sub(width, v.vars[0])
        mask = em.first_lanes(here, lanes)
        alone = em.op(f"icmp sge i64 {here}, {lanes}")
        with em.loop("0", rows, carried=[("ptr", first), ("ptr", em.at("%dst", em.mul(v.i, str(lanes * item))))]) as kh:
            with em.loop("0", columns, carried=[("i64", "0"), ("i64", "0"), ("ptr", kh.vars[1])]) as kw:
                among, place, target = kw.vars
                source = em.at(kh.vars[0], em.mul(em.add(em.mul(among, "%row"), place), str(item)))
                plain, joined, done = em.label("plain"), em.label("joined"), em.label("copied")
                em.branch(alone, plain, joined)
                for label in (plain, joined):
                    em.start(label)
                    with em.loop("0", "%channels", carried=[("ptr", source), ("ptr", target)]) as c:
                        value = em.load(tile.d, lanes, c.vars[0])
                        if label == joined:
                            value = em.op(f"select {kept} {mask}, {t} {value}, {t} {em.load(tile.d, lanes, em.at(c.vars[0], beyond))}")
                        em.store(tile.d, lanes, value, c.vars[1])
                        c.next = [em.at(c.vars[0], "%channel"), em.at(c.vars[1], step)]
                    em.jump(done)
                em.start(done)
                following = em.add(among, rest)
                over = em.op(f"icmp sge i64 {following}, {stride}")
                kw.next = [em.op(f"select i1 {over}, i64 {em.sub(following, stride)}, i64 {following}"),
                           em.add(em.add(place, whole), em.op(f"zext i1 {over} to i64")), em.at(target, str(line))]
            kh.next = [em.at(kh.vars[0], down), kw.vars[2]]
        # the next vector's first lane: its column, and how far its row lies from this one's
        column = em.add(v.vars[0], str(lanes))
        skipped = em.op(f"sdiv i64 {column}, {width}")
        v.next = [em.sub(column, em.mul(skipped, width)), em.add(v.vars[1], em.mul(skipped, between))]
    em.line("ret void")
    em.finish()


def fits_joined(lanes: int, width: int) -> bool:
    """Whether any vector of places lies in at most two rows of the output."""
    return width >= lanes - 1
