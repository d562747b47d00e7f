"""Counts of integers (bincount), and of elements in equal intervals (histograms).

Each task counts in its own table, which is added to the result.  The counts are integers, so the order of tasks does not change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....dtypes import bfloat16, float16, float32
from .... import native
from ....programs import size_of
from ... import scratch
from ...casts import cast
from ...emit import base, vec
from ..code import Code, Value
from . import rows
from .sorting import functions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .....dtypes import dtype
    from ...emit import Module

    Sizes = tuple[int, ...]

_PIECE = 1 << 16  # elements that a task counts
_SHARED = 1 << 15  # elements that are worth more threads
_MOST_BINS = 1 << 14  # for which tasks have tables of their own: of more, the result is the only one
BLOCK = 512  # elements whose intervals are worked out at a time
# ------------------------------------------------------------------------------------------------------------ occurrences
(O_N, O_BINS, O_OWN) = range(3)


def occurrences(n: int, bins: int, d: dtype, weights: dtype | None) -> Callable[..., None]:
    """``entry(counts, source, [weights])``: see `specs.Occurrences`.  Weights are added by one thread, in order."""
    shared = weights is None and n >= _SHARED and bins <= _MOST_BINS and bins < n
    names = tuple(f"flambeau_occurrences{k}" for k in ("", *_WEIGHTS))
    code = functions("occurrences", 8 * d.itemsize, names, _write_occurrences)
    found = code["flambeau_occurrences" + ("" if weights is None else base(weights))]
    return native.make_entry([(found, n, _PIECE if shared else max(n, 1))], (n, bins, int(shared)), 2 if weights is None else 3, parallel=shared)


_WEIGHTS = ("float", "double")


def _write_occurrences(module: Module, bits: int) -> None:
    write_added(module)
    size = bits // 8
    c = Code(module, "void", "flambeau_occurrences", "i64", "i64", "ptr", "ptr")
    begin, end, args, block = c.given
    counts, source = c.address(args, 0), c.address(args, 1)
    bins, own = c.number(block, O_BINS), c.number(block, O_OWN).differs(0)
    table, index = _table(c, c.pick(own, bins * 8, 0))
    to = c.pick(own, table, counts)
    with c.span(begin, end) as v:
        slot = to + (source + v.i * size).load(f"i{bits}").to("i64") * 8
        slot.store(slot.load("i64") + 1)
    with c.when(own):
        c.function("void", "added", counts, table, bins)
    scratch.give(c, index)
    c.back()
    c.finish()
    for kind in _WEIGHTS:
        c = Code(module, "void", f"flambeau_occurrences{kind}", "i64", "i64", "ptr", "ptr")
        begin, end, args, _ = c.given
        counts, source, weights = (c.address(args, k) for k in range(3))
        with c.span(begin, end) as v:
            slot = counts + (source + v.i * size).load(f"i{bits}").to("i64") * 8
            weight = (weights + v.i * (4 if kind == "float" else 8)).load(kind)
            weight = weight.cast("fpext", "double") if kind == "float" else weight
            slot.store(Value(c, "double", c.op(f"fadd double {slot.load('double').name}, {weight.name}")))
        c.back()
        c.finish()


def spread(n: int) -> Callable[..., None]:
    """``entry(out, places, values)``: see `specs.Spread`."""
    code = functions("spread", 64, ("flambeau_spread",), _write_spread)["flambeau_spread"]
    return native.make_entry([(code, n, _PIECE)], (), 3, parallel=n >= _SHARED)


def _write_spread(module: Module, bits: int) -> None:
    c = Code(module, "void", "flambeau_spread", "i64", "i64", "ptr", "ptr")
    begin, end, args, _ = c.given
    out, places, values = (c.address(args, k) for k in range(3))
    with c.span(begin, end) as v:
        (out + (places + v.i * 8).load("i64") * 8).store((values + v.i * 8).load("i64"))
    c.back()
    c.finish()


def _table(c: Code, nbytes: Value) -> tuple[Value, str]:
    """A thread's own table of zeros."""
    memory, index = scratch.take(c, nbytes.name)
    table = Value(c, "ptr", memory)
    with c.span(0, nbytes, step=8) as v:
        (table + v.i).store(0)
    return table, index


