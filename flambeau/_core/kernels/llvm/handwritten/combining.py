"""Element by element, one array combined into another: the functions that a message-passing library calls to reduce types that it does not know.

The signature is MPI's ``void (void *in, void *inout, int *count, MPI_Datatype *type)`` (MPI 4.1, section 6.9.5), which calls only for contiguous
elements of the type that the operation was made for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....dtypes import float32
from .. import compile as machine
from ..casts import cast
from ..emit import Emitter, Module, ty

if TYPE_CHECKING:
    from ....dtypes import dtype

_LANES = 16
_OPS = {"sum": "fadd", "product": "fmul"}
OPS = ("sum", "product", "min", "max")


def combine(op: str, d: dtype) -> int:
    """The address of a function that combines elements of a floating type, those of 16 bits in float32, by one of `OPS`; a NaN stays NaN."""
    name = f"combine_{op}_{d.name}"
    return machine.functions(("combine", op, d.name), (name,), lambda: _write(name, op, d))[name]


def _write(name: str, op: str, d: dtype) -> str:
    module = Module()
    wide = float32 if d.itemsize == 2 else d
    em = Emitter(module, f"void @{name}(ptr %a, ptr %b, ptr %count, ptr %type)")
    n = em.op(f"sext i32 {em.op('load i32, ptr %count, align 4')} to i64")
    with em.loop("0", n, str(_LANES)) as turn:
        offset = em.mul(turn.i, str(d.itemsize))
        mask = em.first_lanes(em.sub(n, turn.i), _LANES)
        at = em.at("%b", offset)
        x = cast(em, em.load(d, _LANES, em.at("%a", offset), mask), d, wide, _LANES)
        y = cast(em, em.load(d, _LANES, at, mask), d, wide, _LANES)
        t = ty(wide, _LANES)
        if op in _OPS:
            z = em.op(f"{_OPS[op]} {t} {x}, {y}")
        else:  # the first where it is not a number, or beyond the second
            kept = em.op(f"fcmp {'ult' if op == 'min' else 'ugt'} {t} {x}, {y}")
            nan = em.op(f"fcmp uno {t} {y}, {y}")
            chosen = em.op(f"select <{_LANES} x i1> {kept}, {t} {x}, {t} {y}")
            z = em.op(f"select <{_LANES} x i1> {nan}, {t} {y}, {t} {chosen}")
        em.store(d, _LANES, cast(em, z, wide, d, _LANES), at, mask)
    em.line("ret void")
    em.finish()
    return module.text()
