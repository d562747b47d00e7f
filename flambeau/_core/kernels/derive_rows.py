"""Derivatives of formulas with named axes, as such formulas: reverse accumulation over map, fold and scan.

Rules of `derive` serve the primitives.  What is added: a value that varies along fewer axes than where it is used gets
the sum of its gradients over the others, and a fold's gradient goes to all it was made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import derive
from . import expr as E
from . import formulas as F
from .derive import Arrived, ways
from .expr import Expr, const, where

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def gradients(roots: Sequence[Expr], upstream: Sequence[Expr | None], wanted: Sequence[Expr]) -> list[Expr | None]:
    """For each wanted leaf, the sum over roots of upstream * d root / d leaf at the leaf's place; None where it is zero.

    Raises NotImplementedError for a primitive or fold without a derivative on the path.
    """
    order = list(E.walk(tuple(roots)))
    needed: set[Expr] = set(wanted)
    for e in order:
        if e.op != "fixed" and any(a in needed for a in ways(e)):
            needed.add(e)
    total: dict[Expr, Arrived] = {}
    for root, g in zip(roots, upstream, strict=True):
        if g is not None and root.dtype.kind in "fc":
            _add(total, root, Arrived(g), F.place(root))
    for e in reversed(order):
        arrived = total.get(e)
        if arrived is None or e not in needed or not e.args or e.op in derive._ZERO_GRADIENT:
            continue
        # an operand that does not vary where its user does is used once at each place, even where the gradient is the same at all
        over = F.place(e) if e.op not in ("fold", "ruled") else frozenset()
        for a, came in _passed(e, arrived):
            if came is not None and a in needed and a.dtype.kind in "fc":
                _add(total, a, came, over)
    return [total[w].chosen() if w in total else None for w in wanted]


def _add(total: dict[Expr, Arrived], a: Expr, came: Arrived, over: F.Place) -> None:
    """Adds a gradient that arrives at `a` at each place of `over`."""
    g, cases = came.g, came.cases
    lost = F.place(g).union(over, *[F.place(c) for c, _ in cases]) - F.place(a)
    if lost:
        g, cases = F.fold("sum", came.chosen(), "".join(sorted(lost))), frozenset()
    if g.dtype is not a.dtype:
        g = E.cast(E.real(g) if g.dtype.is_complex and not a.dtype.is_complex else g, a.dtype)
    came = Arrived(g, cases)
    total[a] = total[a].plus(came) if a in total else came


def _passed(e: Expr, arrived: Arrived) -> Iterator[tuple[Expr, Arrived | None]]:
    if e.op == "where":
        yield from arrived.branches(e)
        return
    if e.op == "scan":  # which takes in what other places have
        arrived = Arrived(arrived.chosen())
    for a, g in zip(ways(e), _rule(e, arrived.g), strict=True):
        yield a, None if g is None else Arrived(g, arrived.cases)


def _rule(e: Expr, g: Expr) -> Sequence[Expr | None]:
    if e.op == "fold":
        return (_fold(e, g),)
    if e.op == "scan":
        how, axis, reverse = e.value
        if how != "sum":
            raise NotImplementedError(f"a running {how} has no derivative")
        return (F.scan("sum", g, axis, not reverse),)
    return derive.by_rule(e, g)


def _fold(e: Expr, g: Expr) -> Expr:
    how, axes = e.value
    x = e.args[0]
    if how == "sum":
        return g
    if how in ("max", "min"):  # shared equally among the elements that attain it
        hit = x == e
        if x.dtype.kind == "f":
            hit = hit | (E.isnan(x) & E.isnan(e))
        zero, one = const(0, g.dtype), const(1, g.dtype)
        return where(hit, g / F.fold("sum", where(hit, one, zero), axes), zero)
    raise NotImplementedError(f"a fold by {how!r} has no derivative")
