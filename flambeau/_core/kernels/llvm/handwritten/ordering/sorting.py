"""Sorted rows: the first elements of each in order, and where they came from."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from .... import native
from ....programs import size_of
from ... import scratch
from ...emit import Module
from ..code import Code, Value
from . import keys, order, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .....dtypes import dtype

    Sizes = tuple[int, ...]

# the parameter block, behind the words of keys; steps and the room of a task in bytes.  WORK: which argument is the memory that the caller
# gives, 0 where there is none; OWN: up to four words of a kernel's own; LEAD: those of @row
(N, WIDTH, VALUE_STEP, PLACE_STEP, SOURCE_STEP, ROOM, TASKS, WORK, ROWS, OWN) = range(keys.WORDS, keys.WORDS + 10)
LEAD = OWN + 4
_LONG = 1 << 16  # elements of a row that is sorted in memory that the caller gives, rather than in what a thread keeps
_SHARED = 1 << 13  # elements that are worth more threads
_CHUNK = 1 << 11  # elements that a thread takes at a time
_functions: dict[tuple[str, int], dict[str, int]] = {}


class Job:
    """What a kernel over rows is prepared with: operands as `specs.Sort` has them.

    tasks: how many there are; each does every tasks-th row where it works in memory that the caller gives (`workspace` bytes).
    """

    def __init__(self, d: dtype, domain: Sizes, strides: Sequence[Sizes], descending: bool, width: int, room: int, extra: Sequence[int] = ()) -> None:
        n, count = domain[-1], size_of(domain[:-1])
        sizes = (d.itemsize, 8, d.itemsize)
        far = n > _LONG
        self.tasks = min(count, native.get_num_threads()) if far else count
        self.room = -(-room // 4096) * 4096
        self.workspace = self.tasks * self.room if far else 0
        steps = [tuple(x * size for x in s) for s, size in zip(strides, sizes, strict=True)]
        own = [*extra, *[0] * (LEAD - OWN - len(extra))]
        self.words = [*keys.numbers(d, descending), n, width, *[x[-1] for x in steps], self.room, self.tasks, 3 if far else 0, count, *own,
                      *rows.numbers(domain[:-1], [x[:-1] for x in steps])]
        self.chunk = 1 if far else max(1, _CHUNK // max(n, 1))
        self.parallel = count > 1 and count * n >= _SHARED
        self.nbytes = size_of(domain) * d.itemsize + count * width * (d.itemsize + 8)

    def entry(self, function: int) -> Callable[..., None]:
        return native.make_entry([(function, self.tasks, self.chunk)], self.words, 4 if self.workspace else 3, parallel=self.parallel)


class Rows:
    """A kernel function ``(begin, end, args, block)`` over tasks, while it is written: what is done for a row is written inside `each`."""

    def __init__(self, module: Module, name: str, bits: int) -> None:
        c = self.code = Code(module, "void", name, "i64", "i64", "ptr", "ptr")
        self.begin, self.end, self.args, self.block = c.given
        self.bits = bits
        self.keys = keys.Keys(c, self.block, bits)
        self.n, self.width, self.value_step, self.place_step, self.source_step = (c.number(self.block, k) for k in range(N, SOURCE_STEP + 1))
        self.places = c.array("i64", 3)
        given = c.number(self.block, WORK)
        borrowed = c.pick(given.equals(0), c.number(self.block, ROOM), 0)
        memory, self.index = scratch.take(c, borrowed.name)
        self.own = Value(c, "ptr", memory)
        self.lent = (self.args + given * 8).load("ptr")
        self.given = given

    @contextmanager
    def each(self) -> Iterator[tuple[Value, Value, Value, Value]]:
        """The work on one row: gives the addresses of its values, places, source and memory."""
        c = self.code
        values, places, source = (c.address(self.args, k) for k in range(3))
        room, tasks, count = (c.number(self.block, k) for k in (ROOM, TASKS, ROWS))
        with c.span(self.begin, self.end) as task:
            work = c.pick(self.given.equals(0), self.own, self.lent + task.i * room)
            with c.span(task.i, count, step=tasks) as row:
                at = rows.offsets(c, row.i, self.block + 8 * LEAD, self.places, 3)
                yield values + at[0], places + at[1], source + at[2], work

    def ordered(self, source: Value, work: Value) -> tuple[Value, Value]:
        """A row's keys, at `work`, in order with where they came from; and the memory behind them."""
        c = self.code
        c.function("void", "keys", source, self.source_step, self.n, work, self.block)
        room = work + after_keys(self.n, self.bits)
        return c.function("ptr", "order", work, self.n, room), room

    def finish(self) -> None:
        scratch.give(self.code, self.index)
        self.code.back()
        self.code.finish()


