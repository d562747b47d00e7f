"""Launches of a real GPU that only the host can carry out: on copies, there and back.

Sorting, LAPACK, FFT and what else has no kernel for the GPU works all the same, at the price of two crossings and a wait.  Each
shows in the ledger: its copies have the path "host".

A routine says where its operands begin, not how far they reach, so whole blocks of the allocator travel, and of those only what
the routine changed travels back.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import device as devices
from . import dispatch, gpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..kernels.programs import PreparedLaunch
    from .gpus import Gpu


def launcher(g: Gpu, prepared: PreparedLaunch) -> Callable[..., None]:
    """What carries out ``prepared.entry`` on copies of the GPU's memory when called with its arguments."""
    entry, program = prepared.entry, prepared.program
    addresses = None if program is None else prepared.outputs + len(program.inputs) + bool(prepared.workspace)

    def call(*args: Any) -> None:
        stream = gpus.current_stream(g.device)
        cpu = devices.CPU
        moved: list[tuple[int, int, int, Any]] = []
        try:
            for start, nbytes in _spans(g, args if addresses is None else args[:addresses]):
                address, owner = g.host.block(nbytes)
                moved.append((start, nbytes, address, owner))
                with dispatch.CopyScope(dispatch.Way("d2h", "host", nbytes, True, g.device, cpu), stream):
                    g.driver.memcpy(stream._handle, address, start, nbytes)
            stream.synchronize()
            before = [ctypes.string_at(address, nbytes) for _, nbytes, address, _ in moved]
            entry(*[_there(a, moved) if addresses is None or i < addresses else a for i, a in enumerate(args)])
            for (start, _, address, _), was in zip(moved, before, strict=True):
                low, high = _changed(address, was)
                if high > low:
                    with dispatch.CopyScope(dispatch.Way("h2d", "host", high - low, True, cpu, g.device), stream):
                        g.driver.memcpy(stream._handle, start + low, address + low, high - low)
            stream.synchronize()
        finally:
            for _, _, address, owner in moved:
                owner.append(address)
    return call


def _spans(g: Gpu, args: tuple[Any, ...]) -> list[tuple[int, int]]:
    """(start, bytes) of the blocks that arguments lie in, each once."""
    found: dict[int, int] = {}
    for a in args:
        if type(a) is int:
            span = g.pool.span(a)
            if span is not None:
                found[span[0]] = span[1]
    return sorted(found.items())


def _there(a: Any, moved: list[tuple[int, int, int, Any]]) -> Any:
    if type(a) is int:
        for start, nbytes, address, _ in moved:
            if start <= a < start + nbytes:
                return address + a - start
    return a


def _changed(address: int, was: bytes) -> tuple[int, int]:
    """From where to where bytes differ from what they were; (0, 0) where none does."""
    import numpy as np
    old = np.frombuffer(was, np.uint8)
    new = np.frombuffer(memoryview((ctypes.c_uint8 * len(was)).from_address(address)), np.uint8)
    differ = old != new
    low = int(differ.argmax())
    return (low, len(was) - int(differ[::-1].argmax())) if differ[low] else (0, 0)
