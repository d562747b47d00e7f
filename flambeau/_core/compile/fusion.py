"""Fusion: a loop that reads what another wrote becomes part of it, where that changes no bit.

Each value is computed by the same operations in the same types as before, element by element, so nothing is rounded otherwise; a sum is fused only
where its order stays (`orders`).  Two loops become one where no other step must stay between them, and where each byte that both touch is touched at
the same element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..kernels import expr as E
from ..kernels.c_forms import ADDS_NOTHING, WHOLE
from ..kernels.loops.rows import kept_value, passes_of
from ..kernels.loops.walk import facts
from ..kernels.programs import Map, PreparedLaunch, Program, Reduce, Rows, size_of
from ..kernels.specs import Loop
from ..runtime import dispatch
from . import places
from .graph import Access, Graph, Node, placed
from .record import Launch, Slot

if TYPE_CHECKING:
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
            if d is e and number_key(x) == number_key(y):
                return i
        self.numbers.append((x, d))
        return len(self.numbers) - 1


def _same(address: Any) -> Any:
    return address if isinstance(address, int) else (address.of, address.number, address.offset)


def number_key(x: Any) -> Any:
    """What tells a launch's number from others."""
    # 0.0 and -0.0 are equal, and NaN differs from itself
    return ("slot", x.source, x.part) if isinstance(x, Slot) else (type(x), repr(x))


def moved(address: Any, nbytes: int) -> Any:
    """An address so many bytes on."""
    return address + nbytes if isinstance(address, int) else type(address)(address.of, address.number, address.offset + nbytes)


class Fused:
    """Two loops that are put together.  first, second: the expressions of either, by their operands in `reader`; the second's read the first's in the
    place of what it wrote.  kept: (output, address, strides) of what the first writes that is still wanted.  outs: (address, strides) of the second's.
    walk: how the second walks the first."""

    def __init__(self, reader: Reader, w: places.Walk, first: tuple[Expr, ...], second: tuple[Expr, ...]) -> None:
        self.reader, self.walk, self.first, self.second = reader, w, first, second
        self.kept: list[tuple[int, Any, tuple[int, ...]]] = []
        self.outs: list[tuple[Any, tuple[int, ...]]] = []
        self.over = False  # whether the second writes where the first reads, at the same elements

    @property
    def types(self) -> tuple[Any, ...]:
        return tuple([d for _, d, _ in self.reader.inputs])

    @property
    def numbers(self) -> tuple[Any, ...]:
        return tuple([d for _, d in self.reader.numbers])

    @property
    def places(self) -> list[tuple[Any, tuple[int, ...]]]:
        """Addresses and strides of all outputs, those of the first loop before those of the second."""
        return [*[(a, s) for _, a, s in self.kept], *self.outs]

    def strides(self) -> tuple[tuple[int, ...], ...]:
        return (*[s for _, s in self.places], *[s for _, _, s in self.reader.inputs])

    def step(self, program: Program, like: Launch, name: str, workspace: tuple[int, ...] = ()) -> Launch:
        """The launch, of machine code that is made only when it is bound.  workspace: an address, and how many bytes are there."""
        r = self.reader
        made = PreparedLaunch(name, _later, outputs=len(self.places), program=program, domain=r.domain, strides=self.strides(),
                              workspace=workspace[1] if workspace else 0)
        args = (*[a for a, _ in self.places], *[a for a, _, _ in r.inputs], *workspace[:1], *[x for x, _ in r.numbers])
        if len(self.places) + len(r.inputs) > MOST_OPERANDS or facts(program).operations > MOST_OPERATIONS:
            raise Refusal("the kernel would be too large")
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
    if made.workspace != p.workspace:
        raise RuntimeError(f"{p.name}: the fused launch takes {made.workspace} bytes of workspace, the record's {p.workspace}")
    made.name = p.name
    return Launch(s.device, s.stream, made, s.args, s.line)


# ------------------------------------------------------------------------------------------------- products and additions
def _wide(e: Expr) -> bool:
    """Whether a value is of floating point and not rounded to 16 bits."""
    return e.dtype.is_complex or (e.dtype.kind == "f" and e.dtype.itemsize >= 4)


def _ends_in_product(e: Expr, exact: bool) -> bool:
    """Whether the last step of a value may be a product, which could become one with an addition that comes to stand beside it.  exact: its own products
    are rounded each on its own, and only functions' may."""
    if not _wide(e):
        return False
    if e.op in ("neg", "where"):
        return any(_ends_in_product(a, exact) for a in e.args[-2:])
    return e.op not in WHOLE and not (exact and e.op == "mul")


def _roots(p: Any) -> tuple[Expr, ...]:
    return tuple([e for kind, _, e in p.stages if kind != "reduce"]) if isinstance(p, Rows) else p.outs


