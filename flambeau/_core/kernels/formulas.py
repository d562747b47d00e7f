"""Formulas over a domain whose axes have names: what reductions and row operations are written in.

A place is the set of axes a value varies along, written as letters: over rows "r" and columns "c", an element of the
input has place "rc", a row's mean "r", a weight "c", a number "".  An axis may stand for several axes of a tensor, or for
none.  Beside the primitives of `expr`, a formula has

  ``operand(k, d, axes)``   the element of operand k (any hashable name) at this place
  ``extent(axis, d)``       how many places the axis has
  ``index(axis)``           which of them this is, int64
  ``fold(how, e, axes)``    all values of `e` along `axes` combined: "sum", "prod", "max", "min", "and", "or"
  ``scan(how, e, axis)``    the running "sum" along `axis`, from its end if `reverse`
  ``fixed(e)``              the value of `e`, taken as a constant by differentiation
  ``ruled(e, args, rule)``  the value of `e`, whose gradients at `args` are ``rule(g, e, *args)``

`derive_rows` differentiates formulas and `schedule` turns them into loop programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import int64
from . import expr as E
from .expr import Expr, const, make

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ..dtypes import dtype

Place = frozenset[str]
_NOWHERE: Place = frozenset()
_places: dict[Expr, Place] = {}


def operand(which: Hashable, d: dtype, axes: str) -> Expr:
    return make("operand", d, (), (which, axes))


def extent(axis: str, d: dtype) -> Expr:
    if d.is_complex:
        return E.complex_(extent(axis, d.to_real()), 0.0)
    return make("extent", d, (), axis)


def index(axis: str) -> Expr:
    return make("index", int64, (), axis)


def place(e: Expr) -> Place:
    """The axes the value of `e` varies along."""
    found = _places.get(e)
    if found is None:
        for x in E.walk((e,)):
            if x not in _places:
                _places[x] = _place(x)
        found = _places[e]
    return found


def _place(e: Expr) -> Place:
    if e.op == "operand":
        return frozenset(e.value[1])
    if e.op == "index":
        return frozenset(e.value)
    if e.op == "ruled":
        return _places[e.args[0]]
    found = _NOWHERE.union(*[_places[a] for a in e.args])
    if e.op == "scan":
        return found | {e.value[1]}
    return found - frozenset(e.value[1]) if e.op == "fold" else found


def letters(e: Expr) -> str:
    return "".join(sorted(place(e)))


def fold(how: str, e: Expr, axes: str) -> Expr:
    """All values of `e` along `axes` combined.  Along an axis where it does not vary, a sum is a product by the extent."""
    varies = place(e)
    if how == "sum":
        for a in axes:
            if a not in varies:
                e = e * extent(a, e.dtype)
    elif how == "prod":
        for a in axes:
            if a not in varies:
                e = E.pow_(e, extent(a, e.dtype))
    along = "".join(a for a in axes if a in varies)
    return make("fold", e.dtype, (e,), (how, along)) if along else e


def total(e: Expr, axes: str) -> Expr:
    return fold("sum", e, axes)


def mean(e: Expr, axes: str) -> Expr:
    return fold("sum", e, axes) / count(axes, e.dtype)


def count(axes: str, d: dtype) -> Expr:
    """How many places `axes` have together."""
    made = extent(axes[0], d) if axes else const(1, d)
    for a in axes[1:]:
        made = made * extent(a, d)
    return made


def scan(how: str, e: Expr, axis: str, reverse: bool = False) -> Expr:
    return make("scan", e.dtype, (e,), (how, axis, reverse))


def fixed(e: Expr) -> Expr:
    return make("fixed", e.dtype, (e,))


def ruled(e: Expr, args: tuple[Expr, ...], rule: Callable[..., Any]) -> Expr:
    """`rule` is a function of a module: formulas are compared by it."""
    return make("ruled", e.dtype, (e, *args), rule)


def plain(roots: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The expressions without what only differentiation heeds."""
    return E.rebuild(roots, _unmarked)


def _unmarked(e: Expr) -> Expr | None:
    if e.op not in ("fixed", "ruled"):
        return None
    (inner,) = E.rebuild((e.args[0],), _unmarked)
    return inner


# ------------------------------------------------------------------------------------------------------- common pieces
def safe_sqrt(e: Expr) -> Expr:
    """The square root, whose gradient at 0 is taken as 0."""
    return ruled(E.sqrt(e), (e,), _at_zero)


def _at_zero(g: Expr, y: Expr, x: Expr) -> tuple[Expr]:
    zero, one = const(0, y.dtype), const(1, y.dtype)
    nothing = y == zero
    return (E.where(nothing, zero, g / (E.where(nothing, one, y) * 2.0)),)  # no 0 / 0, which would spoil the next derivative


def largest(e: Expr, axes: str) -> Expr:
    """The maximum along `axes` as a constant, 0 where it is infinite: what to subtract before exp."""
    top = fold("max", e, axes)
    return fixed(E.where(abs(top) == float("inf"), const(0, top.dtype), top))


def logsumexp(e: Expr, axes: str) -> Expr:
    """log(sum(exp(e))) without overflow."""
    top = largest(e, axes)
    return E.log(total(E.exp(e - top), axes)) + top


def squared_size(e: Expr) -> Expr:
    """|e| squared, a real number."""
    return E.real(e) * E.real(e) + E.imag(e) * E.imag(e) if e.dtype.is_complex else e * e
