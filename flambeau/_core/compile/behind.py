"""The graphs behind what a step gives: which results have one together, and what a pass has been through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd import tape
from ..tensor import Tensor
from .history import History
from .reads import Run
from .record import Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

def histories(run: Run, given: Sequence[Tensor], new: Sequence[Tensor]) -> list[tuple[list[int], History]]:
    """The histories of results that require grad, the oldest first, each with the numbers of the results that have it: a result from which another was
    computed has one of its own, at which the other's ends."""
    ends = {id(t.node) for t in given if t.node is not None}
    recorded = [i for i, t in enumerate(new) if t.node is not None and not spent(t.node, ends)]
    own = {id(new[i].node) for i in recorded}
    groups: list[tuple[list[int], set[int]]] = []
    for i in recorded:
        reach: set[int] = set()
        left = [new[i].node]
        while left:
            n = left.pop()
            if n is not None and n[0] and id(n) not in reach and not run.is_old_object(n) and (n is new[i].node or id(n) not in own):
                reach.add(id(n))
                left += n[3]
        together = [i]
        for group in [g for g in groups if g[1] & reach]:
            groups.remove(group)
            together, reach = group[0] + together, reach | group[1]
        groups.append((together, reach))
    found = []
    for numbers, _ in groups:
        outer = [*given, *[t if i in recorded and i not in numbers else _NOBODY for i, t in enumerate(new)]]
        found.append((numbers, History(run, [new[i] for i in numbers], outer)))
    found.sort(key=lambda f: -f[1].last)
    for k, (_, past) in enumerate(found):
        for _, other in found[:k]:
            if past.first > other.last and {id(to) for _, _, to in past.exits} & {id(to) for _, _, to in other.exits}:
                raise Refused("gradients of two results come in turns")
        for _, _, to in past.exits:
            if type(to) is int and to >= len(given) and not any(to - len(given) in numbers for numbers, _ in found[:k]):
                raise Refused("two results were computed from one another's history")
    return found


_NOBODY = object.__new__(Tensor)  # in the place of a result at which no history ends
_NOBODY.meta = _NOBODY.store = _NOBODY.base = _NOBODY.node = None  # type: ignore[assignment]
_NOBODY.ptr = 0


def spent(node: Any, ends: Collection[int] = ()) -> bool:
    """Whether a pass has been through a node and let go of what it kept, and of what all nodes behind it kept, and none of these nodes is in reach."""
    seen: set[int] = set()
    left = [node]
    while left:
        n = left.pop()
        if n is not None and id(n) in ends:
            return False
        if n is None or id(n) in seen or n[0] == 0:
            continue
        seen.add(id(n))
        if (n[4] is not None and n[2] not in tape.reusable) or (n[5] is not None and ("hooks" in n[5] or "pre" in n[5] or "post" in n[5])):
            return False
        left += n[3]
    return True


class _Spent:
    """Copies of nodes that a pass has been through: of the leaves behind them only these, by identity, are themselves."""

    def __init__(self, leaves: set[int]) -> None:
        self._leaves = leaves
        self._made: dict[int, Any] = {}

    def copy(self, node: Any) -> Any:
        order, left = [], [node]
        while left:
            n = left.pop()
            if n is not None and id(n) not in self._made:
                if n[0] == 0:
                    self._made[id(n)] = n if id(n) in self._leaves else tape.leaf()
                else:
                    self._made[id(n)] = made = copied(n)
                    order.append(made)
                    left += n[3]
        for made in order:
            made[3] = tuple([None if e is None else self._made[id(e)] for e in made[3]])
        return self._made[id(node)]


def cut(results: list[Tensor], leaves: set[int]) -> None:
    """Gives results nodes that hold no tensors of the step."""
    graph = _Spent(leaves)
    for t in results:
        if t.node is not None:
            t.node = graph.copy(t.node)


def copied(node: Any) -> Any:
    """A node like it, of its own."""
    _, grad, backward, edges, saved, extra = node
    made = tape.new(backward, edges, saved, None if extra is None else dict(extra))
    made[tape.GRAD] = grad
    return made
