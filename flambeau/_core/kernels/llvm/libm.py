"""Functions of the C mathematics library, called lane by lane: exact enough for everything, fast for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import float32
from .emit import base, constant, ty

if TYPE_CHECKING:
    from ...dtypes import dtype
    from .emit import Emitter

# our name -> C's (for double; float adds an f)
NAMES = {"maximum": "fmax", "minimum": "fmin"} | {n: n for n in (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma "
    "pow atan2 hypot nextafter fmod").split()}


def emit(op: str, d: dtype, lanes: int, em: Emitter, args: list[str]) -> str:
    """The function `op` of values of type `d` (float32 or float64)."""
    element = base(d)
    name = NAMES[op] + ("f" if d is float32 else "")
    if lanes == 1:
        return em.call(name, element, *((element, a) for a in args))
    t = ty(d, lanes)
    result = constant(0.0, d, lanes)
    for k in range(lanes):
        parts = [(element, em.op(f"extractelement {t} {a}, i64 {k}")) for a in args]
        result = em.op(f"insertelement {t} {result}, {element} {em.call(name, element, *parts)}, i64 {k}")
    return result


def emit_each(op: str, d: dtype, lanes: int, em: Emitter, args: list[str]) -> str:
    """The same by a shared loop over the lanes: little code, for where it is rarely run."""
    element, t = base(d), ty(d, lanes)
    if lanes == 1:
        return emit(op, d, lanes, em, args)
    name = NAMES[op] + ("f" if d is float32 else "")
    em.module.declare(name, f"{element} ({', '.join([element] * len(args))})")
    each, names = f"flambeau.each.{name}.{lanes}", [f"%x{k}" for k in range(len(args))]
    taken = "\n".join(f"  %a{k} = extractelement {t} {x}, i64 %k" for k, x in enumerate(names))
    given = ", ".join(f"{element} %a{k}" for k in range(len(args)))
    em.module.helper(each, f"""define internal {t} @{each}({', '.join(f"{t} {x}" for x in names)}) #0 {{
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  %r = phi {t} [ zeroinitializer, %entry ], [ %r1, %loop ]
{taken}
  %f = call {element} @{name}({given})
  %r1 = insertelement {t} %r, {element} %f, i64 %k
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, {lanes}
  br i1 %more, label %loop, label %done
done:
  ret {t} %r1
}}""")
    return em.op(f"call {t} @{each}({', '.join(f'{t} {a}' for a in args)})")