def functions(kind: str, bits: int, names: tuple[str, ...], write: Callable[[Module, int], None]) -> dict[str, int]:
    """The machine code of a kind of kernel for keys of `bits` bits."""
    found = _functions.get((kind, bits))
    if found is None:
        from ... import compile as compiler

        def text() -> str:
            module = Module()
            write(module, bits)
            return module.text()
        found = _functions[kind, bits] = compiler.functions(("ordering", kind, str(bits)), names, text)
    return found


def sort(d: dtype, domain: Sizes, strides: Sequence[Sizes], descending: bool, width: int, values: bool = True) -> tuple[Callable[..., None], int, int]:
    """``entry(values, places, source[, workspace])``, the bytes of its workspace, and those it goes through; see `specs.Sort`."""
    room = order.key_bytes(domain[-1], 8 * d.itemsize) + order.work_bytes(domain[-1])
    job = Job(d, domain, strides, descending, width, room, (int(not values),))
    return job.entry(functions("sort", 8 * d.itemsize, ("flambeau_sort",), write)["flambeau_sort"]), job.workspace, job.nbytes


def write(module: Module, bits: int) -> None:
    write_basics(module, bits)
    write_values(module, bits)
    r = Rows(module, "flambeau_sort", bits)
    c = r.code
    with r.each() as (values, places, source, work):
        pairs, room = r.ordered(source, work)
        c.function("void", "write_values", pairs, r.width, values, places, source, room, r.block)
    r.finish()


def write_basics(module: Module, bits: int) -> None:
    """What kernels over rows call: keys, places of rows, order."""
    keys.write(module, bits)
    rows.write(module, 3)
    order.write(module, bits)


def after_keys(n: Value, bits: int) -> Value:
    """`order.key_bytes` of n."""
    return (n * (bits // 8) + 191) & -64


_TOGETHER = 8  # pairs that are written at once


def write_values(module: Module, bits: int) -> None:
    """Adds @write_values(pairs, width, values, places, source, work, block): the elements and positions of so many pairs of @order, or the
    positions alone."""
    c = Code(module, "internal void", "write_values", "ptr", "i64", "ptr", "ptr", "ptr", "ptr", "ptr")
    pairs, width, values, places, source, work, block = c.given
    size, lanes = bits // 8, _TOGETHER
    k = keys.Keys(c, block, bits)
    k.spread(lanes)
    value_step, place_step, source_step = (c.number(block, w) for w in (VALUE_STEP, PLACE_STEP, SOURCE_STEP))
    alone = c.number(block, OWN).differs(0)
    missing, upper = (c.constant("i1", 0), c.ints(0)) if bits < 64 else (
        (work + order.EXACT).load("i64").equals(0), (work + order.UPPER).load("i64"))

    def key_of(pair: Value) -> Value:
        return (pair >> 32) | (upper.spread(lanes) if pair.lanes > 1 else upper) if bits == 64 else (pair >> 32).to(k.kind)

    def write_value(i: Value) -> None:
        # most elements are known by their keys, and need not be sought
        pair = (pairs + i * 8).load("i64")
        key = key_of(pair)
        with c.when(k.several(key) | missing, k.back(key)) as odd:
            odd.next = [(source + (pair & 0xFFFFFFFF) * source_step).load(k.kind)]
        (values + i * value_step).store(odd.vars[0])
    near = place_step.equals(8)
    whole = c.pick(near, width & -lanes, 0)
    with c.span(0, whole, step=lanes) as v:
        (places + v.i * 8).store((pairs + v.i * 8).load(f"<{lanes} x i64>") & 0xFFFFFFFF)
    with c.span(whole, width) as v:
        (places + v.i * place_step).store((pairs + v.i * 8).load("i64") & 0xFFFFFFFF)
    with c.leave_if(alone):
        c.back()
    whole = c.pick(value_step.equals(size) & (missing ^ 1), width & -lanes, 0)
    with c.span(0, whole, step=lanes) as v:
        key = key_of((pairs + v.i * 8).load(f"<{lanes} x i64>"))
        plain = k.several(key).bits(f"i{lanes}").equals(0)
        with c.when(plain):
            (values + v.i * size).store(k.back(key))
        with c.when(plain ^ 1), c.span(v.i, v.i + lanes) as w:
            write_value(w.i)
    with c.span(whole, width) as v:
        write_value(v.i)
    c.back()
    c.finish()
