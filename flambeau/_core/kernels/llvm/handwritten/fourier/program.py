"""What carries out a Fourier transform: stages, each a list of operations for every task, on memory that is named by slots.

A stage's tasks are blocks of lanes (transforms that lie side by side, a vector's worth of them) of each outer index.  For a task the source's
and the target's addresses are worked out; then its operations run one after another, each a function ``(source, target, operation,
context)``: passes (`passes`), moves (`moves`), the halves of real transforms (`real`), and loops over other operations.

An operation's words: its function, the slot and offset of what it reads, the slot and offset of what it writes, how many bytes it takes; then
what is its function's own.  The context's words: the slots' addresses (0: source, 1: target, 2: memory of the task's own, 3: null, 4, 5: a loop's
source and target, 6: the table of twiddle factors), then, as word 8, how many lanes are there.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from .... import native
from ... import compile as compiler
from ... import scratch
from ...emit import Emitter, Module
from .functions import SIGNATURE
from .passes import LANES, OWN, TABLE, lanes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .....dtypes import dtype

SOURCE, TARGET, MINE, NOWHERE, LOOP_SOURCE, LOOP_TARGET = range(6)
STAGES = 12
_NAMES = ("fft_loop", "fft_inner", *(f"fft_stage{k}" for k in range(STAGES)))
(_BLOCKS, _ALL_LANES, _FROM, _TO, _FROM_OUTER, _FROM_BLOCK, _TO_OUTER, _TO_BLOCK, _TABLE, _TABLE_BLOCK, _MEMORY, _LENGTH, _OPERATIONS) = range(13)
_COUNT, _LOOP_LANES, _LOOP_BYTES, _BASES = OWN, OWN + 1, OWN + 2, OWN + 3

Word = int | float
Slot = tuple[int, int]


class Operation:
    """One operation: a function's address, (slot, offset in bytes) of what it reads and writes, and its own words, of which floats are
    numbers of the transform's type."""

    __slots__ = ("function", "source", "target", "words", "inner")

    def __init__(self, function: int, source: Slot, target: Slot, words: list[Word], inner: list[Operation] | None = None) -> None:
        self.function, self.source, self.target, self.words, self.inner = function, source, target, words, inner or []

    def packed(self, d: dtype) -> bytes:
        body = b"".join(x.packed(d) for x in self.inner)
        words = list(self.words)
        if self.inner:
            words[2] = len(body)
        head = (self.function, *self.source, *self.target, 8 * (OWN + len(words)) + len(body))
        return struct.pack("<6q", *head) + b"".join(_word(w, d) for w in words) + body


def _word(w: Word, d: dtype) -> bytes:
    if isinstance(w, int):
        return struct.pack("<q", w)
    return struct.pack("<d", w) if d.itemsize == 8 else struct.pack("<fI", w, 0)


def loop(d: dtype, count: int, lanes: int, source: tuple[int, int, int], target: tuple[int, int, int], table: tuple[int, int, int],
         inner: list[Operation]) -> Operation:
    """`inner` so many times, over `lanes` lanes in all.  source, target, table: (slot, offset, bytes from turn to turn), which become the slots
    LOOP_SOURCE, LOOP_TARGET and TABLE."""
    return Operation(functions(d)["fft_loop"], (0, 0), (0, 0), [count, lanes, 0, *source, *target, *table], inner)


def inner(d: dtype, stage: Stage, source: Slot, target: Slot) -> Operation:
    """A whole stage as an operation, with a source and a target of the task that it is part of instead of the launch's arguments."""
    return Operation(functions(d)["fft_inner"], source, target, [stage.outer * stage.blocks, 0, 0, *stage.words(d)], stage.operations)


