"""Maps: a thread computes a few neighbours along the innermost axis.

Operands that step to the neighbour, or not at all, along that axis are read and written 16 bytes at a time where their
addresses allow it, which is looked at when the kernel runs.  What a thread computes does not depend on that.

Where a thread takes neighbours several times (`loops.maps` says why), all reads come before the writes.  Operands that are the same for each row are then
read once: a thread's neighbours lie whole rows apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loops.maps import THREADS
from . import transposed
from .lower import from_stored, leaves, to_stored
from .types import stored
from .writer import Walk

_MANY_ROWS = 16  # for each of a thread's neighbours: of fewer the last of them are too seldom there

if TYPE_CHECKING:
    from ..kernel import Launch
    from ..loops.maps import ByThreads
    from ..loops.walk import Axis
    from ..programs import Map
    from .writer import Writer

    _Part = tuple[dict[int, str], dict[int, str], dict[int, str], str, str]


def write(w: Writer, program: Map, loops: ByThreads, numbers: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    if loops.ordered:
        from .handwritten.scatter import write as scatter
        return scatter(w, program, loops, numbers)
    if loops.across is not None:
        return transposed.write(w, program, loops, loops.across, numbers)
    v, used, rank = loops.v, loops.moved, loops.rank
    u = 1 if v == 1 and program.joined else loops.rounds  # outputs side by side are work enough
    walk = Walk(w, loops.packed(), loops.wide)
    total = walk.size
    t = walk.t
    pointers = {k: w.pointer(k) for k in range(len(loops.sizes)) if k in used or k in loops.gathered}
    names = w.numbers(numbers)
    rows = _rows(walk, used, len(program.outs), u) if v > 1 else []
    if rows:
        each = walk.axes[-1].size
        step = -(-total // (u * each)) * each  # from one of a thread's neighbours to the next
        i = w.let(t, f"({t})blockIdx.x * {THREADS} + ({t})threadIdx.x", "i")
        w.line(f"if ({i} >= ({t}){w.word(step)}) return;")
        apart = [f"({t}){w.word(k * step)}" for k in range(1, u)]
    else:
        step = -(-total // u)
        i = w.let(t, f"({t})blockIdx.x * {THREADS * u} + ({t})threadIdx.x", "i")
        apart = [str(k * THREADS) for k in range(1, u)]
    n = walk.count()
    if v == 1 and u > 1:
        _several(w, program, walk, pointers, names, used, i, n, u, rank)
        return _launched(w, step)
    if not rows:
        w.line(f"if ({i} >= {n}) return;")
    if v > 1:
        neighbours = _Neighbours(w, program, pointers, names, loops.inner, v, t, len(loops.axes) == 1, rank)
        first = neighbours.fetch(i, walk, used)
        parts = [("", first)]
        for far in apart:
            # what lies beyond the end reads the last neighbours, and writes nothing
            live = w.let("bool", f"{n} - {i} > {far}", "live")
            later = w.let(t, f"{live} ? {i} + {far} : {n} - 1", "i")
            parts.append((live, neighbours.fetch(later, walk, [k for k in used if k not in rows], {k: (first[0][k], first[1][k]) for k in rows})))
        for live, part in parts:
            if live:
                w.line(f"if ({live}) {{")
            neighbours.store(part)
            if live:
                w.line("}")
    else:
        _one(w, program, walk, pointers, names, used, i, rank)
    return _launched(w, step)


def _launched(w: Writer, threads: int) -> tuple[str, tuple[Launch, ...], int]:
    source, found = w.source([("map", THREADS, w.lines)])
    return source, ((found[0], (-(-threads // THREADS), 1, 1), (THREADS, 1, 1), 0),), 0


def _rows(walk: Walk, used: list[int], outs: int, u: int) -> list[int]:
    """The inputs that are the same for each row, where a thread takes neighbours of several rows and there are many."""
    *outer, inner = walk.axes
    if u == 1 or walk.size < _MANY_ROWS * u * inner.size:
        return []
    same = [k for k in used if k >= outs and not any(a.strides[k] for a in outer)]
    return same if any(inner.strides[k] for k in same) else []


def _at(w: Writer, walk: Walk, pointers: dict[int, str], used: list[int], i: str) -> tuple[dict[int, str], dict[int, str]]:
    """Where the operands' i-th elements are, and its coordinates."""
    places, at = walk.places(i, used)
    return {k: w.let("unsigned char* const", f"{pointers[k]} + {places[k]}" if k in places else pointers[k], "q") for k in used}, at


