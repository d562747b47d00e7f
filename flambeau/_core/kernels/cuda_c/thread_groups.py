"""Groups of threads that share a row, and the reduction over a group, whose order is fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loops import accumulators, thread_groups
from .lower import apply, combine
from .types import literal, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype
    from .writer import Writer

_FAR = 16.0  # how far elements may lie above what a sum of exponentials is by: e^16 takes nothing from a sum's digits
_LOWEST = {"float": -(2 - 2.0 ** -23) * 2.0 ** 127, "double": -(2 - 2.0 ** -52) * 2.0 ** 1023}
NOWHERE = f"{accumulators.NOWHERE}LL"  # the position of an extreme of nothing


class State:
    """An accumulator: how it combines, the type of its elements, and its C variables: a value (the two parts of a complex one,
    whose `how` begins with "c"), and a position for arg...

    parts: how many values an element brings.  base: while a thread adds up exponentials, its sum is by this number, which follows the
    maximum from afar (`_FAR`): a maximum that grows little by little costs nothing.
    """

    __slots__ = ("how", "dtype", "parts", "names", "types", "base")

    def __init__(self, how: str, d: dtype) -> None:
        self.how, self.dtype = how, d
        self.parts = 2 if how in accumulators.PAIRS or how == accumulators.EXPSUM else 1
        self.types = [value(t) for t in accumulators.flat_types([d], [how])]
        self.names: list[str] = []
        self.base = ""

    def start(self) -> list[str]:
        first = accumulators.starts(self.how, self.dtype)
        return [literal(v, self.dtype) for v in first[:self.parts]] + [NOWHERE] * (len(first) - self.parts)

    def declare(self, w: Writer) -> None:
        self.names = [w.fresh("s") for _ in self.types]
        for name, t, v in zip(self.names, self.types, self.start()):
            w.line(f"{t} {name} = {v};")

    def join(self, w: Writer, other: Sequence[str]) -> None:
        """Combines with another partial result (of argmax and argmin, with its position)."""
        if self.how == "cprod":
            multiply(w, self.types[0], self.names, other[:2])
            return
        if self.how == accumulators.EXPSUM:
            self._join_sums(w, *other[:2])
            return
        if len(self.names) == 1:
            w.line(f"{self.names[0]} = {combine(w, self.how, self.dtype, self.names[0], other[0])};")
            return
        better = ("complex_" if self.parts == 2 else "") + ("above" if self.how.endswith("max") else "below")
        # without a position, any of several equal extremes will do
        nowhere = ["0LL"] * (self.parts == len(self.names))
        w.line(f"if ({w.need(better)}({', '.join([*self.names, *nowhere, *other[:len(self.names)], *nowhere])})) {{")
        for name, x in zip(self.names, other):
            w.line(f"{name} = {x};")
        w.line("}")


    # ------------------------------------------------------------------------------------------- sums of exponentials
    def open(self, w: Writer) -> None:
        """Before a thread takes elements in."""
        if self.how == accumulators.EXPSUM:
            self.base = w.fresh("base")
            w.line(f"{self.types[0]} {self.base} = {literal(_LOWEST[self.types[0]], self.dtype)};")  # -inf less -inf would be NaN

    def add(self, w: Writer, elements: Sequence[str]) -> None:
        """Takes elements of a sum of exponentials in: each costs little more than its exponential."""
        (m, s), t, base = self.names, self.types[0], self.base
        peak = w.need("peak")
        top = elements[0]
        for x in elements[1:]:
            top = w.let(t, f"{peak}({top}, {x})", "top")
        w.line(f"if (__builtin_expect(!({top} <= {base} + {literal(_FAR, self.dtype)}), 0)) {{")  # NaN too
        w.line(f"{s} = {s} * {apply(w, 'exp', self.dtype, [f'{base} - {top}'])};")
        w.line(f"{base} = {top};")
        w.line("}")
        w.line(f"{m} = {peak}({m}, {top});")
        for x in elements:
            w.line(f"{s} = {s} + {apply(w, 'exp', self.dtype, [f'{x} - {base}'])};")

    def close(self, w: Writer) -> None:
        """After the thread's last element: the sum is by the maximum.  Without elements the base is greater than that."""
        if self.base:
            (m, s), t = self.names, self.types[0]
            w.line(f"{s} = {s} * {apply(w, 'exp', self.dtype, [f'({self.base} > {m} ? ({t})0 : {self.base} - {m})'])};")
            self.base = ""

    def _join_sums(self, w: Writer, top: str, sum_: str) -> None:
        """Two sums, each by its own maximum, by the greater of both.  Infinities of one sign are equal, not NaN apart: `finished` tells
        those where the maximum of all is infinite."""
        (m, s), t = self.names, self.types[0]
        more = w.let("bool", f"{top} > {m}", "more")
        e = w.let(t, apply(w, "exp", self.dtype, [f"{top} == {m} ? ({t})0 : {more} ? {m} - {top} : {top} - {m}"]), "e")
        w.line(f"{s} = {more} ? {s} * {e} + {sum_} : {s} + {sum_} * {e};")
        w.line(f"{m} = {w.need('peak')}({m}, {top});")

    def butterfly(self, w: Writer, lanes: Sequence[int]) -> None:
        """Combines with the lanes whose numbers differ by each of `lanes`."""
        shuffle = w.need("shuffle")
        if self.how != accumulators.EXPSUM:
            for o in lanes:
                self.join(w, [w.let(t, f"{shuffle}({n}, {o})", "x") for n, t in zip(self.names, self.types)])
            return
        (m, s), t = self.names, self.types[0]  # one exponential for all lanes
        top = m
        for o in lanes:
            top = w.let(t, f"{w.need('peak')}({top}, {shuffle}({top}, {o}))", "top")
        w.line(f"{s} = {s} * {apply(w, 'exp', self.dtype, [f'({m} == {top} ? ({t})0 : {m} - {top})'])};")
        w.line(f"{m} = {top};")
        for o in lanes:
            w.line(f"{s} = {s} + {shuffle}({s}, {o});")