class Stage:
    """Operations for every task: `blocks` of `lanes` lanes in all, for each of `outer` indices.

    source, target: (the launch's argument, bytes from outer index to outer index, bytes from block to block).  table: (address, bytes from block
    to block).  memory: bytes that a task needs.
    """

    __slots__ = ("outer", "blocks", "lanes", "source", "target", "table", "memory", "operations")

    def __init__(self, outer: int, blocks: int, lanes: int, source: tuple[int, int, int], target: tuple[int, int, int], memory: int,
                 operations: list[Operation], table: tuple[int, int] = (0, 0)) -> None:
        self.outer, self.blocks, self.lanes, self.source, self.target, self.table = outer, blocks, lanes, source, target, table
        self.memory, self.operations = memory, operations

    def packed(self, d: dtype) -> bytes:
        words = self.words(d)
        return struct.pack(f"<{len(words)}q", *words) + b"".join(x.packed(d) for x in self.operations)

    def words(self, d: dtype) -> tuple[int, ...]:
        """What the code knows of it before its operations."""
        size = sum(len(x.packed(d)) for x in self.operations)
        return (self.blocks, self.lanes, self.source[0], self.target[0], *self.source[1:], *self.target[1:], *self.table, self.memory, size)


def entry(d: dtype, stages: list[Stage], nargs: int, chunks: list[int], parallel: bool, keep: Any) -> Callable[..., None]:
    """The launch that carries out stages: arguments are addresses.  chunks: tasks that a thread takes at once, for each stage; keep: what must
    live as long as the launch.  Raises NotImplementedError for more than STAGES stages."""
    if len(stages) > STAGES:
        raise NotImplementedError(f"{len(stages)} stages of a Fourier transform; there are functions for {STAGES}")
    code = functions(d)
    bodies = [x.packed(d) for x in stages]
    starts, at = [], 8 * STAGES
    for body in bodies:
        starts.append(at)
        at += len(body)
    block = struct.pack(f"<{STAGES}q", *starts, *[0] * (STAGES - len(starts))) + b"".join(bodies)
    made = [(code[f"fft_stage{k}"], x.outer * x.blocks, chunk) for k, (x, chunk) in enumerate(zip(stages, chunks, strict=True))]
    return native.make_entry(made, struct.unpack(f"<{len(block) // 8}q", block), nargs, parallel=parallel, keep=keep)


_functions: dict[int, dict[str, int]] = {}


def functions(d: dtype) -> dict[str, int]:
    """The functions of this file, by name, for a type's number of lanes."""
    lanes = lanes_of(d.itemsize)
    found = _functions.get(lanes)
    if found is None:
        found = _functions[lanes] = compiler.functions(("fft program", str(lanes)), _NAMES, lambda: text(lanes))
    return found


def text(lanes: int) -> str:
    """The IR of the stages and of loops."""
    module = Module()
    _write_run(module)
    _write_loop(module, lanes)
    _write_tasks(module, lanes)
    _write_inner(module)
    _write_stage(module)
    for k in range(STAGES):
        em = Emitter(module, f"void @fft_stage{k}(i64 %begin, i64 %end, ptr %args, ptr %block)")
        em.line(f"call void @fft_stage(i64 %begin, i64 %end, ptr %args, ptr {em.at('%block', em.word('%block', k))})")
        em.line("ret void")
        em.finish()
    return module.text()


def _set(em: Emitter, context: str, word: int, value: str, kind: str = "ptr") -> None:
    em.line(f"store {kind} {value}, ptr {em.at(context, str(8 * word))}, align 8")


def _slot(em: Emitter, context: str, slot: str, offset: str) -> str:
    return em.at(em.pointer(em.at(context, em.mul(slot, "8")), 0), offset)


def _write_run(module: Module) -> None:
    """Carries out the operations from `op` on, which take so many bytes."""
    em = Emitter(module, "internal void @run(ptr %op, i64 %bytes, ptr %context)")
    head, body, done = em.label("head"), em.label("body"), em.label("done")
    em.jump(head)
    em.start(head)
    at = len(em.lines)
    em.lines.append("")
    here = em.fresh("i")
    em.branch(em.op(f"icmp slt i64 {here}, %bytes"), body, done)
    em.start(body)
    op = em.at("%op", here)
    source = _slot(em, "%context", em.word(op, 1), em.word(op, 2))
    target = _slot(em, "%context", em.word(op, 3), em.word(op, 4))
    em.line(f"call void {em.pointer(op, 0)}(ptr {source}, ptr {target}, ptr {op}, ptr %context)")
    following = em.add(here, em.word(op, 5))
    em.lines[at] = f"  {here} = phi i64 [ 0, %entry ], [ {following}, %{em.current} ]"
    em.jump(head)
    em.start(done)
    em.line("ret void")
    em.finish()