def write_added(module: Module) -> None:
    """Adds @added(to, table, n): a table's counts are added to those that all tasks share."""
    c = Code(module, "internal void", "added", "ptr", "ptr", "i64")
    to, table, n = c.given
    with c.span(0, n) as v:
        count = (table + v.i * 8).load("i64")
        c.op(f"atomicrmw add ptr {(to + v.i * 8).name}, i64 {count.name} monotonic")
    c.back()
    c.finish()


# -------------------------------------------------------------------------------------------------------------- histograms
# the parameter block, steps in bytes; behind it lie @row's words.  Of the workspace: two numbers of each task, then the counts
(COLUMNS, PIECES, TASKS, STEP, BINS, OWN, LEAD) = range(7)
(OUT, TOLD, SOURCE, WORK, LOW, HIGH) = range(6)


def histogram(d: dtype, shape: Sizes, strides: Sizes, bins: int, own: bool) -> tuple[Callable[..., None], int]:
    """``entry(out, told, source, workspace, low, high)`` and the bytes of its workspace: see `specs.Histogram`."""
    kept, (steps,) = rows.merged(shape, [tuple(s * d.itemsize for s in strides)])
    if not kept:
        kept, steps = (1,), (0,)
    n, columns = size_of(shape), kept[-1]
    pieces = -(-columns // _PIECE)
    tasks = n // columns * pieces if n else 0
    words = [columns, pieces, tasks, steps[-1], bins, int(own), *rows.numbers(kept[:-1], [steps[:-1]])]
    names = ("flambeau_histogram_start", "flambeau_histogram_range", "flambeau_histogram_count", "flambeau_histogram_end")
    found = functions(f"histogram {d.name}", 8 * d.itemsize, names, lambda module, bits: _write_histogram(module, d))
    start, limits, count, end = (found[k] for k in names)
    # each chunk has a table, which must not be more work than its elements are
    chunk = max(1, _PIECE // max(columns, 1), -(-4 * bins // max(min(columns, _PIECE), 1)))
    stages = [(start, 1, 1), *([(limits, tasks, chunk)] if own else []), (count, tasks, chunk), (end, 1, 1)]
    return native.make_entry(stages, words, 6, (LOW, HIGH), parallel=n >= _SHARED), 16 * tasks + 8 * (bins + 1) + 64


def _write_histogram(module: Module, d: dtype) -> None:
    rows.write(module, 1)
    write_added(module)
    _write_start(module)
    _write_range(module, d)
    _write_bins(module, d)
    _write_count(module, d)
    _write_end(module, d)


def _real(d: dtype) -> dtype:
    """The type in which elements are calculated with."""
    return float32 if d in (float16, bfloat16) else d


def _loaded(c: Code, d: dtype, place: Value, lanes: int) -> Value:
    real = _real(d)
    return Value(c, vec(base(real), lanes), cast(c, place.load(vec(base(d), lanes)).name, d, real, lanes))


def _write_start(module: Module) -> None:
    """Nothing is counted yet."""
    c = Code(module, "void", "flambeau_histogram_start", "i64", "i64", "ptr", "ptr")
    _, _, args, block = c.given
    c.address(args, TOLD).store(0)
    counts = c.address(args, WORK) + c.number(block, TASKS) * 16
    with c.span(0, c.number(block, BINS) + 1) as v:
        (counts + v.i * 8).store(0)
    c.back()
    c.finish()


def _piece(c: Code, task: Value, block: Value, at: Value, source: Value) -> tuple[Value, Value, Value]:
    """A task's first element, the bytes from one to the next, and how many there are."""
    columns, pieces, step = (c.number(block, k) for k in (COLUMNS, PIECES, STEP))
    row = task.over(pieces)
    first = (task - row * pieces) * _PIECE
    (offset,) = rows.offsets(c, row, block + 8 * LEAD, at, 1)
    return source + (offset + first * step), step, c.least(columns - first, _PIECE)


def _write_range(module: Module, d: dtype) -> None:
    """Each task's least and greatest element, NaN where there is one."""
    c = Code(module, "void", "flambeau_histogram_range", "i64", "i64", "ptr", "ptr")
    begin, end, args, block = c.given
    at = c.array("i64", 1)
    real, size = _real(d), d.itemsize
    lanes = 64 // real.itemsize
    kind = base(real)

    def both(lanes: int, ends: Sequence[Value], x: Value, y: Value) -> list[Value]:
        return [Value(c, x.type, c.intrinsic(name, real, lanes, a.name, b.name)) for name, a, b in zip(("minimum", "maximum"), ends, (x, y), strict=True)]
    with c.span(begin, end) as task:
        source, step, n = _piece(c, task.i, block, at, c.address(args, SOURCE))
        whole = c.pick(step.equals(size), n & -lanes, 0)
        one = _loaded(c, d, source, 1)
        with c.span(0, whole, one.spread(lanes), one.spread(lanes), step=lanes) as v:
            x = _loaded(c, d, source + v.i * size, lanes)
            v.next = both(lanes, v.vars, x, x)
        low, high = v.vars
        lows, highs = ([Value(c, kind, c.op(f"extractelement {x.type} {x.name}, i64 {k}")) for k in range(lanes)] for x in (low, high))
        ends = [lows[0], highs[0]]
        for k in range(1, lanes):
            ends = both(1, ends, lows[k], highs[k])
        with c.span(whole, n, *ends) as v:
            x = _loaded(c, d, source + v.i * step, 1)
            v.next = both(1, v.vars, x, x)
        for k, x in enumerate(v.vars):
            (c.address(args, WORK) + task.i * 16 + 8 * k).store(x if kind == "double" else x.cast("fpext", "double"))
    c.back()
    c.finish()


def _limits(c: Code, args: Value, block: Value, kind: str) -> tuple[Value, Value]:
    """The outer edges: those given, or the elements' own, one further out each where they coincide; these are told where they are not finite."""
    own = c.number(block, OWN).differs(0)
    work, tasks = c.address(args, WORK), c.number(block, TASKS)
    low, high = ((args + 8 * k).load("double") for k in (LOW, HIGH))
    with c.when(own & (c.ints(0) < tasks), low, high) as found:
        with c.span(0, tasks, work.load("double"), (work + 8).load("double")) as v:
            v.next = [Value(c, "double", c.call(f"llvm.{name}.f64", "double", ("double", a.name), ("double", (work + v.i * 16 + 8 * k).load("double").name)))
                      for k, (name, a) in enumerate(zip(("minimum", "maximum"), v.vars, strict=True))]
        found.next = v.vars
    low, high = found.vars
    apart = c.pick(own & low.compare("oeq", high), Value(c, "double", "1.0"), Value(c, "double", "0.0"))
    low, high = (Value(c, "double", c.op(f"{op} double {x.name}, {apart.name}")) for op, x in (("fsub", low), ("fadd", high)))
    with c.when(own):
        infinity = Value(c, "double", "0x7FF0000000000000")
        sizes = [Value(c, "double", c.call("llvm.fabs.f64", "double", ("double", x.name))) for x in (low, high)]
        fine = sizes[0].compare("olt", infinity) & sizes[1].compare("olt", infinity)
        with c.when(fine ^ 1):
            c.address(args, TOLD).store(1)
    return (low, high) if kind == "double" else (low.cast("fptrunc", "float"), high.cast("fptrunc", "float"))


def _halved(c: Code, d: dtype, x: Value, lanes: int = 1) -> Value:
    """As a float16 where that is the type: its numbers are float16 too, those of bfloat16 are float32."""
    return Value(c, x.type, cast(c, cast(c, x.name, float32, d, lanes), d, float32, lanes)) if d is float16 else x


def _write_bins(module: Module, d: dtype) -> None:
    """@intervals(source, step, n, to, low, high, bins): the interval of each of up to BLOCK elements, `bins` for those outside."""
    real, size = _real(d), d.itemsize
    kind, lanes = base(real), 64 // real.itemsize
    c = Code(module, "internal void", "intervals", "ptr", "i64", "i64", "ptr", kind, kind, "i64")
    source, step, n, to, low, high, bins = c.given

    def rounded(op: str, a: Value, b: Value, lanes: int) -> Value:
        made = Value(c, a.type, c.op(f"{op} {a.type} {a.name}, {b.name}"))
        return made if real is d else Value(c, a.type, cast(c, cast(c, made.name, real, d, lanes), d, real, lanes))
    width = rounded("fsub", high, low, 1)
    many = _halved(c, d, bins.cast("uitofp", kind))

    def interval(x: Value, lanes: int) -> Value:
        edge = [v.spread(lanes) if lanes > 1 else v for v in (low, high, width, many)]
        inside = x.compare("oge", edge[0]) & x.compare("ole", edge[1])
        place = rounded("fdiv", rounded("fmul", rounded("fsub", x, edge[0], lanes), edge[3], lanes), edge[2], lanes)
        last = (bins - 1).to("i32")
        # what is not inside is not converted; neither is what the range's own width is too wide for
        zero = Value(c, place.type, "zeroinitializer" if lanes > 1 else "0.0")
        sound = inside & place.compare("oge", zero) & place.compare("olt", edge[3])
        number = c.pick(sound, place, zero).cast("fptosi", "i32")
        number = c.pick(place.compare("oge", edge[3]), last.spread(lanes) if lanes > 1 else last, number)
        return c.pick(inside, number, bins.to("i32").spread(lanes) if lanes > 1 else bins.to("i32"))
    whole = c.pick(step.equals(size), n & -lanes, 0)
    with c.span(0, whole, step=lanes) as v:
        (to + v.i * 4).store(interval(_loaded(c, d, source + v.i * size, lanes), lanes))
    with c.span(whole, n) as v:
        (to + v.i * 4).store(interval(_loaded(c, d, source + v.i * step, 1), 1))
    c.back()
    c.finish()


def _write_count(module: Module, d: dtype) -> None:
    c = Code(module, "void", "flambeau_histogram_count", "i64", "i64", "ptr", "ptr")
    begin, end, args, block = c.given
    at, places = c.array("i64", 1), c.array("i32", BLOCK + 64)
    low, high = (_halved(c, d, x) for x in _limits(c, args, block, base(_real(d))))
    bins = c.number(block, BINS)
    table, index = _table(c, (bins + 1) * 8)
    with c.span(begin, end) as task:
        source, step, n = _piece(c, task.i, block, at, c.address(args, SOURCE))
        with c.span(0, n, step=BLOCK) as v:
            many = c.least(n - v.i, BLOCK)
            c.function("void", "intervals", source + v.i * step, step, many, places, low, high, bins)
            with c.span(0, many) as w:
                slot = table + (places + w.i * 4).load("i32").to("i64") * 8
                slot.store(slot.load("i64") + 1)
    c.function("void", "added", c.address(args, WORK) + c.number(block, TASKS) * 16, table, bins)
    scratch.give(c, index)
    c.back()
    c.finish()


def _write_end(module: Module, d: dtype) -> None:
    """The counts as elements of the type."""
    c = Code(module, "void", "flambeau_histogram_end", "i64", "i64", "ptr", "ptr")
    _, _, args, block = c.given
    counts, out, real = c.address(args, WORK) + c.number(block, TASKS) * 16, c.address(args, OUT), _real(d)
    with c.span(0, c.number(block, BINS)) as v:
        number = (counts + v.i * 8).load("i64").cast("uitofp", base(real))
        (out + v.i * d.itemsize).store(Value(c, base(d), cast(c, number.name, real, d, 1)))
    c.back()
    c.finish()
