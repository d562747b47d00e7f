"""The graph over memory of a record: which of its steps must stay before which, and which values nobody reads any more.

Memory is told by its owner: a block that the step allocated and gave back ("c"), a storage that lives on ("k"), an argument ("a"), a storage made
anew for a result ("p"), a stream of random numbers ("s"), memory of others ("f").  An argument may be a view of anything that lives on, or of
another argument: a replay is told only its layout.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from ..kernels.llvm import sequence as sequences
from ..kernels.loops.walk import facts
from ..kernels.programs import size_of
from ..runtime import capture
from . import extents
from .record import Ask, Launch, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .replay import Planned

Owner = tuple[str, int]
_FAR = 1 << 62
# Library routines whose outputs come first and are all that they write. Of others it is not known: they may write wherever they are given an address.
_DECLARED = ("matmul_", "convolution_", "depthwise_", "attention")


def checks(p: Any) -> bool:
    """Whether a launch only looks at positions, and raises where they are wrong (`specs.Check`)."""
    return p.program is None and not p.outputs and p.name.endswith(" check")


def declared(p: Any) -> bool:
    """Whether the outputs of a library routine come first and are all that it writes."""
    return checks(p) or (p.name.startswith(_DECLARED) and not p.beside)


class Access:
    """Bytes `low` to `high` of an owner's memory, read or written.

    start, domain, strides, size: where each element of a loop lies, from the byte `start` on, with strides in elements of `size` bytes; domain
    is None where that is not known.
    """

    __slots__ = ("owner", "low", "high", "write", "start", "domain", "strides", "size")

    def __init__(self, owner: Owner, low: int, high: int, write: bool, start: int = 0, domain: tuple[int, ...] | None = None,
                 strides: tuple[int, ...] = (), size: int = 1) -> None:
        self.owner, self.low, self.high, self.write = owner, low, high, write
        self.start, self.domain, self.strides, self.size = start, domain, strides, size

    def meets(self, other: Access) -> bool:
        """Whether the two may share a byte."""
        if self.owner == other.owner:
            return self.low < other.high and other.low < self.high
        return may_alias(self.owner, other.owner)

    def covers(self, other: Access) -> bool:
        """Whether each byte of the other is surely among these."""
        if self.owner != other.owner or self.domain is None:
            return False
        if self.low <= other.low and other.high <= self.high and self._dense():
            return True
        return (self.start, self.size, _axes(self.domain, self.strides)) == (other.start, other.size, _axes(other.domain or (), other.strides))

    def outside(self, other: Access) -> list[Access]:
        """The bytes of the other that are surely not among these, or may not be."""
        if self.owner != other.owner or not self.meets(other) or self.domain is None or not self._dense():
            return [other]
        parts = (other.low, min(other.high, self.low)), (max(other.low, self.high), other.high)
        return [Access(other.owner, low, high, other.write) for low, high in parts if low < high]

    def _dense(self) -> bool:
        reached = 1
        for n, s in sorted(_axes(self.domain or (), self.strides), key=lambda a: a[1]):
            if s != reached:
                return False
            reached *= n
        return self.high - self.low == reached * self.size


def _axes(domain: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple([(n, s) for n, s in zip(domain, strides, strict=False) if n > 1 and s])


def may_alias(a: Owner, b: Owner) -> bool:
    """Whether memory of two owners may be the same."""
    return a == b or (a[0] == "a" and b[0] in "akfs") or (b[0] == "a" and a[0] in "akfs")


class Memory:
    """Whose an address is that a plan's launches are given."""

    def __init__(self, plan: Planned) -> None:
        spans: list[tuple[int, int, Owner]] = [(c.address, c.address + c.size, ("c", c.address)) for c in plan.claimed]
        seen: dict[Owner, int] = {("p", i): m.nbytes for i, m in enumerate(plan.metas)}
        end, owner = -1, ("k", 0)
        for s in sorted(plan.kept.values(), key=lambda s: (s.ptr, -s.meta.nbytes)):
            if s.ptr >= end:  # those that lie within one another are one
                owner = ("k", s.ptr)
            stop = s.ptr + max(s.meta.nbytes, 1)
            seen[owner] = max(seen.get(owner, 0), stop - owner[1])
            block = plan.blocks.whole(s.ptr) if id(s) in plan.left else None
            if block is not None and block[0] == s.ptr:  # it was scratch of other sizes before
                stop = max(stop, s.ptr + block[1])
            spans.append((s.ptr, stop, owner))
            end = max(end, stop)
        spans += [(address, address + 1, ("s", address)) for address in plan.streams]
        spans += [(start, stop, ("f", start)) for start, stop in plan.spans]
        self._seen = seen
        self._ends: dict[Owner, int] = {}
        for _, stop, o in spans:
            self._ends[o] = max(self._ends.get(o, 0), stop)
        spans.sort(key=lambda s: s[0])
        self._starts, self._spans = [s[0] for s in spans], spans

    def find(self, x: Any) -> tuple[Owner, int] | None:
        """The owner, and how many bytes behind its beginning; None for an address of nobody's."""
        if not isinstance(x, int):
            return (x.of, x.number), x.offset
        i = bisect_right(self._starts, x) - 1
        while i >= 0:
            start, stop, owner = self._spans[i]
            if x < stop:
                return owner, x - owner[1]
            if x >= self._ends[owner] and start == owner[1]:
                return None
            i -= 1
        return None

    def seen(self, owner: Owner) -> int:
        """How many of an owner's bytes anybody but the replay sees."""
        return 0 if owner[0] == "c" else _FAR if owner[0] == "a" else self._seen.get(owner, _FAR)

    def whole(self, owner: Owner, write: bool) -> Access:
        """All that an owner has."""
        if owner[0] in "ap":
            return Access(owner, -_FAR, _FAR, write)
        return Access(owner, 0, self._ends[owner] - owner[1], write)