def _one(w: Writer, program: Map, walk: Walk, pointers: dict[int, str], names: dict[int, str], used: list[int], i: str, rank: int) -> None:
    where, at = _at(w, walk, pointers, used, i)
    elements = {k: from_stored(w, f"*(const {stored(w.types[k])}*){q}", w.types[k]) for k, q in where.items() if k >= len(program.outs)}
    stores = {k: f"*({stored(w.types[k])}*){where[k]} = {{}}" for k in range(len(program.outs))}
    together = [(first, count) for first, count in program.joined if count * w.types[first].itemsize in (2, 4, 8, 16)]
    vectors = []
    for first, count in together:
        w.need("vec")
        vectors.append(w.fresh("y"))
        w.line(f"Vec<{stored(w.types[first])}, {count}> {vectors[-1]};")
        stores.update({first + k: f"{vectors[-1]}.v[{k}] = {{}}" for k in range(count)})
    element(w, program, where, pointers, names, elements, stores, at, rank)
    for (first, count), y in zip(together, vectors):
        t, nbytes = stored(w.types[first]), count * w.types[first].itemsize
        w.line(f"if (((unsigned long long){where[first]} & {nbytes - 1}) == 0) *(Vec<{t}, {count}>*){where[first]} = {y};")
        w.line("else {")
        for k in range(count):
            w.line(f"*({t}*){where[first + k]} = {y}.v[{k}];")
        w.line("}")


def _several(w: Writer, program: Map, walk: Walk, pointers: dict[int, str], names: dict[int, str], used: list[int], i: str, n: str, u: int,
             rank: int) -> None:
    """u elements of each thread, all reads, those at places of the program's own too, before the writes."""
    outs = len(program.outs)
    rounds = f"for (int r = 0; r < {u}; r++) {{"
    w.line(f"if ({n} - ({i} - ({walk.t})threadIdx.x) >= {THREADS * u}) {{")
    held, made = {k: w.fresh("r") for k in used if k >= outs}, {k: w.fresh("y") for k in range(outs)}
    for k, name in (*held.items(), *made.items()):
        w.line(f"{stored(w.types[k])} {name}[{u}];")
    targets = {k: w.fresh("q") for k in range(outs)}
    for name in targets.values():
        w.line(f"unsigned char* {name}[{u}];")
    coords = {axis.source: w.fresh("c") for axis in walk.axes if axis.source is not None}
    for name in coords.values():
        w.line(f"{walk.t} {name}[{u}];")
    w.line("#pragma unroll")
    w.line(rounds)
    where, at = _at(w, walk, pointers, used, w.let(walk.t, f"{i} + r * {THREADS}", "i"))
    for k, name in held.items():
        w.line(f"{name}[r] = *(const {stored(w.types[k])}*){where[k]};")
    for k, name in targets.items():
        w.line(f"{name}[r] = {where[k]};")
    for axis, name in coords.items():
        w.line(f"{name}[r] = {at[axis]};")
    w.line("}")
    w.line("#pragma unroll")
    w.line(rounds)
    elements = {k: from_stored(w, f"{name}[r]", w.types[k]) for k, name in held.items()}
    element(w, program, {}, pointers, names, elements, {k: f"{name}[r] = {{}}" for k, name in made.items()},
            {axis: f"{name}[r]" for axis, name in coords.items()}, rank)
    w.line("}")
    w.line("#pragma unroll")
    w.line(rounds)
    for k, name in made.items():
        w.line(f"*({stored(w.types[k])}*){targets[k]}[r] = {name}[r];")
    w.line("}")
    w.line("} else {")
    j = w.fresh("j")
    w.line(f"for ({walk.t} {j} = {i}; {j} < {n}; {j} += {THREADS}) {{")
    _one(w, program, walk, pointers, names, used, j, rank)
    w.line("}")
    w.line("}")


