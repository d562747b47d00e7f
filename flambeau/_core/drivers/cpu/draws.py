"""Draws from streams on the CPU: machine code, or NumPy where nothing is generated."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ... import forks
from ...dtypes import uint32
from ...kernels import drawing, mersenne, routines
from ...kernels.interpret import load, memory, store
from ...kernels.programs import PreparedLaunch
from ...layout import numel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.specs import Draw

_lock = forks.lock()  # of all streams, where there is no machine code


def draw(spec: Draw) -> PreparedLaunch:
    nbytes = numel(spec.shape) * (spec.dtype.itemsize + sum([d.itemsize for d, _ in spec.given]))
    return PreparedLaunch(f"{spec.kind}_{spec.dtype.name}".replace(" ", "_"), _entry(spec), nbytes=nbytes)


def _entry(spec: Draw) -> Callable[..., None]:
    if not numel(spec.shape):
        return lambda *_: None
    if routines.generated():
        if spec.kind == "normal blocks":
            from ...kernels.llvm.handwritten.draws import blocks
            return blocks.entry(spec.dtype, spec.shape[0])
        if spec.kind == "permutation":
            from ...kernels.llvm.handwritten.draws import permutation
            return permutation.entry(spec.shape[0])
        from ...kernels.llvm.handwritten.draws import elements
        return elements.entry(spec)

    def entry(out: int, *args: Any) -> None:
        count = len(spec.given)
        given = [load(memory(at, spec.shape, steps, d), d) for at, (d, steps) in zip(args[:count], spec.given, strict=True)]
        with _lock:
            made = drawing.drawn(spec, args[count], given, args[count + 1:])
        store(memory(out, spec.shape, spec.strides, spec.dtype), made, spec.dtype)
    return entry


def stream() -> dict[str, Callable[..., Any]]:
    """What a stream does beside draws: "seed" (block, number), "words" (to, block, how many, as uint32), "copy" (to, block)."""
    if routines.generated():
        from ...kernels.llvm.handwritten.draws import engine
        return engine.stream()

    def locked(work: Callable[..., Any]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            with _lock:
                work(*args)
        return call

    def words(to: int, block: int, count: int) -> None:
        memory(to, (count,), (1,), uint32)[...] = mersenne.words(block, count)
    return {"seed": locked(mersenne.seed), "words": locked(words), "copy": locked(lambda to, block: ctypes.memmove(to, block, mersenne.BYTES))}
