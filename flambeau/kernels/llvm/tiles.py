"""Maps that turn rows into columns: tiles transposed in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..programs import Map
    from .emit import Module
    from .layouts import Axis, Plan


def plan(program: Map, axes: list[Axis], sizes: list[int], ns: float) -> Plan | None:
    return None


def write(program: Map, key: tuple[Any, ...], module: Module) -> None:
    raise NotImplementedError
