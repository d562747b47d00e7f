"""How a formula with named axes becomes an operation: types, layouts, one launch, and its gradients of any order.

`Rowwise` is one formula.  A call on operands of some layouts is planned once (`Bound`): the kernels, the results' metas and, when a
gradient is asked for, what to save and the bound formula of the gradient, which is a `Bound` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes, layout
from ..autograd import tape
from ..autograd.mode import _grad
from ..kernels import derive_rows
from ..kernels import expr as E
from ..kernels import formulas as F
from ..kernels.schedule import depth, launches, schedule
from ..kernels.simplify import simplify
from ..runtime import door
from ..tensor import Meta, Tensor, alias, meta, new, on_forget, storage
from . import launch
from .checks import same_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..dtypes import dtype
    from ..kernels.expr import Expr
    from ..kernels.schedule import Schedule
    from ..runtime.device import device

    # for each axis of a tensor the axes of the formula it is made of, outermost first: (name, which of those by this name)
    Spread = tuple[tuple[tuple[str, int], ...], ...]
    Sizes = dict[str, tuple[int, ...]]

_MOST = 1 << 12
_FEW_ROWS = 8  # fewer long rows are better folded by all threads together than each by one
_LONG_ROW = 1 << 14
_all: list[Rowwise] = []


def forget() -> None:
    for op in _all:
        op.bound.clear()


on_forget(forget)
door.on_change(forget)


# ------------------------------------------------------------------------------------------------------------- formulas
class Formula:
    """Expressions over operands of known types.

    leaves: the operands.  outs: the results; axes: which those vary along.  saves: values a gradient may use, and which result of the operation each is (None:
    none, it is stored besides).  base, stored: the operation's own results, before they are rounded, and the types they are stored
    in.  level: how often it was differentiated.  body: `outs` with the saved values in their place, for a gradient.
    """

    __slots__ = ("leaves", "outs", "axes", "saves", "base", "stored", "level", "body", "indexed", "derivatives")

    def __init__(self, leaves: tuple[Expr, ...], outs: tuple[Expr, ...], axes: tuple[str, ...], saves: tuple[tuple[Expr, int | None], ...],
                 base: tuple[Expr, ...], stored: tuple[dtype, ...], level: int = 0) -> None:
        self.leaves, self.outs, self.axes, self.saves, self.base, self.stored, self.level = leaves, outs, axes, saves, base, stored, level
        self.body = E.rebuild(outs, {e: self._at_hand(k) for k, (e, _) in enumerate(saves)}.get) if level else outs
        self.indexed = any(e.op == "index" for e in E.walk(self.body))
        self.derivatives: dict[Any, Formula] = {}

    def derive(self, needs: tuple[bool, ...], given: tuple[bool, ...]) -> Formula:
        """The gradients of the leaves in `needs` from those of the results in `given`."""
        key = needs, given
        found = self.derivatives.get(key)
        if found is None:
            ups = [F.operand(("gradient", self.level, k), e.dtype, axes) if here else None
                   for k, (e, axes, here) in enumerate(zip(self.outs, self.axes, given, strict=True))]
            wanted = [x for x, n in zip(self.leaves, needs, strict=True) if n]
            raw = derive_rows.gradients(self.outs, ups, wanted)
            short = simplify(raw, self.base, [e for e, _ in self.saves], self.outs)
            outs = tuple(E.const(0, w.dtype) if e is None else e for w, e in zip(wanted, short, strict=True))
            found = self.derivatives[key] = Formula((*[g for g in ups if g is not None], *self.leaves), outs, tuple(w.value[1] for w in wanted),
                                                    self.saves, self.base, self.stored, self.level + 1)
        return found

    def _at_hand(self, k: int) -> Expr:
        """The saved value number k as an operand; one that is a result has the result's type."""
        e, i = self.saves[k]
        return E.cast(F.operand(("saved", k), e.dtype if i is None else self.stored[i], _letters(e)), e.dtype)

    def names(self) -> tuple[Any, ...]:
        """The operands' names: the leaves', then, for a gradient, those of the saved values."""
        return (*[e.value[0] for e in self.leaves], *[("saved", k) for k in range(len(self.saves) if self.level else 0)])

    def reads(self) -> set[Any]:
        """Names of the operands and of the saved values the results are made of."""
        return {e.value[0] for e in E.walk(self.body) if e.op == "operand"}


