"""Means and variances: formulas of what is reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import int64, title
from ..engine.fields import has
from ..errors import warn
from ..kernels import expr as E
from ..kernels import formulas as F
from ..tensor import Tensor
from .elementwise import _type_name
from .families import reduction, same, summed
from .row_places import asked, row_pairs, row_values
from .rowwise import Rowwise
from .table import op

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dtypes import dtype as dtype_class


def _variance(x: E.Expr, correction: E.Expr) -> tuple[E.Expr, E.Expr]:
    """The variance and the mean."""
    mean = F.mean(x, "c")
    total = F.total(F.squared_size(x - mean), "c")
    freedom = F.count("c", total.dtype) - correction
    return F.ruled(total / E.maximum(freedom, 0.0), (total, freedom), _share), mean


def _share(g: E.Expr, var: E.Expr, total: E.Expr, freedom: E.Expr) -> tuple[E.Expr, None]:
    return g / freedom, None  # PyTorch divides by less than nothing here


def _no_freedom(x: E.Expr, correction: E.Expr) -> tuple[E.Expr, E.Expr]:
    """The variance and the mean of all elements of a tensor, where there are no more of them than `correction`.  PyTorch's gradient is then an
    infinity of one sign, and NaN at elements that are the mean."""
    mean = F.mean(x, "c")
    squares = F.ruled(F.squared_size(x - mean), (x, F.fixed(mean)), _infinite)
    return F.total(squares, "c") / F.fixed(E.maximum(F.count("c", squares.dtype) - correction, 0.0)), mean


def _infinite(g: E.Expr, square: E.Expr, x: E.Expr, mean: E.Expr) -> tuple[E.Expr, None]:
    # g has been divided by no freedom already: it is an infinity with its sign, or NaN
    return g * E.where(x == mean, E.const(float("nan"), x.dtype), E.const(1.0, x.dtype)), None


def _forms(variance: Callable[[E.Expr, E.Expr], tuple[E.Expr, E.Expr]]) -> dict[str, Rowwise]:
    """var, std, var_mean and std_mean of a variance."""
    def var(x: E.Expr, correction: E.Expr) -> Any:
        var, mean = variance(x, correction)
        return (var,), (mean,)

    def std(x: E.Expr, correction: E.Expr) -> Any:
        var, mean = variance(x, correction)
        std = F.safe_sqrt(var)
        return (std,), (std, mean)

    def var_mean(x: E.Expr, correction: E.Expr) -> Any:
        made = variance(x, correction)
        return made, made[1:]

    def std_mean(x: E.Expr, correction: E.Expr) -> Any:
        var, mean = variance(x, correction)
        std = F.safe_sqrt(var)
        return (std, mean), (std, mean)
    return {"var": Rowwise("var", "rc -> r", var, row_values, numbers="f"), "std": Rowwise("std", "rc -> r", std, row_values, numbers="f"),
            "var_mean": Rowwise("var_mean", "rc -> r, r", var_mean, row_pairs, numbers="f"),
            "std_mean": Rowwise("std_mean", "rc -> r, r", std_mean, row_pairs, numbers="f")}


_FORMS, _WITHOUT_FREEDOM = _forms(_variance), _forms(_no_freedom)


def _type_of_mean(name: str, d: dtype_class, wanted: dtype_class | None) -> dtype_class:
    result = d if wanted is None else wanted
    if result.kind not in "fc":
        raise RuntimeError(f"mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
                           f"{result.name.capitalize() if result is not int64 else 'Long'}")
    return result


mean = reduction("mean", lambda x: x, "sum", lambda total, n: total / n, types=_type_of_mean, overloads=True,
                 doc="The arithmetic mean over `dim`; NaN for no elements.  Raises RuntimeError for integers without dtype.")


def _known(x: E.Expr) -> E.Expr:
    """x without NaN; complex numbers as they are."""
    return E.where(E.isnan(x), E.const(0, x.dtype), x) if x.dtype.kind == "f" else x


def _type_of_nanmean(name: str, d: dtype_class, wanted: dtype_class | None) -> dtype_class:
    if d.kind not in "fc":
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {_type_name(d)}")
    return same(name, d, wanted)


def _known_numbers(t: Tensor, result: dtype_class) -> Tensor:
    """The operand of a sum without NaN, which no integer is: it is left out before.  Raises for complex numbers where PyTorch does."""
    d = t.meta.dtype
    if d.is_complex and t.meta.device.type == "cpu":
        raise RuntimeError("nansum on CPU does not support complex inputs")
    if d.kind == "f" and result.is_complex and t.meta.numel:
        raise NotImplementedError(f"\"nansum_cpu\" not implemented for '{title(result)}'")
    return t.masked_fill(t != t, 0.0) if d.kind == "f" and result.kind != "f" else t


nansum = reduction("nansum", _known, "sum", types=summed, prepare=_known_numbers, doc="The sum of what is not NaN.")
nanmean = reduction("nanmean", lambda x: F.total(_known(x), "c") / F.total(E.where(E.isnan(x), E.const(0, x.dtype), E.const(1, x.dtype)), "c"),
                    types=_type_of_nanmean, prepare=_known_numbers, doc="The mean of what is not NaN.")


def _spread(name: str, t: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any) -> list[Tensor]:
    if t.meta.dtype.kind not in "fc":
        raise RuntimeError("std and var only support floating point and complex dtypes")
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    whole = (dim is None or not t.meta.shape) and t.meta.numel <= correction and t.meta.dtype.kind == "f"
    made = (_WITHOUT_FREEDOM if whole else _FORMS)[name]((t,), (float(correction),), (asked(dim, t.meta), keepdim))
    results = made[0].meta.numel
    if (t.meta.numel // results if results else 0) <= correction:
        warn(f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel divided by "
             "output numel).")
    return made


@op(out=True, batch="along all", out_type="castable")
def var(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Tensor:  # noqa: A002
    """The variance over `dim`, the sum of squared deviations divided by n - correction (1 by default)."""
    return _spread("var", input, dim, unbiased, keepdim, correction)[0]


@op(out=True, batch="along all", out_type="castable")
def std(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Tensor:  # noqa: A002
    """The square root of `var`."""
    return _spread("std", input, dim, unbiased, keepdim, correction)[0]


@op(method=False, batch="along all")
def var_mean(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:  # noqa: A002
    """`var` and `mean`."""
    made = _spread("var_mean", input, dim, unbiased, keepdim, correction)
    return made[0], made[1]


@op(method=False, batch="along all")
def std_mean(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None) -> Any:  # noqa: A002
    """`std` and `mean`."""
    made = _spread("std_mean", input, dim, unbiased, keepdim, correction)
    return made[0], made[1]

has("mean nanmean nansum", batch="along all", out_type="castable")
has("mean", tangent="linear")
