"""Derivatives of formulas with named axes, as such formulas: reverse accumulation over map, fold and scan.

Rules of `derive` serve the primitives.  What is added: a value that varies along fewer axes than where it is used gets
the sum of its gradients over the others, and a fold's gradient goes to all it was made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import derive
from . import expr as E
from . import formulas as F
from .expr import Expr, const, where

if TYPE_CHECKING:
    from collections.abc import Sequence


def gradients(roots: Sequence[Expr], upstream: Sequence[Expr | None], wanted: Sequence[Expr]) -> list[Expr | None]:
    """For each wanted leaf, the sum over roots of upstream * d root / d leaf at the leaf's place; None where it is zero.

    Raises NotImplementedError for a primitive or fold without a derivative on the path.
    """
    order = list(E.walk(tuple(roots)))
    needed: set[Expr] = set(wanted)
    for e in order:
        if e.op != "fixed" and any(a in needed for a in _ways(e)):
            needed.add(e)
    total: dict[Expr, Expr] = {}
    for root, g in zip(roots, upstream, strict=True):
        if g is not None and root.dtype.kind in "fc":
            _add(total, root, g, F.place(root))
    for e in reversed(order):
        g = total.get(e)
        if g is None or e not in needed or not e.args or e.op in derive._ZERO_GRADIENT:
            continue
        # an operand that does not vary where its user does is used once at each place, even where the gradient is the same at all
        over = F.place(e) if e.op not in ("fold", "ruled") else frozenset()
        for a, ga in zip(_ways(e), _rule(e, g), strict=True):
            if ga is not None and a in needed and a.dtype.kind in "fc":
                _add(total, a, ga, over)
    return [total.get(w) for w in wanted]


def _ways(e: Expr) -> tuple[Expr, ...]:
    """The children a gradient goes to."""
    return e.args[1:] if e.op == "ruled" else e.args


def _add(total: dict[Expr, Expr], a: Expr, g: Expr, over: F.Place) -> None:
    """Adds a gradient that arrives at `a` at each place of `over`."""
    lost = (F.place(g) | over) - F.place(a)
    if lost:
        g = F.fold("sum", g, "".join(sorted(lost)))
    if g.dtype is not a.dtype:
        g = E.cast(E.real(g) if g.dtype.is_complex and not a.dtype.is_complex else g, a.dtype)
    total[a] = total[a] + g if a in total else g


def _rule(e: Expr, g: Expr) -> Sequence[Expr | None]:
    if e.op == "fold":
        return (_fold(e, g),)
    if e.op == "scan":
        how, axis, reverse = e.value
        if how != "sum":
            raise NotImplementedError(f"a running {how} has no derivative")
        return (F.scan("sum", g, axis, not reverse),)
    if e.op == "ruled":
        made = e.value(g, e, *e.args[1:])
        return made if isinstance(made, tuple) else (made,)
    rule = derive._RULES.get(e.op)
    if rule is None:
        raise NotImplementedError(f"the primitive {e.op!r} has no derivative")
    return rule(e, e.args, g)


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
