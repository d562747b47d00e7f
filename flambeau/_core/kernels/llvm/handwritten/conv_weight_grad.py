"""Gradients of convolutions with respect to their kernels: g (N, M, out) by the windows of x (N, C, image), summed over all
places of all images.

Vectors hold neighbouring channels of g, which is transposed for that block by block; an element of the image, broadcast,
is multiplied with them for each tap.  A block is some rows of some images, small enough that its part of g stays in the
nearest cache while all channels of x go by.  Groups of images have partial sums of their own, and a last stage adds them:
groups and blocks depend on the sizes alone, so sums do not depend on threads.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ... import native
from .. import scratch
from ..emit import Emitter, Module, ty
from . import gemm_tile
from .gemm_tile import VECTORS, Tile, transposed, write_packer
from .padded import write_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....dtypes import dtype

NAMES = ("flambeau_weights", "flambeau_weights_sum")
MOST_PLACES = 224  # in a block
MOST_GROUPS = 16
PARTIAL_BYTES = 1 << 21  # of all groups' sums together
MOST_TILES = 24  # each is a function to compile
SLACK = 32  # vectors that packing may write past an end

# the parameter block; steps in bytes.  IMAGES counts the slices along the output's depth; a block has IMAGES_B of them, ROWS_B
# rows and COLUMNS_B columns
(M, C, IMAGES, PER, CHANNELS, PARTS, IMAGES_B, ROWS_B, COLUMNS_B, X_IMAGE, X_CHANNEL, X_D, X_H, G_IMAGE, G_CHANNEL, TAPS, GROUPS, SIDE) = range(18)
SIZE, OUT, STRIDE, PADDING, DILATION = (18 + 3 * k for k in range(5))
WORDS = 18 + 15


class Taps:
    """Which taps one tile of accumulators covers: `channels` of x, kernel rows (depth and height as one) first .. first + rows,
    and along the width start .. start + count."""

    __slots__ = ("channels", "first", "rows", "start", "count")

    def __init__(self, channels: int, first: int, rows: int, start: int, count: int) -> None:
        self.channels, self.first, self.rows, self.start, self.count = channels, first, rows, start, count


def tiles(kernel: tuple[int, ...], high: int) -> list[Taps]:
    """The tiles of a channel's taps; of several channels' at once where one has few."""
    lines, width = kernel[0] * kernel[1], kernel[2]
    if 2 * lines * width <= high:
        return [Taps(high // (lines * width), 0, lines, 0, width)]
    together = max(1, high // width)
    return [Taps(1, r, min(together, lines - r), k, min(high, width - k)) for r in range(0, lines, together) for k in range(0, width, high)]


def weights(d: dtype, n: int, c: int, m: int, sizes: tuple[tuple[int, ...], ...], x: tuple[int, ...],
            side: int = 1) -> tuple[Callable[..., None], int] | None:
    """A native launch ``entry(GW, G, X, workspace)`` and the bytes of its workspace; None for kernels too big.

    sizes: image, out, kernel, stride, padding, dilation, three numbers each.  x: elements from image to image, channel to
    channel, and along depth and height (neighbours along width are neighbours).  GW and G are contiguous.  Nothing is empty.  side: so many
    groups of C channels and M of g, side by side.
    """
    item = d.itemsize
    image, out, kernel, stride, padding, dilation = sizes
    high, _, width = gemm_tile.sizes(item)
    if len(tiles(kernel, high)) > MOST_TILES:
        return None
    taps, images = kernel[0] * kernel[1] * kernel[2], n * out[0]
    columns = -(-out[2] // -(-out[2] // (2 * MOST_PLACES)))
    rows = max(1, min(out[1], MOST_PLACES // columns))
    rows = -(-out[1] // -(-out[1] // rows))
    block = max(1, MOST_PLACES // (rows * columns)) if rows == out[1] and columns == out[2] else 1
    padded = -(-m // width) * width
    partial = c * taps * padded * item
    groups = max(1, min(images, MOST_GROUPS, PARTIAL_BYTES // (partial * side)))
    per = -(-images // groups)
    groups = -(-images // per)
    threads = native.get_num_threads()
    parts = max(1, min(c // tiles(kernel, high)[0].channels, -(-3 * threads // (groups * side)))) if threads > 1 else 1
    channels = -(-c // parts)
    parts = -(-c // channels)
    p = out[0] * out[1] * out[2]
    params = [m, c, images, per, channels, parts, min(block, per), rows, columns, *(s * item for s in x), side * m * p * item, p * item, taps, groups, side,
              *image, *out, *stride, *padding, *dilation]
    code = _functions(d, kernel, dilation[2])
    lanes = width // VECTORS
    blocks = (padded // lanes) * -(-c * taps // lanes)
    entry = native.make_entry([(code[NAMES[0]], side * groups * parts, 1), (code[NAMES[1]], side * blocks, max(1, side * blocks // (4 * threads)))], params, 4,
                              parallel=2 * side * n * m * c * taps * p > 1 << 20)
    return entry, side * groups * partial


@functools.cache
def _functions(d: dtype, kernel: tuple[int, ...], dilation: int) -> dict[str, int]:
    from .. import compile as compiler
    return compiler.functions(("weights", repr((d.name, kernel, dilation))), NAMES, lambda: text(d, kernel, dilation))


def text(d: dtype, kernel: tuple[int, ...], dilation: int) -> str:
    """The IR for one element type, kernel, and dilation along the width."""
    module = Module()
    tile = Tile(d)
    write_packer(module, tile, "pack_columns", tile.width, across=True)
    shapes = tiles(kernel, tile.rows)
    for k, taps in enumerate(shapes):
        for vectors in (1, 2):
            _write_taps(module, tile, f"taps_{k}_{vectors}", taps, vectors, kernel, dilation)
            if taps.channels > 1:
                _write_taps(module, tile, f"single_{vectors}", Taps(1, 0, taps.rows, 0, taps.count), vectors, kernel, dilation)
    write_image(module, tile, kernel[0], SIZE, X_CHANNEL, DILATION)
    _write(module, tile, shapes, kernel)
    _write_sum(module, tile)
    return module.text()


def _write_taps(module: Module, tile: Tile, name: str, taps: Taps, vectors: int, kernel: tuple[int, ...], dilation: int) -> None:
    """Adds @name(x, channel, slice, line, image, row, place, images, rows, columns, g, sums, step): sums of a tile's taps over a block.

    x: the block's image of the first channel; then bytes from channel to channel, from kernel slice to kernel slice, from
    kernel row to kernel row, from image to image, from output row to output row, from place to place along it.  step: bytes from tap to tap of `sums`.
    """
    em = Emitter(module, f"internal void @{name}(ptr %x, i64 %channel, i64 %slice, i64 %line, i64 %image, i64 %row, i64 %place, i64 %images, i64 %rows, "
                         "i64 %columns, ptr %g, ptr %sums, i64 %step)")
    d, lanes, item = tile.d, tile.lanes, tile.item
    t = ty(d, lanes)
    starts = []
    for c in range(taps.channels):
        for r in range(taps.first, taps.first + taps.rows):
            at = em.add(em.mul("%slice", str(r // kernel[1])), em.mul("%line", str(r % kernel[1])))
            starts.append(em.add(em.mul("%channel", str(c)), at))
    count = len(starts) * taps.count * vectors
    zeros = [(t, "zeroinitializer")] * count
    with em.loop("0", "%images", carried=[("ptr", "%x"), ("ptr", "%g"), *zeros]) as image:
        with em.loop("0", "%rows", carried=[("ptr", image.vars[0]), ("ptr", image.vars[1]), *[(t, v) for v in image.vars[2:]]]) as row:
            bases = [em.at(row.vars[0], s) for s in starts]
            with em.loop("0", "%columns", carried=[("ptr", row.vars[1]), ("i64", "0"), *[(t, v) for v in row.vars[2:]]]) as place:
                g, x = place.vars[:2]
                right = [em.load(d, lanes, em.at(g, str(v * lanes * item))) for v in range(vectors)]
                sums: list[str] = []
                for base in bases:
                    first = em.at(base, x)
                    for k in range(taps.start, taps.start + taps.count):
                        left = em.broadcast(em.load(d, 1, em.at(first, str(k * dilation * item))), ty(d, 1), lanes)
                        for v in range(vectors):
                            sums.append(em.intrinsic("fma", d, lanes, left, right[v], place.vars[2 + len(sums)]))
                place.next = [em.at(g, str(tile.width * item)), em.add(x, "%place"), *sums]
            row.next = [em.at(row.vars[0], "%row"), place.vars[0], *place.vars[2:]]
        image.next = [em.at(image.vars[0], "%image"), row.vars[1], *row.vars[2:]]
    made = iter(image.vars[2:])
    total = kernel[0] * kernel[1] * kernel[2]
    for c in range(taps.channels):
        for r in range(taps.first, taps.first + taps.rows):
            for k in range(taps.start, taps.start + taps.count):
                place_at = em.at("%sums", em.mul("%step", str(c * total + r * kernel[2] + k)))
                for v in range(vectors):
                    at = em.at(place_at, str(v * lanes * item))
                    em.store(d, lanes, em.op(f"fadd {t} {em.load(d, lanes, at)}, {next(made)}"), at)
    em.line("ret void")
    em.finish()


def _write(module: Module, tile: Tile, shapes: list[Taps], kernel: tuple[int, ...]) -> None:
    em = Emitter(module, f"void @{NAMES[0]}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    g, x, partial = (em.pointer("%args", k) for k in (1, 2, 3))
    word = [em.word("%block", k) for k in range(WORDS)]
    item = tile.item
    column_bytes = tile.width * item

    def extent(length: str, k: int) -> str:
        """How far a block's windows reach along an axis of the image."""
        return em.add(em.mul(em.sub(length, "1"), word[STRIDE + k]), em.add(em.mul(word[DILATION + k], str(kernel[k] - 1)), "1"))
    high, wide = extent(word[ROWS_B], 1), extent(word[COLUMNS_B], 2)
    line = em.mul(wide, str(item))
    slice_ = em.mul(line, high)
    image = em.mul(slice_, str(kernel[0]))
    # a row's last vector may reach past it: what follows is written later, or is this room between channels
    channel = em.add(em.mul(image, word[IMAGES_B]), str(tile.lanes * item))
    panels = em.op(f"sdiv i64 {em.add(word[M], str(tile.width - 1))}, {tile.width}")
    step = em.mul(panels, str(column_bytes))
    places = em.mul(em.mul(word[IMAGES_B], word[ROWS_B]), word[COLUMNS_B])
    panel = em.mul(em.add(places, str(SLACK)), str(column_bytes))
    x_room = em.op(f"and i64 {em.add(em.mul(channel, word[CHANNELS]), '255')}, -64")
    memory, index = scratch.take(em, em.add(x_room, em.mul(panel, panels)))
    turned = em.at(memory, x_room)
    depth_row = em.mul(word[DILATION + 1], line)
    next_row = em.mul(word[STRIDE + 1], line)
    next_place = em.mul(word[STRIDE + 2], str(item))
    whole = em.op(f"icmp eq i64 {word[COLUMNS_B]}, {word[OUT + 2]}")
    with em.loop("%begin", "%end") as task:
        all_groups = em.op(f"sdiv i64 {task.i}, {word[PARTS]}")
        c0 = em.mul(em.sub(task.i, em.mul(all_groups, word[PARTS])), word[CHANNELS])
        side = em.op(f"sdiv i64 {all_groups}, {word[GROUPS]}")
        group = em.sub(all_groups, em.mul(side, word[GROUPS]))
        channels = em.smaller(word[CHANNELS], em.sub(word[C], c0))
        own = em.at(partial, em.mul(em.mul(em.add(em.mul(all_groups, word[C]), c0), word[TAPS]), step))
        with em.loop("0", em.mul(em.mul(channels, word[TAPS]), step), str(tile.lanes * item)) as k:
            em.store(tile.d, tile.lanes, "zeroinitializer", em.at(own, k.i))
        begin = em.mul(group, word[PER])
        end = em.smaller(em.add(begin, word[PER]), word[IMAGES])
        x1 = em.at(x, em.mul(em.add(em.mul(side, word[C]), c0), word[X_CHANNEL]))
        g1 = em.at(g, em.mul(em.mul(side, word[M]), word[G_CHANNEL]))
        with em.loop(begin, end, word[IMAGES_B]) as i, em.loop("0", word[OUT + 1], word[ROWS_B]) as r, em.loop("0", word[OUT + 2], word[COLUMNS_B]) as k:
            images, rows = em.smaller(word[IMAGES_B], em.sub(end, i.i)), em.smaller(word[ROWS_B], em.sub(word[OUT + 1], r.i))
            columns = em.smaller(word[COLUMNS_B], em.sub(word[OUT + 2], k.i))
            h, w = (em.sub(em.mul(v, word[STRIDE + a]), word[PADDING + a]) for a, v in ((1, r.i), (2, k.i)))
            # rows of whole lines follow each other in g
            runs = em.op(f"select i1 {whole}, i64 1, i64 {rows}")
            length = em.op(f"select i1 {whole}, i64 {em.mul(rows, columns)}, i64 {columns}")
            with em.loop("0", images, carried=[("ptr", memory), ("ptr", turned)]) as one:
                number = em.add(i.i, one.i)
                n = em.op(f"sdiv i64 {number}, {word[OUT]}")
                od = em.sub(number, em.mul(n, word[OUT]))
                d0 = em.sub(em.mul(od, word[STRIDE]), word[PADDING])
                em.line(f"call void @copy_image(ptr {em.at(x1, em.mul(n, word[X_IMAGE]))}, i64 {channels}, i64 {d0}, i64 {h}, i64 {w}, i64 {high}, "
                        f"i64 {wide}, ptr {one.vars[0]}, i64 {channel}, ptr %block)")
                first = em.add(em.mul(em.add(em.mul(od, word[OUT + 1]), r.i), word[OUT + 2]), k.i)
                source = em.at(em.at(g1, em.mul(n, word[G_IMAGE])), em.mul(first, str(item)))
                with em.loop("0", word[M], str(tile.width), [("ptr", one.vars[1])]) as o:
                    count = em.smaller(str(tile.width), em.sub(word[M], o.i))
                    above = em.at(source, em.mul(o.i, word[G_CHANNEL]))
                    with em.loop("0", runs, carried=[("ptr", above), ("ptr", o.vars[0])]) as run:
                        em.line(f"call void @pack_columns(ptr {run.vars[0]}, i64 {word[G_CHANNEL]}, i64 {item}, i64 {count}, i64 {length}, ptr {run.vars[1]})")
                        run.next = [em.at(run.vars[0], em.mul(word[OUT + 2], str(item))), em.at(run.vars[1], em.mul(length, str(column_bytes)))]
                    o.next = [em.at(o.vars[0], panel)]
                one.next = [em.at(one.vars[0], image), em.at(one.vars[1], em.mul(em.mul(rows, columns), str(column_bytes)))]
            shared = f"i64 {channel}, i64 {slice_}, i64 {depth_row}, i64 {image}, i64 {next_row}, i64 {next_place}, i64 {images}, i64 {rows}, i64 {columns}"
            with em.loop("0", word[M], str(tile.width), [("ptr", turned), ("ptr", own)]) as o:
                narrow = em.op(f"icmp sle i64 {em.sub(word[M], o.i)}, {tile.lanes}")
                one_vector, two, done = em.label("one"), em.label("two"), em.label("swept")
                em.branch(narrow, one_vector, two)
                for vectors, label in ((1, one_vector), (2, two)):
                    em.start(label)
                    _sweep(em, shapes, vectors, channels, memory, channel, shared, o.vars[0], o.vars[1], step, word[TAPS])
                    em.jump(done)
                em.start(done)
                o.next = [em.at(o.vars[0], panel), em.at(o.vars[1], str(column_bytes))]
    scratch.give(em, index)
    em.line("ret void")
    em.finish()