def _write_loop(module: Module, lanes: int) -> None:
    em = Emitter(module, f"void @fft_loop{SIGNATURE}")
    count, all_lanes, size = (em.word("%op", k) for k in (_COUNT, _LOOP_LANES, _LOOP_BYTES))
    inner = em.at("%op", str(8 * (_BASES + 9)))
    kept = em.word("%context", LANES)
    begins, steps = [], []
    for k in range(3):
        slot, offset, step = (em.word("%op", _BASES + 3 * k + i) for i in range(3))
        begins.append(_slot(em, "%context", slot, offset))
        steps.append(step)
    before = em.pointer("%context", TABLE)
    with em.loop("0", count, carried=[*[("ptr", x) for x in begins], ("i64", all_lanes)]) as turn:
        for word, value in zip((LOOP_SOURCE, LOOP_TARGET, TABLE), turn.vars, strict=False):
            _set(em, "%context", word, value)
        _set(em, "%context", LANES, em.smaller(turn.vars[3], str(lanes)), "i64")
        em.line(f"call void @run(ptr {inner}, i64 {size}, ptr %context)")
        turn.next = [*[em.at(x, step) for x, step in zip(turn.vars, steps, strict=False)], em.sub(turn.vars[3], str(lanes))]
    _set(em, "%context", LANES, kept, "i64")
    _set(em, "%context", TABLE, before)
    em.line("ret void")
    em.finish()


def _write_tasks(module: Module, lanes: int) -> None:
    """Tasks begin ... end of the stage whose words these are."""
    em = Emitter(module, "internal void @tasks(i64 %begin, i64 %end, ptr %source, ptr %target, ptr %stage, ptr %context)")
    word = [em.word("%stage", k) for k in range(_OPERATIONS)]
    table = em.op(f"inttoptr i64 {word[_TABLE]} to ptr")
    operations = em.at("%stage", str(8 * _OPERATIONS))
    with em.loop("%begin", "%end") as task:
        outer = em.op(f"sdiv i64 {task.i}, {word[_BLOCKS]}")
        block = em.sub(task.i, em.mul(outer, word[_BLOCKS]))
        for slot, start, far, near in ((SOURCE, "%source", _FROM_OUTER, _FROM_BLOCK), (TARGET, "%target", _TO_OUTER, _TO_BLOCK)):
            _set(em, "%context", slot, em.at(start, em.add(em.mul(outer, word[far]), em.mul(block, word[near]))))
        _set(em, "%context", TABLE, em.at(table, em.mul(block, word[_TABLE_BLOCK])))
        _set(em, "%context", LANES, em.smaller(em.sub(word[_ALL_LANES], em.mul(block, str(lanes))), str(lanes)), "i64")
        em.line(f"call void @run(ptr {operations}, i64 {word[_LENGTH]}, ptr %context)")
    em.line("ret void")
    em.finish()


def _write_inner(module: Module) -> None:
    em = Emitter(module, f"void @fft_inner{SIGNATURE}")
    kept = [em.pointer("%context", k) for k in (SOURCE, TARGET)]
    stage = em.at("%op", str(8 * (OWN + 3)))
    em.line(f"call void @tasks(i64 0, i64 {em.word('%op', OWN)}, ptr %source, ptr %target, ptr {stage}, ptr %context)")
    for k, value in zip((SOURCE, TARGET), kept, strict=True):
        _set(em, "%context", k, value)
    em.line("ret void")
    em.finish()


def _write_stage(module: Module) -> None:
    em = Emitter(module, "internal void @fft_stage(i64 %begin, i64 %end, ptr %args, ptr %stage)")
    context = em.op("alloca [16 x i64], align 16", "a")
    source, target = (em.pointer(em.at("%args", em.mul(em.word("%stage", k), "8")), 0) for k in (_FROM, _TO))
    memory, index = scratch.take(em, em.word("%stage", _MEMORY))
    for k in (LOOP_SOURCE, LOOP_TARGET, NOWHERE):
        _set(em, context, k, "null")
    _set(em, context, MINE, memory)
    em.line(f"call void @tasks(i64 %begin, i64 %end, ptr {source}, ptr {target}, ptr %stage, ptr {context})")
    scratch.give(em, index)
    em.line("ret void")
    em.finish()
