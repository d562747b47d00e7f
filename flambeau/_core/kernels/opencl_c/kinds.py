"""The four kinds of program as OpenCL C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import int64
from ..expr import walk
from ..loops import accumulators, maps, scans
from ..loops.thread_groups import Group
from ..programs import size_of
from .line import BARRIER, Accumulators, Line
from .lower import from_stored, literal, stored, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..expr import Expr
    from ..loops import reductions, rows
    from ..programs import Map, Reduce, Rows, Scan
    from .writer import Writer


def write_map(w: Writer, program: Map, loops: maps.ByThreads) -> None:
    """Threads take elements in turn; where the order of elements matters, one thread takes them all."""
    if loops.across is not None:
        _tiles(w, program, loops, loops.across)
        return
    group, u = (Group("across", 1, 1), loops.elements) if loops.ordered else (Group("across", maps.THREADS, 1), loops.rounds)
    n, share = w.long(loops.elements), w.long(group.x * u)
    w.line(f"const long first = get_group_id(0) * {share} + get_local_id(0);")
    with w.inside(f"for (long i = first; i < {n} && i - first < {share}; i += {group.x})"):
        q, coords = w.places(loops.axes, w.let(w.t, f"({w.t})i"))
        values = w.lower(program.roots(), lambda k: w.load(q[k], k), coords)
        offsets = iter(values[loops.outs:])
        q |= {k: w.let("global uchar* const", f"{q[k]} + {next(offsets)} * {loops.sizes[k]}") for k, t in enumerate(program.targets) if t is not None}
        for k, target in enumerate(program.targets):
            if target is None or target[0] == "set":
                w.store(q[k], k, values[k])
            elif target[0]:  # combined with what stands there; a complex number's second part goes with its first
                ks = [k, k + 1] if target[0][0] == "c" else [k]
                types, how = [loops.types[j] for j in ks], {"add": "sum", "mul": "prod", "cmul": "cprod"}.get(target[0], target[0])
                names = w.declare(types, [w.load(q[j], j) for j in ks])
                w.assign(names, accumulators.joined(how, *accumulators.leaves(types)), [*names, *(values[j] for j in ks)])
                for j, name in zip(ks, names):
                    w.store(q[j], j, name)
    w.end(group, -(-loops.elements // (group.x * u)))


def _tiles(w: Writer, program: Map, loops: maps.ByThreads, across: maps.Across) -> None:
    """Inputs that lie across the outputs are read along their own lines and turned in local memory."""
    n, tiled, group = across.side, loops.tiled(), Group("across", across.side, maps.THREADS // across.side)
    q, at = w.places(tiled, f"({w.t})get_group_id(0)")
    lines = {-1: loops.axes[across.axis], -2: loops.inner}
    first = {number: w.let(w.t, f"{at.pop(number)} * {n}") for number in lines}
    left = {number: w.let(w.t, f"{w.word(a.size)} - {first[number]}") for number, a in lines.items()}
    by = {(k, number): w.word(a.strides[k]) for number, a in lines.items() for k in q}
    x, tile = w.let("int", "(int)get_local_id(0)"), {k: w.room(stored(loops.types[k]), n * (n + 1)) for k in across.operands}
    each = f"for (int r = (int)get_local_id(1); r < {n}; r += {group.y})"
    with w.inside(each), w.inside(f"if ({x} < {left[-1]} && r < {left[-2]})"):
        for k, m in tile.items():
            w.line(f"{m}[r * {n + 1} + {x}] = {w.memory(f'{q[k]} + {x} * {by[k, -1]} + r * {by[k, -2]}', k)};")
    w.line(BARRIER)
    with w.inside(each), w.inside(f"if (r < {left[-1]} && {x} < {left[-2]})"):
        here = {k: f"{q[k]} + r * {by[k, -1]} + {x} * {by[k, -2]}" for k in q}
        coords = at | {a.source: f"({first[number]} + {i})" for (number, a), i in zip(lines.items(), ("r", x)) if a.source is not None}
        turned = {k: f"{m}[{x} * {n + 1} + r]" for k, m in tile.items()}
        values = w.lower(program.outs, lambda k: from_stored(w, turned.get(k) or w.memory(here[k], k), loops.types[k]), coords)
        w.store_all(here, values)
    w.end(group, size_of(tuple(a.size for a in tiled)))


def write_reduce(w: Writer, program: Reduce, loops: reductions.ByThreads) -> None:
    """A group for each output and piece of it; a second kernel joins the pieces."""
    line = Line(w, loops.group, loops.count, loops.kept, loops.reduced, loops.length, loops.piece)
    states = Accumulators(w, program.combine, [e.dtype for e in program.elems])
    with w.inside(line.each):
        q, coords = line.at("i")
        states.take(w.lower(program.elems, lambda k: w.load(q[k], k), coords), "(long)i")
    states.gather(line)
    if loops.pieces > 1:
        with w.inside(line.first):
            w.set(states.stored(loops.rooms, line, "get_group_id(1)"), states.names)
        w.end(line.group, loops.blocks, loops.pieces)
        line = Line(w, loops.joining, loops.count, loops.kept, (), loops.pieces, loops.pieces)
        states = Accumulators(w, program.combine, [e.dtype for e in program.elems])
        with w.inside(line.each):
            states.join(states.stored(loops.rooms, line, "i"))
        states.gather(line)
    with w.inside(line.first):
        w.store_all(line.q, w.lower(program.posts, lambda k: "", line.coords, states.finished()))
    w.end(line.group, -(-loops.count // line.group.rows))


def write_rows(w: Writer, program: Rows, loops: rows.ByThreads) -> None:
    """A group for each row, all passes in one kernel; operands that several passes read are kept in registers where they fit."""
    line = Line(w, loops.group, loops.rows, loops.outer, [loops.inner], loops.length, loops.length)
    kept = {k: w.fresh() for k in loops.cached if loops.length}
    for k, name in kept.items():
        w.line(f"{stored(loops.types[k])} {name}[{loops.rounds}];")
    with w.inside(line.each):
        for k, place in line.at("i")[0].items():
            w.line(f"{kept[k]}[p] = {w.memory(place, k)};" if k in kept else "")
    accs: list[str] = []

    def values(roots: Iterable[Expr], i: str, own: bool) -> tuple[dict[int, str], list[str]]:
        q, coords = line.at(i)
        texts = {k: f"{kept[k]}[p]" if own and k in kept else w.memory(place, k) for k, place in q.items()}
        return q, w.lower(tuple(roots), lambda k: from_stored(w, texts[k], loops.types[k]), coords, accs)
    for step in loops.passes:
        reduces, maps_, single = ([s for s in step if s[0] == kind] for kind in ("reduce", "map", "row"))
        states = Accumulators(w, [s[1] for s in reduces], [s[2].dtype for s in reduces])
        with w.inside(line.each):
            q, made = values((s[2] for s in (*reduces, *maps_)), "i", True)
            states.take(made)
            with w.inside(f"if ({line.live})"):
                w.store_all({s[1]: q[s[1]] for s in maps_}, made)
        states.gather(line)
        accs += states.finished()
        with w.inside(line.first):
            for _, k, e in single:  # a row without elements has none to read
                reads = {"input", "gather"} & {x.op for x in walk((e,))}
                w.store(line.q[k], k, values((e,), "0", False)[1][0] if loops.length or not reads else "0")
    w.end(line.group, -(-loops.rows // line.group.rows))


def write_scan(w: Writer, program: Scan, loops: scans.ByThreads) -> None:
    """Lanes side by side along a row, tile by tile; or a thread for each row."""
    shape, d, n = loops.shape, program.elem.dtype, loops.parts
    group = Group("across", scans.BLOCK, 1) if shape is None else Group("warp", shape.members, shape.rows)
    line = Line(w, group, loops.rows, loops.outer, [loops.inner], loops.length, loops.length)
    types = [accumulators.held_in(d)] * n + [int64] * loops.positions
    starts = [literal(v, d) for v in accumulators.starts(loops.how, d, n)] + ["-1"] * loops.positions

    def follow(into: Sequence[str], first: Sequence[str], later: Sequence[str]) -> None:
        w.assign(into, accumulators.follows(loops.how, *accumulators.leaves(types), n), [*first, *later])
    carry, rooms = w.declare(types, starts), [w.room(value(t), group.threads) for t in types]
    with w.inside(f"for ({w.t} base = 0; base < {line.n}; base += {group.size})"):
        i = w.let(w.t, f"base + {line.member}")
        e = w.let(w.t, f"{line.n} - 1 - {i}" if program.reverse else i)
        own = w.declare(types, starts)
        with w.inside(f"if ({i} < {line.n})"):
            q, coords = line.at(e)
            w.set(own, [*w.lower(program.roots()[:n], lambda k: w.load(q[k], k), coords), f"(long){e}"])
        last = own
        if group.size > 1:
            with w.inside(f"for (int o = 1; o < {group.size}; o <<= 1)"):
                line.share(rooms, own)
                with w.inside(f"if ({line.member} >= o)"):
                    follow(own, [f"{m}[{line.flat} - o]" for m in rooms], own)
                w.line(BARRIER)
            line.share(rooms, own)
            last = [f"{m}[{line.flat} - {line.member} + {group.size - 1}]" for m in rooms]  # lanes behind the end bring nothing
        state = w.declare(types, starts)
        follow(state, carry, own)
        follow(carry, carry, last)
        with w.inside(f"if ({line.live} && {i} < {line.n})"):
            q, coords = line.at(e)
            accs = [*w.over(state, accumulators.finished("", d, accumulators.leaves(types[:n])[0])), *state[n:]]
            w.store_all(q, w.lower(program.posts, lambda k: w.load(q[k], k), coords, accs))
        w.line(BARRIER)
    w.end(group, -(-loops.rows // group.rows))