def _letters(e: Expr) -> str:
    return "".join(sorted(F.place(e)))


# --------------------------------------------------------------------------------------------------------------- layouts
class Places:
    """How the formula's axes lie in tensors: their sizes, and the spreads of operands, results and saved values."""

    __slots__ = ("sizes", "leaves", "outs", "saves")

    def __init__(self, sizes: Sizes, leaves: tuple[Spread, ...], outs: tuple[Spread, ...], saves: tuple[Spread, ...] = ()) -> None:
        self.sizes, self.leaves, self.outs, self.saves = sizes, leaves, outs, saves

    def shape(self, spread: Spread, among: frozenset[str] | None = None) -> tuple[int, ...]:
        """The shape of a tensor; along axes that are not `among` these it has size 1."""
        return tuple(layout.numel([self.sizes[a][j] for a, j in slots if among is None or a in among]) for slots in spread)

    def seen(self, strides: Mapping[str, tuple[int, ...]], spread: Spread, d: dtype, dev: device) -> Meta | None:
        """The meta of `spread` with these strides along the formula's axes, 0 along others; None where they make no tensor of it."""
        steps = []
        for slots in spread:
            own = [(self.sizes[a][j], strides[a][j] if a in strides else 0) for a, j in slots]
            if any(far != n * near for (_, far), (n, near) in zip(own, own[1:], strict=False)):
                return None
            steps.append(own[-1][1] if own else 1)
        return meta(self.shape(spread), tuple(steps), d, dev)

    def strides(self, m: Meta, spread: Spread) -> dict[str, tuple[int, ...]]:
        """A tensor's strides along the formula's axes."""
        found: dict[str, list[int]] = {}
        for step, slots in zip(m.strides, spread, strict=True):
            for a, j in reversed(slots):
                found.setdefault(a, [0] * len(self.sizes[a]))[j] = step
                step *= self.sizes[a][j]
        return {a: tuple(s) for a, s in found.items()}

    def dense(self, letters: frozenset[str]) -> Spread:
        """A tensor of these axes, one after the other."""
        return tuple(((a, j),) for a in self.sizes if a in letters for j in range(len(self.sizes[a])))


def along(shape: Sequence[int], axes: tuple[int, ...], keepdim: bool = False) -> tuple[Sizes, Spread, Spread]:
    """For a tensor folded along `axes` ("c", the others are "r"): the sizes, its spread, and that of a value a row."""
    whole: list[Any] = []
    short: list[Any] = []
    kept = inner = 0
    for i in range(len(shape)):
        if i in axes:
            whole.append((("c", inner),))
            inner += 1
            if keepdim:
                short.append(())
        else:
            whole.append((("r", kept),))
            short.append((("r", kept),))
            kept += 1
    return {"r": tuple(n for i, n in enumerate(shape) if i not in axes), "c": tuple(n for i, n in enumerate(shape) if i in axes)}, tuple(whole), tuple(short)


def elements(metas: Sequence[Any], axes: tuple[int, ...]) -> Places:
    """An operation "rc -> rc" along `axes`."""
    sizes, whole, _ = along(metas[0].shape, axes)
    return Places(sizes, (whole,), (whole,))


def row_values(metas: Sequence[Any], axes: tuple[int, ...], keepdim: bool) -> Places:
    """A reduction "rc -> r" over `axes`."""
    sizes, whole, short = along(metas[0].shape, axes, keepdim)
    return Places(sizes, (whole,), (short,))


