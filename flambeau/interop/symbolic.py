"""Numbers that a compiler knows by name only (torch.SymInt), of which there are none here.

`sym_int` and the others are Python's own functions on Python's numbers, as they are in PyTorch outside of a compiler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .stand_ins import kind

__all__ = ["SymBool", "SymFloat", "SymInt", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum"]

_WHY = "sizes are Python's ints here; there is no compiler that knows them by name"
SymInt, SymFloat, SymBool = (kind("flambeau", name, _WHY) for name in ("SymInt", "SymFloat", "SymBool"))


def sym_int(a: Any) -> int:
    """a as an int, cut toward zero."""
    return int(math.floor(a) if a >= 0 else math.ceil(a))


def sym_float(a: Any) -> float:
    """a as a float."""
    return float(a)


def sym_max(a: Any, b: Any) -> Any:
    """The larger; a float if one is."""
    larger = max(a, b)
    return float(larger) if isinstance(a, float) or isinstance(b, float) else larger


def sym_min(a: Any, b: Any) -> Any:
    """The smaller; a float if one is."""
    smaller = min(a, b)
    return float(smaller) if isinstance(a, float) or isinstance(b, float) else smaller


def sym_not(a: Any) -> bool:
    """Whether `a` is false: ``not a``."""
    return not a


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` where `b` is true, else `f`."""
    return t if b else f


def sym_sum(args: Iterable[Any]) -> Any:
    """The sum of the numbers."""
    return sum(args)


def sym_sqrt(a: Any) -> float:
    """The square root, as a float."""
    return math.sqrt(a)


def _assert(condition: Any, message: str) -> None:
    """``assert condition, message``, which tracers see as a call."""
    if not condition:
        raise AssertionError(message)


def _shape_as_tensor(self: Any) -> Any:
    """The sizes, as a tensor of int64."""
    from .._core import ops
    return ops.tensor(list(self.shape))  # type: ignore[attr-defined,unused-ignore]
