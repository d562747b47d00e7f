"""The plan of memory: what a step computes for itself alone lies in one pool, where memory is used again once nobody reads it any more.

A value is bytes of a block that the recording used, from the launch that first writes them to the last that reads them: what a read finds was put
there by the writes before it that it meets, so these belong together, and nothing else does.  Values that live at the same time lie apart.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..runtime import capture, cpu_memory
from ..tensor import meta
from .fusion import kind_of
from .graph import Access, Graph, Node, Owner
from .record import Launch
from .replay import Spot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .replay import Planned

ALIGN = 64
FIXED = cpu_memory.SMALL  # a pool of at most so many bytes is kept between replays, so that none need be allocated
STEP = -1  # the place of the one address of a step that is no launch


class Value:
    """Bytes `low` to `high` of the block `owner`, in use from step `first` to step `last`.  at: where they begin in the pool.  after: the value that ends in
    the step with which this one begins, and in whose place this one is written; all of a row of such have one place."""

    __slots__ = ("owner", "first", "last", "low", "high", "at", "after")

    def __init__(self, owner: Owner, first: int, last: int, low: int, high: int) -> None:
        self.owner, self.first, self.last, self.low, self.high, self.at = owner, first, last, low // ALIGN * ALIGN, -(-high // ALIGN) * ALIGN, 0
        self.after: Value | None = None

    @property
    def nbytes(self) -> int:
        return self.high - self.low


class _Use:
    """An address that a step is given: `accesses` by it.  value: which it belongs to, once that is known."""

    __slots__ = ("time", "accesses", "scratch", "root")

    def __init__(self, time: int, accesses: list[Access], scratch: bool) -> None:
        self.time, self.accesses, self.scratch = time, accesses, scratch
        self.root: _Use = self

    def found(self) -> _Use:
        u = self
        while u.root is not u:
            u.root = u.root.root
            u = u.root
        return u

    def belongs_to(self, other: _Use) -> None:
        self.found().root = other.found()


class Lifetimes:
    """The values of a graph whose steps are done in this order, those of one item at once.

    values: all.  where: the value of a node's address, by the node and the place among its arguments.
    """

    def __init__(self, graph: Graph, items: Sequence[Sequence[Node]]) -> None:
        self._written: dict[Owner, list[tuple[_Use, Access]]] = {}
        uses: dict[tuple[Node, int], _Use] = {}
        for time, nodes in enumerate(items):
            new: list[_Use] = []
            for n in nodes:
                own = self._uses(graph, n, time)
                for u in own.values():
                    self._read(u)
                _together(list(own.values()))
                uses.update({(n, k): u for k, u in own.items()})
                new += own.values()
            for u in new:
                for a in u.accesses:
                    if a.write:
                        self._written.setdefault(a.owner, []).append((u, a))
        roots: dict[_Use, list[_Use]] = {}
        for u in uses.values():
            roots.setdefault(u.found(), []).append(u)
        made = {root: _value(those) for root, those in roots.items()}
        self.values = list(made.values())
        self.where = {key: made[u.found()] for key, u in uses.items()}
        for time, nodes in enumerate(items):
            if len(nodes) == 1 and kind_of(nodes[0].step) == "map":
                self._in_place(nodes[0], time, {k: uses[nodes[0], k] for k in range(nodes[0].step.addressed) if (nodes[0], k) in uses})

    def _in_place(self, n: Node, time: int, own: dict[int, _Use]) -> None:
        """Has a map write over what it reads for the last time, element by element."""
        outs = n.step.prepared.outputs
        taken: set[int] = set()
        for k, out in own.items():
            new = self.where[n, k]
            if k >= outs or new.first != time or new.after is not None:
                continue
            for j in own:
                old = self.where[n, j]
                if j < outs or old.last != time or old.first == time or id(old) in taken or old.nbytes != new.nbytes:
                    continue
                # every access to the old value must be at the element that is written
                those = [a for i, v in own.items() if self.where[n, i] is old for a in v.accesses]
                if all(_same_place(a, b, old.low, new.low) for a in those for b in out.accesses):
                    new.after = old
                    taken.add(id(old))
                    break

    def _uses(self, graph: Graph, n: Node, time: int) -> dict[int, _Use]:
        s = n.step
        found = graph.operands(s) if isinstance(s, Launch) else [(STEP, n.accesses)] if n.accesses else []
        return {k: _Use(time, those, isinstance(s, Launch) and graph.is_workspace(s, k)) for k, those in found if those[0].owner[0] == "c"}

    def _read(self, u: _Use) -> None:
        """What a use reads belongs to what was written there."""
        for a in u.accesses:
            if a.write or u.scratch:
                continue
            left = [a]
            for other, w in reversed(self._written.get(a.owner, ())):
                if any(w.meets(x) for x in left):
                    u.belongs_to(other)
                    left = [x for y in left if not w.covers(y) for x in w.outside(y)]
                    if not left:
                        break


def _together(own: list[_Use]) -> None:
    """What a launch writes where it reads, or twice, stays so."""
    for i, u in enumerate(own):
        for v in own[:i]:
            if any((a.write or b.write) and a.meets(b) for a in u.accesses for b in v.accesses):
                u.belongs_to(v)


def _same_place(a: Access, b: Access, first: int, second: int) -> bool:
    """Whether two accesses are of the same bytes at each element, once what begins at `first` and `second` lies at one place."""
    return a.domain is not None and a.domain == b.domain and (a.start - first, a.size, a.strides) == (b.start - second, b.size, b.strides)


def _value(those: list[_Use]) -> Value:
    found = [a for u in those for a in u.accesses]
    return Value(found[0].owner, min(u.time for u in those), max(u.time for u in those), min(a.low for a in found), max(a.high for a in found))


class _Row:
    """Values that have one place, one after another."""

    __slots__ = ("first", "last", "nbytes", "at", "values")

    def __init__(self) -> None:
        self.first, self.last, self.nbytes, self.at = 1 << 62, 0, 0, 0
        self.values: list[Value] = []

    def add(self, v: Value) -> None:
        self.values.append(v)
        self.first, self.last, self.nbytes = min(self.first, v.first), max(self.last, v.last), max(self.nbytes, v.nbytes)


def _rows(values: Iterable[Value]) -> list[_Row]:
    found: dict[int, _Row] = {}
    for v in values:
        head = v
        while head.after is not None:
            head = head.after
        found.setdefault(id(head), _Row()).add(v)
    return list(found.values())


def profile(values: Iterable[Value]) -> list[tuple[int, int]]:
    """How many bytes live from each step on at which that changes."""
    change: dict[int, int] = {}
    for r in _rows(values):
        change[r.first] = change.get(r.first, 0) + r.nbytes
        change[r.last + 1] = change.get(r.last + 1, 0) - r.nbytes
    found, now = [], 0
    for time in sorted(change):
        now += change[time]
        found.append((time, now))
    return found


def peak(values: Iterable[Value]) -> int:
    """The most bytes that live at once."""
    return max([n for _, n in profile(values)], default=0)


def arrange(values: Iterable[Value]) -> int:
    """Gives each value its place, the largest first, and the lowest that is free as long as it lives; gives the bytes of all."""
    done: list[_Row] = []
    end = 0
    for r in sorted(_rows(values), key=lambda r: (-r.nbytes, r.first)):
        at = 0
        for other in sorted([o for o in done if o.first <= r.last and r.first <= o.last], key=lambda o: o.at):
            if other.at - at >= r.nbytes:
                break
            at = max(at, other.at + other.nbytes)
        r.at = at
        for v in r.values:
            v.at = at
        end = max(end, at + r.nbytes)
        done.append(r)
    return end


class Pool:
    """The memory of a plan's own: where `values` lie.  spot: what a launch is given for a place in it."""

    def __init__(self, plan: Planned, life: Lifetimes) -> None:
        self.life = life
        self.nbytes = arrange(life.values)
        self._number = self._start = -1
        if self.nbytes > FIXED:
            self._number = len(plan.metas)
            plan.metas = [*plan.metas, meta((self.nbytes,), None, dtypes.uint8, plan.device)]
        elif self.nbytes:
            block = plan.blocks.take(self.nbytes)
            self._start = block.address
            plan.claimed = [*plan.claimed, block]

    def spot(self, at: int) -> Any:
        return Spot("p", self._number, at) if self._start < 0 else self._start + at

    def moved(self, graph: Graph, n: Node, s: Any) -> Any:
        """A node's step, with its addresses in the pool."""
        if not isinstance(s, Launch):
            found = self._place(graph, n, STEP, s.address) if isinstance(s, capture.Read | capture.Write) else None
            return s if found is None else capture.Read(found, s.value, s.device) if isinstance(s, capture.Read) else capture.Write(found, s.data)
        args = [*s.args]
        for k, x in s.addresses():
            found = self._place(graph, n, k, x)
            args[k] = x if found is None else found
        return Launch(s.device, s.stream, s.prepared, tuple(args), s.line)

    def _place(self, graph: Graph, n: Node, k: int, x: Any) -> Any:
        """Where an address of the step's own has gone; None for another's."""
        found = graph.memory.find(x)
        if found is None or found[0][0] != "c":
            return None
        v = self.life.where.get((n, k))
        if v is None:  # it is not read
            return self.spot(0) if self.nbytes else None
        return self.spot(v.at + found[1] - v.low)

    def dead(self, time: int) -> list[capture.Write]:
        """Steps that fill the memory of the values that nobody reads after a step, so that a late reader is found."""
        over = {id(v.after) for v in self.life.values if v.after is not None}
        return [capture.Write(self.spot(v.at), b"\xff" * v.nbytes) for v in self.life.values if v.last == time and id(v) not in over]


def keeps_addresses(plan: Planned) -> bool:
    """Whether bytes that Python writes may hold an address of the step's own memory, which may not be elsewhere then."""
    spans = [(c.address, c.address + c.size) for c in plan.claimed]
    low, high = min([a for a, _ in spans], default=0), max([b for _, b in spans], default=0)
    for s in plan.steps:
        if isinstance(s, capture.Write):
            words = struct.unpack(f"<{len(s.data) // 8}Q", s.data[:len(s.data) // 8 * 8])
            if any(low <= w < high and any(start <= w < end for start, end in spans) for w in words):
                return True
    return False