class _Neighbours:
    """A thread's neighbours: what it reads, and what it makes of that."""

    def __init__(self, w: Writer, program: Map, pointers: dict[int, str], names: dict[int, str], inner: Axis, v: int, t: str, ragged: bool,
                 rank: int) -> None:
        self.w, self.program, self.pointers, self.names = w, program, pointers, names
        self.inner, self.v, self.t, self.ragged, self.rank = inner, v, t, ragged, rank
        self.outs, self.step = len(program.outs), inner.strides
        w.need("vec")

    def fetch(self, i: str, walk: Walk, used: list[int], read: dict[int, tuple[str, str]] | None = None) -> _Part:
        """Reads the i-th neighbours; read: operands that were, their places and names."""
        w, v, t, outs = self.w, self.v, self.t, self.outs
        places, at = walk.places(i, used)
        q = {k: w.let("unsigned char* const", f"{self.pointers[k]} + {places[k]}" if k in places else self.pointers[k], "q") for k in used}
        if self.inner.source is not None:
            at[self.inner.source] = w.let("long long", f"(long long){at[self.inner.source]} * {v}", "c")
        size = f"({t}){w.word(self.inner.size)}"
        left = w.let("int", f"{size} - {i} * {v} < {v} ? (int)({size} - {i} * {v}) : {v}", "left") if self.ragged else ""
        moving = [k for k in q if self.step[k]]
        whole = " && ".join(f"((unsigned long long){q[k]} & {v * w.types[k].itemsize - 1}) == 0" for k in moving)
        whole = w.let("bool", (whole or "true") + (f" && {left} == {v}" if left else ""), "whole")
        held = {}
        for k in q:
            s = stored(w.types[k])
            held[k] = w.fresh("r")
            if k >= outs and not self.step[k]:
                w.line(f"const {s} {held[k]} = *(const {s}*){q[k]};")
            else:
                w.line(f"Vec<{s}, {v}> {held[k]};")
        w.line(f"if ({whole}) {{")
        for k in moving:
            if k >= outs:
                w.line(f"{held[k]} = *(const Vec<{stored(w.types[k])}, {v}>*){q[k]};")
        w.line("} else {")
        # the ragged end repeats its last element, so that every element computed is one of the domain
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {v}; k++) {{")
        for k in moving:
            if k >= outs:
                w.line(f"{held[k]}.v[k] = ((const {stored(w.types[k])}*){q[k]})[{f'(k < {left} ? k : {left} - 1)' if left else 'k'}];")
        w.line("}")
        w.line("}")
        for k, (place, name) in (read or {}).items():
            q[k], held[k] = place, name
        return q, held, at, left, whole

    def store(self, part: _Part) -> None:
        """Computes and writes what was fetched."""
        w, v, outs = self.w, self.v, self.outs
        q, held, at, left, whole = part
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {v}; k++) {{")
        coords = dict(at)
        source = self.inner.source
        if source is not None:
            coords[source] = w.let("long long", f"{at[source]} + " + (f"(k < {left} ? k : {left} - 1)" if left else "k"), "c")
        elements = {k: from_stored(w, f"{held[k]}.v[k]" if self.step[k] else held[k], w.types[k]) for k in q if k >= outs}
        element(w, self.program, q, self.pointers, self.names, elements, {k: f"{held[k]}.v[k] = {{}}" for k in range(outs)}, coords, self.rank)
        w.line("}")
        for k in range(outs):
            s = stored(w.types[k])
            if not self.step[k]:  # one element for all: as if they were written in turn
                w.line(f"*({s}*){q[k]} = {held[k]}.v[{f'{left} - 1' if left else v - 1}];")
                continue
            w.line(f"if ({whole}) *(Vec<{s}, {v}>*){q[k]} = {held[k]};")
            w.line("else {")
            w.line("#pragma unroll")
            w.line(f"for (int k = 0; k < {v}; k++) if ({f'k < {left}' if left else 'true'}) (({s}*){q[k]})[k] = {held[k]}.v[k];")
            w.line("}")


def element(w: Writer, program: Map, q: dict[int, str], pointers: dict[int, str], names: dict[int, str], elements: dict[int, str],
             stores: dict[int, str], coords: dict[int, str], rank: int) -> None:
    """The statements for one element."""
    outs = len(program.outs)

    leaf = leaves(w, outs, rank, lambda k: elements[k], coords, names, pointers)
    values = w.lower(program.outs, leaf, {}, exact=True)
    stored_values = [to_stored(w, x, e.dtype) for x, e in zip(values, program.outs)]
    for k, x in enumerate(stored_values):
        w.line(stores[k].format(x) + ";")
