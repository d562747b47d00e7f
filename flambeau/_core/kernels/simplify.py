"""Derived formulas made short: sums of products, with what does not vary taken out of sums, and saved values used again.

A derivative by rules says ``g / s * e + sum(-g * (e / s / s)) * e`` for softmax.  Here every expression becomes a sum of
products of powers of *atoms* (leaves, functions, folds, and sums that stand inside products, which stay as they are:
nothing is multiplied out, so nothing is lost to cancellation).  Then

* a fold's summand gives up the factors that do not vary along the fold's axes;
* the sum of deviations from a mean is 0;
* the product of an element and a factor of its row that stands in the formula already (``e / s``, ``(x - mean) * rstd``) is
  put in the place of its factors, also inside a fold whose product holds the rest of it;
* a saved value that has ``log(s)`` in it gives ``exp(a) / s`` as one exponential;
* a sum gives up its common factors.

As with all gradients, 0 * x is taken for 0, and x / x for 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import expr as E
from . import formulas as F
from .expr import Expr, const

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..dtypes import dtype

    Factors = frozenset[tuple[Expr, int]]
    Sum = dict[Factors, float]

_ONE: Factors = frozenset()


def simplify(roots: Sequence[Expr | None], primal: Iterable[Expr], saved: Sequence[Expr], differentiated: Iterable[Expr] = ()) -> list[Expr | None]:
    """The same values at less cost.

    primal: the results of the operation's own formula; saved: expressions of it whose values are at hand; differentiated: what
    `roots` are the derivatives of, where that is itself a derivative.
    """
    if any(e.dtype.is_complex for r in roots if r is not None for e in E.walk((r,))):
        return list(roots)
    work = _Simplifier(tuple(primal), saved, tuple(differentiated))
    return [None if r is None else work.short(r) for r in roots]


class _Pattern:
    """A product (factors, coefficient 1) that is the value of another expression."""

    __slots__ = ("factors", "made")

    def __init__(self, factors: dict[Expr, int], made: Expr) -> None:
        self.factors, self.made = factors, made


class _Simplifier:
    def __init__(self, primal: tuple[Expr, ...], saved: Sequence[Expr], differentiated: tuple[Expr, ...]) -> None:
        self.sums: dict[Expr, Sum] = {}
        self.spelled: dict[frozenset[tuple[Factors, float]], Expr] = {}  # how the formula writes a sum
        self.inside: dict[Expr, tuple[Sum, str]] = {}  # what a fold that we made adds up
        self.texts: dict[Expr, str] = {}
        self.patterns: list[_Pattern] = []
        self.products: dict[Expr, Factors] = {}  # what the patterns' products are made of
        self.saved = set(saved)
        own = list(E.walk(primal))
        self.widest = max(len(F.place(e)) for e in own) or 1
        for e in E.walk((*primal, *differentiated)):
            if e.op in ("add", "sub") and e.dtype.kind == "f" and e not in self.saved:
                self.spelled.setdefault(frozenset(self.sum_of(e).items()), e)
        for e in (*saved, *own):
            self._note_product(e)
        for e in saved:
            self._note_logarithm(e, own)
        self.sums.clear()

    # -------------------------------------------------------------------------------------------------------- patterns
    def _note_product(self, e: Expr) -> None:
        """A product of the formula's that is worth finding again: a saved one, or an element scaled by a value of its row."""
        if e.dtype.kind != "f" or e.op not in ("mul", "div"):
            return
        if e not in self.saved and not any(F.place(b) < F.place(a) and not _leaf(b) for a, b in (e.args, e.args[::-1])):
            return
        terms = self.sum_of(e)
        if len(terms) == 1:
            ((factors, coefficient),) = terms.items()
            if coefficient == 1.0 and len(factors) > 1:
                self.patterns.append(_Pattern(dict(factors), e))
                self.products[e] = factors

    def _note_logarithm(self, saved: Expr, own: Sequence[Expr]) -> None:
        """From saved = rest + log(s): exp(a) / s is exp(a + rest - saved), where that is the shorter."""
        terms = self._sum_of(saved)
        for factors, sign in terms.items():
            log = next(iter(factors))[0] if len(factors) == 1 else saved
            if log.op != "log" or abs(sign) != 1.0 or (log, 1) not in factors:
                continue
            # log(s) = sign * (saved - rest)
            rest = {f: c for f, c in terms.items() if f != factors}
            known: Factors = frozenset({(saved, 1)})
            for e in own:
                if e.op == "exp" and e.dtype is saved.dtype:
                    a = self.sum_of(e.args[0])
                    power = _plus(_plus(a, {known: -sign}), rest, sign)
                    if len(power) <= len(a):
                        made = E.exp(saved if power == {known: 1.0} else self.written(power, e.dtype))
                        self.patterns.append(_Pattern({e: 1, log.args[0]: -1}, made))

    # ------------------------------------------------------------------------------------------------------ normal form
    def short(self, e: Expr) -> Expr:
        if e.op == "cast":
            return E.cast(self.short(e.args[0]), e.dtype)
        return self.written(self.sum_of(e), e.dtype) if e.dtype.kind == "f" else e

    def sum_of(self, e: Expr) -> Sum:
        found = self.sums.get(e)
        if found is None:
            whole = e.dtype.kind != "f" or (e in self.saved and e.op in ("add", "sub"))
            found = self.sums[e] = _atom(e) if whole else self._sum_of(e)
        return found

    def _sum_of(self, e: Expr) -> Sum:
        op, args = e.op, e.args
        if op == "const":
            return _atom(e) if e.value != e.value else {_ONE: e.value} if e.value else {}
        if op == "add":
            return _plus(self.sum_of(args[0]), self.sum_of(args[1]))
        if op == "sub":
            return _plus(self.sum_of(args[0]), self.sum_of(args[1]), -1.0)
        if op == "neg":
            return _plus({}, self.sum_of(args[0]), -1.0)
        if op == "mul":
            return self._product(self.sum_of(args[0]), self.sum_of(args[1]), e.dtype)
        if op == "div":
            below = self.sum_of(args[1])
            return self._product(self.sum_of(args[0]), self._inverse(below, e.dtype), e.dtype) if below else _atom(e)
        if op == "fold" and e.value[0] == "sum":
            return self._fold(self.sum_of(args[0]), e.value[1], e.dtype)
        if op == "scan":
            return _atom(E.make("scan", e.dtype, (self.short(args[0]),), e.value))
        if op == "cast":
            return _atom(E.cast(self.short(args[0]), e.dtype))
        if op == "where":
            return self._where(e)
        return _atom(e)

    def _where(self, e: Expr) -> Sum:
        """A choice; a factor of both sides that varies less than the choice does, and is no division, is multiplied afterwards."""
        condition, yes, no = e.args
        a, b = self.sum_of(yes), self.sum_of(no)
        if not a and not b:
            return {}
        sides = [dict(next(iter(side))) for side in (a, b) if len(side) == 1]
        if len(sides) == bool(a) + bool(b):
            common = {x: p for x, p in sides[0].items() if p > 0 and F.place(x) < F.place(condition) and all(s.get(x) == p for s in sides)}
            if common:
                taken = frozenset(common.items())
                a, b = ({next(iter(side)) - taken: c for c in side.values()} for side in (a, b))
                choice = E.where(condition, self.written(a, e.dtype), self.written(b, e.dtype))
                return {taken | {(choice, 1)}: 1.0}
        return _atom(E.where(condition, self.written(a, e.dtype), self.written(b, e.dtype)))

    def _product(self, a: Sum, b: Sum, d: dtype) -> Sum:
        if not a or not b:
            return {}
        (fa, ca), (fb, cb) = self._single(a, d), self._single(b, d)
        powers = dict(fa)
        for x, p in fb:
            powers[x] = powers.get(x, 0) + p
        return self._found(powers, ca * cb)

    def _inverse(self, a: Sum, d: dtype) -> Sum:
        factors, coefficient = self._single(a, d)
        return {frozenset((x, -p) for x, p in factors): 1.0 / coefficient}

    def _single(self, a: Sum, d: dtype) -> tuple[Factors, float]:
        """A sum as one product: what is common to its terms, and an atom of the rest."""
        if len(a) == 1:
            return next(iter(a.items()))
        spelled = self.spelled.get(frozenset(a.items()))
        if spelled is not None:
            return frozenset({(spelled, 1)}), 1.0
        common, coefficient, rest = _content(a)
        return common | {(self._spelled(rest, d), 1)}, coefficient

    def _spelled(self, a: Sum, d: dtype) -> Expr:
        found = self.spelled.get(frozenset(a.items()))
        if found is None:
            found = self._added(a, d)
            self.spelled[frozenset(a.items())] = found
            self.sums[found] = a
        return found

    def _fold(self, a: Sum, axes: str, d: dtype) -> Sum:
        """The terms in groups of what they have outside the fold."""
        groups: dict[Factors, Sum] = {}
        for factors, coefficient in a.items():
            still = frozenset((x, p) for x, p in factors if not F.place(x) & set(axes))
            groups.setdefault(still, {})[factors - still] = coefficient
        made: Sum = {}
        for still, inner in groups.items():
            made = _plus(made, self._product({still: 1.0}, self._folded(inner, axes, d), d))
        return made

    def _folded(self, inner: Sum, axes: str, d: dtype) -> Sum:
        if set(inner) == {_ONE}:
            return self.sum_of(const(inner[_ONE], d) * F.count(axes, d))
        if len(inner) == 1:
            ((factors, coefficient),) = inner.items()
            if self._vanishes(factors, axes, d):
                return {}
            return _plus({}, _atom(self._fold_atom({factors: 1.0}, axes, d)), coefficient)
        return _atom(self._fold_atom(inner, axes, d))

    def _vanishes(self, factors: Factors, axes: str, d: dtype) -> bool:
        """Whether the sum along `axes` is that of deviations from a mean."""
        (x, p), *more = factors
        if more or p != 1:
            return False
        if x in self.products:
            varying = frozenset(f for f in self.products[x] if F.place(f[0]) & set(axes))
            return self._vanishes(varying, axes, d)
        if x.op not in ("add", "sub"):
            return False
        apart: Sum = {}
        for f, c in self.sum_of(x).items():
            apart = _plus(apart, self._fold({f: c}, axes, d))
        whole: Sum = {}
        for f, c in apart.items():
            whole = _plus(whole, {self._taken_apart(f): c})
        return not whole

    def _taken_apart(self, factors: Factors) -> Factors:
        """The factors without known products among them."""
        powers: dict[Expr, int] = {}
        for x, p in factors:
            for y, q in self._taken_apart(self.products[x]) if x in self.products else ((x, 1),):
                powers[y] = powers.get(y, 0) + p * q
        return frozenset((x, p) for x, p in powers.items() if p)

    def _fold_atom(self, inner: Sum, axes: str, d: dtype) -> Expr:
        made = F.fold("sum", self.written(inner, d), axes)
        self.inside[made] = inner, axes
        return made

    # ----------------------------------------------------------------------------------------------- patterns, applied
    def _found(self, powers: dict[Expr, int], coefficient: float) -> Sum:
        powers = {x: p for x, p in powers.items() if p}
        for pattern in self.patterns:
            times = min(powers.get(x, 0) // p if powers.get(x, 0) * p > 0 else 0 for x, p in pattern.factors.items())
            if times > 0:
                for x, p in pattern.factors.items():
                    powers[x] -= times * p
                powers[pattern.made] = powers.get(pattern.made, 0) + times
                powers = {x: p for x, p in powers.items() if p}
        for x in [x for x, p in powers.items() if p == 1 and x in self.inside]:
            self._into_fold(x, powers)
        return {frozenset(powers.items()): coefficient}

    def _into_fold(self, fold: Expr, powers: dict[Expr, int]) -> None:
        """Moves factors beside a fold into it where they make a known product there."""
        inner, axes = self.inside[fold]
        if len(inner) != 1:
            return
        ((factors, coefficient),) = inner.items()
        have = dict(factors)
        for pattern in self.patterns:
            within = {x: p for x, p in pattern.factors.items() if F.place(x) & set(axes)}
            beside = {x: p for x, p in pattern.factors.items() if x not in within}
            if not within or not beside or fold not in powers:
                continue
            if all(have.get(x, 0) * p >= p * p for x, p in within.items()) and all(
                    powers.get(x, 0) * p >= p * p for x, p in beside.items()):
                for x, p in within.items():
                    have[x] -= p
                for x, p in beside.items():
                    powers[x] -= p
                have[pattern.made] = have.get(pattern.made, 0) + 1
                have = {x: p for x, p in have.items() if p}
                del powers[fold]
                fold = self._fold_atom({frozenset(have.items()): coefficient}, axes, fold.dtype)
                powers[fold] = powers.get(fold, 0) + 1
        for x in [x for x, p in powers.items() if not p]:
            del powers[x]

    # ----------------------------------------------------------------------------------------------------------- writing
    def written(self, a: Sum, d: dtype) -> Expr:
        if not a:
            return const(0, d)
        spelled = self.spelled.get(frozenset(a.items()))
        if spelled is not None:
            return spelled
        if len(a) > 1:
            common, coefficient, rest = _content(a)
            if common or coefficient != 1.0:
                # again, as the common factors may make known products with the rest
                again = self._found({**dict(common), self._spelled(rest, d): 1}, coefficient)
                return self.written(again, d)
            return self._added(a, d)
        ((factors, coefficient),) = a.items()
        return self._multiplied(factors, coefficient, d)

    def _added(self, a: Sum, d: dtype) -> Expr:
        made: Expr | None = None
        for factors, coefficient in sorted(a.items(), key=lambda t: t[1] < 0):  # a positive term first; stable
            if made is None:
                made = self._multiplied(factors, coefficient, d)
            elif coefficient < 0:
                made = made - self._multiplied(factors, -coefficient, d)
            else:
                made = made + self._multiplied(factors, coefficient, d)
        assert made is not None
        return made

    def _multiplied(self, factors: Factors, coefficient: float, d: dtype) -> Expr:
        """The product, what varies least first: it is then worked out once a row."""
        order = sorted(factors, key=lambda f: (len(F.place(f[0])), self._text(f[0])))
        made: Expr | None = const(abs(coefficient), d) if abs(coefficient) != 1.0 else None
        below: Expr | None = None
        at = 0
        while at < len(order):
            size = len(F.place(order[at][0]))
            group = []
            while at < len(order) and len(F.place(order[at][0])) == size:
                group.append(order[at])
                at += 1
            above = _powers([(x, p) for x, p in group if p > 0])
            under = _powers([(x, -p) for x, p in group if p < 0])
            if size == self.widest and below is not None and made is None:
                made, below = 1.0 / below, None  # once a row, instead of a division for every element
            if above is not None:
                made = above if made is None else made * above
            if under is not None:
                below = under if below is None else below * under
            if below is not None and made is not None:
                made, below = made / below, None
        if below is not None:
            made = 1.0 / below
        if made is None:
            made = const(1, d)
        return -made if coefficient < 0 else made

    def _text(self, e: Expr) -> str:
        found = self.texts.get(e)
        if found is None:
            found = self.texts[e] = E.program_text((e,))
        return found


def _leaf(e: Expr) -> bool:
    while e.op == "cast":
        e = e.args[0]
    return not e.args


def _atom(e: Expr) -> Sum:
    return {frozenset({(e, 1)}): 1.0}


def _plus(a: Sum, b: Sum, times: float = 1.0) -> Sum:
    made = dict(a)
    for factors, coefficient in b.items():
        c = made.get(factors, 0.0) + times * coefficient
        if c:
            made[factors] = c
        else:
            made.pop(factors, None)
    return made


def _content(a: Sum) -> tuple[Factors, float, Sum]:
    """The factors and the coefficient common to all terms, and what is left."""
    all_powers = [dict(f) for f in a]
    common: dict[Expr, int] = {}
    for x, p in all_powers[0].items():
        powers = [q.get(x, 0) for q in all_powers]
        if all(q * p > 0 for q in powers):
            common[x] = min(powers) if p > 0 else max(powers)
    size = {abs(c) for c in a.values()}
    coefficient = size.pop() if len(size) == 1 else 1.0
    rest: Sum = {}
    for q, c in zip(all_powers, a.values(), strict=True):
        rest[frozenset((x, p - common.get(x, 0)) for x, p in q.items() if p != common.get(x, 0))] = c / coefficient
    return frozenset(common.items()), coefficient, rest


def _powers(group: Sequence[tuple[Expr, int]]) -> Expr | None:
    made: Expr | None = None
    for x, p in group:
        for _ in range(p):
            made = x if made is None else made * x
    return made
