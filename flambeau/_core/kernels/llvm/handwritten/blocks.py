"""Blocks of memory one behind the other, and that many times over: how parts whose sizes are new each time are joined. One code serves all sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import native
from ..emit import Module
from .code import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SYMBOL = "flambeau_blocks"


def entry(times: int, sizes: Sequence[int], steps: Sequence[int]) -> Callable[..., None]:
    """``entry(to, *parts)``: `times` times, one behind the other at `to`, `sizes` bytes of each part, which then goes `steps` bytes on."""
    from .. import compile as compiler
    code = compiler.functions(("blocks",), (SYMBOL,), _text)[SYMBOL]
    params = [len(sizes), sum(sizes)]
    for pair in zip(sizes, steps, strict=True):
        params += pair
    return native.make_entry([(code, times, times)], params, 1 + len(sizes))


def _text() -> str:
    module = Module()
    code = Code(module, "void", SYMBOL, "i64", "i64", "ptr", "ptr")
    module.declare("memcpy", "ptr (ptr, ptr, i64)")
    begin, end, args, block = code.given
    to, count, row = code.address(args, 0), code.number(block, 0), code.number(block, 1)
    with code.span(begin, end) as turn:
        with code.span(0, count, to + turn.i * row) as part:
            at = part.vars[0]
            size, step = ((block + part.i * 16 + 16 + 8 * k).load("i64") for k in range(2))
            source = (args + part.i * 8 + 8).load("ptr") + turn.i * step
            code.function("ptr", "memcpy", at, source, size)
            part.next = [at + size]
    code.back()
    code.finish()
    return module.text()
