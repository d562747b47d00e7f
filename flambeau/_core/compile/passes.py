"""What becomes of a record before it is replayed: each pass leaves the bits that the record gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .fusion import drop, fuse
from .graph import Graph, Unknown
from .joining import items_of
from .lowering import lower
from .memory import Lifetimes, Pool, keeps_addresses

if TYPE_CHECKING:
    from .replay import Planned


def shortened(plan: Planned, spoils: bool = False) -> list[Any]:
    """The steps of a record, with loops joined, what nobody reads left out, and its memory in one pool.

    spoils: whether memory is filled with NaN as soon as nobody reads it any more, to find who does.
    """
    graph = passed(plan)
    return plan.steps if graph is None else laid_out(plan, graph, spoils)


def laid_out(plan: Planned, graph: Graph, spoils: bool = False) -> list[Any]:
    """The steps of a graph, with its values where the plan of memory puts them; the plan has that memory from then on."""
    items = items_of(graph)
    if keeps_addresses(plan):
        return [i.step() for i in items]
    plan.pool = pool = Pool(plan, Lifetimes(graph, [i.nodes for i in items]))
    steps = []
    for time, i in enumerate(items):
        i.steps = [pool.moved(graph, n, s) for n, s in zip(i.nodes, i.steps, strict=True)]
        steps.append(i.step())
        if spoils:
            steps += pool.dead(time)
    return steps


def passed(plan: Planned) -> Graph | None:
    """The graph of a record after all passes; None where a step's memory is not known."""
    try:
        graph = Graph(plan)
    except Unknown:
        return None
    fuse(graph)
    drop(graph)
    lower(graph)
    return graph
