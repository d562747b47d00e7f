"""Operations from one formula of a few lines: reductions, and operations on rows.

    sumsq = reduction("sumsq", lambda x: x * x, "sum")
    center = rows("center", lambda x: x - F.mean(x, "c"))

Each is a row of the op table: a function and a method with PyTorch's parameters, `out=`, types, the kernels of every target, and the
gradient and its gradient, derived from the formula (`kernels.derive_rows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..kernels import formulas as F
from ..layout import wrap_dims
from ..tensor import Tensor
from .casts import to_dtype
from .checks import may_record
from .elementwise import _type_name
from .row_places import asked, elements, row_values
from .rowwise import Rowwise
from .table import op

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dtypes import dtype as dtype_class
    from ..kernels.expr import Expr

FORMS: dict[str, Rowwise] = {}  # of the operations made here, by name


def summed(name: str, d: dtype_class, wanted: dtype_class | None) -> dtype_class:
    """The type of a sum's result: integers are summed in int64."""
    return wanted if wanted is not None else dtypes.int64 if d.kind in "bui" else d


def floating(name: str, d: dtype_class, wanted: dtype_class | None) -> dtype_class:
    """The type of a result that is no integer; integers are computed in the default float type."""
    return wanted if wanted is not None else dtypes.get_default_dtype() if d.kind in "bui" else d


def same(name: str, d: dtype_class, wanted: dtype_class | None) -> dtype_class:
    return d if wanted is None else wanted


def reduction(name: str, element: Callable[[Expr], Any], how: str = "", finish: Callable[[Expr, Expr], Expr] | None = None, *,
              types: Callable[..., dtype_class] = floating, accept: str = "buifc", prepare: Callable[[Tensor, dtype_class], Tensor] | None = None,
              dtype: bool = True, overloads: bool = False, method: bool = True, out: bool = True, spaces: tuple[str, ...] = ("torch",),
              aliases: tuple[str, ...] = (), doc: str = "", **fields: Any) -> Any:
    """``name(input, dim=None, keepdim=False, *, dtype=None)``: the function of a reduction over one axis, several or all.

    element: the formula of what is combined by `how` ("sum", "max", "min"), and finish, if there is one, of (that, how many there
    are).  Without `how`, element is the whole formula of the result: it folds along "c" itself, as often as it likes.  types: from
    (name, type, dtype asked for) to the result's type.  accept: kinds of result types.  prepare: from (input, result's type) to the
    operand; raises for what is not taken.  dtype: False where the function does not take it.  overloads: PyTorch numbers its gradient's
    name, 0 without `dim` and 1 with one.  method, out, spaces, aliases, fields: see `table.op`.
    """
    def formula(x: Expr) -> Any:
        y = element(x)
        if how:
            y = F.fold(how, y, "c")
        if finish is not None:
            y = finish(y, F.count("c", y.dtype))
        return (y,), (y,) if how != "sum" or finish is not None else ()
    whole = form = FORMS[name] = Rowwise(name, "rc -> r", formula, row_values)
    if overloads:
        form = Rowwise(name, "rc -> r", formula, row_values, grad_name=f"{whole.grad_name[:-1]}1")

    def reduced(input: Tensor, dim: Any, keepdim: bool, wanted: dtype_class | None) -> Tensor:  # noqa: A002
        d = input.meta.dtype
        result = types(name, d, wanted)
        if result.kind not in accept:
            raise NotImplementedError(f"\"{name}\" not implemented for '{_type_name(result)}'")
        if prepare is not None:
            wrap_dims(dim, len(input.meta.shape))  # a wrong one is told of first
            input = prepare(input, result)
        if result.is_complex != d.is_complex:
            input = to_dtype(input, result)
        may_record(name, result, input)
        chosen = whole if dim is None else form
        return chosen((input,), where=(asked(dim, input.meta), keepdim), result=result)[0]
    if dtype:
        def function(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: A002
            return reduced(input, dim, keepdim, dtype)
    else:
        def function(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:  # type: ignore[misc]  # noqa: A002
            return reduced(input, dim, keepdim, None)
    return _named(function, name, doc or f"The {name} over `dim`.", method, out, spaces, aliases, fields)


def rows(name: str, element: Callable[[Expr], Expr], *, types: Callable[..., dtype_class] = floating, accept: str = "f", method: bool = True,
         out: bool = True, spaces: tuple[str, ...] = ("torch",), aliases: tuple[str, ...] = (), doc: str = "", **fields: Any) -> Any:
    """``name(input, dim, *, dtype=None)``: the function of an operation that gives a row of one axis, or of several, another.

    element: the formula of a result's element; it folds along "c" as often as it likes.  The rest is as for `reduction`.
    """
    def formula(x: Expr) -> Any:
        y = element(x)
        return (y,), (y,)
    form = FORMS[name] = Rowwise(name, "rc -> rc", formula, elements, like="dense")

    def function(input: Tensor, dim: Any, *, dtype: Any = None) -> Tensor:  # noqa: A002
        result = types(name, input.meta.dtype, dtype)
        if result.kind not in accept:
            raise NotImplementedError(f"\"{name}\" not implemented for '{_type_name(result)}'")
        return form((input,), where=(asked(dim, input.meta),), result=result)[0]
    return _named(function, name, doc or f"{name} of each row along `dim`.", method, out, spaces, aliases, fields)


def _named(function: Any, name: str, doc: str, method: bool, out: bool, spaces: tuple[str, ...], aliases: tuple[str, ...],
           fields: dict[str, Any]) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return op(method=method, out=out, spaces=spaces, aliases=aliases, **fields)(function)
