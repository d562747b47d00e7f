"""Checks of arguments go before all else that a record does, so that Python can do a call from its beginning whose check fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime import capture, cpu_memory
from .graph import checks, declared
from .record import LEAST, Launch, Slot
from .replay import Spot

if TYPE_CHECKING:
    from .replay import Planned

_MOST = 8  # steps that are done twice for one check


def is_check(s: Any) -> bool:
    """Whether a step only looks, and ends the replay where it finds what was not so."""
    return isinstance(s, capture.Read) or (isinstance(s, Launch) and checks(s.prepared))


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
    block = cpu_memory.whole(x)
    return ("own", block[0]) if block is not None and any(c.address == block[0] for c in plan.claimed) else ("other", x)
