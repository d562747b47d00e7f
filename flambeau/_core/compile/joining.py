"""Launches that share their numbers and touch nothing of one another's, such as an optimizer's for each parameter, as one that the threads share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..kernels.llvm import foreach
from ..kernels.llvm import sequence as sequences
from ..kernels.programs import PreparedLaunch
from .fusion import number_key, prepared
from .record import Launch

if TYPE_CHECKING:
    from .graph import Graph, Node

MOST = 256  # launches of one


class Item:
    """Nodes that are done at once: one with its `steps` (its one step), or several launches as `entry`, which shares their last `numbers` arguments."""

    __slots__ = ("nodes", "steps", "entry", "numbers")

    def __init__(self, nodes: list[Node], steps: list[Any], entry: PreparedLaunch | None = None, numbers: tuple[Any, ...] = ()) -> None:
        self.nodes, self.steps, self.entry, self.numbers = nodes, steps, entry, numbers

    def step(self) -> Any:
        first = self.steps[0]
        if self.entry is None:
            return first
        addresses = [x for s in self.steps for x in s.args[:len(s.args) - len(self.numbers)]]
        return Launch(first.device, first.stream, self.entry, (*self.numbers, *addresses), first.line)


def items_of(graph: Graph) -> list[Item]:
    """The steps of a graph in order, with their machine code, and launches that may be done in any order as one."""
    steps = {n: prepared(n.step) if isinstance(n.step, Launch) else n.step for n in graph.order}
    groups = _groups(graph, steps)
    last: dict[Node, Item] = {}
    gone: set[Node] = set()
    for members in groups:
        made = _one(members, [steps[n] for n in members])
        if made is not None:
            gone.update(members)
            last[members[-1]] = made
    return [last.get(n) or Item([n], [steps[n]]) for n in graph.order if n in last or n not in gone]


def _numbers(s: Launch) -> tuple[Any, ...]:
    p = s.prepared.program
    assert p is not None
    return s.args[s.prepared.outputs + len(p.inputs):]


def _groups(graph: Graph, steps: dict[Node, Any]) -> list[list[Node]]:
    """Those that become one, in the order of the graph, each where its last one stands."""
    opened: dict[Any, list[Node]] = {}
    found: list[list[Node]] = []
    for n in graph.order:
        s = steps[n]
        # nothing that is already in a group may have to come before this, whether it joins or not
        for key, members in list(opened.items()):
            if any(n.before & m.bit for m in members):
                found.append(opened.pop(key))
        if not isinstance(s, Launch) or s.device.type != "cpu" or s.prepared.program is None or s.prepared.workspace or not sequences.native(s.prepared.entry):
            continue
        key = (s.prepared.program.key, tuple([number_key(x) for x in _numbers(s)]))
        members = opened.setdefault(key, [])
        members.append(n)
        if len(members) == MOST:
            found.append(opened.pop(key))
    found += opened.values()
    # small ones follow one another without Python as they are
    return [g for g in found if len(g) > 1 and any(sequences.header(steps[n].prepared.entry) is None for n in g)]


def _one(nodes: list[Node], those: list[Launch]) -> Item | None:
    numbers = _numbers(those[0])
    entry = foreach.join([s.prepared.entry for s in those], len(numbers))
    if entry is None:
        return None
    made = PreparedLaunch(f"{those[0].prepared.name} x {len(those)}", entry, outputs=0, nbytes=sum(s.prepared.nbytes for s in those),
                          flops=sum(s.prepared.flops for s in those), keep=[s.prepared for s in those])
    return Item(nodes, list(those), made, numbers)
