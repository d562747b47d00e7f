"""The exclusive or of rows of numbers as 64 bits: integers widened to int64, floating point numbers to float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import native
from ..emit import Module, base_memory
from .code import Code, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....dtypes import dtype

_SHARED = 1 << 15  # elements from which the threads share the rows


def entry(d: dtype, rows: int, columns: int) -> Callable[..., None]:
    """``entry(out, x)``: out, `rows` uint64; x (rows, columns), contiguous, of a real type."""
    from .. import compile as compiler
    symbol = f"flambeau_hash_{d.name}"
    code: Any = compiler.functions(("hashing", d.name), (symbol,), lambda: text(symbol, d))[symbol]
    return native.make_entry([(code, rows, max(1, rows // 64))], (columns,), 2, parallel=rows > 1 and rows * columns > _SHARED)


def text(symbol: str, d: dtype) -> str:
    """The IR of the function for one type."""
    module = Module()
    code = Code(module, "void", symbol, "i64", "i64", "ptr", "ptr")
    begin, end, args, block = code.given
    out, x, columns = code.address(args, 0), code.address(args, 1), code.number(block, 0)
    with code.span(begin, end) as row:
        line = x + row.i * columns * d.itemsize
        with code.span(0, columns, code.ints(0)) as column:
            column.next = [column.vars[0] ^ _bits((line + column.i * d.itemsize).load(base_memory(d)), d)]
        (out + row.i * 8).store(column.vars[0])
    code.back()
    code.finish()
    return module.text()


def _bits(x: Value, d: dtype) -> Value:
    if d.name == "bfloat16":
        return (x.to("i32") << 16).bits("float").cast("fpext", "double").bits("i64")
    if d.kind == "f":
        return (x if d.itemsize == 8 else x.cast("fpext", "double")).bits("i64")
    if d.kind == "b":
        return x.differs(0).cast("zext", "i64")
    return x if d.itemsize == 8 else x.cast("sext" if d.kind == "i" else "zext", "i64")
