"""How a formula with named axes becomes an operation: types, layouts, one launch, and its gradients of any order.

`Rowwise` is one formula.  A call on operands of some layouts is planned once (`Bound`): the kernels, the results' metas and, when a
gradient is asked for, what to save and the bound formula of the gradient, which is a `Bound` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .. import dtypes, hooks
from ..autograd import tape
from ..autograd.mode import _grad
from ..engine import general
from ..kernels import derive_rows
from ..kernels import expr as E
from ..kernels import formulas as F
from ..kernels.simplify import simplify
from ..runtime import caches
from ..tensor import Meta, Tensor, alias
from . import row_plans
from .checks import same_device
from .row_places import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype
    from ..kernels.expr import Expr
    from .row_plans import Plan


# ------------------------------------------------------------------------------------------------------------- formulas
class Formula:
    """Expressions over operands of known types.

    leaves: the operands.  outs: the results; axes: which those vary along.  saves: values a gradient may use, and which result of the operation each is (None:
    none, it is stored besides).  base, stored: the operation's own results, before they are rounded, and the types they are stored
    in.  level: how often it was differentiated.  body: `outs` with the saved values in their place, for a gradient.
    there: of a gradient, which of its results there are: what does not depend on a leaf, as a count of numbers that are not 0, gives it none.
    """

    __slots__ = ("leaves", "outs", "axes", "saves", "base", "stored", "level", "body", "indexed", "derivatives", "there")

    def __init__(self, leaves: tuple[Expr, ...], outs: tuple[Expr, ...], axes: tuple[str, ...], saves: tuple[tuple[Expr, int | None], ...],
                 base: tuple[Expr, ...], stored: tuple[dtype, ...], level: int = 0) -> None:
        self.leaves, self.outs, self.axes, self.saves, self.base, self.stored, self.level = leaves, outs, axes, saves, base, stored, level
        self.body = E.rebuild(outs, {e: self._at_hand(k) for k, (e, _) in enumerate(saves)}.get) if level else outs
        self.indexed = any(e.op == "index" for e in E.walk(self.body))
        self.derivatives: dict[Any, Formula] = {}
        self.there = (True,) * len(outs)

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
            found.there = tuple(e is not None for e in raw)
        return found

    def _at_hand(self, k: int) -> Expr:
        """The saved value number k as an operand; one that is a result has the result's type."""
        e, i = self.saves[k]
        return E.cast(F.operand(("saved", k), e.dtype if i is None else self.stored[i], F.letters(e)), e.dtype)

    def names(self) -> tuple[Any, ...]:
        """The operands' names: the leaves', then, for a gradient, those of the saved values."""
        return (*[e.value[0] for e in self.leaves], *[("saved", k) for k in range(len(self.saves) if self.level else 0)])

    def reads(self) -> set[Any]:
        """Names of the operands and of the saved values the results are made of."""
        return {e.value[0] for e in E.walk(self.body) if e.op == "operand"}


