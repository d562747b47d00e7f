"""Batch normalization: channels normalised over a batch, or by running statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.mode import no_recording
from ..kernels import expr as E
from ..kernels import formulas as F
from ..tensor import Tensor
from .casts import to_dtype
from .checks import of_kinds, same_device, same_types
from .elementwise import Pointwise
from .row_places import Places
from .rowwise import Rowwise
from .table import op

if TYPE_CHECKING:
    from collections.abc import Sequence


def _trained(x: E.Expr, w: E.Expr | None, b: E.Expr | None, eps: E.Expr) -> Any:
    mean = F.mean(x, "rs")
    center = x - mean
    var = F.mean(center * center, "rs")
    rstd = E.rsqrt(var + eps)
    return (_scaled(center * rstd, w, b),), (mean, rstd, var)


def _applied(x: E.Expr, mean: E.Expr, rstd: E.Expr, w: E.Expr | None, b: E.Expr | None) -> Any:
    return (_scaled((x - mean) * rstd, w, b),), ()


def _scaled(y: E.Expr, w: E.Expr | None, b: E.Expr | None) -> E.Expr:
    if w is not None:
        y = y * w
    return y if b is None else y + b


def _channels(metas: Sequence[Any]) -> Places:
    """(images r, channels c, places s)."""
    shape = metas[0].shape
    whole = ((("r", 0),), (("c", 0),), *[(("s", i),) for i in range(len(shape) - 2)])
    return Places({"r": (shape[0],), "c": (shape[1],), "s": tuple(shape[2:])}, (whole, *[((("c", 0),),)] * (len(metas) - 1)), (whole,))


TRAINED = Rowwise("batch_norm", "rcs, c, c -> rcs", _trained, _channels, fused="", numbers="f", like="images", grad_name="NativeBatchNormBackward0")
APPLIED = Rowwise("batch_norm", "rcs, c, c, c, c -> rcs", _applied, _channels, fused="", like="images", grad_name="NativeBatchNormBackward0")
_RSTD = Pointwise("batch_norm_rstd", lambda var, eps: E.rsqrt(var + eps), 1)
# what training makes of the running statistics
_MOVED = Pointwise("running_statistics", lambda mean, var, rm, rv, keep, take, unbiased: (rm * keep + mean * take, rv * keep + var * (take * unbiased)), 4)


@op(method=False, spaces=("nn.functional",), batch="batch norm")
def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None, bias: Tensor | None = None,  # noqa: A002
               training: bool = False, momentum: float | None = 0.1, eps: float = 1e-05) -> Tensor:
    """Channels normalised over the batch (training) or by running statistics, which training moves by `momentum`.

    S. Ioffe and C. Szegedy, "Batch normalization", 2015.
    """
    c = _check("batch_norm", input, running_mean, running_var, weight, bias)
    count = input.meta.numel // c if c else 0
    if len(input.meta.shape) < 2:
        if input.meta.shape != (0,):
            raise IndexError(f"batch_norm takes an input of at least 2 dimensions, (N, C, ...), but got one of shape {list(input.meta.shape)}")
        return input * 1  # nothing has no channels
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when training=False")
        rstd = _RSTD((to_dtype(running_var, running_var.meta.dtype.opmath),), (float(eps),))
        return APPLIED(_vectors(input, running_mean, rstd, weight, bias), result=_narrow(input))[0]
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.meta.shape!r}")
    return _train(input, weight, bias, running_mean, running_var, momentum, eps)[0]


def _check(name: str, x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, w: Tensor | None, b: Tensor | None) -> int:
    """The number of channels, which everything else must have."""
    same_device(name, x, running_mean, running_var, w, b)
    c = x.meta.shape[1] if len(x.meta.shape) > 1 else 0
    for label, t in (("running_mean", running_mean), ("running_var", running_var), ("weight", w), ("bias", b)):
        if t is not None and t.meta.numel != c:
            raise RuntimeError(f"{label} should contain {c} elements not {t.meta.numel}")
    same_types(name, x, running_mean=running_mean, running_var=running_var, weight=w, bias=b)
    return c


def _vectors(x: Tensor, *channels: Tensor | None) -> tuple[Tensor | None, ...]:
    return (x, *[t if t is None or len(t.meta.shape) == 1 else t.reshape(-1) for t in channels])


def _narrow(x: Tensor) -> Any:
    """The type of the result where that is not the operands' common one: weights may be wider than a narrow input."""
    return x.meta.dtype if x.meta.dtype.itemsize == 2 else None


def _train(x: Tensor, w: Tensor | None, b: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, momentum: float | None,
           eps: float) -> list[Tensor]:
    """The result, the means and the reciprocal deviations; moves the running statistics."""
    of_kinds("batch_norm", x, "fc")
    out, mean, rstd, var = TRAINED(_vectors(x, w, b), (float(eps),), result=_narrow(x))
    if x.meta.numel and (running_mean is not None or running_var is not None):
        count, take = x.meta.numel // x.meta.shape[1], momentum or 0.0
        with no_recording():
            moved = [var.clone() if t is None else t for t in (running_mean, running_var)]  # one that is missing is moved in vain
            _MOVED.write((moved[0], moved[1]), (mean, var, *moved), (1.0 - take, take, count / max(count - 1, 1)))
    return [out, mean, rstd]


@op(method=False, out=True)
def native_batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,  # noqa: A002
                      training: bool, momentum: float, eps: float) -> Any:
    """`batch_norm` with the mean and reciprocal deviation it used (empty when not training)."""
    if training:
        _check("native_batch_norm", input, running_mean, running_var, weight, bias)
        if len(input.meta.shape) < 2:
            raise IndexError(f"native_batch_norm takes an input of at least 2 dimensions, (N, C, ...), but got one of shape {list(input.meta.shape)}")
        out, mean, rstd = _train(input, weight, bias, running_mean, running_var, momentum, eps)
        kind = input.meta.dtype if weight is None else weight.meta.dtype
        return out, to_dtype(mean, kind), to_dtype(rstd, kind)
    none = input.new_empty((0,))
    return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps), none, none
