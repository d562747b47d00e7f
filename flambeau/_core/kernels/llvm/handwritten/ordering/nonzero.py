"""The places of nonzero elements, and the rows that a mask selects: each tile counts, the counts are summed, and each tile writes its part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .... import native
from ....programs import size_of
from ...emit import suffix
from ..code import Code, Value
from . import rows
from .sorting import functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from .....dtypes import dtype
    from ...emit import Module

    Sizes = tuple[int, ...]

TILE = 2048  # elements whose count is kept
_CHUNK = 8  # tiles that a thread takes at a time
_SHARED = 1 << 15  # elements that are worth more threads
_LANES = 16
# the parameter block: what of an element's bits is looked at; the walk over the elements; the shape, from its last axis on
(MASK, TOTAL, COLUMNS, STEP, LEAD, AXES, WALK) = range(7)


def room(n: int) -> int:
    """How many int64 the counts of n elements take: the first is that of all."""
    return 1 + -(-n // TILE)


def _words(d: dtype, shape: Sizes, strides: Sizes) -> list[int]:
    bits = 8 * d.itemsize
    mask = (1 << bits) - 1
    if d.kind in "fc":  # without the signs of zeros
        mask ^= 1 << bits - 1
    if d.kind == "c":
        mask ^= 1 << bits // 2 - 1
    kept, (steps,) = rows.merged(shape, [tuple(s * d.itemsize for s in strides)])
    if not kept:
        kept, steps = (1,), (0,)
    lead = rows.numbers(kept[:-1], [steps[:-1]])
    return [mask, size_of(shape), kept[-1], steps[-1], WALK, WALK + len(lead), *lead, len(shape), *reversed(shape)]


def count(d: dtype, shape: Sizes, strides: Sizes) -> Callable[..., None]:
    """``entry(counts, source)``: how many elements are not 0, and how many before each tile; see `room`.  Elements have up to 8 bytes."""
    n = size_of(shape)
    found = _functions(d)
    tiles = -(-n // TILE)
    return native.make_entry([(found["flambeau_nonzero_count"], tiles, _CHUNK), (found["flambeau_nonzero_sums"], 1, 1)], _words(d, shape, strides), 2,
                             parallel=n >= _SHARED)


def write(d: dtype, shape: Sizes, strides: Sizes) -> Callable[..., None]:
    """``entry(out, source, counts, most, step, apart)``: see `specs.NonzeroWrite`."""
    n = size_of(shape)
    return native.make_entry([(_functions(d)["flambeau_nonzero_write"], -(-n // TILE), _CHUNK)], _words(d, shape, strides), 6, parallel=n >= _SHARED)


def chosen(n: int, nbytes: int, back: bool) -> Callable[..., None]:
    """``entry(out, source, mask, counts)``: see `specs.Chosen`."""
    names = tuple(f"flambeau_{how}_{k}" for how in _HOW for k in _WIDTHS)
    found = functions("chosen", 8, names, _write_chosen)
    width = nbytes if nbytes in _WIDTHS else 0
    tiles = -(-n // TILE)
    chunk = max(1, (_CHUNK << 3) // max(nbytes, 8))
    return native.make_entry([(found[f"flambeau_{_HOW[back]}_{width}"], tiles, chunk)], (n, nbytes), 4, parallel=tiles > chunk and n * nbytes >= _SHARED)


def _functions(d: dtype) -> dict[str, int]:
    return functions("nonzero", 8 * d.itemsize, ("flambeau_nonzero_count", "flambeau_nonzero_sums", "flambeau_nonzero_write"), _write)


def _write(module: Module, bits: int) -> None:
    rows.write(module, 1)
    _write_set_in(module, bits)
    _write_places(module, bits)
    _write_count(module)
    _write_sums(module)
    _write_write(module)


def _segments(c: Code, source: Value, block: Value, tile: Value, state: Value, name: str) -> Value:
    """What the function `name` (source, step, n, mask, first index, state) makes of a tile's elements, one piece after the other that lies
    along one row: the state it passes on."""
    total, columns, step, lead = (c.number(block, k) for k in (TOTAL, COLUMNS, STEP, LEAD))
    mask = c.number(block, MASK)
    at = c.array("i64", 1)
    first = tile * TILE
    end = c.least(total, first + TILE)
    with c.repeat(first, state) as piece:
        i, now = piece.vars
        row = i.over(columns)
        column = i - row * columns
        (offset,) = rows.offsets(c, row, block + lead * 8, at, 1)
        many = c.least(end - i, columns - column)
        now = c.function("i64", name, source + (offset + column * step), step, many, mask, i - first, now)
        piece.next = [i + many, now]
        piece.more = piece.next[0] < end
    return piece.vars[1]


def _write_set_in(module: Module, bits: int) -> None:
    """@set_in(source, step, n, mask, -, count): the count, and one more for each of n elements that is set."""
    c = Code(module, "internal i64", "set_in", "ptr", "i64", "i64", "i64", "i64", "i64")
    source, step, n, mask, _, before = c.given
    size, lanes = bits // 8, 512 // bits
    t = f"<{lanes} x i{bits}>"
    masks = mask.to(f"i{bits}").spread(lanes)
    whole = c.pick(step.equals(size), n & -lanes, 0)
    with c.span(0, whole, before, step=lanes) as v:
        hits = ((source + v.i * size).load(t) & masks).differs(0).bits(f"i{lanes}")
        v.next = [v.vars[0] + c.built_in("ctpop", hits).to("i64")]
    with c.span(whole, n, *v.vars) as v:
        v.next = [v.vars[0] + ((source + v.i * step).load(f"i{bits}") & mask.to(f"i{bits}")).differs(0).to("i64")]
    c.back(v.vars[0])
    c.finish()


def _write_places(module: Module, bits: int) -> None:
    """@places(source, step, n, mask, first, to): appends the indices first + i of elements that are set to the array that ends at `to`."""
    c = Code(module, "internal i64", "places", "ptr", "i64", "i64", "i64", "i64", "i64")
    source, step, n, mask, first, end = c.given
    size = bits // 8
    whole = c.pick(step.equals(size), n & -_LANES, 0)
    masks = mask.to(f"i{bits}").spread(_LANES)
    numbers = c.lane_count("i32", _LANES)
    with c.span(0, whole, end, step=_LANES) as v:
        hits = ((source + v.i * size).load(f"<{_LANES} x i{bits}>") & masks).differs(0)
        to = v.vars[0].cast("inttoptr", "ptr")
        indices = (first + v.i).to("i32").spread(_LANES) + numbers
        if module.masks:
            kept = c.call("llvm.x86.avx512.mask.compress.v16i32", indices.type, (indices.type, indices.name), (indices.type, "zeroinitializer"),
                          (hits.type, hits.name))
            to.store(Value(c, indices.type, kept))
        else:
            c.call(f"llvm.masked.compressstore.{suffix('i32', _LANES)}", "void", (indices.type, indices.name), ("ptr", to.name), (hits.type, hits.name))
        v.next = [v.vars[0] + c.built_in("ctpop", hits.bits(f"i{_LANES}")).to("i64") * 4]
    with c.span(whole, n, *v.vars) as v:
        v.vars[0].cast("inttoptr", "ptr").store((first + v.i).to("i32"))
        is_set = ((source + v.i * step).load(f"i{bits}") & mask.to(f"i{bits}")).differs(0)
        v.next = [v.vars[0] + c.pick(is_set, c.ints(4), 0)]
    c.back(v.vars[0])
    c.finish()


def _write_count(module: Module) -> None:
    c = Code(module, "void", "flambeau_nonzero_count", "i64", "i64", "ptr", "ptr")
    begin, end, args, block = c.given
    counts, source = c.address(args, 0), c.address(args, 1)
    with c.span(begin, end) as tile:
        (counts + tile.i * 8 + 8).store(_segments(c, source, block, tile.i, c.ints(0), "set_in"))
    c.back()
    c.finish()


def _write_sums(module: Module) -> None:
    c = Code(module, "void", "flambeau_nonzero_sums", "i64", "i64", "ptr", "ptr")
    _, _, args, block = c.given
    counts = c.address(args, 0)
    tiles = (c.number(block, TOTAL) + (TILE - 1)).over(TILE)
    with c.span(0, tiles, c.ints(0)) as v:
        place = counts + v.i * 8 + 8
        own = place.load("i64")
        place.store(v.vars[0])
        v.next = [v.vars[0] + own]
    counts.store(v.vars[0])
    c.back()
    c.finish()


def _write_write(module: Module) -> None:
    c = Code(module, "void", "flambeau_nonzero_write", "i64", "i64", "ptr", "ptr")
    begin, end, args, block = c.given
    found = c.array("i32", TILE + 64)
    out, source, counts = (c.address(args, k) for k in range(3))
    most, step, apart = (c.number(args, k) for k in (3, 4, 5))
    axes = block + c.number(block, AXES) * 8
    start = found.cast("ptrtoint", "i64")
    with c.span(begin, end) as tile:
        last = _segments(c, source, block, tile.i, start, "places")
        ahead = (counts + tile.i * 8 + 8).load("i64")
        many = c.least((last - start) >> 2, most - ahead)
        with c.when(c.ints(0) < many):
            _write_axes(c, found, many, tile.i * TILE, out + ahead * step * 8, step, apart, axes)
    c.back()
    c.finish()


def _write_axes(c: Code, found: Value, many: Value, first: Value, out: Value, step: Value, apart: Value, axes: Value) -> None:
    """Writes the coordinates of `many` indices of a tile: along the last axis what is left over by its length, and so on, by quotients that
    are exact in double precision."""
    last = axes.load("i64") - 1
    lanes = 8
    # from here on they count from the tensor's first element
    with c.span(0, many, step=lanes) as v:
        place = found + v.i * 4
        place.store(place.load(f"<{lanes} x i32>") + first.to("i32").spread(lanes))
    with c.span(0, last) as axis:
        size = (axes + axis.i * 8 + 8).load("i64")
        to = out + (last - axis.i) * apart * 8
        sizes, by = size.to("i32").spread(lanes), size.cast("uitofp", "double").spread(lanes)
        with c.span(0, many, step=lanes) as v:
            place = found + v.i * 4
            index = place.load(f"<{lanes} x i32>")
            wide = index.cast("uitofp", "double")
            whole = Value(c, wide.type, c.op(f"fdiv {wide.type} {wide.name}, {by.name}")).cast("fptosi", "i32")
            place.store(whole)
            _put(c, index - whole * sizes, to + v.i * step * 8, step, c.least(many - v.i, lanes))
    with c.span(0, many, step=lanes) as v:
        _put(c, (found + v.i * 4).load(f"<{lanes} x i32>"), out + v.i * step * 8, step, c.least(many - v.i, lanes))


def _put(c: Code, numbers: Value, to: Value, step: Value, many: Value) -> None:
    """Stores the first of some numbers (i32) as int64, `step` places apart."""
    wide = numbers.to("i64")
    whole = step.equals(1) & many.equals(wide.lanes)
    with c.when(whole):
        to.store(wide)
    for lane in range(wide.lanes):
        with c.when((whole ^ 1) & (c.ints(lane) < many)):
            (to + step * (8 * lane)).store(Value(c, "i64", c.op(f"extractelement {wide.type} {wide.name}, i64 {lane}")))


# ------------------------------------------------------------------------------------------------------------- chosen rows
_WIDTHS = (0, 1, 2, 4, 8)  # bytes of a row that is moved as one number; 0: of any other
_HOW = ("chosen", "placed")  # whether rows come from where the mask is set, or go there


def _write_chosen(module: Module, bits: int) -> None:
    _write_places(module, bits)
    for back, how in enumerate(_HOW):
        for width in _WIDTHS:
            c = Code(module, "void", f"flambeau_{how}_{width}", "i64", "i64", "ptr", "ptr")
            begin, end, args, block = c.given
            found = c.array("i32", TILE + 64)
            out, source, mask, counts = (c.address(args, k) for k in range(4))
            n, nbytes = c.number(block, 0), c.number(block, 1)
            start = found.cast("ptrtoint", "i64")
            with c.span(begin, end) as tile:
                first = tile.i * TILE
                last = c.function("i64", "places", mask + first, c.ints(1), c.least(n - first, TILE), c.ints(255), first, start)
                ahead = (counts + tile.i * 8 + 8).load("i64")
                with c.span(0, (last - start) >> 2) as v:
                    own, its = ahead + v.i, (found + v.i * 4).load("i32").to("i64")
                    to, at = (its, own) if back else (own, its)
                    if width:
                        (out + to * width).store((source + at * width).load(f"i{8 * width}"))
                    else:
                        _move(c, out + to * nbytes, source + at * nbytes, nbytes)
            c.back()
            c.finish()


def _move(c: Code, to: Value, source: Value, nbytes: Value) -> None:
    c.call("llvm.memcpy.p0.p0.i64", "void", ("ptr", to.name), ("ptr", source.name), ("i64", nbytes.name), ("i1 immarg", "false"))
