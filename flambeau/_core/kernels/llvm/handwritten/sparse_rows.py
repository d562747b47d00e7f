"""A matrix of compressed rows times a dense one: each row of the result is a sum of rows, kept in registers by strips of columns.

Without values the entries are ones: rows are added up as they are read.  16-bit elements are added up in float32, and rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import native
from ..casts import cast
from ..emit import Module, base, base_memory, suffix, vec
from .code import Code, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....dtypes import dtype

_WIDE = 4  # cache lines of a strip, of what sums are kept in
_WEIGHTED, _ONES = "flambeau_rows", "flambeau_rows_of_ones"


def entry(d: dtype, rows: int, columns: int, step: int, count: int, weighted: bool, mean: bool) -> Callable[..., None]:
    """``entry(out, crow, columns of entries[, values], dense)``: out (rows, columns), row-major, is written; rows of `dense` lie
    `step` elements apart, their elements side by side; `count` entries.  The indices are int64 and in range.

    weighted: whether there are values.  mean: each sum is divided by the number of the row's entries, if there are any.
    """
    from .. import compile as compiler
    code: Any = compiler.functions(("sparse_rows", d.name), (_WEIGHTED, _ONES), lambda: text(d))[_WEIGHTED if weighted else _ONES]
    work = count * max(columns, 1)
    return native.make_entry([(code, rows, max(1, rows // 64))], (columns, step * d.itemsize, int(mean)), 5 if weighted else 4, parallel=work > 1 << 15)


def text(d: dtype) -> str:
    """The IR of the functions for one type."""
    module = Module()
    _write(module, _WEIGHTED, d, True)
    _write(module, _ONES, d, False)
    return module.text()


def _write(module: Module, name: str, d: dtype, weighted: bool) -> None:
    wide, size = d.opmath, d.itemsize
    c = Code(module, "void", name, "i64", "i64", "ptr", "ptr")
    begin, end, args, block = c.given
    out, crow, places, values, source = (c.address(args, k) for k in (0, 1, 2, 3, 4 if weighted else 3))
    columns, step, mean = (c.number(block, k) for k in range(3))

    def load(at: Value, lanes: int) -> Value:
        return Value(c, vec(base(wide), lanes), cast(c, at.load(vec(base_memory(d), lanes)).name, d, wide, lanes))

    def added(total: Value, rest: Value, entry: Value) -> Value:
        if not weighted:
            return total + rest
        t, value = total.type, load(values + entry * size, 1).spread(total.lanes)
        return Value(c, t, c.call(f"llvm.fmuladd.{suffix(base(wide), total.lanes)}", t, (t, value.name), (t, rest.name), (t, total.name)))
    lanes = 64 // wide.itemsize
    with c.span(begin, end) as row:
        bounds = crow + row.i * 8
        first, last = bounds.load("i64"), (bounds + 8).load("i64")
        own = last - first
        parts = c.pick(mean.equals(0) | (own < 1), c.ints(1), own).cast("sitofp", base(wide))
        line, at = out + row.i * columns * size, c.ints(0)
        for width in (lanes * _WIDE, lanes, lanes // 4, 1):
            whole = at + ((columns - at) & -width)
            with c.span(at, whole, step=width) as strip:
                with c.span(first, last, Value(c, vec(base(wide), width), "zeroinitializer")) as e:
                    place = (places + e.i * 8).load("i64")
                    e.next = [added(e.vars[0], load(source + place * step + strip.i * size, width), e.i)]
                total = e.vars[0] / parts.spread(width)
                (line + strip.i * size).store(Value(c, vec(base_memory(d), width), cast(c, total.name, wide, d, width)))
            at = whole
    c.back()
    c.finish()