def _rounds_alike(a: Launch, b: Launch) -> None:
    """Raises Refusal where a device's compiler could make one of a product and an addition that are apart as long as the launches are, or rounds the
    products of maps each on its own, and those of reductions and rows not."""
    if not dispatch.contracts(a.device):
        return
    p, q = a.prepared.program, b.prepared.program
    maps = isinstance(p, Map), isinstance(q, Map)
    adds = not maps[1] or any(_wide(e) and e.op not in ADDS_NOTHING for e in E.walk(_roots(q)))
    products = [x for x, own, other in ((p, *maps), (q, *reversed(maps))) if own and not other]
    if (adds and any(_ends_in_product(e, maps == (True, True)) for e in _roots(p))) or any(
            e.op == "mul" and _wide(e) for x in products for e in E.walk(_roots(x))):
        raise Refusal("its products would be rounded otherwise")


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
    """Loop `a` done inside loop `b`: its expressions in the place of what it wrote.  Raises Refusal where they must stay two."""
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

    # the first loop's operands, seen from the second
    a_places = [mapped(sa.args[k], d, sa.prepared.strides[k]) for k, d in enumerate(pa.out_types)]
    still = (0,) * len(w.domain)
    a_inputs: list[Any] = []
    for j, d in enumerate(pa.inputs):
        address, strides = sa.args[n_outs + j], sa.prepared.strides[n_outs + j]
        if ra.read[j] and j in ra.gathered:
            raise Refusal("it reads an operand in two ways")
        if ra.read[j]:
            at, steps = mapped(address, d, strides)
            a_inputs.append(r.input(at, d, steps))
        else:
            a_inputs.append(r.input(address, d, still) if j in ra.gathered else None)
    a_numbers = [r.number(x, d) for x, d in zip(sa.args[n_outs + len(pa.inputs):], pa.scalars, strict=True)]
    first = _renamed(pa.roots(), a_inputs, a_numbers, {k: w.writers_coord(k) for k in range(len(sa.prepared.domain))}, {})
    given = [first[k] for k in _values_of(pa)]

    # the second's: what the first wrote, or memory
    written = [access(x, d, s, True) for (x, s), d in zip(a_places, pa.out_types, strict=True)]
    b_inputs: list[Any] = []
    values: dict[int, Expr] = {}
    for j, d in enumerate(pb.inputs):
        address, strides = sb.args[m_outs + j], w.of_reader(sb.prepared.strides[m_outs + j]) if rb.read[j] else still
        if j in rb.gathered:
            whole = graph.memory.whole(access(address, d, still, False).owner, False)
            if any(x.meets(whole) for x in written) or rb.read[j]:
                raise Refusal("it reads elements that are elsewhere")
            b_inputs.append(r.input(address, d, still))
            continue
        if not rb.read[j]:
            b_inputs.append(None)
            continue
        read = access(address, d, strides, False)
        met = [k for k, x in enumerate(written) if x.meets(read)]
        if not met:
            if any(x.meets(read) for x in a.writes):  # elements that this walk does not come by
                raise Refusal("it reads other elements, or more than were written")
            b_inputs.append(r.input(address, d, strides))
            continue
        if any(written[k].owner != read.owner for k in met):
            raise Refusal("an argument may be the memory that it reads")
        if len(met) > 1 or not _at_once(written[met[0]], read) or pa.out_types[met[0]] is not d:
            raise Refusal("it reads other elements, or more than were written")
        values[j] = given[met[0]]
        b_inputs.append(None)
    b_numbers = [r.number(x, d) for x, d in zip(sb.args[m_outs + len(pb.inputs) + bool(sb.prepared.workspace):], pb.scalars, strict=True)]
    coords = {k: w.readers_coord(k) for k in range(len(sb.prepared.domain))}
    made = Fused(r, w, first, _renamed(pb.roots(), b_inputs, b_numbers, coords, values))

    # what the second writes where the first reads or writes must be at the same element
    made.outs = [(sb.args[k], w.of_reader(sb.prepared.strides[k])) for k in range(m_outs)]
    over: set[int] = set()
    at_once = w.once and pb.kind != "reduce"
    inputs = [access(x, d, s, False) for x, d, s in r.inputs]
    for (address, strides), d in zip(made.outs, pb.out_types, strict=True):
        new = access(address, d, strides, True)
        for x in a.accesses:
            if not x.write and x.meets(new):
                same = [y for y in inputs if y.owner == x.owner and y.meets(new)]
                if not at_once or x.domain is None or not same or not all(_at_once(y, new) for y in same):
                    raise Refusal("it writes where the other reads" if x.owner == new.owner else "an argument may be the memory that it writes")
                made.over = True
        for k, x in enumerate(written):
            if x.meets(new):
                if not at_once or not _at_once(x, new):
                    raise Refusal("both write there")
                over.add(k)
    for k, (address, strides) in enumerate(a_places):
        if k in over or graph.unread(a, _access(sa, k, pa.out_types[k], True, graph), b):
            continue
        if not at_once:
            raise Refusal("what it reads is read by others too")
        made.kept.append((k, address, strides))
    return made


def _values_of(p: Program) -> list[int]:
    """For each output of a loop which of its expressions is its value."""
    if p.kind == "rows":
        places = {k: i for i, (kind, k, _) in enumerate(p.stages) if kind != "reduce"}  # type: ignore[union-attr]
        return [places[k] for k in range(len(places))]
    return list(range(len(p.out_types)))


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
    f = joined(a, b, graph)
    outs = (*[f.first[k] for k, _, _ in f.kept], *f.second)
    return f.step(Map(outs, f.types, f.numbers), b.step, named(a, b))


