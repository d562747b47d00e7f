"""What a kernel's code depends on of its launch, and how much of it is handed to a thread.

Code depends only on classes (is an inner stride 0, one element, or something else?); sizes and strides themselves are
parameters.  So a kernel once compiled serves every shape of its kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..loops.walk import FUNCTIONS, Axis, Facts, facts, walk_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FUNCTIONS", "Axis", "Facts", "Plan", "chunk_of", "facts", "inner_classes", "walk_axes"]

PARALLEL_NS = 20_000.0  # below this, handing over costs more than it gains
CHUNK_NS = 8_000.0


class Plan:
    """One launch of generated code.

    key: everything the code depends on besides the program; names: the code's functions; stages: (name, total, chunk);
    params: the parameter block; workspace: bytes the launch needs; parallel: whether to use the threads.
    """

    __slots__ = ("key", "names", "stages", "params", "workspace", "parallel")

    def __init__(self, key: tuple[Any, ...], names: tuple[str, ...], stages: list[tuple[str, int, int]],
                 params: list[int], workspace: int = 0, parallel: bool = False) -> None:
        self.key, self.names, self.stages, self.params = key, names, stages, params
        self.workspace, self.parallel = workspace, parallel


def inner_classes(axes: Sequence[Axis], itemsizes: Sequence[int]) -> tuple[str, ...]:
    """For each operand how it steps along the innermost axis: "0", "1" (to the neighbour) or "s" (anything else)."""
    if not axes:
        return ("1",) * len(itemsizes)
    return tuple("0" if s == 0 else "1" if s == b else "s" for s, b in zip(axes[-1].strides, itemsizes))


def chunk_of(total: int, nanoseconds: float, multiple: int = 1) -> int:
    """How many of `total` units make a chunk worth handing over; at most 512 chunks, whatever the number of threads."""
    pieces = max(1, min(512, int(nanoseconds / CHUNK_NS)))
    chunk = -(-total // pieces)
    return min(-(-chunk // multiple) * multiple, max(total, 1))
