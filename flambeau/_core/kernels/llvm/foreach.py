"""Many small launches as one: a table of pieces, each a range of one launch's function, shared out over the threads.

The parameter block: how many numbers all launches share; for each of STAGES stages where its table begins, in bytes; the
tables; the launches' own parameter blocks.  An entry of a table: function, begin, end, the first of its addresses, how many
they are, and where its parameters begin, in bytes.  The arguments are the shared numbers, then the addresses of launch after
launch.
"""

from __future__ import annotations

import struct
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from .. import native
from .emit import Emitter, Module
from .entry import HEADER_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STAGES = 3
MOST_ARGUMENTS = 64  # of one launch
NAMES = tuple(f"flambeau_joined{k}" for k in range(STAGES))
_PIECE = 6  # words of an entry


def join(launches: Sequence[Any], numbers: int) -> Callable[..., None] | None:
    """``entry(*numbers, *addresses of the first, *addresses of the second, ...)``: all of these native launches, in no order,
    each with the last `numbers` of its arguments in common.  None where one is no native launch (somebody observes it, say).
    """
    heads: list[tuple[bytes, tuple[int, ...]]] = []
    for launch in launches:
        head = launch.__self__ if isinstance(launch, BuiltinFunctionType) else None
        if not isinstance(head, bytes):
            return None
        words = struct.unpack_from(f"<{HEADER_WORDS}Q", head)
        if words[0] > MOST_ARGUMENTS or words[2] > STAGES:
            return None
        heads.append((head, words))
    pieces: list[list[tuple[int, ...]]] = [[] for _ in range(STAGES)]
    blocks, first, shared, ranges = b"", 0, False, 0
    floats = heads[0][1][1] >> (heads[0][1][0] - numbers)
    for head, (count, _, stages, parallel, start) in heads:
        shared = shared or bool(parallel)
        for k in range(stages):
            function, total, chunk = struct.unpack_from("<3Q", head, 8 * (HEADER_WORDS + 3 * k))
            chunk = chunk if parallel else max(total, 1)
            pieces[k] += [(function, b, min(b + chunk, total), first, count - numbers, len(blocks)) for b in range(0, total, chunk)]
            ranges += 1
        blocks += head[start:]
        first += count - numbers
    tables, begins = b"", []
    at = 8 * (1 + STAGES)
    room = at + 8 * _PIECE * sum(len(p) for p in pieces)
    for stage in pieces:
        begins.append(at + len(tables))
        for *words_, params in stage:
            tables += struct.pack(f"<{_PIECE}Q", *words_, room + params)
    block = struct.pack(f"<{1 + STAGES}Q", numbers, *begins) + tables + blocks
    code = _functions()
    made = [(code[NAMES[k]], len(stage), max(1, len(stage) // 64)) for k, stage in enumerate(pieces) if stage]
    return native.make_entry(made, struct.unpack(f"<{len(block) // 8}q", block), numbers + first,
                             [k for k in range(numbers) if floats >> k & 1], shared or ranges >= 16)


def _functions() -> dict[str, int]:
    from . import compile as compiler
    return compiler.functions(("joined",), NAMES, text)


def text() -> str:
    """The IR of the functions that carry out the pieces of a stage."""
    module = Module()
    for k, name in enumerate(NAMES):
        em = Emitter(module, f"void @{name}(i64 %begin, i64 %end, ptr %args, ptr %block)")
        own = em.op(f"alloca [{MOST_ARGUMENTS} x i64], align 64", "a")
        numbers = em.word("%block", 0)
        table = em.at("%block", em.word("%block", 1 + k))
        addresses = em.at("%args", em.mul(numbers, "8"))
        with em.loop("%begin", "%end") as piece:
            words = em.at(table, em.mul(piece.i, str(8 * _PIECE)))
            function = em.pointer(words, 0)
            begin, end, first, count, params = (em.word(words, w) for w in range(1, _PIECE))
            _copy(em, em.at(addresses, em.mul(first, "8")), own, count)
            _copy(em, "%args", em.at(own, em.mul(count, "8")), numbers)
            em.line(f"call void {function}(i64 {begin}, i64 {end}, ptr {own}, ptr {em.at('%block', params)})")
        em.line("ret void")
        em.finish()
    return module.text()


def _copy(em: Emitter, source: str, target: str, count: str) -> None:
    with em.loop("0", count) as word:
        offset = em.mul(word.i, "8")
        em.line(f"store i64 {em.op(f'load i64, ptr {em.at(source, offset)}, align 8')}, ptr {em.at(target, offset)}, align 8")
