"""Less memory at once: where most bytes live, steps wait whose results nobody reads yet, and maps are done again whose results are read long after.

A map that is done again gives the same bits: it reads what it read, by the same program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..kernels.loops.walk import facts
from ..kernels.programs import size_of
from .fusion import is_map, only
from .memory import FIXED, Lifetimes, Value, peak, profile
from .record import Launch

if TYPE_CHECKING:
    from .graph import Graph, Node

SHARE = 0.78  # of what a step takes as it is: no map is done again once it takes so little
_ROOM = 1 << 16  # steps that are looked at, all changes together
_FUNCTION = 16  # operations that a function of the likes of exp counts for


class _Told:
    """A graph's values, with who uses each: (place in the order, node, place among its arguments), in order."""

    def __init__(self, graph: Graph) -> None:
        self.life = Lifetimes(graph, [[n] for n in graph.order])
        at = {n: i for i, n in enumerate(graph.order)}
        self.uses: dict[int, list[tuple[int, Node, int]]] = {id(v): [] for v in self.life.values}
        for (n, k), v in self.life.where.items():
            self.uses[id(v)].append((at[n], n, k))
        for those in self.uses.values():
            those.sort(key=lambda u: u[0])
        self.peak = peak(self.life.values)
        self.time = max(profile(self.life.values), key=lambda p: p[1], default=(0, 0))[0]

    def idle(self) -> list[tuple[Value, list[tuple[int, Node, int]], list[tuple[int, Node, int]]]]:
        """The values that live where most do, and are not used there, with their uses before and after."""
        found = []
        for v in self.life.values:
            if v.first < self.time < v.last:
                those = self.uses[id(v)]
                if all(t != self.time for t, _, _ in those):
                    found.append((v, [u for u in those if u[0] < self.time], [u for u in those if u[0] > self.time]))
        return found


def lower(graph: Graph) -> None:
    """Changes the order, and does maps again, until a step takes `SHARE` of what it took, or nothing helps."""
    now = _Told(graph)
    if now.peak <= FIXED:
        return
    wanted, tries = SHARE * now.peak, max(4, _ROOM // len(graph.order))
    refused: set[tuple[str, Any]] = set()
    while tries > 0:
        found = _delayed(graph, now, refused) or (now.peak > wanted and _again(graph, now, refused))
        if not found:
            return
        tries -= 1
        now = _Told(graph)


def _delayed(graph: Graph, now: _Told, refused: set[tuple[str, Any]]) -> bool:
    """Has a step wait whose result is not read yet where most bytes live; False where there is none, or it would not help."""
    for _, early, later in now.idle():
        n = early[0][1]
        if ("late", n) in refused or any(m is not n for _, m, _ in early) or not isinstance(n.step, Launch) or n.barrier:
            continue
        refused.add(("late", n))
        i, before = graph.order.index(n), list(graph.order)
        for to in (later[0][0], now.time + 1):  # where it is read, or as soon as that helps
            if any(m.before & n.bit for m in before[i + 1:to]):
                continue
            graph.order[:] = [*before[:i], *before[i + 1:to], n, *before[to:]]
            if _Told(graph).peak < now.peak:
                return True
        graph.order[:] = before
    return False


def _again(graph: Graph, now: _Told, refused: set[tuple[str, Any]]) -> bool:
    """Does the map again that is the cheapest for the bytes that are free meanwhile; False where there is none."""
    best: tuple[float, Any] | None = None
    for v, early, later in now.idle():
        n, k = early[0][1], early[0][2]
        if ("again", n.bit) in refused:
            continue
        made = _copy(graph, now, v, n, k, early, later)
        if made is not None:
            cost = _cost(made) / v.nbytes
            if best is None or cost < best[0]:
                best = cost, (n, made, early, later)
    if best is None:
        return False
    n, made, early, later = best[1]
    refused.add(("again", n.bit))
    refused.add(("again", graph.again(n, made, later[0][0], [m for _, m, _ in early], [m for _, m, _ in later]).bit))
    return True


def _cost(s: Launch) -> float:
    p = s.prepared.program
    assert p is not None
    known = facts(p)
    return (known.operations + _FUNCTION * bool(known.functions) + len(p.inputs)) * size_of(s.prepared.domain)


def _copy(graph: Graph, now: _Told, v: Value, n: Node, k: int, early: list[Any], later: list[Any]) -> Launch | None:
    """The map that gives a value once more; None where it cannot be, or where what it reads would have to be kept for it."""
    s = n.step
    if not is_map(s) or k >= s.prepared.outputs or sum(1 for _, m, _ in early if m is n) > 1:
        return None
    if any(a.write for t, m, j in (*early, *later) if m is not n for a in _accesses(graph, m, j)):
        return None
    made = only(s, [k])
    reads = [a for a in graph.accesses(made) if not a.write]
    i, end = graph.order.index(n), later[0][0]
    for m in graph.order[i:end]:  # the map itself too may write over what it reads
        if any(w.meets(r) for w in m.writes for r in reads):
            return None
    for j in range(s.prepared.outputs, s.addressed):
        x = now.life.where.get((n, j))
        if x is not None and x.last < end and any(a.meets(r) for a in _accesses(graph, n, j) for r in reads):
            return None
    return made


def _accesses(graph: Graph, n: Node, k: int) -> list[Any]:
    if not isinstance(n.step, Launch):
        return list(n.accesses)
    return next((those for j, those in graph.operands(n.step) if j == k), [])