def map_into_reduce(a: Node, b: Node, graph: Graph) -> Launch:
    """A map whose values are only summed up, or the like."""
    f, p, like = joined(a, b, graph), b.step.prepared.program, b.step
    n = len(p.elems)
    made = Reduce(f.second[:n], p.combine, f.second[n:], f.types, f.numbers)
    _ordered(made, f, like)
    at = len(p.out_types) + len(p.inputs)
    return f.step(made, like, named(a, b), (like.args[at], like.prepared.workspace) if like.prepared.workspace else ())


def map_into_rows(a: Node, b: Node, graph: Graph) -> Launch:
    """A map whose values rows are made of; where others read them too, they are written last."""
    f, p = joined(a, b, graph), b.step.prepared.program
    last = len(b.step.prepared.domain) - 1
    if [x.times for x in f.walk.pieces if x.axis == last] != [1]:
        raise Refusal("its rows are not the other's")
    n = len(f.kept)
    stages = [(kind, k if kind == "reduce" else k + n, e) for (kind, k, _), e in zip(p.stages, f.second, strict=True)]
    return _rows(f, [*stages, *[("map", i, f.first[k]) for i, (k, _, _) in enumerate(f.kept)]], a, b, b.step)


def rows_into_map(a: Node, b: Node, graph: Graph) -> Launch:
    """Rows whose values a map takes up."""
    f, p, domain = joined(a, b, graph), a.step.prepared.program, a.step.prepared.domain
    last = len(domain) - 1
    if not f.walk.once or [(x.size, x is f.walk.pieces[-1]) for x in f.walk.pieces if x.made == last and x.size > 1] != [(domain[last], True)]:
        raise Refusal("its rows are not the other's")
    wanted = {k: i for i, (k, _, _) in enumerate(f.kept)}
    stages = [(kind, k if kind == "reduce" else wanted[k], e) for (kind, k, _), e in zip(p.stages, f.first, strict=True) if kind == "reduce" or k in wanted]
    n = len(f.kept)
    return _rows(f, [*stages, *[("map", n + k, e) for k, e in enumerate(f.second)]], a, b, a.step)


def _rows(f: Fused, stages: list[tuple[str, Any, Expr]], a: Node, b: Node, summing: Launch) -> Launch:
    made = Rows(tuple(stages), f.types, f.numbers)
    kinds = [kind for kind, _, _ in stages]
    if "map" in kinds and "reduce" in kinds[kinds.index("map"):]:
        raise Refusal("it writes before it has summed up")
    if f.over and kept_value(passes_of(made.stages, mixed=False), len(made.out_types), [True] * len(made.out_types)) is not None:
        raise Refusal("it writes where the other reads")
    _ordered(made, f, summing)
    return f.step(made, b.step, named(a, b))


def _ordered(made: Program, f: Fused, before: Launch) -> None:
    """Raises Refusal where sums would be added in another order than before."""
    p = before.prepared
    assert p.program is not None
    found = dispatch.order(before.device, made, f.reader.domain, f.strides())
    if found is None or found != dispatch.order(before.device, p.program, p.domain, p.strides):
        raise Refusal("its sums would be added in another order")


def named(a: Node, b: Node) -> str:
    """A name for both."""
    names = [s.prepared.name for n in (a, b) for s in n.members]
    return "+".join(names if len(names) < 6 else [*names[:2], f"{len(names) - 4} more", *names[-2:]])


# ------------------------------------------------------------------------------------------------------------------ all
# What goes into what: by the kinds of the loop that writes and of the one that reads.
TABLE: dict[tuple[str, str], Callable[[Node, Node, Graph], Launch]] = {
    ("map", "map"): map_into_map,
    ("map", "reduce"): map_into_reduce,
    ("map", "rows"): map_into_rows,
    ("rows", "map"): rows_into_map,
}


def kind_of(x: Any) -> str:
    """The kind of loop that a step is; "" where it is none that can be joined."""
    p = x.prepared.program if isinstance(x, Launch) else None
    return "" if p is None or (p.kind == "map" and not is_map(x)) or not size_of(x.prepared.domain) else p.kind


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
            how = TABLE.get((kind_of(a.step), kind_of(b.step)))
            if how is None:
                refused.add(a.bit)
                continue
            try:
                between = graph.between(a, b)
                if between is not None:
                    raise Refusal(f"{_title(between)} must stay between")
                _rounds_alike(a.step, b.step)
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
        if not wanted:
            break
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
        graph.replace(n, only(s, live))


def only(s: Launch, live: Sequence[int]) -> Launch:
    """A map that writes only these of its outputs."""
    p = s.prepared.program
    assert isinstance(p, Map)
    if len(live) == len(p.outs):
        return s
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
    return Launch(s.device, s.stream, made, (*[s.args[k] for k in chosen], *[s.args[outs + k] for k in numbers]), s.line)
