"""Which renderer turns loop programs into launches on the CPU: `llvm` (machine code) or `interpret` (NumPy).

The environment variable FLAMBEAU_KERNELS chooses; the default is llvm.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .programs import Map

if TYPE_CHECKING:
    from collections.abc import Callable

    from .programs import PreparedLaunch, Program

    Prepare = Callable[[Program, tuple[int, ...], tuple[tuple[int, ...], ...]], PreparedLaunch]

_prepare: Prepare | None = None


def prepare(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> PreparedLaunch:
    """A launch of `program` over `domain`; `strides` are in elements, over the domain, outputs first, then inputs."""
    global _prepare
    if _prepare is None:
        _prepare = _choose(os.environ.get("FLAMBEAU_KERNELS", "llvm"))
    return _prepare(program.anywhere() if isinstance(program, Map) else program, domain, strides)


def order(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
    """What the order of the sums of a reduction or a row program follows from: two that sum the same elements and agree in it give the same bits. None
    where the renderer does not say."""
    if os.environ.get("FLAMBEAU_KERNELS", "llvm") != "llvm":
        return None
    from . import llvm
    return llvm.order(program, domain, strides)


def _choose(name: str) -> Prepare:
    if name == "interpret":
        from .interpret import prepare as chosen
        return chosen
    if name == "llvm":
        from .llvm import prepare as llvm
        return llvm
    raise ValueError(f"FLAMBEAU_KERNELS is {name!r}; it takes llvm or interpret")
