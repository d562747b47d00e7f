"""Greatest and least elements: with their positions, along axes, or of everything."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from .. import layout
from ..autograd import tape
from ..dtypes import bool_, int64
from ..engine.fields import has
from ..engine.plans import Facts, Plan, Saved
from ..kernels import expr as E
from ..kernels import formulas as F
from ..kernels.programs import Reduce
from ..tensor import Tensor
from . import outputs
from .reductions import _program, axes_of, kept_shape, reducing
from .results import named
from .row_places import row_pairs, row_values
from .rowwise import Rowwise
from .table import op

_RESULTS = {n: named(n, "values indices") for n in ("max", "min", "cummax", "cummin")}
_AMINMAX = named("aminmax", "min max")


def _no_complex(name: str, t: Tensor, error: type[RuntimeError] = RuntimeError) -> None:
    if t.meta.dtype.is_complex:
        raise error(f'"{name}" not implemented for \'{t.meta.dtype.name}\'')


def _not_empty(name: str, t: Tensor, axes: tuple[int, ...]) -> None:
    for a in axes:
        if t.meta.shape[a] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {a} to have non-zero size.")


def _whole_not_empty(name: str, t: Tensor) -> None:
    if t.meta.numel == 0:
        raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
                           "'dim' argument.")


def _with_position(name: str, how: str, t: Tensor, axes: tuple[int, ...], keepdim: bool, saved: Saved | None, result: Any) -> Plan:
    """The plan of the extreme elements along axes and their positions."""
    d = t.meta.dtype

    def build() -> Reduce:
        x = E.input(0, d)
        x = E.cast(x, d.opmath)
        return Reduce((x,), (how,), (E.cast(E.acc(0, d.opmath), d), E.acc(1, int64)), (d,))
    return reducing(t, axes, keepdim, _program(how, d, build), name, saved, result)


def _pick_back(node: Any, g: Tensor) -> Any:
    from .creation import zeros
    info, _, _, held, _ = node[tape.SAVED]
    shape, dim, keepdim = info.facts
    (at,) = tape.kept(node, held)
    if not keepdim and shape:
        g, at = g.unsqueeze(dim), at.unsqueeze(dim)
    if not shape:
        return (g,)
    return (zeros(shape, dtype=g.meta.dtype, device=g.meta.device).scatter(dim, at, g),)


def _along(name: str, how: str, t: Tensor, dim: int, keepdim: bool) -> Any:
    axis = layout.wrap_dim(dim, len(t.meta.shape))
    axes = (axis,) if t.meta.shape else ()
    _not_empty(name, t, axes)
    _no_complex(name, t)
    saved = Saved(_pick_back, results=(1,), info=Facts(f"{name.capitalize()}Backward0", tuple(t.meta.shape), axis, keepdim), first=True)
    return _with_position(name, how, t, axes, keepdim, saved, _RESULTS[name]._make)


def _greatest(x: E.Expr, how: str) -> Any:
    top = F.fold(how, x, "c")  # its gradient is shared equally among the elements that attain it
    return (top,), (top,)


def _greatest_number(x: E.Expr, how: str) -> Any:
    top = F.ruled(F.fold(how, x, "c"), (x,), _shared)
    return (top,), (top,)


def _shared(g: E.Expr, y: E.Expr, x: E.Expr) -> tuple[E.Expr]:
    """As of `fold`, but no element attains NaN: the gradient of such a row is 0 / 0, as PyTorch has it of `amax`."""
    zero, one = E.const(0, g.dtype), E.const(1, g.dtype)
    return (E.where(x == y, g, zero) / F.fold("sum", E.where(x == y, one, zero), "c"),)


_EXTREMES = {name: Rowwise(name, "rc -> r", _greatest if name in ("max", "min") else _greatest_number, row_values)
             for name in ("amax", "amin", "max", "min")}


def _least_and_greatest(x: E.Expr) -> Any:
    both = tuple([F.ruled(F.fold(how, x, "c"), (x,), _shared) for how in ("min", "max")])
    return both, both


AMINMAX = Rowwise("aminmax", "rc -> r, r", _least_and_greatest, row_pairs)


def _extreme(name: str, how: str, t: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    if t.meta.dtype.is_complex and not t.meta.numel:
        return t.new_empty(kept_shape(t.meta.shape, axes, keepdim))
    _no_complex(name, t, NotImplementedError)
    return _EXTREMES[name]((t,), where=(axes, keepdim), consts=(("how", how),))[0]


def _full(name: str, how: str) -> Any:
    from .binary import _operand
    from .table import TABLE
    pair = TABLE["maximum" if how == "max" else "minimum"].function

    def function(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None, out: Any = None, axis: int | None = None,  # noqa: A002
                 keepdims: bool = False) -> Any:
        if axis is not None or keepdims:
            dim, keepdim = dim if axis is None else axis, keepdim or keepdims
        if isinstance(dim, Tensor) or other is not None:
            return pair(input, _operand(name, "other", dim if other is None else other), out=out)
        if dim is None:
            _whole_not_empty(name, input)
            _no_complex(name, input, NotImplementedError)
            made = _extreme(name, how, input, tuple(range(len(input.meta.shape))), False)
        elif out is None:
            return _along(name, "arg" + how, input, dim, keepdim)
        else:
            made = public(input, dim, keepdim)
        return made if out is None else outputs.write(name, out, made, (input,))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (f"The {name} of all elements; along `dim`, the values and their (first) positions; with another tensor, element by "
                        "element.")
    public = op(out=None)(function)
    return public


max, min = _full("max", "max"), _full("min", "min")  # noqa: A001


def _a(name: str, how: str) -> Any:
    def function(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:  # noqa: A002
        if not input.meta.numel:
            if dim == () or dim is None:
                _whole_not_empty(name, input)
            for d in dim if isinstance(dim, (tuple, list)) else (dim,):  # one after another, before two are compared
                _not_empty(name, input, axes_of(input, d))
        axes = axes_of(input, dim)
        return _extreme(name, how, input, axes, keepdim)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {how}imum over `dim` (all axes by default); its gradient is shared among equal elements."
    return op(out=True)(function)


amax, amin = _a("amax", "max"), _a("amin", "min")


@op(out=True)
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:  # noqa: A002
    """The least and the greatest element, over `dim` or of all."""
    if dim is None and input.meta.numel == 0:
        raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
    if dim is not None and input.meta.shape:
        _not_empty("aminmax", input, (layout.wrap_dim(dim, len(input.meta.shape)),))
    _no_complex("aminmax", input, NotImplementedError)
    return _AMINMAX(*AMINMAX((input,), where=(axes_of(input, () if dim is None else (dim,)), keepdim))[:2])


def _arg(name: str) -> Any:
    def function(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:  # noqa: A002
        _no_complex(name, input)
        if input.meta.dtype is bool_:
            raise NotImplementedError(f'"{name}_cpu" not implemented for \'Bool\'')
        if dim is None:
            if input.meta.numel == 0:
                raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
            axes = tuple(range(len(input.meta.shape)))
        else:
            axes = (layout.wrap_dim(dim, len(input.meta.shape)),) if input.meta.shape else (layout.wrap_dim(dim, 0),) and ()
            _not_empty(name, input, axes)
        return _with_position(name, name, input, axes, keepdim, None, itemgetter(1))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = "The (first) position of the extreme element along `dim`, or in the flattened tensor: int64."
    return op(out=True, gives="Tensor")(function)


argmax, argmin = _arg("argmax"), _arg("argmin")

has("amax amin", batch="along all")
has("argmax argmin", batch="along flat")
has("max min", batch="extreme")
has("aminmax", batch="composite")
