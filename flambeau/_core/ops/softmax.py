"""Softmax, its logarithm, and log-sum-exp: formulas of a row."""

from __future__ import annotations

from typing import Any

from .. import dtypes, layout
from ..errors import warn
from ..kernels import expr as E
from ..kernels import formulas as F
from ..tensor import Tensor
from .casts import to_dtype
from .checks import may_record
from .reductions import axes_of, kept_shape
from .row_places import asked, elements, row_values
from .rowwise import Rowwise
from .table import op


def _softmax(x: E.Expr) -> Any:
    e = E.exp(x - F.fixed(F.fold("max", x, "c")))
    y = e / F.total(e, "c")
    return (y,), (y,)


def _log_softmax(x: E.Expr) -> Any:
    c = x - F.fixed(F.fold("max", x, "c"))
    y = c - E.log(F.total(E.exp(c), "c"))
    return (y,), (y,)


def _logsumexp(x: E.Expr) -> Any:
    y = F.logsumexp(x, "c")
    return (y,), (y,)


SOFTMAX = Rowwise("softmax", "rc -> rc", _softmax, elements)
LOG_SOFTMAX = Rowwise("log_softmax", "rc -> rc", _log_softmax, elements)
LOGSUMEXP = Rowwise("logsumexp", "rc -> r", _logsumexp, row_values)


def _along(form: Rowwise, input: Tensor, dim: int | None, dtype: Any, name: str = "") -> Tensor:  # noqa: A002
    t = input if dtype is None else to_dtype(input, dtype)
    if t.meta.dtype.kind != "f":
        layout.wrap_dim(0 if dim is None else dim, len(t.meta.shape))
        if not t.meta.numel:
            may_record(f"_{form.name}", t.meta.dtype, t, real=True)
            return t.clone()
        raise NotImplementedError(f'"{form.name}_lastdim_kernel_impl" not implemented for \'{t.meta.dtype.name.capitalize()}\'')
    rank = len(t.meta.shape)
    if dim is None:
        warn(f"Implicit dimension choice for {name or form.name} has been deprecated. Change the call to include dim=X as an argument.")
        dim = 0 if rank in (0, 1, 3) else 1
    return form((t,), where=(dim if dim.__class__ is int else asked(dim, t.meta),))[0]


@op(spaces=("torch", "nn.functional", "special"), out=True, autocast="cuda full", batch="along -1")
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:  # noqa: A002
    """exp(input) / sum(exp(input)) along `dim`, computed from input - max(input)."""
    return _along(SOFTMAX, input, dim, dtype)


@op(spaces=("torch", "nn.functional", "special"), out=True, autocast="cuda full", batch="along -1")
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:  # noqa: A002
    """The logarithm of softmax, computed without its rounding."""
    return _along(LOG_SOFTMAX, input, dim, dtype)


@op(method=False, spaces=("nn.functional",), autocast="cuda full", batch="along -1")
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:  # noqa: A002
    """softmax of -input."""
    return _along(SOFTMAX, -input, dim, dtype, "softmin")


@op(out=True, aliases=("special.logsumexp",), autocast="cuda full", batch="along all", out_type="castable")
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:  # noqa: A002
    """log(sum(exp(input))) over `dim`, without overflow: the maximum first, then the sum of what is left."""
    if input.meta.dtype.kind in "bui":
        input = to_dtype(input, dtypes.get_default_dtype())
    if input.meta.dtype.is_complex:
        return _of_complex(input, axes_of(input, dim), keepdim)
    return LOGSUMEXP((input,), where=(asked(dim, input.meta), keepdim))[0]


def _of_complex(t: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    from .complexes import real
    top = real(t.detach())
    for a in axes:
        top = top.amax(a, True) if top.meta.numel else top.sum(a, True)
    top = top.masked_fill(top.abs() == float("inf"), 0.0)
    made: Tensor = (t - top).exp().sum(axes, keepdim).log() + top.reshape(kept_shape(t.meta.shape, axes, keepdim))
    return made
