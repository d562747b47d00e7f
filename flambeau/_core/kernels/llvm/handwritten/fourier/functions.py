"""The functions of Fourier transforms' operations, each compiled or loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import compile as compiler
from ...emit import Emitter, Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from .....dtypes import dtype

SIGNATURE = "(ptr %source, ptr %target, ptr %op, ptr %context)"
_addresses: dict[tuple[str, str], int] = {}


def address(d: dtype, name: str, write: Callable[[Emitter], None]) -> int:
    """The address of an operation's function for the real type d, whose body `write` writes."""
    found = _addresses.get((d.name, name))
    if found is None:
        label = f"fft_{d.name}_{name}"

        def text() -> str:
            module = Module()
            em = Emitter(module, f"void @{label}{SIGNATURE}")
            write(em)
            em.line("ret void")
            em.finish()
            return module.text()
        found = _addresses[d.name, name] = compiler.functions((label,), (label,), text)[label]
    return found
