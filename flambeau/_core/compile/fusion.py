"""Fusion: a loop that reads what another wrote becomes part of it, where that changes no bit.

Each value is computed by the same operations in the same types as before, element by element, so nothing is rounded otherwise; a sum is fused only
where its order stays (`orders`).  Two loops become one where no other step must stay between them, and where each byte that both touch is touched at
the same element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..kernels import expr as E
from ..kernels.loops.walk import facts
from ..kernels.programs import Map, PreparedLaunch, Program, size_of
from ..kernels.specs import Loop
from ..runtime import dispatch
from . import places
from .graph import Access, Graph, Node, placed
from .record import Launch, Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..kernels.expr import Expr

MOST_OPERATIONS = 400  # of a kernel: more would be compiled for long
MOST_OPERANDS = 40
_CHEAP = 8  # operations that are done once more for each element that asks


class Refusal(Exception):
    """Why two launches stay two."""


def is_map(x: Any) -> bool:
    """Whether a step is a loop that gives each element where it stands."""
    p = x.prepared.program if isinstance(x, Launch) else None
    return isinstance(p, Map) and not x.prepared.workspace and not any(p.targets) and not p.joined and size_of(x.prepared.domain) > 0


class Reader:
    """The loop that two become, while it is put together: `inputs` with their places, and the numbers that it is given."""

    def __init__(self, domain: tuple[int, ...]) -> None:
        self.domain = domain
        self.inputs: list[tuple[Any, Any, tuple[int, ...]]] = []  # address, type, strides
        self.numbers: list[tuple[Any, Any]] = []  # number, type

    def input(self, address: Any, d: Any, strides: tuple[int, ...]) -> int:
        key = _same(address), d, tuple([s if n > 1 else 0 for n, s in zip(self.domain, strides, strict=True)])
        for i, (a, e, s) in enumerate(self.inputs):
            if (_same(a), e, s) == key:
                return i
        self.inputs.append((address, d, key[2]))
        return len(self.inputs) - 1

    def number(self, x: Any, d: Any) -> int:
        for i, (y, e) in enumerate(self.numbers):
            if d is e and _number(x) == _number(y):
                return i
        self.numbers.append((x, d))
        return len(self.numbers) - 1


def _same(address: Any) -> Any:
    return address if isinstance(address, int) else (address.of, address.number, address.offset)


def _number(x: Any) -> Any:
    # 0.0 and -0.0 are equal, and NaN differs from itself
    return ("slot", x.source, x.part) if isinstance(x, Slot) else (type(x), repr(x))


def moved(address: Any, nbytes: int) -> Any:
    """An address so many bytes on."""
    return address + nbytes if isinstance(address, int) else type(address)(address.of, address.number, address.offset + nbytes)


class Fused:
    """A launch that is put together: `outs` of (expression, address, strides)."""

    def __init__(self, reader: Reader, outs: list[tuple[Expr, Any, tuple[int, ...]]]) -> None:
        self.reader, self.outs = reader, outs

    def step(self, program: Program, like: Launch, name: str) -> Launch:
        """The launch, of machine code that is made only when it is bound."""
        r = self.reader
        strides = (*[s for _, _, s in self.outs], *[s for _, _, s in r.inputs])
        made = PreparedLaunch(name, _later, outputs=len(self.outs), program=program, domain=r.domain, strides=strides)
        args = (*[a for _, a, _ in self.outs], *[a for a, _, _ in r.inputs], *[x for x, _ in r.numbers])
        return Launch(like.device, like.stream, made, args, like.line)


def _later(*args: Any) -> None:
    raise RuntimeError("a fused launch is prepared before it is bound")


def prepared(s: Launch) -> Launch:
    """A fused launch with its machine code; any other as it is."""
    p = s.prepared
    if p.entry is not _later:
        return s
    assert p.program is not None
    made = dispatch.require(s.device, Loop(p.program, p.domain, p.strides))
    made.name = p.name
    return Launch(s.device, s.stream, made, s.args, s.line)


# ---------------------------------------------------------------------------------------------------------- map into map
def walked(a: Launch, b: Launch, graph: Graph) -> places.Walk:
    """How `b` walks what `a` wrote. Raises Refusal where it reads none of it, or in another way."""
    pa, pb = a.prepared.program, b.prepared.program
    assert pa is not None and pb is not None
    outs, first = len(pb.out_types), None
    known = facts(pb)
    for j, d in enumerate(pb.inputs):
        if not known.read[j]:
            continue
        read = _access(b, outs + j, d, False, graph)
        for k, e in enumerate(pa.out_types):
            wrote = _access(a, k, e, True, graph)
            if wrote.owner != read.owner or not wrote.meets(read):
                continue
            if d is not e:
                raise Refusal("it reads the bytes as another type")
            start, rest = divmod(read.start - wrote.start, d.itemsize)
            first = None if rest else places.walk(a.prepared.domain, a.prepared.strides[k], b.prepared.domain, b.prepared.strides[outs + j], start)
            if first is None:
                raise Refusal("it reads other elements, or more than were written")
            return first
    raise Refusal("it reads none of it")


def _access(s: Launch, k: int, d: Any, write: bool, graph: Graph) -> Access:
    found = graph.memory.find(s.args[k])
    assert found is not None
    return placed(*found, s.prepared.domain, s.prepared.strides[k], d.itemsize, write)


def joined(a: Node, b: Node, graph: Graph) -> Fused:
    """Map `a` done inside the map, or the reduction, `b`: its expressions in the place of what it wrote.  Raises Refusal where they must stay two.

    The expressions of `b` come last among the outputs' (a reduction's: of its elements).
    """
    sa, sb = a.step, b.step
    pa, pb = sa.prepared.program, sb.prepared.program
    w = walked(sa, sb, graph)
    n_outs, m_outs = len(pa.out_types), len(pb.out_types)
    r = Reader(w.domain)
    ra, rb = facts(pa), facts(pb)
    if w.repeats and size_of(sa.prepared.domain) > 1 and (ra.functions or ra.operations > _CHEAP):
        raise Refusal("it would be worked out again for each element that reads it")

    def mapped(address: Any, d: Any, strides: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        return moved(address, w.offset(strides) * d.itemsize), w.of_writer(strides)

    def access(address: Any, d: Any, strides: tuple[int, ...], write: bool) -> Access:
        found = graph.memory.find(address)
        assert found is not None
        return placed(*found, w.domain, strides, d.itemsize, write)

    # a's own inputs, seen from b
    a_places = [mapped(sa.args[k], d, sa.prepared.strides[k]) for k, d in enumerate(pa.out_types)]
    a_inputs: list[Any] = []
    for j, d in enumerate(pa.inputs):
        address, strides = sa.args[n_outs + j], sa.prepared.strides[n_outs + j]
        if ra.read[j] and j in ra.gathered:
            raise Refusal("it reads an operand in two ways")
        if ra.read[j]:
            a_inputs.append(r.input(*_of(mapped(address, d, strides), d)))
        else:
            a_inputs.append(r.input(address, d, (0,) * len(w.domain)) if j in ra.gathered else None)
    a_numbers = [r.number(x, d) for x, d in zip(sa.args[n_outs + len(pa.inputs):], pa.scalars, strict=True)]
    inside = _renamed(pa.roots(), a_inputs, a_numbers, {k: w.writers_coord(k) for k in range(len(sa.prepared.domain))}, {})

    # b's operands: what a wrote, or memory
    written = [access(x, d, s, True) for (x, s), d in zip(a_places, pa.out_types, strict=True)]
    b_inputs: list[Any] = []
    values: dict[int, Expr] = {}
    for j, d in enumerate(pb.inputs):
        address, strides = sb.args[m_outs + j], w.of_reader(sb.prepared.strides[m_outs + j]) if rb.read[j] else (0,) * len(w.domain)
        read = access(address, d, strides, False)
        if j in rb.gathered:
            whole = graph.memory.whole(read.owner, False)
            if any(x.meets(whole) for x in written) or rb.read[j]:
                raise Refusal("it reads elements that are elsewhere")
            b_inputs.append(r.input(address, d, (0,) * len(w.domain)))
            continue
        if not rb.read[j]:
            b_inputs.append(None)
            continue
        met = [k for k, x in enumerate(written) if x.meets(read)]
        if not met:
            b_inputs.append(r.input(address, d, strides))
            continue
        if len(met) > 1 or not _at_once(written[met[0]], read) or pa.out_types[met[0]] is not d:
            raise Refusal("it reads other elements, or more than were written")
        values[j] = inside[met[0]]
        b_inputs.append(None)
    b_numbers = [r.number(x, d) for x, d in zip(sb.args[m_outs + len(pb.inputs) + bool(sb.prepared.workspace):], pb.scalars, strict=True)]
    coords = {k: w.readers_coord(k) for k in range(len(sb.prepared.domain))}
    outside = _renamed(pb.roots(), b_inputs, b_numbers, coords, values)

    # what b writes where a reads or writes must be at the same element
    outs: list[tuple[Expr, Any, tuple[int, ...]]] = []
    b_places = [(sb.args[k], w.of_reader(sb.prepared.strides[k])) for k in range(m_outs)]
    over: set[int] = set()
    for (address, strides), d in zip(b_places, pb.out_types, strict=True):
        new = access(address, d, strides, True)
        for x in a.accesses:
            if not x.write and x.meets(new):
                match = [access(y, t, s, False) for y, t, s in r.inputs if _reads_same(graph, y, x)]
                if not w.once or pb.kind == "reduce" or not match or not all(_at_once(m, new) for m in match if m.meets(new)):
                    raise Refusal("it writes where the other reads")
        for k, x in enumerate(written):
            if x.meets(new):
                if not w.once or pb.kind == "reduce" or not _at_once(x, new):
                    raise Refusal("both write there")
                over.add(k)
    for k, (e, (address, strides)) in enumerate(zip(inside[:n_outs], a_places, strict=True)):
        if k in over:
            continue
        real = next(x for x in a.accesses if x.write and x.owner == written[k].owner and x.start == _start(graph, sa.args[k]))
        if graph.unread(a, real, b):
            continue
        if not w.once or pb.kind == "reduce":
            raise Refusal("what it reads is read by others too")
        outs.append((e, address, strides))
    outs += [(e, address, strides) for e, (address, strides) in zip(outside[-m_outs:] if pb.kind == "map" else outside, b_places, strict=False)]
    if len(r.inputs) + len(outs) > MOST_OPERANDS:
        raise Refusal("it would have too many operands")
    return Fused(r, outs)


def _of(place: tuple[Any, tuple[int, ...]], d: Any) -> tuple[Any, Any, tuple[int, ...]]:
    return place[0], d, place[1]


def _start(graph: Graph, address: Any) -> int:
    found = graph.memory.find(address)
    assert found is not None
    return found[1]


def _reads_same(graph: Graph, address: Any, x: Access) -> bool:
    found = graph.memory.find(address)
    return found is not None and found[0] == x.owner


def _at_once(a: Access, b: Access) -> bool:
    """Whether two accesses of one loop are of the same bytes at each element."""
    assert a.domain is not None
    same = [(n, s) for n, s in zip(a.domain, a.strides, strict=True) if n > 1] == [(n, s) for n, s in zip(b.domain or (), b.strides, strict=True) if n > 1]
    return same and (a.owner, a.start, a.size) == (b.owner, b.start, b.size)


def _renamed(roots: tuple[Expr, ...], inputs: list[Any], numbers: list[int], coords: dict[int, Expr], values: dict[int, Expr]) -> tuple[Expr, ...]:
    """Expressions with their inputs, numbers and coordinates those of another loop; values: expressions in the place of inputs."""
    rank = len(coords)
    done: dict[Expr, Expr] = {}
    for e in E.walk(roots):
        args = tuple([done[x] for x in e.args])
        if e.op == "input":
            done[e] = values[e.value] if e.value in values else E.input(inputs[e.value], e.dtype)
        elif e.op == "scalar":
            done[e] = E.scalar(numbers[e.value], e.dtype)
        elif e.op == "coord":
            done[e] = coords[e.value % rank]
        elif e.op == "gather":
            done[e] = E.make("gather", e.dtype, args, inputs[e.value])
        else:
            done[e] = e if all(x is y for x, y in zip(args, e.args, strict=True)) else E.make(e.op, e.dtype, args, e.value)
    return tuple([done[x] for x in roots])


def map_into_map(a: Node, b: Node, graph: Graph) -> Launch:
    """Two maps as one."""
    fused = joined(a, b, graph)
    program = Map(tuple([e for e, _, _ in fused.outs]), tuple([d for _, d, _ in fused.reader.inputs]), tuple([d for _, d in fused.reader.numbers]))
    _small(program)
    return fused.step(program, b.step, named(a, b))


def _small(program: Program) -> None:
    if facts(program).operations > MOST_OPERATIONS:
        raise Refusal("the kernel would be too large")


def named(a: Node, b: Node) -> str:
    """A name for both."""
    names = [s.prepared.name for n in (a, b) for s in n.members]
    return "+".join(names if len(names) < 6 else [*names[:2], f"{len(names) - 4} more", *names[-2:]])


# ------------------------------------------------------------------------------------------------------------------ all
def way(a: Node, b: Node) -> Callable[[Node, Node, Graph], Launch] | None:
    """How `a` goes into `b`; None where there is no such way."""
    return map_into_map if is_map(a.step) and is_map(b.step) else None


def fuse(graph: Graph) -> None:
    """Joins what can be joined, readers in the order of the record, the latest writer first."""
    for b in list(graph.order):
        if isinstance(b.step, Launch) and b in graph.order:
            _into(b, graph)


def _into(b: Node, graph: Graph) -> None:
    refused: set[int] = set()
    while True:
        for a in _writers(b, graph):
            if a.bit in refused:
                continue
            how = way(a, b)
            try:
                if how is None:
                    raise Refusal(f"{a.step.prepared.name} is no loop that goes into another" if not is_map(a.step) else
                                  f"{b.step.prepared.name} takes no loop")
                between = graph.between(a, b)
                if between is not None:
                    raise Refusal(f"{_title(between)} must stay between")
                step = how(a, b, graph)
            except Refusal as why:
                refused.add(a.bit)
                b.why.append(f"{_title(a)} into {_title(b)}: {why}")
                continue
            b = graph.join(a, b, step)
            break
        else:
            return


def _title(n: Node) -> str:
    return n.step.prepared.name if isinstance(n.step, Launch) else "a check"


def _writers(b: Node, graph: Graph) -> list[Node]:
    """The launches that last wrote what `b` reads, the latest first."""
    before = graph.order[:graph.order.index(b)]
    wanted = list(b.reads)
    found: list[Node] = []
    for n in reversed(before):
        if not b.before & n.bit or not isinstance(n.step, Launch):
            continue
        met = [r for r in wanted if any(w.owner == r.owner and w.meets(r) for w in n.writes)]
        if met:
            found.append(n)
            wanted = [r for r in wanted if r not in met]
    return found


def drop(graph: Graph) -> None:
    """Leaves out what maps write and nobody reads."""
    for n in reversed(list(graph.order)):
        s = n.step
        if not is_map(s):
            continue
        p = s.prepared.program
        writes = [_access(s, k, d, True, graph) for k, d in enumerate(p.out_types)]
        live = [k for k, w in enumerate(writes) if not graph.unread(n, w)]
        if len(live) == len(writes):
            continue
        if not live:
            graph.order.remove(n)
            continue
        kept = Map(tuple([p.outs[k] for k in live]), p.inputs, p.scalars)
        known = facts(kept)
        inputs = [j for j in range(len(p.inputs)) if known.read[j] or j in known.gathered]
        numbers = sorted({e.value for e in E.walk(kept.outs) if e.op == "scalar"})
        at, outs = len(p.outs), len(p.outs) + len(p.inputs)
        names = {j: i for i, j in enumerate(inputs)}
        roots = _renamed(kept.outs, [names.get(j) for j in range(len(p.inputs))], [numbers.index(k) if k in numbers else 0 for k in range(len(p.scalars))],
                         {k: E.coord(k) for k in range(len(s.prepared.domain))}, {})
        program = Map(roots, tuple([p.inputs[j] for j in inputs]), tuple([p.scalars[k] for k in numbers]))
        chosen = [*live, *[at + j for j in inputs]]
        made = PreparedLaunch(s.prepared.name, _later, outputs=len(live), program=program, domain=s.prepared.domain,
                              strides=tuple([s.prepared.strides[k] for k in chosen]))
        graph.replace(n, Launch(s.device, s.stream, made, (*[s.args[k] for k in chosen], *[s.args[outs + k] for k in numbers]), s.line))
