"""A matrix of compressed rows times a dense one: each row of the result is a sum of rows, kept in registers by strips of columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import native

_TYPES = {"float32": ("float", 4, "f32"), "float64": ("double", 8, "f64")}
_WIDE = 4  # cache lines of a strip


def entry(dtype: str, rows: int, columns: int, step: int, count: int) -> Callable[..., None]:
    """``entry(out, crow, columns of entries, values, dense)``: out (rows, columns), row-major, is written; rows of `dense` lie
    `step` elements apart, their elements side by side; `count` entries.  The indices are int64 and in range."""
    from .. import compile as compiler
    name = f"flambeau_rows_{dtype}"
    code: Any = compiler.functions(("sparse_rows", dtype), (name,), lambda: text(dtype))[name]
    work = count * max(columns, 1)
    return native.make_entry([(code, rows, max(1, rows // 64))], (columns, step), 5, parallel=work > 1 << 15)


def text(dtype: str) -> str:
    """The IR of the function for one type."""
    kind, size, _ = _TYPES[dtype]
    lanes = 64 // size
    strips = [lanes * _WIDE, lanes, lanes // 4, 1]
    body = "\n".join(_strip(kind, size, width, k, len(strips)) for k, width in enumerate(strips))
    declares = "\n".join(f"declare <{w} x {kind}> @llvm.fmuladd.v{w}{_TYPES[dtype][2]}(<{w} x {kind}>, <{w} x {kind}>, <{w} x {kind}>)" for w in strips)
    pointers = "\n".join(f"""  %a{k} = getelementptr i64, ptr %args, i64 {k}
  %w{k} = load i64, ptr %a{k}
  %{n} = inttoptr i64 %w{k} to ptr""" for k, n in enumerate(("out", "crow", "cols", "vals", "x")))
    return f"""{declares}
define void @flambeau_rows_{dtype}(i64 %begin, i64 %end, ptr %args, ptr %block) #0 {{
entry:
{pointers}
  %n = load i64, ptr %block
  %stepp = getelementptr i64, ptr %block, i64 1
  %step = load i64, ptr %stepp
  br label %row
row:
  %r = phi i64 [ %begin, %entry ], [ %r1, %rowend ]
  %more = icmp slt i64 %r, %end
  br i1 %more, label %start, label %done
start:
  %fromp = getelementptr i64, ptr %crow, i64 %r
  %from = load i64, ptr %fromp
  %top = getelementptr i64, ptr %fromp, i64 1
  %to = load i64, ptr %top
  %at = mul i64 %r, %n
  %line = getelementptr {kind}, ptr %out, i64 %at
  br label %strip0
{body}
rowend:
  %r1 = add i64 %r, 1
  br label %row
done:
  ret void
}}
attributes #0 = {{ nounwind }}
"""


def _strip(kind: str, size: int, width: int, k: int, count: int) -> str:
    """As many strips of `width` columns as there are left: each the sum over the row's entries."""
    v = f"<{width} x {kind}>"
    suffix = "f32" if kind == "float" else "f64"
    before = "0" if k == 0 else f"%j{k - 1}"
    source = "%start" if k == 0 else f"%strip{k - 1}"
    after = f"%strip{k + 1}" if k + 1 < count else "%rowend"
    return f"""strip{k}:
  %j{k} = phi i64 [ {before}, {source} ], [ %next{k}, %store{k} ]
  %next{k} = add i64 %j{k}, {width}
  %fits{k} = icmp sle i64 %next{k}, %n
  br i1 %fits{k}, label %sum{k}, label {after}
sum{k}:
  %e{k} = phi i64 [ %from, %strip{k} ], [ %e{k}n, %add{k} ]
  %acc{k} = phi {v} [ zeroinitializer, %strip{k} ], [ %acc{k}n, %add{k} ]
  %has{k} = icmp slt i64 %e{k}, %to
  br i1 %has{k}, label %add{k}, label %store{k}
add{k}:
  %cp{k} = getelementptr i64, ptr %cols, i64 %e{k}
  %c{k} = load i64, ptr %cp{k}
  %vp{k} = getelementptr {kind}, ptr %vals, i64 %e{k}
  %value{k} = load {kind}, ptr %vp{k}
  %one{k} = insertelement {v} poison, {kind} %value{k}, i64 0
  %all{k} = shufflevector {v} %one{k}, {v} poison, <{width} x i32> zeroinitializer
  %o{k} = mul i64 %c{k}, %step
  %oj{k} = add i64 %o{k}, %j{k}
  %xp{k} = getelementptr {kind}, ptr %x, i64 %oj{k}
  %xs{k} = load {v}, ptr %xp{k}, align {size}
  %acc{k}n = call {v} @llvm.fmuladd.v{width}{suffix}({v} %all{k}, {v} %xs{k}, {v} %acc{k})
  %e{k}n = add i64 %e{k}, 1
  br label %sum{k}
store{k}:
  %op{k} = getelementptr {kind}, ptr %line, i64 %j{k}
  store {v} %acc{k}, ptr %op{k}, align {size}
  br label %strip{k}"""
