"""How far a launch goes: looked at once, when it is planned, for every loop program of every device.

Machine code trusts its strides. That an operand's memory holds what they reach is known here: a tensor's elements lie from its address upwards
(`tensor.meta` refuses negative strides) in `nbytes` bytes, and a launch goes as far as the domain and its strides say. Places that a program
works out itself (gathered or scattered elements) are not among them; the operation checks the positions that they follow from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .programs import Program

    Room = int | tuple[int, int]


def reach(domain: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The lowest and the highest element over the domain (its first axes, where there are fewer strides); (0, -1) for no elements."""
    low = high = 0
    for n, s in zip(domain, strides):
        if not n:
            return 0, -1
        if s > 0:
            high += (n - 1) * s
        else:
            low += (n - 1) * s
    return low, high


def hold(program: Program, domain: tuple[int, ...], strides: Sequence[tuple[int, ...]], rooms: Sequence[Room]) -> None:
    """Raises RuntimeError where an operand (outputs first) is reached beyond its room: so many bytes from its address on, or (before it, from it on)."""
    types = (*program.out_types, *program.inputs)
    if not len(types) == len(strides) == len(rooms):
        raise RuntimeError(f"{program.kind}: a launch on {len(types)} operands is given strides of {len(strides)} and rooms of {len(rooms)}")
    last: tuple[int, ...] | None = None
    low, high = 0, -1
    for k, (d, steps, room) in enumerate(zip(types, strides, rooms)):
        if steps != last:  # most operands lie alike
            last, (low, high) = steps, reach(domain, steps)
        before, behind = room if isinstance(room, tuple) else (0, room)
        if -low * d.itemsize > before or (high + 1) * d.itemsize > behind:
            raise RuntimeError(f"{program.kind} over {domain}: operand {k} ({d.name}) has {room} bytes, and strides {steps} reach from element {low} to "
                               f"{high}: the operation did not check its arguments")
