"""Convolutions as products whose right operand is never made: panels of it are read from the images as they are wanted.

y (N, M, out) = A (M, C K) by windows (C K, out) of each image of x (N, C, image): a forward convolution with its kernels
as A, or, at stride 1, the gradient of the images, with the kernels turned round.  A first stage packs A for all; then
each task packs panels of windows for some places of the output, borders as zeros, and runs the tiles of `gemm_tile`.
K is cut into blocks of channels; the order of a sum depends on the sizes alone.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ... import native
from .. import scratch
from ..compile import has_masks
from ..emit import Emitter, Loop, Module, ty, vec
from . import gemm_tile
from .gemm import panel_bytes
from .gemm_tile import Tile, call_tile, panel_elements, write_packer, write_tiles
from .padded import fits_flat, fits_joined, write_flat, write_image, write_joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....dtypes import dtype

NAMES = ("flambeau_windows_a", "flambeau_windows")
DEPTH_BYTES = 1280  # of channels and taps in a block
GROUP = 16  # panels of windows packed together, for the second-level cache
ENTRY = 32  # bytes of a panel's entry in a task's table: place in y, columns, bytes of A and of the bias before its group's

# the parameter block; steps in bytes.  Threes are for depth, height, width
(M, P, CHANNELS, BLOCK, TAPS, PANELS, A_PANELS, A_ROW, A_CHANNEL, A_TAP, A_FIRST, X_IMAGE, Y_IMAGE, MODE, FLAT, ROW, IMAGES, PARTS, A_GROUP, TOTAL,
 STEP, STEPS, ROWS) = range(23)
SIZE, OUT, KERNEL, STRIDE, PADDING, DILATION, X_CHANNEL = (23 + 3 * k for k in range(7))
X_STEP = X_CHANNEL + 1  # along depth and height
WORDS = 23 + 21
BIG_A = 1 << 20  # bytes of A that a task should not read for a few places only
OVERLAP = 2  # windows that see a place of the image, for which it is copied first
WIDEST = 512  # the greatest width of an output of which padded copies are made


def convolution(d: dtype, n: int, c: int, m: int, sizes: tuple[tuple[int, ...], ...], x: tuple[int, ...], a: tuple[int, int, int, int],
                bias: bool, groups: int = 1) -> tuple[Callable[..., None], int]:
    """A native launch ``entry(Y, X, A, [bias,] workspace)`` and the bytes of its workspace.

    sizes: image, out, kernel, stride, padding, dilation, three numbers each.  x: elements from image to image, channel to
    channel, and along depth and height (neighbours along width are neighbours).  a: elements of A from row to row, from
    channel to channel, from tap to tap, and to the first.  Y is contiguous.  Nothing is empty.  groups: so many convolutions
    of C channels to M each, side by side in x and in Y, with A's rows of the next group after one's own.
    """
    item = d.itemsize
    image, out, kernel, stride, padding, dilation = sizes
    p, taps = out[0] * out[1] * out[2], kernel[0] * kernel[1] * kernel[2]
    block = max(1, min(c, DEPTH_BYTES // item // taps))
    block = -(-c // -(-c // block))
    high, _, width = gemm_tile.sizes(item)
    panels, a_panels = -(-p // width), -(-m // high)
    threads = native.get_num_threads()
    total, packs = groups * n * panels, groups * -(-c // block) * a_panels
    step, rows = _task(total, a_panels, m * c * taps * item, threads)
    steps = -(-total // step)
    params = [m, p, c, block, taps, panels, a_panels, *(s * item for s in a), x[0] * item, groups * m * p * item, 2 if bias else 0,
              *_copied(sizes, block, width, item), n, -(-c // block), m * c * taps * item,
              total, step, steps, rows * high, *image, *out, *kernel, *stride, *padding, *dilation, *(s * item for s in x[1:])]
    depth = -(-block * taps // 16) * 16
    workspace = groups * -(-c // block) * a_panels * panel_elements(gemm_tile.Tile(d).high, depth) * item
    code = _functions(d)
    entry = native.make_entry([(code[NAMES[0]], packs, max(1, packs // (2 * threads))), (code[NAMES[1]], steps * -(-a_panels // rows), 1)], params,
                              5 if bias else 4, parallel=2 * groups * n * p * m * c * taps > 1 << 20)
    return entry, workspace


def _task(total: int, a_panels: int, a_bytes: int, threads: int) -> tuple[int, int]:
    """How many panels of windows and of A a task takes, so that there are enough tasks: where A is big, tasks share out its
    rows rather than the places, or each would read all of it for few places."""
    steps, wanted = -(-total // GROUP), 4 * threads
    if steps >= wanted:
        return GROUP, a_panels
    if a_bytes > BIG_A:
        return -(-total // steps), max(min(4, a_panels), -(-a_panels // -(-wanted // steps)))
    return max(1, -(-total // wanted)), a_panels


def _copied(sizes: tuple[tuple[int, ...], ...], block: int, width: int, item: int) -> tuple[int, int]:
    """The room of a padded copy of what a group of panels sees of one image, and the elements of a row of it; no room where windows are read
    from the image itself: where they hardly overlap, or where the lanes of a vector of places lie in more rows than are joined."""
    image, out, kernel, stride, padding, dilation = sizes
    lanes, step = width // 2, stride[2]
    row = out[2] + (kernel[2] - 1) * dilation[2] // step
    if step > 1:
        row = -(-row // lanes) * lanes
    plane = image[0] == out[0] == kernel[0] == 1 and not padding[0] and out[2] <= WIDEST
    fits = stride[1:] == (1, 1) and fits_flat(lanes, out[2], row - out[2]) if has_masks() else fits_joined(lanes, out[2])
    if not (plane and fits and kernel[1] * kernel[2] >= OVERLAP * stride[1] * step):
        return 0, row
    rows = (min(out[1], GROUP * width // out[2] + 2) - 1) * stride[1] + (kernel[1] - 1) * dilation[1] + 1
    # lanes past the last place are read a row of the output further on
    past = 0 if has_masks() else stride[1] * row * step * item
    return -(-block * (rows * row * step * item + 64) // 64) * 64 + 256 + past, row


@functools.cache
def _functions(d: dtype) -> dict[str, int]:
    from .. import compile as compiler
    return compiler.functions(("windows", d.name), NAMES, lambda: text(d))


def text(d: dtype) -> str:
    """The IR of convolutions of one element type."""
    module = Module()
    tile = Tile(d)
    write_tiles(module, tile, biased=True)
    write_packer(module, tile, "pack_rows", tile.high)
    _write_windows(module, tile)
    if module.masks:
        write_image(module, tile, 1, SIZE, X_CHANNEL, DILATION)
        write_flat(module, tile, KERNEL, DILATION)
    else:
        write_image(module, tile, 1, SIZE, X_CHANNEL, DILATION, STRIDE + 2)
        write_joined(module, tile, KERNEL, STRIDE, DILATION)
    _write_a(module, tile)
    _write(module, tile)
    return module.text()


def _depth(em: Emitter, block: str, taps: str) -> str:
    """The k of a block of channels, up to a multiple of 16."""
    return em.op(f"and i64 {em.add(em.mul(block, taps), '15')}, -16")


def _write_a(module: Module, tile: Tile) -> None:
    """Packs panels of A into the workspace: block after block of channels, in each panel after panel."""
    em = Emitter(module, f"void @{NAMES[0]}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    word = [em.word("%block", k) for k in range(WORDS)]
    a = em.at(em.pointer("%args", 2), word[A_FIRST])
    biased = em.op(f"icmp eq i64 {word[MODE]}, 2")
    target = _workspace(em, biased)
    tall = panel_bytes(em, tile, tile.high, _depth(em, word[BLOCK], word[TAPS]))
    one = em.op(f"icmp eq i64 {word[A_CHANNEL]}, {em.mul(word[A_TAP], word[TAPS])}")
    with em.loop("%begin", "%end") as unit:
        all_parts = em.op(f"sdiv i64 {unit.i}, {word[A_PANELS]}")
        row = em.mul(em.sub(unit.i, em.mul(all_parts, word[A_PANELS])), str(tile.rows))
        group = em.op(f"sdiv i64 {all_parts}, {word[PARTS]}")
        part = em.sub(all_parts, em.mul(group, word[PARTS]))
        first = em.mul(part, word[BLOCK])
        channels = em.smaller(word[BLOCK], em.sub(word[CHANNELS], first))
        source = em.at(em.at(em.at(a, em.mul(group, word[A_GROUP])), em.mul(row, word[A_ROW])), em.mul(first, word[A_CHANNEL]))
        high = em.smaller(str(tile.rows), em.sub(word[M], row))
        panel = em.at(target, em.mul(unit.i, tall))
        # channels that follow each other without a gap are one long run of taps
        rounds = em.op(f"select i1 {one}, i64 1, i64 {channels}")
        taps = em.op(f"select i1 {one}, i64 {em.mul(channels, word[TAPS])}, i64 {word[TAPS]}")
        with em.loop("0", rounds, carried=[("ptr", source), ("ptr", panel)]) as c:
            em.line(f"call void @pack_rows(ptr {c.vars[0]}, i64 {word[A_ROW]}, i64 {word[A_TAP]}, i64 {high}, i64 {taps}, ptr {c.vars[1]})")
            c.next = [em.at(c.vars[0], word[A_CHANNEL]), em.at(c.vars[1], em.mul(taps, str(tile.high * tile.item)))]
    em.line("ret void")
    em.finish()


def _workspace(em: Emitter, biased: str) -> str:
    """The workspace is the last argument."""
    place = em.op(f"select i1 {biased}, i64 32, i64 24")
    return em.op(f"load ptr, ptr {em.at('%args', place)}, align 8", "p")


def _write_windows(module: Module, tile: Tile) -> None:
    """Adds @pack_windows(x, place, count, channels, dst, block): the windows at `count` places of the output from `place` on.

    x is the first channel's image.  The panel holds width places a row, rows (channel, tap).  Where fewer places are left,
    zeros fill the vectors that the tile reads.
    """
    em = Emitter(module, "internal void @pack_windows(ptr %x, i64 %place, i64 %count, i64 %channels, ptr %dst, ptr %block)")
    word = [em.word("%block", k) for k in range(WORDS)]
    item, lanes = tile.item, tile.lanes
    line = tile.width * item
    step = em.mul(word[TAPS], str(line))
    wide = em.op(f"icmp sgt i64 %count, {lanes}")
    need = em.op(f"select i1 {wide}, i64 {tile.width}, i64 {lanes}")
    first = em.op(f"sdiv i64 %place, {word[OUT + 2]}")
    last = em.op(f"sdiv i64 {em.sub(em.add('%place', '%count'), '1')}, {word[OUT + 2]}")
    past = em.add("%place", "%count")
    unit = em.op(f"icmp eq i64 {word[STRIDE + 2]}, 1")
    lane_bytes = em.mul(word[STRIDE + 2], str(item))
    offsets = em.ramp("0", lanes, lane_bytes)
    small = em.op(f"trunc i64 {word[STRIDE + 2]} to i32")
    numbers = "<" + ", ".join(f"i32 {k}" for k in range(lanes)) + ">"
    steps = em.op(f"mul {vec('i32', lanes)} {numbers}, {em.broadcast(small, 'i32', lanes)}")
    with em.loop(first, em.add(last, "1")) as row:
        start = em.mul(row.i, word[OUT + 2])
        from_ = em.op(f"call i64 @llvm.smax.i64(i64 0, i64 {em.sub('%place', start)})")
        to = em.smaller(word[OUT + 2], em.sub(past, start))
        od = em.op(f"sdiv i64 {row.i}, {word[OUT + 1]}")
        oh = em.sub(row.i, em.mul(od, word[OUT + 1]))
        d0 = em.sub(em.mul(od, word[STRIDE]), word[PADDING])
        h0 = em.sub(em.mul(oh, word[STRIDE + 1]), word[PADDING + 1])
        with em.loop(from_, to, str(lanes)) as run:
            length = em.smaller(str(lanes), em.sub(to, run.i))
            lane = em.sub(em.add(start, run.i), "%place")
            target = em.at("%dst", em.mul(lane, str(item)))
            kept = em.first_lanes(length, lanes)
            w0 = em.sub(em.mul(run.i, word[STRIDE + 2]), word[PADDING + 2])
            with em.loop("0", word[KERNEL], carried=[("i64", d0), ("ptr", target)]) as kd:
                with em.loop("0", word[KERNEL + 1], carried=[("i64", h0), ("ptr", kd.vars[1])]) as kh:
                    inside = em.op(f"and i1 {em.op(f'icmp ult i64 {kd.vars[0]}, {word[SIZE]}')}, {em.op(f'icmp ult i64 {kh.vars[0]}, {word[SIZE + 1]}')}")
                    width = em.op(f"trunc i64 {em.op(f'select i1 {inside}, i64 {word[SIZE + 2]}, i64 0')} to i32")
                    limit = em.broadcast(width, "i32", lanes)
                    line_at = em.at(em.at("%x", em.mul(kd.vars[0], word[X_STEP])), em.mul(kh.vars[0], word[X_STEP + 1]))
                    with em.loop("0", word[KERNEL + 2], carried=[("i64", w0), ("ptr", kh.vars[1])]) as kw:
                        w = em.broadcast(em.op(f"trunc i64 {kw.vars[0]} to i32"), "i32", lanes)
                        places = em.op(f"add {vec('i32', lanes)} {w}, {steps}")
                        seen = em.op(f"icmp ult {vec('i32', lanes)} {places}, {limit}")
                        mask = em.op(f"and {vec('i1', lanes)} {seen}, {kept}")
                        source = em.at(line_at, em.mul(kw.vars[0], str(item)))
                        # all lanes are there and within the image, which for neighbours needs no mask
                        end = em.op(f"select i1 {inside}, i64 {em.sub(word[SIZE + 2], str(lanes - 1))}, i64 0")
                        clear = em.op(f"and i1 {em.op(f'icmp sge i64 {kw.vars[0]}, 0')}, {em.op(f'icmp slt i64 {kw.vars[0]}, {end}')}")
                        clear = em.op(f"and i1 {clear}, {em.op(f'icmp eq i64 {length}, {lanes}')}")
                        _copy_channels(em, tile, source, kw.vars[1], step, word[X_CHANNEL], unit, clear, offsets, mask, kept)
                        kw.next = [em.add(kw.vars[0], word[DILATION + 2]), em.at(kw.vars[1], str(line))]
                    kh.next = [em.add(kh.vars[0], word[DILATION + 1]), kw.vars[1]]
                kd.next = [em.add(kd.vars[0], word[DILATION]), kh.vars[1]]
    rows = em.mul("%channels", word[TAPS])
    with em.loop("%count", need, str(lanes)) as rest:
        mask = em.first_lanes(em.sub(need, rest.i), lanes)
        with em.loop("0", rows, carried=[("ptr", em.at("%dst", em.mul(rest.i, str(item))))]) as k:
            em.store(tile.d, lanes, "zeroinitializer", k.vars[0], mask)
            k.next = [em.at(k.vars[0], str(line))]
    em.module.declare("llvm.smax.i64", "i64 (i64, i64)")
    em.line("ret void")
    em.finish()


def _copy_channels(em: Emitter, tile: Tile, source: str, target: str, step: str, x_step: str, unit: str, clear: str, offsets: str, mask: str,
                   kept: str) -> None:
    """One tap of one run for all channels: neighbours by a load, masked unless `clear`, strided ones by a gather."""
    d, lanes = tile.d, tile.lanes
    whole, near, far, beside, done = (em.label(name) for name in ("whole", "near", "far", "beside", "copied"))
    em.branch(unit, beside, far)
    em.start(beside)
    em.branch(clear, whole, near)
    for label in (whole, near, far):
        em.start(label)
        with em.loop("0", "%channels", carried=[("ptr", source), ("ptr", target)]) as c:
            x, y = c.vars
            if label == whole:
                em.store(d, lanes, em.load(d, lanes, x), y)
            else:
                value = em.load(d, lanes, x, mask) if label == near else em.load_each(d, lanes, x, offsets, mask)
                _store_kept(em, tile, value, y, kept)
            c.next = [em.at(x, x_step), em.at(y, step)]
        em.jump(done)
    em.start(done)


def _store_kept(em: Emitter, tile: Tile, value: str, target: str, kept: str) -> None:
    """Some lanes of a panel's line, which is this task's alone and has room past its end."""
    if em.module.masks:
        em.store(tile.d, tile.lanes, value, target, kept)
    else:  # a masked store takes a dozen cycles on many CPUs
        t = ty(tile.d, tile.lanes)
        before = em.load(tile.d, tile.lanes, target)
        em.store(tile.d, tile.lanes, em.op(f"select {vec('i1', tile.lanes)} {kept}, {t} {value}, {t} {before}"), target)


def _write(module: Module, tile: Tile) -> None:
    em = Emitter(module, f"void @{NAMES[1]}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    word = [em.word("%block", k) for k in range(WORDS)]
    biased = em.op(f"icmp eq i64 {word[MODE]}, 2")
    y, x, a, bias = em.pointer("%args", 0), em.pointer("%args", 1), _workspace(em, biased), em.pointer("%args", 3)
    depth = _depth(em, word[BLOCK], word[TAPS])
    wide, tall = panel_bytes(em, tile, tile.width, depth), panel_bytes(em, tile, tile.high, depth)
    memory, index = scratch.take(em, em.add(em.mul(str(GROUP), em.add(wide, str(ENTRY))), word[FLAT]))
    panels = em.at(memory, str(-(-GROUP * ENTRY // 64) * 64))
    copy = em.at(panels, em.mul(wide, str(GROUP)))
    flat = em.op(f"icmp sgt i64 {word[FLAT]}, 0")
    ldc = em.mul(word[P], str(tile.item))
    a_panels = em.mul(tall, word[A_PANELS])
    a_group = em.mul(a_panels, word[PARTS])
    bias_group, y_group = em.mul(word[M], str(tile.item)), em.mul(word[M], ldc)
    x_group = em.mul(word[CHANNELS], word[X_CHANNEL])
    with em.loop("%begin", "%end") as task:
        band = em.op(f"sdiv i64 {task.i}, {word[STEPS]}")
        begin = em.mul(em.sub(task.i, em.mul(band, word[STEPS])), word[STEP])
        count = em.smaller(word[STEP], em.sub(word[TOTAL], begin))
        top = em.mul(band, word[ROWS])
        bottom = em.smaller(em.add(top, word[ROWS]), word[M])
        above = em.mul(em.op(f"sdiv i64 {top}, {tile.rows}"), tall)
        with em.loop("0", word[CHANNELS], word[BLOCK], [("ptr", a)]) as part:
            channels = em.smaller(word[BLOCK], em.sub(word[CHANNELS], part.i))
            k = em.mul(channels, word[TAPS])
            begun = em.op(f"icmp sgt i64 {part.i}, 0")
            mode = em.op(f"select i1 {begun}, i64 1, i64 {word[MODE]}")
            from_ = em.at(x, em.mul(part.i, word[X_CHANNEL]))
            with em.loop("0", count, carried=[("ptr", memory), ("ptr", panels)]) as q:
                number = em.add(begin, q.i)
                image = em.op(f"sdiv i64 {number}, {word[PANELS]}")
                place = em.mul(em.sub(number, em.mul(image, word[PANELS])), str(tile.width))
                columns = em.smaller(str(tile.width), em.sub(word[P], place))
                part_of = em.op(f"sdiv i64 {image}, {word[IMAGES]}")  # images of one group after those of another
                n = em.sub(image, em.mul(part_of, word[IMAGES]))
                source = em.at(em.at(from_, em.mul(n, word[X_IMAGE])), em.mul(part_of, x_group))
                plain, padded, done = em.label("plain"), em.label("padded"), em.label("packed")
                em.branch(flat, padded, plain)
                em.start(padded)
                _from_copy(em, tile, word, source, image, place, columns, channels, q, begin, count, copy)
                em.jump(done)
                em.start(plain)
                em.line(f"call void @pack_windows(ptr {source}, i64 {place}, i64 {columns}, i64 {channels}, ptr {q.vars[1]}, ptr %block)")
                em.jump(done)
                em.start(done)
                target = em.at(em.at(em.at(y, em.mul(n, word[Y_IMAGE])), em.mul(part_of, y_group)), em.mul(place, str(tile.item)))
                em.line(f"store ptr {target}, ptr {q.vars[0]}, align 8")
                em.line(f"store i64 {columns}, ptr {em.at(q.vars[0], '8')}, align 8")
                em.line(f"store i64 {em.mul(part_of, a_group)}, ptr {em.at(q.vars[0], '16')}, align 8")
                em.line(f"store i64 {em.mul(part_of, bias_group)}, ptr {em.at(q.vars[0], '24')}, align 8")
                q.next = [em.at(q.vars[0], str(ENTRY)), em.at(q.vars[1], wide)]
            with em.loop(top, bottom, str(tile.rows), [("ptr", em.at(part.vars[0], above))]) as i:
                high = em.smaller(str(tile.rows), em.sub(bottom, i.i))
                below, own = em.mul(i.i, ldc), em.at(bias, em.mul(i.i, str(tile.item)))
                with em.loop("0", count, carried=[("ptr", memory), ("ptr", panels)]) as q:
                    target = em.at(em.op(f"load ptr, ptr {q.vars[0]}, align 8"), below)
                    columns = em.word(q.vars[0], 1)
                    left, number = em.at(i.vars[0], em.word(q.vars[0], 2)), em.at(own, em.word(q.vars[0], 3))
                    call_tile(em, tile, high, columns, k, left, (q.vars[1], str(tile.width * tile.item)), (target, ldc), mode, number)
                    q.next = [em.at(q.vars[0], str(ENTRY)), em.at(q.vars[1], wide)]
                i.next = [em.at(i.vars[0], tall)]
            part.next = [em.at(part.vars[0], a_panels)]
    scratch.give(em, index)
    em.line("ret void")
    em.finish()


def _from_copy(em: Emitter, tile: Tile, word: list[str], source: str, image: str, place: str, columns: str, channels: str, q: Loop, first: str,
               count: str, copy: str) -> None:
    """One panel out of the padded copy of its image, which is made at the image's first panel in the group."""
    fresh = em.op(f"or i1 {em.op(f'icmp eq i64 {place}, 0')}, {em.op(f'icmp eq i64 {q.i}, 0')}")
    # the image's places in this group, and the rows that hold them
    before = em.mul(image, word[PANELS])
    begin = em.mul(em.op(f"call i64 @llvm.smax.i64(i64 0, i64 {em.sub(first, before)})"), str(tile.width))
    end = em.smaller(em.mul(em.sub(em.add(first, count), before), str(tile.width)), word[P])
    top = em.op(f"sdiv i64 {begin}, {word[OUT + 2]}")
    bottom = em.op(f"sdiv i64 {em.sub(end, '1')}, {word[OUT + 2]}")
    high = em.add(em.add(em.mul(em.sub(bottom, top), word[STRIDE + 1]), "1"), em.mul(em.sub(word[KERNEL + 1], "1"), word[DILATION + 1]))
    image_row = em.mul(word[ROW], word[STRIDE + 2])
    channel = em.add(em.mul(em.mul(high, image_row), str(tile.item)), "64")
    with em.only_if(fresh):
        above = em.sub(em.mul(top, word[STRIDE + 1]), word[PADDING + 1])
        em.line(f"call void @copy_image(ptr {source}, i64 {channels}, i64 0, i64 {above}, i64 {em.sub('0', word[PADDING + 2])}, "
                f"i64 {high}, i64 {word[ROW]}, ptr {copy}, i64 {channel}, ptr %block)")
    row = em.op(f"sdiv i64 {place}, {word[OUT + 2]}")
    start = em.sub(place, em.mul(row, word[OUT + 2]))
    between = em.mul(word[STRIDE + 1], image_row)
    at = em.at(copy, em.mul(em.mul(em.sub(row, top), between), str(tile.item)))
    vectors = em.op(f"select i1 {em.op(f'icmp sgt i64 {columns}, {tile.lanes}')}, i64 2, i64 1")
    em.line(f"call void @pack_flat(ptr {at}, i64 {word[ROW]}, i64 {start}, i64 {em.sub(between, word[OUT + 2])}, i64 {vectors}, i64 {channels}, "
            f"i64 {channel}, ptr {q.vars[1]}, ptr %block)")