def row_pairs(metas: Sequence[Any], axes: tuple[int, ...], keepdim: bool) -> Places:
    """A reduction "rc -> r, r" over `axes`: two results of one shape."""
    sizes, whole, short = along(metas[0].shape, axes, keepdim)
    return Places(sizes, (whole,), (short, short))


# ----------------------------------------------------------------------------------------------------------------- plans
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


class Bound:
    """A formula on operands of known shapes.  Operands are its leaves and then, for a gradient, the saved values.

    holes: the operation has operands that are absent here.
    """

    __slots__ = ("op", "formula", "places", "holes", "reads", "plans", "recordings", "derivatives")

    def __init__(self, op: Rowwise, formula: Formula, places: Places) -> None:
        self.op, self.formula, self.places, self.holes = op, formula, places, False
        read = formula.reads()
        self.reads = tuple(i for i, name in enumerate(formula.names()) if name in read)  # the operands whose values it needs
        self.plans: dict[Any, Plan] = {}
        self.recordings: dict[tuple[bool, ...], Recording] = {}
        self.derivatives: dict[Any, Bound] = {}

    def run(self, operands: Sequence[Any], edges: tuple[Any, ...] | None, numbers: tuple[Any, ...]) -> list[Tensor]:
        """The results; operands that are not read may be None.  edges: the leaves' nodes, where the call is to be recorded."""
        key = tuple([operands[i].meta for i in self.reads])
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = _plan(self, operands)
        outs = plan.run(operands, numbers)
        if edges is not None:
            self.record(outs, operands, edges, numbers)
        return outs

    def record(self, outs: list[Tensor], operands: Sequence[Any], edges: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        needs = tuple([e is not None for e in edges])
        rec = self.recordings.get(needs)
        if rec is None:
            rec = self.recordings[needs] = _recording(self, needs)
        held = [operands[i] for i in rec.operands]
        for k in rec.results:
            held.append(alias(outs[k], outs[k].meta, outs[k].ptr))
        _put(outs[:len(self.formula.outs)], edges, (rec, tuple(held), tuple([t.store.version for t in held]), numbers), rec.grad_name)

    def derived(self, needs: tuple[bool, ...], given: tuple[bool, ...]) -> Bound:
        """The gradients of these leaves from those of the results in `given`, on these shapes."""
        found = self.derivatives.get((needs, given))
        if found is None:
            p = self.places
            ups = tuple(s for s, here in zip(p.outs, given, strict=True) if here)
            wanted = tuple(s for s, n in zip(p.leaves, needs, strict=True) if n)
            found = self.derivatives[needs, given] = Bound(self.op, self.formula.derive(needs, given), Places(p.sizes, (*ups, *p.leaves), wanted, p.saves))
        return found


def _plan(bound: Bound, operands: Sequence[Any]) -> Plan:
    f, places = bound.formula, bound.places
    spreads = (*places.leaves, *places.saves)
    names = f.names()
    layouts: dict[Any, Any] = {("operand", names[i]): places.strides(operands[i].meta, spreads[i]) for i in bound.reads}
    dev = next(x for x in operands if x is not None).meta.device
    wanted = [*zip(f.body, f.axes, places.outs, strict=True)]
    if not f.level:
        wanted += [(e, _letters(e), s) for (e, i), s in zip(f.saves, places.saves, strict=True) if i is None]
    exprs: list[Expr] = []
    axes: list[str] = []
    metas: list[Meta] = []
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
        own = _result(bound, operands, spread, at, e.dtype, dev)
        steps = {a: s for a, s in places.strides(own, spread).items() if a in at}
        m = own if at == whole else places.seen(steps, spread, e.dtype, dev)
        assert m is not None
        layouts["out", len(exprs)] = steps
        shown.append((True, len(metas), m))
        exprs.append(e)
        axes.append("".join(a for a in places.sizes if a in at))
        metas.append(own)
    if not any(m.numel for m in metas):
        return Plan(tuple(metas), None, None, (), tuple(shown))
    call, room, ins = _launch(bound, tuple(exprs), axes, layouts, dev)
    return Plan(tuple(metas), call, room, tuple(names.index(n) for n in ins), tuple(shown))


def _result(bound: Bound, operands: Sequence[Any], spread: Spread, at: frozenset[str], d: dtype, dev: device) -> Meta:
    """The meta of a result at place `at`: like the operand of its spread where the operation keeps layouts, else contiguous."""
    places = bound.places
    shape = places.shape(spread, at)
    if bound.op.like:
        for x, s in zip(operands, (*places.leaves, *places.saves), strict=False):
            if s == spread and x is not None and tuple(x.meta.shape) == shape:
                return meta(shape, layout.dense_like(shape, x.meta.strides), d, dev)
    return meta(shape, None, d, dev)


def _launch(bound: Bound, exprs: tuple[Expr, ...], axes: list[str], layouts: dict[Any, Any], dev: device) -> tuple[Callable[..., Any], Meta | None, list[Any]]:
    """One call that stores the expressions, its workspace, and the names of the operands whose addresses it wants."""
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
    temps = [work.take(layout.numel([n for a in over for n in sizes[a]]) * d.itemsize) for over, d in made.temps]
    calls = []
    for one in found:
        if not all(layout.numel(one.domain[:len(s)]) for s in one.strides[:len(one.step.outs)]):
            continue  # nothing is stored
        call, room = launch.plan(dev, one.program, one.domain, one.strides, name)
        where: list[tuple[int, int]] = []  # (which address is given, bytes after it)
        for kind, k in ((r[0], r[1]) for r in (*one.step.outs, *one.step.ins)):
            where.append((k, 0) if kind == "out" else (len(exprs) + ins.index(k), 0) if kind == "operand" else (len(exprs) + len(ins), temps[k]))
        if room is not None:
            where.append((len(exprs) + len(ins), work.take(room.nbytes)))
        numbers = [(k, None) if kind == "scalar" else (None, float(layout.numel(sizes[k])) if d.kind == "f" else layout.numel(sizes[k]))
                   for kind, k, d in one.step.numbers]
        calls.append((call, where, numbers))
    room = meta((work.size,), None, dtypes.uint8, dev) if work.size else None
    return _joined(calls, len(exprs) + len(ins) + (room is not None), len(bound.op.numbers)), room, ins


_schedules: dict[Any, Schedule] = {}


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


# ------------------------------------------------------------------------------------------------------------- recording
class Recording:
    """What the nodes of one kind of call share: which operands and results they keep, and what the gradient is made of.

    slots: for each operand of the gradient that is kept, its place among them and in what the node holds.
    """

    __slots__ = ("bound", "needs", "operands", "results", "slots", "grad_name")

    def __init__(self, bound: Bound, needs: tuple[bool, ...], operands: tuple[int, ...], results: tuple[int, ...], slots: tuple[int, ...],
                 grad_name: str) -> None:
        self.bound, self.needs, self.operands, self.results, self.slots, self.grad_name = bound, needs, operands, results, slots, grad_name

    def __call__(self, node: Any, g: Any) -> Any:
        return tape.freed(node, g)


tape.described.add(Recording)


def _recording(bound: Bound, needs: tuple[bool, ...]) -> Recording:
    f = bound.formula
    n = len(f.outs)
    read: set[Any] = set()  # whichever results get a gradient
    for given in {(True,) * n, *[tuple(i == k for i in range(n)) for k in range(n)]}:
        read |= f.derive(needs, given).reads()
    operands = [i for i, name in enumerate(f.names()) if name in read]
    slots = list(operands)
    results = []
    if not f.level:  # saved values are made by this call
        extra = n
        for k, (_, i) in enumerate(f.saves):
            at = extra if i is None else i
            extra += i is None
            if ("saved", k) in read:
                results.append(at)
                slots.append(len(f.leaves) + k)
    name = bound.op.grad_name
    if f.level:
        name = name.replace("Backward", "Backward" * (f.level + 1), 1)
    return Recording(bound, needs, tuple(operands), tuple(results), tuple(slots), name)


def _put(outs: list[Tensor], edges: tuple[Any, ...], saved: Any, name: str) -> None:
    """The one place where nodes are made."""
    if len(outs) == 1:
        outs[0].node = node = [tape.next_seq(), None, _backward if saved[1] else _backward_of_nothing, edges, saved, None]
        if tape.anomaly.on:
            tape.anomaly.note(node)
        return
    parent = [tape.next_seq(), None, _backward_many, edges, saved, {"outputs": len(outs), "name": name}]
    if tape.anomaly.on:
        tape.anomaly.note(parent)
    for i, t in enumerate(outs):
        if t.meta.dtype.kind in "fc":
            t.node = [tape.next_seq(), None, tape.to_output, (parent,), i, {"name": name}]


def _backward(node: tape.Node, g: Tensor) -> Any:
    return _backward_many(node, [g])


@tape.keeps_nothing
def _backward_of_nothing(node: tape.Node, g: Tensor) -> Any:
    """`_backward` of a call that keeps no tensor: it may run again."""
    return _backward_many(node, [g])


def _backward_many(node: tape.Node, gs: list[Tensor | None]) -> Any:
    rec, held, versions, numbers = node[tape.SAVED]
    bound, needs = rec.bound, rec.needs
    derived = bound.derived(needs, tuple([g is not None for g in gs]))
    ups = [g for g in gs if g is not None]
    operands: list[Any] = [*ups, *[None] * len(derived.formula.names()[len(ups):])]
    for slot, t, version in zip(rec.slots, held, versions, strict=True):
        if t.store.version != version:
            if t.node is None:
                t.node = node
            tape.changed(t, version, node)
        operands[len(ups) + slot] = t
    edges = None
    if _grad.get():
        edges = (*[g.node for g in ups], *node[tape.EDGES])
        if all(e is None for e in edges):
            edges = None
    made = iter(derived.run(operands, edges, numbers))
    return tuple([next(made) if n else None for n in needs])


# ------------------------------------------------------------------------------------------------------------- operations
class Rowwise:
    """A formula with named axes as an operation.

    axes: those of the operands and of the results, as in "rc, c -> rc".  formula: from expressions of the operands (None for one that is
    absent), the numbers' and the constants as keywords to (results, values a gradient may use).  places: from the operands' metas and
    the constants that say which axes are meant to `Places`.
    fused: the axes a kernel folds along while it has a row at hand.  numbers: their kinds, "f" in the computation's type or "i".
    apart: operands that take no part in promotion.  like: results are laid out as operands of their shape, else contiguously.
    """

    __slots__ = ("name", "grad_name", "axes", "results", "formula", "places", "fused", "numbers", "apart", "like", "formulas", "bound")

    def __init__(self, name: str, axes: str, formula: Callable[..., Any], places: Callable[..., Places], *, fused: str = "c", numbers: str = "",
                 apart: tuple[int, ...] = (), like: bool = False, grad_name: str = "") -> None:
        self.axes, self.results = (tuple(part.strip() for part in side.split(",")) for side in axes.split("->"))
        self.name, self.formula, self.places, self.fused, self.numbers, self.apart, self.like = name, formula, places, fused, numbers, apart, like
        self.grad_name = grad_name or f"{''.join(part.capitalize() for part in name.split('_'))}Backward0"
        self.formulas: dict[Any, Formula] = {}
        self.bound: dict[Any, tuple[Bound, Plan]] = {}
        _all.append(self)

    def __call__(self, operands: tuple[Tensor | None, ...], numbers: tuple[Any, ...] = (), where: Any = (), consts: tuple[Any, ...] = (),
                 result: dtype | None = None) -> list[Tensor]:
        """The results, and after them the values that were saved besides; recorded.

        where: what `places` asks for besides the metas; consts: (name, value) of the formula's; result: the type of the results.
        """
        key = (where, consts, result, *[None if t is None else t.meta for t in operands])
        try:
            bound, plan = self.bound[key]
        except KeyError:
            bound, plan = self._bind(key, operands, where, consts, result)
        given: Any = [t for t in operands if t is not None] if bound.holes else operands
        outs = plan.run(given, numbers)
        if _grad.get():
            for t in given:
                if t.node is not None:
                    bound.record(outs, given, tuple([x.node for x in given]), numbers)
                    break
        return outs

    def _bind(self, key: Any, operands: tuple[Tensor | None, ...], where: Any, consts: tuple[Any, ...], result: dtype | None) -> tuple[Bound, Plan]:
        same_device(self.name, *operands)
        metas = [None if t is None else t.meta for t in operands]
        places = self.places(metas, *where)
        for i, (m, spread) in enumerate(zip(metas, places.leaves, strict=True)):
            if m is not None and tuple(m.shape) != places.shape(spread):  # kernels take the sizes from one operand
                raise RuntimeError(f"{self.name}: operand {i} has shape {list(m.shape)}, which should be {list(places.shape(spread))}")
        common: dtype | None = None
        for i, m in enumerate(metas):
            if m is not None and i not in self.apart:
                common = m.dtype if common is None else dtypes.promote_types(common, m.dtype)
        assert common is not None
        types = (tuple([None if m is None else m.dtype for m in metas]), consts, result)
        formula = self.formulas.get(types)
        if formula is None:
            formula = self.formulas[types] = self._formula(metas, consts, result or common)
        saves = tuple(places.dense(F.place(e)) if i is None else places.outs[i] for e, i in formula.saves)
        leaves = tuple(s for s, m in zip(places.leaves, metas, strict=True) if m is not None)
        bound = Bound(self, formula, Places(places.sizes, leaves, places.outs, saves))
        bound.holes = len(leaves) < len(operands)
        if len(self.bound) > _MOST:
            self.bound.clear()
        self.bound[key] = bound, _plan(bound, [t for t in operands if t is not None])
        return self.bound[key]

    def _formula(self, metas: list[Meta | None], consts: tuple[Any, ...], result: dtype) -> Formula:
        wide = result.opmath
        leaves = [None if m is None else F.operand(i, m.dtype, a) for i, (m, a) in enumerate(zip(metas, self.axes, strict=True))]
        given = [x if x is None or i in self.apart else E.cast(x, wide) for i, x in enumerate(leaves)]
        numbers = [E.scalar(i, wide.to_real() if kind == "f" else dtypes.int64) for i, kind in enumerate(self.numbers)]
        outs, saves = self.formula(*given, *numbers, **dict(consts))
        part = result.to_real() if result.is_complex else result
        stored = tuple(E.cast(e, result) if e.dtype is wide else E.cast(e, part) if e.dtype.kind == "f" else e for e in outs)
        # an element is kept as it is stored; of a row there is one number only, so it is kept unrounded where a gradient asks for it
        at = {e: i for i, (e, s, axes) in enumerate(zip(outs, stored, self.results, strict=True)) if e is s or axes == self.axes[0]}
        there = tuple(x for x in leaves if x is not None)
        types = tuple(e.dtype for e in stored)
        made = Formula(there, stored, self.results, tuple((e, at.get(e)) for e in saves), outs, types)
        rounded = set(outs) - set(at)
        if rounded.isdisjoint(saves):
            return made
        read = made.derive(tuple([x.dtype.kind in "fc" for x in there]), (True,) * len(outs)).reads()
        kept = tuple((e, at.get(e)) for k, e in enumerate(saves) if e not in rounded or ("saved", k) in read)
        return Formula(there, stored, self.results, kept, outs, types)
