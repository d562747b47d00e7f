"""Random orders: R. A. Fisher and F. Yates' shuffle, as R. Durstenfeld gives it (Communications of the ACM 7 (1964), 420), from the front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....dtypes import int64
from .... import native
from ...emit import Module
from .elements import CHUNK, LONG, Draws
from .engine import functions

if TYPE_CHECKING:
    from collections.abc import Callable

WIDE = 0xFFFFFFFF // 20  # from so many elements on places come from 64 bits


def entry(n: int) -> Callable[..., None]:
    """``entry(out, stream)``: the whole numbers below n, int64 neighbours, each exchanged with a later one or itself."""
    wide = n >= WIDE
    code = functions(f"permutation {wide}", ("flambeau_draw",), lambda module: _write(module, wide))["flambeau_draw"]
    return native.make_entry([(code, 1, 1)], (n,), 2, parallel=n >= LONG)


def _write(module: Module, wide: bool) -> None:
    each = 2 if wide else 1
    w = Draws(module, int64, (), each)
    c, out, n = w.code, w.operands[0], w.code.number(w.block, 0)
    with c.span(0, n) as v:
        (out + v.i * 8).store(v.i)
    last = n - 1
    with c.span(0, last, step=CHUNK) as part:
        many = c.least(last - part.i, CHUNK)
        c.function("void", "words", w.stream, w.words, many * each)
        with c.span(0, many) as v:
            at = part.i + v.i
            if wide:
                both = (w.words + v.i * 8).load("i64")
                word = (both << 32) | (both >> 32)
                step = word - word.over(n - at) * (n - at)
            else:
                word, left = (w.words + v.i * 4).load("i32"), (n - at).to("i32")
                step = (word - word.over(left) * left).to("i64")
            here, there = out + at * 8, out + (at + step) * 8
            x, y = here.load("i64"), there.load("i64")
            here.store(y)
            there.store(x)
    w.finish()
