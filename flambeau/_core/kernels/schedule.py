"""Formulas with named axes as loop programs: which folds share a kernel, what is stored in between, in which order.

With `fused` axes, everything that folds along exactly these becomes one `Rows` program: a row is read once and stays in the
cache (or in registers) from fold to fold.  What else is folded becomes a `Reduce` each level, what is left a `Map`.

A `Step` names its operands: ("operand", which) of the formula, ("out", k) or ("temp", k).  `launches` gives the steps'
programs with domains and strides, from the operands' layouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import expr as E
from . import formulas as F
from .expr import Expr
from .programs import Map, Reduce, Rows, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..dtypes import dtype
    from .programs import Program

    Ref = tuple[Any, ...]
    # an operand's strides along each axis of the formula; the sizes of those
    Layout = Mapping[str, tuple[int, ...]]


class Step:
    """One launch: a program over `kept` and then `inner` axes.

    numbers: what it is passed: ("scalar", k, type) of the formula, or ("extent", axis, type).
    """

    __slots__ = ("program", "kept", "inner", "outs", "ins", "numbers")

    def __init__(self, program: Program, kept: str, inner: str, outs: tuple[Ref, ...], ins: tuple[Ref, ...], numbers: tuple[Ref, ...]) -> None:
        self.program, self.kept, self.inner, self.outs, self.ins, self.numbers = program, kept, inner, outs, ins, numbers


class Schedule:
    """Steps in order, and for each temp its axes and type."""

    __slots__ = ("steps", "temps")

    def __init__(self, steps: list[Step], temps: list[tuple[str, dtype]]) -> None:
        self.steps, self.temps = steps, temps

    def operands(self) -> set[Any]:
        """The operands of the formula that are read."""
        return {which for step in self.steps for kind, which in step.ins if kind == "operand"}


def schedule(outs: Sequence[Expr], axes: Sequence[str], domain: str, fused: str = "", ranks: Mapping[str, int] | None = None,
             elements: bool = True) -> Schedule:
    """The programs that store `outs[k]` at each place of `axes[k]`.

    domain: all axes, outermost first.  fused: axes whose folds may share a kernel with what uses them.  ranks: how many axes of a
    tensor an axis stands for, asked for where the formula has an index.  elements: False has a fused kernel give values of rows only,
    and a Map the elements: for operands that vary along some of the fused axes and not along others.
    """
    return _Scheduler(F.plain(tuple(outs)), axes, domain, ranks or {}).run(fused, elements)


def depth(outs: Sequence[Expr], axes: str) -> int:
    """How many folds along `axes` follow on each other; 1 more where elements are stored after them."""
    levels: dict[Expr, int] = {}
    for e in E.walk(tuple(outs)):
        levels[e] = max((levels[a] for a in e.args), default=0) + (e.op == "fold" and set(e.value[1]) == set(axes))
    return max((levels[e] + (levels[e] > 0 and bool(F.place(e) & set(axes))) for e in outs), default=0)


class _Scheduler:
    def __init__(self, outs: tuple[Expr, ...], axes: Sequence[str], domain: str, ranks: Mapping[str, int]) -> None:
        self.outs: dict[int, Expr] = dict(enumerate(outs))  # what is still to be stored
        self.domain, self.ranks = domain, ranks
        self.axes = [self._sorted(a) for a in axes]
        self.steps: list[Step] = []
        self.temps: list[tuple[str, dtype]] = []

    def _sorted(self, axes: Iterable[str]) -> str:
        have = set(axes)
        return "".join(a for a in self.domain if a in have)

    def run(self, fused: str, elements: bool) -> Schedule:
        if fused:
            self._rows(self._sorted(fused), elements)
        while self._reduce():
            pass
        by_axes: dict[str, list[int]] = {}
        for k in self.outs:
            by_axes.setdefault(self.axes[k], []).append(k)
        for axes, members in by_axes.items():
            self._step(lambda roots, b: Map(roots, b.inputs(), b.scalars()), tuple(self.outs[k] for k in members), axes, "",
                       [("out", k) for k in members])
        return Schedule(self.steps, self.temps)

    # ------------------------------------------------------------------------------------------------------------ rows
    def _rows(self, inner: str, elements: bool) -> None:
        kept = self._sorted(set(self.domain) - set(inner))
        own = self._own_folds(set(inner))
        within = {k: e for k, e in self.outs.items() if _folds_in(e) and _folds_in(e) <= own
                  and self.axes[k] in ((kept, self.domain) if elements else (kept,))}
        others = [e for k, e in self.outs.items() if k not in within]
        # what the others need of finished folds, in the largest pieces
        wanted = [e for e in _largest(others, lambda e: e.dtype.kind == "f" and bool(_folds_in(e)) and _folds_in(e) <= own
                                      and not F.place(e) & set(inner)) if self._sorted(F.place(e)) == kept]
        stored = {e: k for k, e in within.items()}  # results that others are made of
        temps = [e for e in wanted if e not in stored]
        if not within and (elements or not temps):
            return
        order = [e for e in E.walk((*within.values(), *temps)) if e in own]
        numbers = {e: i for i, e in enumerate(_by_level(order))}
        outs: list[Ref] = []
        stages: list[tuple[str, Any, Expr]] = [("reduce", e.value[0], e.args[0]) for e in numbers]
        maps: list[tuple[str, Any, Expr]] = []
        for k, e in within.items():
            (stages if self.axes[k] == kept else maps).append(("row" if self.axes[k] == kept else "map", len(outs), e))
            outs.append(("out", k))
        for e in temps:
            stages.append(("row", len(outs), e))
            outs.append(self._temp(e, kept))
        stages += maps

        def program(roots: tuple[Expr, ...], b: _Binder) -> Program:
            return Rows(tuple((kind, what, e) for (kind, what, _), e in zip(stages, roots, strict=True)), b.inputs(), b.scalars())
        self._step(program, tuple(e for _, _, e in stages), kept, inner, outs, numbers)
        for k in within:
            del self.outs[k]
        made = dict(zip(temps, outs[len(within):], strict=True)) | {e: ("out", stored[e]) for e in wanted if e in stored}
        self._replace({e: F.operand(ref, e.dtype, kept) for e, ref in made.items()})

    def _own_folds(self, inner: set[str]) -> set[Expr]:
        """The folds along exactly these axes that need no other fold or scan."""
        own: set[Expr] = set()
        spoilt: set[Expr] = set()
        for e in E.walk(tuple(self.outs.values())):
            if any(a in spoilt for a in e.args) or e.op == "scan" or (e.op == "fold" and set(e.value[1]) != inner):
                spoilt.add(e)
            elif e.op == "fold":
                own.add(e)
        return own

    # ------------------------------------------------------------------------------------------------- folds and scans
    def _reduce(self) -> bool:
        """One Reduce of folds that are ready, or one Scan; False when none is left."""
        ready: list[Expr] = []
        busy: set[Expr] = set()
        for e in E.walk(tuple(self.outs.values())):
            if any(a in busy for a in e.args):
                busy.add(e)
            elif e.op in ("fold", "scan"):
                busy.add(e)
                ready.append(e)
        if not ready:
            return False
        first = ready[0]
        if first.op == "scan":
            self._scan(first)
        else:
            self._fold([e for e in ready if e.op == "fold" and set(e.value[1]) == set(first.value[1])
                        and F.place(e) == F.place(first)])
        return True

    def _fold(self, group: list[Expr]) -> None:
        inner, kept = self._sorted(group[0].value[1]), self._sorted(F.place(group[0]))
        numbers = {e: i for i, e in enumerate(group)}
        members = set(group)
        outs: list[Ref] = []
        posts: list[Expr] = []
        stored: dict[Expr, Ref] = {}
        for k, e in list(self.outs.items()):
            if self.axes[k] == kept and _made_of(e, members):
                stored[e] = ("out", k)
                posts.append(e)
                outs.append(("out", k))
                del self.outs[k]
        # what others go on with is finished here too: once for each place kept, instead of at every element
        for e in _largest(tuple(self.outs.values()), lambda e: _made_of(e, members)):
            if e not in stored:
                stored[e] = self._temp(e, kept)
                posts.append(e)
                outs.append(stored[e])

        def program(roots: tuple[Expr, ...], b: _Binder) -> Program:
            n = len(group)
            return Reduce(roots[:n], tuple(e.value[0] for e in group), roots[n:], b.inputs(), b.scalars())
        self._step(program, (*[e.args[0] for e in group], *posts), kept, inner, outs, numbers)
        self._replace({e: F.operand(ref, e.dtype, kept) for e, ref in stored.items()})

    def _scan(self, e: Expr) -> None:
        how, axis, reverse = e.value
        kept = self._sorted(F.place(e) - {axis})
        outs: list[Ref] = []
        posts: list[Expr] = []
        for k, x in list(self.outs.items()):
            if self.axes[k] == self._sorted(F.place(e)) and _made_of(x, {e}):
                posts.append(x)
                outs.append(("out", k))
                del self.outs[k]
        ref: Ref | None = None
        if e in set(E.walk(tuple(self.outs.values()))):
            ref = self._temp(e, kept + axis)
            posts.append(e)
            outs.append(ref)
        self._step(lambda roots, b: Scan(roots[0], how, roots[1:], b.inputs(), b.scalars(), reverse), (e.args[0], *posts), kept, axis,
                   outs, {e: 0})
        if ref is not None:
            self._replace({e: F.operand(ref, e.dtype, kept + axis)})

    # ---------------------------------------------------------------------------------------------------------- pieces
    def _temp(self, e: Expr, axes: str) -> Ref:
        self.temps.append((axes, e.dtype))
        return ("temp", len(self.temps) - 1)

    def _replace(self, made: dict[Expr, Expr]) -> None:
        if made and self.outs:
            self.outs = dict(zip(self.outs, E.rebuild(tuple(self.outs.values()), made.get), strict=True))

    def _step(self, program: Any, roots: tuple[Expr, ...], kept: str, inner: str, outs: Sequence[Ref], accs: Mapping[Expr, int] | None = None) -> None:
        binder = _Binder(accs or {}, kept + inner, self.ranks, inner)
        made = program(E.rebuild(roots, binder.change), binder)
        self.steps.append(Step(made, kept, inner, tuple(outs), tuple(binder.ins), tuple(binder.numbers)))


class _Binder:
    """Puts a program's inputs, numbers, accumulators and coordinates in the place of a formula's leaves."""

    def __init__(self, accs: Mapping[Expr, int], walked: str, ranks: Mapping[str, int], inner: str) -> None:
        self.accs, self.walked, self.ranks, self.inner = accs, walked, ranks, inner
        self.ins: dict[Ref, dtype] = {}
        self.numbers: dict[Ref, dtype] = {}
        self.at: dict[Ref, int] = {}

    def inputs(self) -> tuple[dtype, ...]:
        return tuple(self.ins.values())

    def scalars(self) -> tuple[dtype, ...]:
        return tuple(self.numbers.values())

    def change(self, e: Expr) -> Expr | None:
        if e.op == "operand":
            which = e.value[0]
            ref = which if isinstance(which, tuple) and which and which[0] in ("temp", "out") else ("operand", which)
            self.at.setdefault(ref, len(self.ins))
            self.ins[ref] = e.dtype
            return E.input(self.at[ref], e.dtype)
        if e in self.accs:
            return E.acc(self.accs[e], e.dtype)
        if e.op in ("scalar", "extent"):
            number: Ref = (e.op, e.value)
            number = (*number, e.dtype)
            self.at.setdefault(number, len(self.numbers))
            self.numbers[number] = e.dtype
            return E.scalar(self.at[number], e.dtype)
        if e.op == "index":
            return self._coordinate(e.value)
        return None

    def _coordinate(self, axis: str) -> Expr:
        rank = self.ranks[axis]
        if axis == self.inner and rank <= 1:
            return E.coord(-1)
        if rank != 1:
            raise NotImplementedError(f"the index of axis {axis!r}, which stands for {rank} axes")
        return E.coord(sum(self.ranks[a] for a in self.walked[:self.walked.index(axis)]))


_FOLDS: dict[Expr, frozenset[Expr]] = {}


def _folds_in(e: Expr) -> frozenset[Expr]:
    """The folds and scans an expression contains."""
    found = _FOLDS.get(e)
    if found is None:
        for x in E.walk((e,)):
            if x not in _FOLDS:
                own = frozenset((x,)) if x.op in ("fold", "scan") else frozenset()
                _FOLDS[x] = own.union(*[_FOLDS[a] for a in x.args])
        found = _FOLDS[e]
    return found


def _largest(roots: Sequence[Expr], fits: Callable[[Expr], bool]) -> list[Expr]:
    """The expressions within `roots` that fit and are part of no other that does."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            if fits(e):
                found[e] = None
            else:
                stack.extend(reversed(e.args))
    return list(found)