# ------------------------------------------------------------------------------------------------- formulas on known shapes
class Bound:
    """A formula on operands of known shapes.  Operands are its leaves and then, for a gradient, the saved values.

    holes: the operation has operands that are absent here.
    """

    __slots__ = ("op", "formula", "places", "holes", "epoch", "shown", "reads", "plans", "plain", "recordings", "derivatives")
    __caches__: ClassVar[dict[str, Any]] = {"plans": dict, "plain": lambda: (None, {}), "recordings": dict, "derivatives": dict,
                                            "epoch": lambda: -1, "shown": lambda: (None, {})}

    def __init__(self, op: Rowwise, formula: Formula, places: Places) -> None:
        self.op, self.formula, self.places, self.holes = op, formula, places, False
        self.epoch = -1
        read = formula.reads()
        self.reads = tuple(i for i, name in enumerate(formula.names()) if name in read)  # the operands whose values it needs
        self.plans: dict[Any, Plan] = {}
        self.shown: tuple[Any, dict[Any, Plan]] = None, self.plans  # the world that they are of, and they: one value, as threads may enter at once
        self.plain: tuple[Any, dict[Any, Plan]] = None, {}  # the plain world, as it was, and its plans
        self.recordings: dict[Any, Recording] = {}
        self.derivatives: dict[Any, Bound] = {}

    def run(self, operands: Sequence[Any], edges: tuple[Any, ...] | None, numbers: tuple[Any, ...], lie: Sequence[Any] = ()) -> list[Tensor]:
        """The results; operands that are not read may be None.  edges: the leaves' nodes, where the call is to be recorded.  lie: metas of the first
        operands, also of those that are not there, and tell no more than how a result lies."""
        if self.epoch != caches.epoch:
            self._enter()
        layouts = tuple([t.meta if t is not None else lie[i] if i < len(lie) else None for i, t in enumerate(operands)])
        key = layouts if self.op.follows else tuple([layouts[i] for i in self.reads])
        plan = self.plans.get(key)
        if plan is None:
            p = self.places
            on = self.op, self.formula, tuple(p.sizes), tuple(p.sizes.values()), general.Whole((p.leaves, p.outs, p.saves)), layouts
            plans, epoch = self.plans, self.epoch
            plan = general.made(_gradient_kinds, on, 2, _gradient)
            if epoch == caches.epoch:
                plans[key] = plan
        outs = plan.run(operands, numbers)
        if edges is not None:
            self.record(outs, operands, edges, numbers, layouts)
        return outs

    def _enter(self) -> None:
        """Shows the plans of the world that there is now: a node may outlive what was bound when it was made.  Those of the plain world stay while
        another one is entered for a moment, as each call that is learned on a GPU does."""
        epoch, world = caches.epoch, (caches.world, caches.renewed, dtypes._default.dtype)
        before, plain = self.shown, self.plain
        if before[0] is not None and before[0][0] == caches.PLAIN:
            self.plain = plain = before
        self.shown = world, plain[1] if plain[0] == world else {}
        self.plans = self.shown[1]
        self.epoch = epoch

    def record(self, outs: list[Tensor], operands: Sequence[Any], edges: tuple[Any, ...], numbers: tuple[Any, ...], layouts: tuple[Any, ...]) -> None:
        """layouts: the operands' metas."""
        needs = tuple([e is not None for e in edges])
        key = (needs, layouts) if self.op.follows else needs
        rec = self.recordings.get(key)
        if rec is None:
            rec = self.recordings[key] = _recording(self, needs, layouts[:len(self.formula.leaves)] if self.op.follows else ())
        held = [operands[i] for i in rec.operands]
        for k in rec.results:
            held.append(alias(outs[k], outs[k].meta, outs[k].ptr))
        saved = (rec, tuple(held), tuple([t.store.version for t in held]), numbers)
        if len(self.formula.outs) == 1:
            outs[0].node = tape.node(_backward if held else _backward_of_nothing, edges, saved)
        else:
            tape.spread(outs[:len(self.formula.outs)], _backward_many, edges, saved, rec.grad_name)

    def derived(self, needs: tuple[bool, ...], given: tuple[bool, ...]) -> Bound:
        """The gradients of these leaves from those of the results in `given`, on these shapes."""
        found = self.derivatives.get((needs, given))
        if found is None:
            p = self.places
            ups = tuple(s for s, here in zip(p.outs, given, strict=True) if here)
            wanted = tuple(s for s, n in zip(p.leaves, needs, strict=True) if n)
            found = self.derivatives[needs, given] = Bound(self.op, self.formula.derive(needs, given), Places(p.sizes, (*ups, *p.leaves), wanted, p.saves))
        return found


def _bound(op: Rowwise, where: Any, consts: tuple[Any, ...], result: dtype | None, *metas: Meta | None) -> tuple[Bound, Plan]:
    """What a call of an operation is carried out by."""
    return op.bind(where, tuple(consts), result, list(metas))


def _gradient(op: Rowwise, formula: Formula, axes: tuple[str, ...], sizes: tuple[tuple[int, ...], ...], spreads: tuple[Any, ...],
              metas: tuple[Meta | None, ...]) -> Plan:
    """The plan of a formula that is bound to shapes, for operands of these layouts."""
    return row_plans.plan(Bound(op, formula, Places(dict(zip(axes, sizes, strict=True)), *spreads)), metas)


# ------------------------------------------------------------------------------------------------------------- recording
class Recording(tape.Described):
    """What the nodes of one kind of call share: which operands and results they keep, and what the gradient is made of.

    slots: for each operand of the gradient that is kept, its place among them and in what the node holds.  lie: the metas of the leaves, kept or not,
    where gradients lie as they do.
    """

    __slots__ = ("bound", "needs", "operands", "results", "slots", "lie")

    def __init__(self, bound: Bound, needs: tuple[bool, ...], operands: tuple[int, ...], results: tuple[int, ...], slots: tuple[int, ...],
                 grad_name: str, lie: tuple[Meta | None, ...]) -> None:
        self.bound, self.needs, self.operands, self.results, self.slots, self.grad_name = bound, needs, operands, results, slots, grad_name
        self.lie = lie