class Unknown(Exception):
    """A step's memory is not known: nothing may be moved."""


class Node:
    """A step of a record, or several that became one launch.

    bit: its place in sets; before: the set of all that must come before it.  barrier: it may end the replay by an error, or asks Python: what lives on
    is as the steps before it left it.  members: how many launches of the record it is.
    """

    __slots__ = ("step", "bit", "before", "accesses", "reads", "writes", "barrier", "members", "why")

    def __init__(self, step: Any, bit: int, accesses: list[Access], barrier: bool) -> None:
        self.bit, self.barrier = bit, barrier
        self.does(step, accesses)
        self.before = 0
        self.members: list[Launch] = [step] if isinstance(step, Launch) else []
        self.why: list[str] = []

    def does(self, step: Any, accesses: list[Access]) -> None:
        """Has it do a step, with these accesses."""
        self.step, self.accesses = step, accesses
        self.reads, self.writes = [a for a in accesses if not a.write], [a for a in accesses if a.write]


def _is_address(x: Any) -> bool:
    return not isinstance(x, (float, Slot, bool)) and x is not None


class Graph:
    """The steps of a plan as nodes in an `order` in which they may be done."""

    def __init__(self, plan: Planned) -> None:
        self.memory = Memory(plan)
        self._known: dict[int, tuple[Launch, list[tuple[int, list[Access]]]]] = {}  # of each launch, by identity, with the launch itself, its operands
        self.order = [self._node(s, 1 << k) for k, s in enumerate(plan.steps)]
        self._depend()

    # what is read and written -----------------------------------------------------------------------------------------
    def _node(self, s: Any, bit: int) -> Node:
        if isinstance(s, Launch):
            # a loop ends, and so does machine code; what Python carries out may find that its arguments are wrong
            return Node(s, bit, self.accesses(s), s.prepared.program is None and not sequences.native(s.prepared.entry))
        if isinstance(s, Ask):
            return Node(s, bit, [], True)
        owner, start = self._found(s.address)
        n = len(s.value if isinstance(s, capture.Read) else s.data)
        writes = isinstance(s, capture.Write)
        return Node(s, bit, [Access(owner, start, start + n, writes, start, (n,), (1,), 1)], not writes)

    def _found(self, x: Any) -> tuple[Owner, int]:
        found = self.memory.find(x)
        if found is None:
            raise Unknown
        return found

    def accesses(self, s: Launch) -> list[Access]:
        """What a launch reads and writes."""
        return [a for _, found in self.operands(s) for a in found]

    def operands(self, s: Launch) -> list[tuple[int, list[Access]]]:
        """What a launch reads and writes, by the place among its arguments of the address by which it does."""
        found = self._known.get(id(s))
        if found is None:
            found = self._known[id(s)] = s, self._operands(s)
        return found[1]

    def _operands(self, s: Launch) -> list[tuple[int, list[Access]]]:
        p, prepared = s.prepared.program, s.prepared
        if p is None:
            return self._of_routine(s)
        if not size_of(prepared.domain) and p.kind == "map":
            return []
        types, outs = (*p.out_types, *p.inputs), len(p.out_types)
        known, found = facts(p), []
        targets = getattr(p, "targets", (None,) * outs)
        for k, (d, strides) in enumerate(zip(types, prepared.strides, strict=True)):
            owner, start = self._found(s.args[k])
            write = k < outs
            if write and targets[k] is not None:
                found.append((k, [self.memory.whole(owner, True), self.memory.whole(owner, False)]))
            elif not write and k - outs in known.gathered:
                found.append((k, [self.memory.whole(owner, False)]))
            elif write or known.read[k - outs]:
                found.append((k, [placed(owner, start, prepared.domain, strides, d.itemsize, write)]))
        if prepared.workspace:
            found.append((len(types), self._workspace(s.args[len(types)])))
        return found

    def _workspace(self, x: Any) -> list[Access]:
        owner, _ = self._found(x)
        return [self.memory.whole(owner, True), self.memory.whole(owner, False)]

    def _of_routine(self, s: Launch) -> list[tuple[int, list[Access]]]:
        found = []
        known, exact = declared(s.prepared), extents.of(s.prepared)
        for k, x in enumerate(s.args):
            if not _is_address(x) or (isinstance(x, int) and (k, x) not in s.addresses()):
                continue
            owner, start = self._found(x)
            if exact is not None and known:
                write = k in exact.outputs
                if write or k in exact.inputs:
                    found.append((k, [placed(owner, start, *(exact.outputs if write else exact.inputs)[k], write)]))
                else:
                    found.append((k, self._workspace(x) if s.prepared.workspace and k == exact.workspace else [self.memory.whole(owner, False)]))
                continue
            those = [self.memory.whole(owner, False)]
            if not known or k < s.prepared.outputs or (s.prepared.workspace and owner[0] == "c") or owner[0] == "s":
                those.append(self.memory.whole(owner, True))
            found.append((k, those))
        return found

    def is_workspace(self, s: Launch, k: int) -> bool:
        """Whether an argument is memory in which a launch reads only what it has itself written."""
        p = s.prepared
        if not p.workspace:
            return False
        if p.program is not None:
            return k == p.outputs + len(p.program.inputs)
        exact = extents.of(p)
        return exact is not None and declared(p) and k == exact.workspace

    # what depends on what ---------------------------------------------------------------------------------------------
    def _depend(self) -> None:
        own: dict[Owner, list[tuple[Node, Access]]] = {}
        lasting: list[tuple[Node, Access]] = []  # of writes to what lives on
        given: list[tuple[Node, Access]] = []  # of arguments
        asked: dict[int, Node] = {}
        barriers = closed = 0  # all barriers, and all nodes that change what lives on
        by_bit: dict[int, Node] = {}
        for n in self.order:
            direct = 0
            for a in n.accesses:
                for other, b in own.get(a.owner, ()):
                    if (a.write or b.write) and a.meets(b):
                        direct |= other.bit
                if a.owner[0] == "a":
                    for other, b in lasting:
                        if a.owner != b.owner:
                            direct |= other.bit
                if a.write and a.owner[0] in "akfs":
                    for other, b in given:
                        if a.owner != b.owner:
                            direct |= other.bit
            lasts = any(a.owner[0] != "c" for a in n.writes) or any(a.owner[0] == "s" for a in n.accesses)
            if n.barrier:
                direct |= closed | barriers
                barriers |= n.bit
            if lasts:
                direct |= barriers
                closed |= n.bit
            if isinstance(n.step, Ask):
                asked[n.step.number] = n
            if isinstance(n.step, Launch):
                for x in n.step.args:
                    if isinstance(x, Slot):
                        direct |= asked[x.source].bit
            direct &= ~n.bit
            n.before = direct
            for bit in bits(direct):
                n.before |= by_bit[bit].before
            by_bit[n.bit] = n
            for a in n.accesses:
                own.setdefault(a.owner, []).append((n, a))
                if a.write and a.owner[0] in "akfs":
                    lasting.append((n, a))
                if a.owner[0] == "a":
                    given.append((n, a))

    def between(self, a: Node, b: Node) -> Node | None:
        """A step that must stay behind `a` and before `b`; None where there is none, so that the two may become one."""
        for n in self.order:
            if n is not a and n is not b and n.before & a.bit and b.before & n.bit:
                return n
        return None

    def join(self, a: Node, b: Node, step: Any) -> Node:
        """The two as one node that does `step`; no other may have to stay between (see `between`)."""
        made = Node(step, a.bit | b.bit, self.accesses(step), a.barrier or b.barrier)
        made.before = (a.before | b.before) & ~made.bit
        made.members, made.why = a.members + b.members, a.why + b.why
        i, j = self.order.index(a), self.order.index(b)
        inside = self.order[i + 1:j]
        early = [n for n in inside if not n.before & a.bit]
        late = [n for n in inside if n.before & a.bit]
        self.order[i:j + 1] = [*early, made, *late]
        for n in self.order:
            if n.before & made.bit:
                n.before |= made.bit | made.before
        return made

    def replace(self, n: Node, step: Any) -> None:
        """A node's work done in another way, which reads and writes no more than it did."""
        n.does(step, self.accesses(step))

    def again(self, n: Node, step: Launch, at: int, last: Sequence[Node], later: Sequence[Node]) -> Node:
        """Has `step`, which does once more what `n` did, done at a place of the order.  last: those that read for the last time what `n` left there;
        later: those that read what it leaves."""
        made = Node(step, 1 << max(m.bit.bit_length() for m in self.order), self.accesses(step), n.barrier)
        made.before = n.before | n.bit
        for m in last:
            made.before |= m.before | m.bit
        self.order.insert(at, made)
        behind = 0
        for m in self.order[at + 1:]:
            over = any(w.meets(r) for w in m.writes for r in made.accesses)
            if m in later or over or m.before & behind:
                m.before |= made.bit | made.before
                behind |= m.bit
        return made

    # what is read ------------------------------------------------------------------------------------------------------
    def unread(self, n: Node, w: Access, besides: Node | None = None) -> bool:
        """Whether nothing reads what `n` writes there; besides: a node whose reads do not count."""
        seen = self.memory.seen(w.owner)
        visible = w.low < seen  # what lies behind a storage's bytes was scratch
        left = [w]  # what has not been written over
        for other in self.order[self.order.index(n) + 1:]:
            if other.barrier and visible:
                return False
            if other is not besides and any(a.meets(x) for a in other.reads for x in left):
                return False
            for a in other.writes:
                left = [x for y in left if not a.covers(y) for x in a.outside(y)]
            if not left:
                return True
        return all(x.low >= seen for x in left)


def placed(owner: Owner, start: int, domain: tuple[int, ...], strides: Sequence[int], size: int, write: bool) -> Access:
    """The bytes of a loop's operand."""
    low = high = 0
    steps = (*strides, *(0,) * (len(domain) - len(strides)))
    for n, s in zip(domain, steps, strict=True):
        if s > 0:
            high += (n - 1) * s
        else:
            low += (n - 1) * s
    return Access(owner, start + low * size, start + (high + 1) * size, write, start, domain, steps, size)


def bits(x: int) -> Iterable[int]:
    """The single bits of a set."""
    while x:
        low = x & -x
        yield low
        x ^= low
