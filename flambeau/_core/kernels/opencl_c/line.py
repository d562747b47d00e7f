"""A group's line of elements, what it accumulates over it, and how its members join that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import int64
from ..loops import accumulators
from .lower import literal, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype
    from ..loops.thread_groups import Group
    from ..loops.walk import Axis
    from .writer import Writer

BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"


class Line:
    """This thread's row of `count` (the last one for threads beyond the end, who meet the others at barriers); live: whether it is one;
    member: the thread's place in its group; q, coords: where the row begins; n: its length; begin, end: the elements of its piece."""

    def __init__(self, w: Writer, group: Group, count: int, outer: Sequence[Axis], inner: Sequence[Axis], length: int, piece: int) -> None:
        self.w, self.group, self.inner = w, group, inner
        across, self.count = int(group.kind == "across"), w.word(count)
        first = "get_group_id(0)" if group.kind == "block" else f"get_group_id(0) * {group.rows} + get_local_id({1 - across})"
        row = w.let(w.t, f"({w.t})({first})")
        self.live = w.let("bool", f"{row} < {self.count}")
        self.row = w.let(w.t, f"{self.live} ? {row} : {self.count} - 1")
        self.member = w.let("int", f"(int)get_local_id({across})")
        self.flat = w.let("int", f"(int)get_local_id(1) * {group.x} + (int)get_local_id(0)")
        self.first = f"if ({self.live} && {self.member} == 0)"
        self.q, self.coords = w.places(outer, self.row)
        self.n, size = w.word(length), w.word(piece)
        self.begin = w.let(w.t, f"({w.t})get_group_id(1) * {size}")
        self.end = w.let(w.t, f"{self.n} - {self.begin} < {size} ? {self.n} : {self.begin} + {size}")
        # over the thread's elements: its p-th is the line's i-th
        self.each = f"for ({w.t} i = {self.begin} + {self.member}, p = 0; i < {self.end}; i += {group.size}, p++)"

    def at(self, i: str) -> tuple[dict[int, str], dict[int, str]]:
        """Where the i-th elements are, and all their coordinates."""
        q, coords = self.w.places(self.inner, i, self.q)
        return q, self.coords | coords

    def share(self, rooms: Sequence[str], names: Sequence[str], then: str = BARRIER) -> None:
        """Puts variables where the group sees them."""
        self.w.set([f"{m}[{self.flat}]" for m in rooms], names)
        self.w.line(then)


class Accumulators:
    """Those of elements of `types` that combine by `hows` ("": the second part of the one before).  names: of their variables, of the
    types `flat`."""

    def __init__(self, w: Writer, hows: Sequence[str], types: Sequence[dtype]) -> None:
        self.w, self.own = w, []
        for how, d in [pair for pair in zip(hows, types) if pair[0]]:
            kinds = [accumulators.held_in(t) for t in accumulators.flat_types([d], [how])]
            self.own.append((how, d, kinds, w.declare(kinds, [literal(v, t) for v, t in zip(accumulators.starts(how, d), kinds)])))
        self.names, self.flat = [n for own in self.own for n in own[3]], [t for own in self.own for t in own[2]]

    def take(self, values: Sequence[str], position: str = "") -> None:
        """Takes an element's values in."""
        left = iter(values)
        self.join([position if k and t is int64 and accumulators.has_position(how) else next(left) for how, _, ts, _ in self.own for k, t in enumerate(ts)])

    def join(self, other: Sequence[str]) -> None:
        """Takes other partial results in."""
        left = iter(other)
        for how, _, kinds, names in self.own:
            self.w.assign(names, accumulators.joined(how, *accumulators.leaves(kinds)), [*names, *(next(left) for _ in names)])

    def finished(self) -> list[str]:
        """The accumulators' values."""
        return [x for how, d, kinds, names in self.own for x in self.w.over(names, accumulators.finished(how, d, accumulators.leaves(kinds)[0]))]

    def gather(self, line: Line) -> None:
        """Joins what the members of each group have, in an order that is always the same; then all of them have it."""
        w, g, flat = self.w, line.group, line.flat
        step = g.x if g.kind == "across" else 1
        if g.size == 1:
            return
        rooms = [w.room(value(t), g.threads) for t in self.flat]
        line.share(rooms, self.names)
        with w.inside(f"for (int o = {g.size // 2}; o; o >>= 1)"):
            with w.inside(f"if ({line.member} < o)"):
                self.join([f"{m}[{flat} + o * {step}]" for m in rooms])
                line.share(rooms, self.names, "")
            w.line(BARRIER)
        w.set(self.names, [f"{m}[{flat} - {line.member} * {step}]" for m in rooms])
        w.line(BARRIER)

    def stored(self, rooms: Sequence[int], line: Line, piece: str) -> list[str]:
        """The accumulators of a piece, in the workspace."""
        w = self.w
        at = w.let("long", f"(long){piece} * {line.count} + {line.row}")
        return [f"((global {value(t)}*)({w.work} + {w.long(room)}))[{at}]" for t, room in zip(self.flat, rooms)]
