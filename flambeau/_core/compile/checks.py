"""Checks of arguments go before all else that a record does, so that Python can do a call from its beginning whose check fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime import capture
from .graph import Graph, Node, Unknown, checks, declared
from .record import LEAST, Launch, Slot
from .replay import Spot

if TYPE_CHECKING:
    from .replay import Planned

_MOST = 8  # steps that are done twice for one check
_LARGEST = 1 << 20  # bytes that one of them may write
_ALIGNED = 64


def is_check(s: Any) -> bool:
    """Whether a step only looks, and ends the replay where it finds what was not so.  A GPU's tell later."""
    return isinstance(s, capture.Read) or (isinstance(s, Launch) and s.device.type == "cpu" and checks(s.prepared))


def checked_first(plan: Planned) -> tuple[list[Any], int]:
    """The steps of a record with its checks in front, and how many stand there.  What a check looks at is worked out before it, once more, where that
    writes to nothing but memory that is the record's own; other checks stay where they are."""
    front: dict[int, Any] = {}
    left: list[Any] = []
    for k, s in enumerate(plan.steps):
        before = _before(plan, k) if is_check(s) else None
        if before is None:
            left.append(s)
        else:
            front.update({i: plan.steps[i] for i in (*before, k)})
    return [*[front[i] for i in sorted(front)], *left], len(front)


def _before(plan: Planned, k: int) -> list[int] | None:
    """The steps that a check needs before it; None where it must stay."""
    needed, _ = _touches(plan, plan.steps[k])
    found: list[int] = []
    for i in range(k - 1, -1, -1):
        s = plan.steps[i]
        if is_check(s):
            continue
        if not isinstance(s, (Launch, capture.Write)):
            if any(isinstance(x, Slot) for j in found for x in getattr(plan.steps[j], "args", ())):
                return None
            continue
        reads, writes = _touches(plan, s)
        if not writes & needed:
            continue
        found.append(i)
        needed |= reads
        if len(found) > _MOST or any(owner[0] not in ("own", "p") for owner in writes) or any(isinstance(x, Slot) for x in getattr(s, "args", ())):
            return None
    return found


def _touches(plan: Planned, s: Any) -> tuple[set[Any], set[Any]]:
    """Whose memory a step reads, and whose it writes."""
    if not isinstance(s, Launch):
        owner = {_owner(plan, s.address)}
        return (owner, set()) if isinstance(s, capture.Read) else (set(), owner)
    p = s.prepared
    args = [_owner(plan, x) for x in s.args if isinstance(x, Spot) or (type(x) is int and x >= LEAST)]
    if p.program is None and not declared(p):
        return set(args), set(args)
    first = [_owner(plan, x) for i, x in enumerate(s.args) if (i < p.outputs or (p.workspace and i == s.addressed - 1)) and (
        isinstance(x, Spot) or (type(x) is int and x >= LEAST))]
    return set(args), set(first)


def _owner(plan: Planned, x: Any) -> tuple[str, Any]:
    if isinstance(x, Spot):
        return x.of, x.number
    for number, s in plan.kept.items():
        if s.ptr <= x < s.ptr + max(s.meta.nbytes, 1):
            return "kept", number
    block = plan.blocks.whole(x)
    return ("own", block[0]) if block is not None and any(c.address == block[0] for c in plan.claimed) else ("other", x)


def looked_before(plan: Planned, at: int) -> None:
    """The looks at values behind a step, moved before it: what they look at is worked out there once more, in memory of its own, from what is there by
    then.  Those that follow from what is changed in between stay where they are."""
    late = [k for k in range(at, len(plan.steps)) if isinstance(plan.steps[k], capture.Read)]
    if not late:
        return
    try:
        graph = Graph(plan)
    except Unknown:
        return
    front: list[Any] = []
    moved: list[int] = []
    for k in late:
        found = _again(plan, graph, k, at)
        if found is not None:
            front += found
            moved.append(k)
    plan.steps = [*plan.steps[:at], *front, *[s for k, s in enumerate(plan.steps) if k >= at and k not in moved]]


def _again(plan: Planned, graph: Graph, k: int, at: int) -> list[Any] | None:
    """A look, and before it what it needs of the steps from `at` on; None where that cannot be done before these."""
    left = list(graph.order[k].reads)
    needed: list[Node] = []
    for n in reversed(graph.order[at:k]):
        if not any(w.meets(x) for w in n.writes for x in left):
            continue
        s = n.step
        if len(needed) == _MOST or n.barrier or any(isinstance(x, Slot) for x in getattr(s, "args", ())) or any(
                w.owner[0] not in "cp" for w in n.writes):
            return None
        needed.insert(0, n)
        for w in n.writes:
            left = [x for y in left if not w.covers(y) for x in w.outside(y)]
        if isinstance(s, Launch):
            left += [a for i, those in graph.operands(s) if not graph.is_workspace(s, i) for a in those if not a.write]
    written: list[tuple[Any, int]] = []  # what is written in memory of its own, and how far that lies from where it was
    steps: list[Any] = []
    claimed: list[Any] = []
    for n in [*needed, graph.order[k]]:
        s = n.step
        places = graph.operands(s) if isinstance(s, Launch) else [(0, n.accesses)]
        args = [*s.args] if isinstance(s, Launch) else [s.address]
        new: list[tuple[Any, int]] = []
        for i, those in places:
            x = args[i]
            found = graph.memory.find(x)
            if found is None:
                return None
            if all(a.write for a in those) or (isinstance(s, Launch) and graph.is_workspace(s, i)):
                low, high = min(a.low for a in those), max(a.high for a in those)
                if len({a.owner for a in those}) > 1 or high - low > _LARGEST:
                    return None
                claimed.append(plan.blocks.take(high - low + _ALIGNED))
                shift = claimed[-1].address + low % _ALIGNED - low
                new += [(a, shift) for a in those if a.write]
            else:
                sources = [(w, by) for w, by in written if any(w.meets(a) for a in those)]
                if any(a.write for a in those) or (sources and not all(sources[-1][0].covers(a) for a in those)):
                    return None
                if not sources:
                    continue
                shift = sources[-1][1]
            args[i] = found[1] + shift
        written += new
        steps.append(Launch(s.device, s.stream, s.prepared, tuple(args), s.line) if isinstance(s, Launch) else
                     capture.Read(args[0], s.value, s.device) if isinstance(s, capture.Read) else capture.Write(args[0], s.data))
    plan.claimed = [*plan.claimed, *claimed]
    return steps