def _made_of(e: Expr, folds: set[Expr]) -> bool:
    """Whether an expression needs these folds and numbers only."""
    stack, some = [e], False
    while stack:
        x = stack.pop()
        if x in folds:
            some = True
        elif x.op in ("operand", "index", "fold", "scan", "gather"):
            return False
        else:
            stack.extend(x.args)
    return some


def _by_level(folds: Sequence[Expr]) -> list[Expr]:
    """Folds that need each other last, so that those of one level stand together."""
    level: dict[Expr, int] = {}
    for e in folds:
        level[e] = 1 + max((level[x] for x in _folds_in(e.args[0])), default=0)
    return sorted(folds, key=level.__getitem__)


# -------------------------------------------------------------------------------------------------------------- layouts
class Launch:
    """A program with its domain and its operands' strides, outputs first."""

    __slots__ = ("step", "program", "domain", "strides")

    def __init__(self, step: Step, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> None:
        self.step, self.program, self.domain, self.strides = step, step.program, domain, strides


def launches(made: Schedule, sizes: Mapping[str, tuple[int, ...]], layouts: Mapping[Ref, Layout]) -> list[Launch] | None:
    """What `made` launches on operands of these layouts; None where a Rows program cannot walk its inner axes as one.

    Temps lie densely, in the order of their axes.
    """
    dense = {("temp", k): _dense(axes, sizes) for k, (axes, _) in enumerate(made.temps)}
    found = []
    for step in made.steps:
        given = [dense[r] if r[0] == "temp" else layouts[r] for r in (*step.outs, *step.ins)]
        if isinstance(step.program, (Rows, Scan)):
            one = _as_one(step, sizes, given)
            if one is None:
                return None
            found.append(one)
            continue
        domain = tuple(n for a in step.kept + step.inner for n in sizes[a])
        strides = []
        for i, layout in enumerate(given):
            over = step.kept if isinstance(step.program, Reduce) and i < len(step.outs) else step.kept + step.inner
            strides.append(_along(over, sizes, layout))
        found.append(Launch(step, domain, tuple(strides)))
    return found


def _along(axes: str, sizes: Mapping[str, tuple[int, ...]], layout: Layout) -> tuple[int, ...]:
    return tuple(s for a in axes for s in (layout[a] if a in layout else (0,) * len(sizes[a])))


def _dense(axes: str, sizes: Mapping[str, tuple[int, ...]]) -> Layout:
    made: dict[str, tuple[int, ...]] = {}
    step = 1
    for a in reversed(axes):
        steps = []
        for n in reversed(sizes[a]):
            steps.append(step)
            step *= max(n, 1)
        made[a] = tuple(reversed(steps))
    return made


def _as_one(step: Step, sizes: Mapping[str, tuple[int, ...]], given: Sequence[Layout]) -> Launch | None:
    """The launch with all inner axes as one; they are taken in any order that makes them one."""
    inner = tuple(n for a in step.inner for n in sizes[a])
    strides = [_along(step.inner, sizes, layout) for layout in given]
    walked = [(n, tuple(s[i] for s in strides)) for i, n in enumerate(inner) if n != 1]
    if not isinstance(step.program, Scan) and len(walked) > 1:
        lead = max(range(len(given)), key=lambda k: (sum(s != 0 for s in strides[k]), -k))
        walked.sort(key=lambda axis: -abs(axis[1][lead]))
    while len(walked) > 1:
        (outer, far), (n, near) = walked[-2:]
        if any(f != n * s for f, s in zip(far, near, strict=True)):
            return None
        walked[-2:] = [(outer * n, near)]
    size, steps = walked[0] if walked else (1, (0,) * len(given))
    if not walked:
        steps = tuple(int(any(a in layout for a in step.inner)) for layout in given)
    kept = tuple(n for a in step.kept for n in sizes[a])
    full = tuple((*(_along(step.kept, sizes, layout)), s) for layout, s in zip(given, steps, strict=True))
    return Launch(step, (*kept, size), full)