def multiply(w: Writer, t: str, into: Sequence[str], other: Sequence[str]) -> None:
    """into *= other, of complex numbers."""
    (a, b), (x, y) = into, other
    real = w.let(t, f"{a} * {x} - {b} * {y}", "z")
    w.line(f"{b} = {a} * {y} + {b} * {x};")
    w.line(f"{a} = {real};")


def states_of(hows: Sequence[str], types: Sequence[dtype]) -> list[State]:
    """The accumulators for reductions `hows`; "" is the second part of the accumulator before it."""
    return [State(how, d) for how, d in zip(hows, types) if how]


def join_all(w: Writer, states: Sequence[State], values: Sequence[str], position: str = "", later: dict[int, str] | None = None) -> None:
    """Takes an element's values into all accumulators; later: those, by number, whose elements go where neighbours are gathered."""
    at = 0
    for number, s in enumerate(states):
        if later and number in later:
            w.line(f"{later[number]} = {values[at]};")
        elif s.base:
            s.add(w, values[at:at + 1])
        else:
            s.join(w, [*values[at:at + s.parts], position])
        at += s.parts


class Group(thread_groups.Group):
    """A group of threads (see `loops.thread_groups`) as C."""

    __slots__ = ()

    def row(self, t: str) -> str:
        if self.kind == "block":
            return f"({t})blockIdx.x"
        return f"({t})blockIdx.x * {self.rows} + ({t})threadIdx.{'x' if self.kind == 'across' else 'y'}"

    def start(self, w: Writer, t: str, count: int) -> tuple[str, str]:
        """The row of this thread, and whether it is one: those beyond the end stand at the last row where others wait for
        them at barriers, and leave at once where nobody does."""
        n = w.let(t, f"({t}){w.word(count)}", "count")
        row = w.let(t, self.row(t), "row")
        if self.size == 1 or self.kind == "warp":
            w.line(f"if ({row} >= {n}) return;")
        if self.kind != "across" or self.size == 1:
            return row, "true"
        live = w.let("bool", f"{row} < {n}", "live")
        return w.let(t, f"{live} ? {row} : {n} - 1", "row"), live

    @property
    def member(self) -> str:
        return "(int)threadIdx.y" if self.kind == "across" else "(int)threadIdx.x"

    def gather(self, w: Writer, states: Sequence[State], everyone: bool) -> None:
        """Reduces over the members; the first member has the result, or every member."""
        if self.size == 1:
            return
        if self.kind == "across":
            self._columns(w, states, everyone)
            return
        for s in states:
            self._butterfly(w, s)
        if self.size == 32:
            return
        warps = self.size // 32
        held = self._hold(w, states, warps, "threadIdx.x & 31) == 0", "threadIdx.x >> 5")
        if not everyone:
            w.line("if (threadIdx.x < 32) {")
        lane = w.let("int", "(int)threadIdx.x & 31", "lane")
        for s, arrays in zip(states, held):
            for name, array, start in zip(s.names, arrays, s.start()):
                w.line(f"{name} = {lane} < {warps} ? {array}[{lane}] : {start};")
            self._butterfly(w, s, warps // 2)
            if everyone:  # only the first lanes have the whole result
                for name, t in zip(s.names, s.types):
                    narrow = t in ("bool", "signed char", "unsigned char", "short", "unsigned short")
                    w.line(f"{name} = ({t})__shfl_sync(0xffffffffu, {'(int)' if narrow else ''}{name}, 0);")
        if not everyone:
            w.line("}")

    def _butterfly(self, w: Writer, s: State, first: int = 16, last: int = 1) -> None:
        s.butterfly(w, [o for o in (16, 8, 4, 2, 1) if last <= o <= first])

    def _hold(self, w: Writer, states: Sequence[State], places: int, who: str, at: str) -> list[list[str]]:
        """The states written to shared memory by some threads, after a barrier."""
        held = []
        for s in states:
            held.append([w.fresh("m") for _ in s.types])
            for name, t in zip(held[-1], s.types):
                w.line(f"__shared__ {t} {name}[{places}];")
        w.line(f"if (({who}) {{" if who else "{")
        for s, arrays in zip(states, held):
            for name, array in zip(s.names, arrays):
                w.line(f"{array}[{at}] = {name};")
        w.line("}")
        w.line("__syncthreads();")
        return held

    def _columns(self, w: Writer, states: Sequence[State], everyone: bool) -> None:
        parts = self.y
        if self.x < 32:  # each warp reads its own lines first
            for s in states:
                self._butterfly(w, s, 16, self.x)
            parts = self.threads // 32
            flat = w.let("int", f"(int)threadIdx.y * {self.x} + (int)threadIdx.x", "flat")
            held = self._hold(w, states, parts * self.x, f"{flat} & 31) < {self.x}", f"({flat} >> 5) * {self.x} + threadIdx.x")
        else:
            held = self._hold(w, states, self.threads, "", f"threadIdx.y * {self.x} + threadIdx.x")
        if not everyone:
            w.line("if (threadIdx.y == 0) {")
        for s, arrays in zip(states, held):
            for name, array in zip(s.names, arrays):
                w.line(f"{name} = {array}[threadIdx.x];")
        y = w.fresh("y")
        w.line("#pragma unroll 4")
        w.line(f"for (int {y} = 1; {y} < {parts}; {y}++) {{")
        for s, arrays in zip(states, held):
            s.join(w, [f"{array}[{y} * {self.x} + threadIdx.x]" for array in arrays])
        w.line("}")
        if not everyone:
            w.line("}")


def finished(s: State) -> list[str]:
    """The accumulator's values: the position of an extreme of nothing is 0; exponentials by an infinite maximum are NaN."""
    if s.how == accumulators.EXPSUM:
        return [s.names[0], f"{s.names[1]} + ({s.names[0]} - {s.names[0]})"]
    return [f"{n} == {NOWHERE} ? 0LL : {n}" if k >= s.parts else n for k, n in enumerate(s.names)]
