"""What becomes of a record before it is replayed: each pass leaves the bits that the record gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .fusion import drop, fuse
from .graph import Graph, Unknown
from .joining import steps_of

if TYPE_CHECKING:
    from .replay import Planned


def shortened(plan: Planned) -> list[Any]:
    """The steps of a record, with loops joined and what nobody reads left out."""
    graph = passed(plan)
    return plan.steps if graph is None else steps_of(graph)


def passed(plan: Planned) -> Graph | None:
    """The graph of a record after all passes; None where a step's memory is not known."""
    try:
        graph = Graph(plan)
    except Unknown:
        return None
    fuse(graph)
    drop(graph)
    return graph
