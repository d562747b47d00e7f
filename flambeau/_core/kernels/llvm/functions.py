"""Transcendental functions as vector IR: by formula, else by the C library, lane by lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import transcendental
from . import libm
from .values import Value

if TYPE_CHECKING:
    from ...dtypes import dtype
    from .emit import Emitter


def emit(op: str, d: dtype, lanes: int, em: Emitter, args: list[str]) -> str:
    """The function `op` of values of type `d` (float32 or float64)."""
    values = [Value(em, a, d, lanes) for a in args]
    made = transcendental.own(op, [*values])
    if made is None:
        made = transcendental.in_double(op, [*values])
    return libm.emit(op, d, lanes, em, args) if made is None else made.v