def _recording(bound: Bound, needs: tuple[bool, ...], lie: tuple[Meta | None, ...]) -> Recording:
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
    return Recording(bound, needs, tuple(operands), tuple(results), tuple(slots), name, lie)


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
    if not bound.formula.level and True not in derived.formula.there:  # gradients of gradients are zeros then, as PyTorch's
        return (None,) * len(needs)
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
    made = iter(derived.run(operands, edges, numbers, (*[None] * len(ups), *rec.lie)))
    return tuple([next(made) if n else None for n in needs])


# ------------------------------------------------------------------------------------------------------------- operations
_calls: dict[Any, tuple[Bound, Plan]] = caches.cache(globals(), "_calls")  # by the operation and its operands' layouts
_kinds: dict[Any, Any] = caches.cache(globals(), "_kinds")  # of calls whose layouts come first
_gradient_kinds: dict[Any, Any] = caches.cache(globals(), "_gradient_kinds")


class Rowwise:
    """A formula with named axes as an operation.

    axes: those of the operands and of the results, as in "rc, c -> rc".  formula: from expressions of the operands (None for one that is
    absent), the numbers' and the constants as keywords to (results, values a gradient may use).  places: from the operands' metas and
    the constants that say which axes are meant to `Places`.
    fused: the axes a kernel folds along while it has a row at hand.  numbers: their kinds, "f" in the computation's type or "i".
    apart: operands that take no part in promotion.  like: results are laid out as operands of their shape
    ("dense"), or with their channels innermost where the images' are ("images"), else contiguously.

    reduces: it gives a value a row, and its gradients lie as what they are gradients of.  follows: how a gradient lies depends on the operands.
    """

    __slots__ = ("name", "grad_name", "axes", "results", "formula", "places", "fused", "numbers", "apart", "like", "reduces",
                 "follows", "formulas")

    def __init__(self, name: str, axes: str, formula: Callable[..., Any], places: Callable[..., Places], *, fused: str = "c", numbers: str = "",
                 apart: tuple[int, ...] = (), like: str = "", grad_name: str = "") -> None:
        self.axes, self.results = (tuple(part.strip() for part in side.split(",")) for side in axes.split("->"))
        self.name, self.formula, self.places, self.fused, self.numbers, self.apart, self.like = name, formula, places, fused, numbers, apart, like
        self.reduces = {*self.axes} == {"rc"} and {*self.results} == {"r"}
        self.follows = like == "images" or self.reduces
        self.grad_name = grad_name or f"{''.join(part.capitalize() for part in name.split('_'))}Backward0"
        self.formulas: dict[Any, Formula] = {}

    def __call__(self, operands: tuple[Tensor | None, ...], numbers: tuple[Any, ...] = (), where: Any = (), consts: tuple[Any, ...] = (),
                 result: dtype | None = None) -> list[Tensor]:
        """The results, and after them the values that were saved besides; recorded.

        where: what `places` asks for besides the metas; consts: (name, value) of the formula's; result: the type of the results.
        """
        key = (self, where, consts, result, *[None if t is None else t.meta for t in operands])
        known = _calls.get(key)
        if known is None:
            if any("_tangents" in t.__dict__ for t in operands if t is not None and not t.meta.plain):
                made: list[Tensor] = hooks.carry_duals(lambda *given: self(given, numbers, where, consts, result), operands)
                return made
            same_device(self.name, *operands)
            since, known = caches.epoch, general.made(_kinds, (self, where, general.Whole(consts), *key[3:]), general.SMALL, _bound)
            caches.keep_since(since, _calls, key, known)
        bound, plan = known
        given: Any = [t for t in operands if t is not None] if bound.holes else operands
        outs: list[Tensor] = plan.run(given, numbers)
        if _grad.get():
            for t in given:
                if t.node is not None:
                    bound.record(outs, given, tuple([x.node for x in given]), numbers, tuple([x.meta for x in given]) if self.follows else ())
                    break
        return outs

    def bind(self, where: Any, consts: tuple[Any, ...], result: dtype | None, metas: list[Meta | None]) -> tuple[Bound, Plan]:
        """What a call on operands of these layouts (None: absent) is carried out by."""
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
        bound.holes = len(leaves) < len(metas)
        return bound, row_plans.plan(bound, [m for m in metas if m is not None])

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