def _sweep(em: Emitter, shapes: list[Taps], vectors: int, channels: str, x: str, channel: str, shared: str, g: str, sums: str, step: str, taps: str) -> None:
    """All taps of all channels of a block by one panel of g."""
    together = shapes[0].channels
    next_sums = em.mul(step, taps)
    most = channels if together == 1 else em.mul(em.op(f"sdiv i64 {channels}, {together}"), str(together))
    with em.loop("0", most, str(together), [("ptr", x), ("ptr", sums)]) as c:
        for k in range(len(shapes)):
            em.line(f"call void @taps_{k}_{vectors}(ptr {c.vars[0]}, {shared}, ptr {g}, ptr {c.vars[1]}, i64 {step})")
        c.next = [em.at(c.vars[0], em.mul(channel, str(together))), em.at(c.vars[1], em.mul(next_sums, str(together)))]
    if together > 1:
        with em.loop(most, channels, carried=[("ptr", c.vars[0]), ("ptr", c.vars[1])]) as rest:
            em.line(f"call void @single_{vectors}(ptr {rest.vars[0]}, {shared}, ptr {g}, ptr {rest.vars[1]}, i64 {step})")
            rest.next = [em.at(rest.vars[0], channel), em.at(rest.vars[1], next_sums)]


def _write_sum(module: Module, tile: Tile) -> None:
    """Adds the groups' sums (C taps, channels of g) up, in order, transposed."""
    em = Emitter(module, f"void @{NAMES[1]}(i64 %begin, i64 %end, ptr %args, ptr %block)")
    target, partial = em.pointer("%args", 0), em.pointer("%args", 3)
    m, groups = em.word("%block", M), em.word("%block", GROUPS)
    total = em.mul(em.word("%block", C), em.word("%block", TAPS))
    lanes, item, t = tile.lanes, tile.item, ty(tile.d, tile.lanes)
    padded = em.mul(em.op(f"sdiv i64 {em.add(m, str(tile.width - 1))}, {tile.width}"), str(tile.width))
    step = em.mul(padded, str(item))
    across = em.op(f"sdiv i64 {padded}, {lanes}")
    whole = em.mul(total, step)
    blocks = em.mul(across, em.op(f"sdiv i64 {em.add(total, str(lanes - 1))}, {lanes}"))
    with em.loop("%begin", "%end") as unit:
        side = em.op(f"sdiv i64 {unit.i}, {blocks}")
        number = em.sub(unit.i, em.mul(side, blocks))
        j_block = em.op(f"sdiv i64 {number}, {across}")
        o, j = em.mul(em.sub(number, em.mul(j_block, across)), str(lanes)), em.mul(j_block, str(lanes))
        source = em.at(em.at(partial, em.mul(em.mul(side, groups), whole)), em.mul(o, str(item)))
        first_row = em.mul(side, m)
        last = em.sub(total, "1")
        rows = [em.mul(em.smaller(em.add(j, str(r)), last), step) for r in range(lanes)]
        with em.loop("0", groups, carried=[("ptr", source), *[(t, "zeroinitializer")] * lanes]) as group:
            base = group.vars[0]
            added = [em.op(f"fadd {t} {v}, {em.load(tile.d, lanes, em.at(base, at))}") for v, at in zip(group.vars[1:], rows, strict=True)]
            group.next = [em.at(base, whole), *added]
        mask = em.first_lanes(em.sub(total, j), lanes)
        for k, line in enumerate(transposed(em, group.vars[1:], t, lanes)):
            row = em.add(o, str(k))
            with em.only_if(em.op(f"icmp slt i64 {row}, {m}")):
                em.store(tile.d, lanes, line, em.at(target, em.mul(em.add(em.mul(em.add(first_row, row), total), j), str(item))), mask)
    em.line("ret void")
    em.finish()
