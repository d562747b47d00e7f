"""What a row formula launches on operands of some layouts: its kernels as one call, and what it allocates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes, layout
from ..kernels import expr as E
from ..kernels import formulas as F
from ..kernels.schedule import depth, launches, schedule
from ..tensor import Meta, Tensor, alias, meta, new, storage
from . import launch
from .copies import cast_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype
    from ..kernels.expr import Expr
    from ..kernels.schedule import Schedule
    from ..runtime.device import device
    from .row_places import Spread
    from .rowwise import Bound

_FEW_ROWS = 8  # fewer long rows are better folded by all threads together than each by one
_LONG_ROW = 1 << 14


class Plan:
    """One call but its addresses.

    outs: metas of what is allocated.  launch: called with their addresses, those of the operands `ins`, that of the workspace `room`
    (a meta or None), and the numbers; None where nothing is computed.  shown: for each result (whether it was made, which of those
    or of the operands it is, the meta to see it by).
    """

    __slots__ = ("outs", "launch", "room", "ins", "shown", "plain")

    def __init__(self, outs: tuple[Meta, ...], launch: Callable[..., Any] | None, room: Meta | None, ins: tuple[int, ...],
                 shown: tuple[tuple[bool, int, Meta], ...]) -> None:
        self.outs, self.launch, self.room, self.ins, self.shown = outs, launch, room, ins, shown
        self.plain = shown == tuple((True, k, m) for k, m in enumerate(outs))  # the results are what is made

    def run(self, operands: Sequence[Any], numbers: tuple[Any, ...]) -> list[Tensor]:
        made = [new(m) for m in self.outs]
        if self.launch is not None:
            addresses = [t.ptr for t in made]
            for i in self.ins:
                addresses.append(operands[i].ptr)
            if self.room is not None:
                scratch = storage(self.room)  # held until the launch is queued
                addresses.append(scratch.ptr)
            self.launch(*addresses, *numbers)
        if self.plain:
            return made
        outs = []
        for own, k, m in self.shown:
            t = made[k] if own else operands[k]
            outs.append(t if own and t.meta is m else alias(t, m, t.ptr))
        return outs


def plan(bound: Bound, metas: Sequence[Meta | None]) -> Plan:
    """The plan of a formula on operands of these layouts; those that it does not read may be None."""
    known: Sequence[Any] = metas
    f, places = bound.formula, bound.places
    spreads = (*places.leaves, *places.saves)
    names = f.names()
    layouts: dict[Any, Any] = {("operand", names[i]): places.strides(known[i], spreads[i]) for i in bound.reads}
    dev = next(m for m in metas if m is not None).device
    wanted = [*zip(f.body, f.axes, places.outs, strict=True)]
    if not f.level:
        wanted += [(e, F.letters(e), s) for (e, i), s in zip(f.saves, places.saves, strict=True) if i is None]
    exprs: list[Expr] = []
    axes: list[str] = []
    made: list[Meta] = []
    shown: list[tuple[bool, int, Meta]] = []
    for e, over, spread in wanted:
        if f.level and e.op == "operand":  # a gradient that is another tensor as it stands, perhaps repeated
            k = names.index(e.value[0])
            m = places.seen(layouts["operand", e.value[0]], spread, e.dtype, dev)
            if m is not None:
                shown.append((False, k, m))
                continue
        whole = frozenset(over)
        at = F.place(e) if f.level else whole  # a gradient that does not vary along an axis is worked out once for it, and repeated
        if any(len({a in at for a, _ in slots}) > 1 for slots in spread):
            at = whole
        own = _result(bound, metas, spread, at, e.dtype, dev)
        steps = {a: s for a, s in places.strides(own, spread).items() if a in at}
        m = own if at == whole else places.seen(steps, spread, e.dtype, dev)
        assert m is not None
        layouts["out", len(exprs)] = steps
        shown.append((True, len(made), m))
        exprs.append(e)
        axes.append("".join(a for a in places.sizes if a in at))
        made.append(own)
    if not any(m.numel for m in made):
        return Plan(tuple(made), None, None, (), tuple(shown))
    rooms = {**{("out", k): m.nbytes for k, m in enumerate(made)}, **{("operand", names[i]): known[i].nbytes for i in bound.reads}}
    call, room, ins = _launch(bound, tuple(exprs), axes, layouts, rooms, dev)
    return Plan(tuple(made), call, room, tuple(names.index(n) for n in ins), tuple(shown))


def _result(bound: Bound, metas: Sequence[Meta | None], spread: Spread, at: frozenset[str], d: dtype, dev: device) -> Meta:
    """The meta of a result at place `at`: like the operand of its spread where the operation keeps layouts, else contiguous.

    A gradient of images or of a reduction lies as what it is the gradient of, whatever the layout of the one that arrives.
    """
    places, op, level = bound.places, bound.op, bound.formula.level
    shape = places.shape(spread, at)
    if op.like or level and op.reduces:
        known = [*zip(bound.formula.names(), metas, (*places.leaves, *places.saves), strict=False)]
        if op.like != "dense":
            known.sort(key=lambda one: type(one[0]) is tuple and one[0][0] == "gradient")
        for _, m, s in known:
            if s == spread and m is not None and tuple(m.shape) == shape:
                strides = layout.image_strides(shape, shape, m.strides) if op.like == "images" else layout.dense_like(shape, m.strides)
                return meta(shape, strides, d, dev)
    return meta(shape, None, d, dev)


def _launch(bound: Bound, exprs: tuple[Expr, ...], axes: list[str], layouts: dict[Any, Any], rooms: dict[Any, int],
            dev: device) -> tuple[Callable[..., Any], Meta | None, list[Any]]:
    """One call that stores the expressions, its workspace, and the names of the operands whose addresses it wants.  rooms: bytes of the results and
    operands."""
    sizes, domain = bound.places.sizes, "".join(bound.places.sizes)
    ranks = {a: len(n) for a, n in sizes.items()}
    found = None
    made: Any = None
    for fused, elements in _ways(bound, exprs, axes):
        key = exprs, tuple(axes), fused, elements, tuple(ranks.values()) if bound.formula.indexed else None
        made = _schedules.get(key)
        if made is None:
            made = _schedules[key] = schedule(exprs, axes, domain, fused, ranks, elements)
        found = launches(made, sizes, layouts)
        if found is not None:
            break
    assert found is not None
    ins = sorted(made.operands(), key=bound.formula.names().index)
    name = bound.op.name + ("_backward" if bound.formula.level else "")
    work = _Work()
    calls: list[Any] = []
    packed: dict[Any, int] = {}
    across = _across(bound, ins, axes, layouts)
    if across:
        whole = tuple([n for over in sizes.values() for n in over])
        for k, (d, strides) in across.items():
            to, come = (tuple([s for a in sizes for s in steps[a]]) for steps in (strides, layouts["operand", k]))
            nbytes = layout.numel(whole) * d.itemsize
            packed["operand", k] = work.take(nbytes)
            call, room = launch.plan(dev, cast_program(d, d), whole, [to, come], [nbytes, rooms["operand", k]], name)
            where = [(len(exprs) + len(ins), packed["operand", k]), (len(exprs) + ins.index(k), 0)]
            if room is not None:
                where.append((len(exprs) + len(ins), work.take(room.nbytes)))
            calls.append((call, where, []))
            rooms["operand", k] = nbytes
        found = launches(made, sizes, {**layouts, **{("operand", k): strides for k, (_, strides) in across.items()}})
        assert found is not None
    sizes_of_temps = [layout.numel([n for a in over for n in sizes[a]]) * d.itemsize for over, d in made.temps]
    temps = [work.take(n) for n in sizes_of_temps]
    for one in found:
        if not all(layout.numel(one.domain[:len(s)]) for s in one.strides[:len(one.step.outs)]):
            continue  # nothing is stored
        refs = [(r[0], r[1]) for r in (*one.step.outs, *one.step.ins)]
        call, room = launch.plan(dev, one.program, one.domain, one.strides, [rooms[r] if r in rooms else sizes_of_temps[r[1]] for r in refs], name)
        where = []  # (which address is given, bytes after it)
        for kind, k in refs:
            if (kind, k) in packed:
                where.append((len(exprs) + len(ins), packed[kind, k]))
                continue
            where.append((k, 0) if kind == "out" else (len(exprs) + ins.index(k), 0) if kind == "operand" else (len(exprs) + len(ins), temps[k]))
        if room is not None:
            where.append((len(exprs) + len(ins), work.take(room.nbytes)))
        numbers = [(k, None) if kind == "scalar" else (None, 1.0 * layout.numel(sizes[k]) if d.kind == "f" else layout.numel(sizes[k]))
                   for kind, k, d in one.step.numbers]
        calls.append((call, where, numbers))
    room = meta((work.size,), None, dtypes.uint8, dev) if work.size else None
    return _joined(calls, len(exprs) + len(ins) + (room is not None), len(bound.op.numbers)), room, ins


_schedules: dict[Any, Schedule] = {}
_NEAR = 1 << 15  # bytes: what lies in the first cache may be read in any order


def _across(bound: Bound, ins: Sequence[Any], axes: list[str], layouts: dict[Any, Any]) -> dict[Any, tuple[dtype, dict[str, tuple[int, ...]]]]:
    """Operands that lie otherwise than the rows of a result with elements: their types, and the result's strides, by which they are copied first. A row of
    theirs takes a cache line an element, and more than once, where a copy goes by tiles."""
    sizes = bound.places.sizes
    for k, over in enumerate(axes):
        steps = layouts["out", k]
        inner = next(((a, i) for a in bound.op.fused for i, s in enumerate(steps.get(a, ())) if s == 1 and sizes[a][i] > 1), None)
        if inner is None or len(over) < len(sizes):
            continue
        a, i = inner
        types = {e.value[0]: e.dtype for e in E.walk(bound.formula.body) if e.op == "operand"}
        count = layout.numel([n for over in sizes.values() for n in over])
        found = {}
        for name in ins:
            own = layouts["operand", name]
            if len(own) == len(sizes) and own[a][i] > 1 and count * types[name].itemsize > _NEAR and any(
                    s == 1 and n > 1 for b, many in own.items() for s, n in zip(many, sizes[b], strict=True)):
                found[name] = types[name], {b: steps[b] for b in sizes}
        return found
    return {}


def _ways(bound: Bound, exprs: tuple[Expr, ...], axes: list[str]) -> list[tuple[str, bool]]:
    """How the folds may share kernels, the best first: (fused axes, whether elements are stored by the same kernel)."""
    fused, sizes = bound.op.fused, bound.places.sizes
    rows = layout.numel([n for a, over in sizes.items() if a not in fused for n in over])
    width = layout.numel([n for a in fused for n in sizes[a]])
    if not fused or not rows or not width or depth(exprs, fused) < 2:
        return [("", True)]
    inside = any(set(a) & set(fused) for a in axes)
    if not inside and rows < _FEW_ROWS and width > _LONG_ROW:
        return [("", True)]
    return [(fused, True), (fused, False), ("", True)]


class _Work:
    """Room in one workspace."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0

    def take(self, nbytes: int) -> int:
        at = self.size
        self.size += -(-max(nbytes, 1) // 64) * 64
        return at


def _joined(calls: list[Any], addresses: int, numbers: int) -> Callable[..., Any]:
    """Launches in order as one call with all addresses and then all numbers."""
    if len(calls) == 1:
        call, where, passed = calls[0]
        if where == [(k, 0) for k in range(addresses)] and [k for k, _ in passed] == list(range(numbers)):
            return call  # type: ignore[no-any-return]

    def run(*given: Any) -> None:
        for call, where, passed in calls:
            call(*[given[k] + offset for k, offset in where], *[v if k is None else given[addresses + k] for k, v in passed])
    return run
