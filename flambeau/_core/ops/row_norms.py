"""Rows brought to mean 0 and variance 1: layer, RMS, group and instance normalization, each a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import layout
from ..autograd.mode import no_recording
from ..dtypes import finfo
from ..kernels import expr as E
from ..kernels import formulas as F
from ..tensor import Tensor
from .casts import to_dtype
from .checks import of_kinds, same_device, same_types
from .copies import as_images, contiguous, laid_as
from .row_places import Places
from .rowwise import Rowwise
from .table import op

if TYPE_CHECKING:
    from collections.abc import Sequence


def _normalized(axes: str) -> Any:
    def formula(x: E.Expr, w: E.Expr | None, b: E.Expr | None, eps: E.Expr) -> Any:
        mean = F.mean(x, axes)
        center = x - mean
        rstd = E.rsqrt(F.mean(center * center, axes) + eps)
        y = center * rstd
        if w is not None:
            y = y * w
        return (y if b is None else y + b,), (mean, rstd)
    return formula


def _with_moments(x: E.Expr, w: E.Expr | None, b: E.Expr | None, eps: E.Expr) -> Any:
    outs, moments = _normalized("cs")(x, w, b, eps)
    return (*outs, *moments), moments


def _rms(x: E.Expr, w: E.Expr | None, eps: E.Expr) -> Any:
    rstd = E.rsqrt(F.mean(x * x, "c") + eps)
    y = x * rstd
    return (y if w is None else y * w,), (rstd,)


def _last_axes(metas: Sequence[Any], n: int) -> Places:
    """The last n axes are "c"; a weight has just these."""
    shape = metas[0].shape
    first = len(shape) - n
    whole = tuple([(("r", i),) if i < first else (("c", i - first),) for i in range(len(shape))])
    return Places({"r": tuple(shape[:first]), "c": tuple(shape[first:])}, (whole, *[whole[first:]] * (len(metas) - 1)), (whole,))


def _groups(metas: Sequence[Any], groups: int) -> Places:
    """(images n, channels: groups g times c, places s); a weight has the channels."""
    shape = metas[0].shape
    channels = (("g", 0), ("c", 0))
    whole = ((("n", 0),), channels, *[(("s", i),) for i in range(len(shape) - 2)])
    return Places({"n": (shape[0],), "g": (groups,), "c": (shape[1] // groups,), "s": tuple(shape[2:])}, (whole, (channels,), (channels,)), (whole,))


def _groups_and_moments(metas: Sequence[Any], groups: int) -> Places:
    """`_groups`, with two more results that have a value for each image and group."""
    found, each = _groups(metas, groups), ((("n", 0),), (("g", 0),))
    return Places(found.sizes, found.leaves, (*found.outs, each, each))


LAYER_NORM = Rowwise("layer_norm", "rc, c, c -> rc", _normalized("c"), _last_axes, numbers="f", grad_name="NativeLayerNormBackward0")
RMS_NORM = Rowwise("rms_norm", "rc, c -> rc", _rms, _last_axes, numbers="f")
GROUP_NORM = Rowwise("group_norm", "ngcs, gc, gc -> ngcs", _normalized("cs"), _groups, fused="cs", numbers="f", like="images",
                     grad_name="NativeGroupNormBackward0")
NATIVE_GROUP_NORM = Rowwise("native_group_norm", "ngcs, gc, gc -> ngcs, ng, ng", _with_moments, _groups_and_moments, fused="cs", numbers="f", like="images")


# ----------------------------------------------------------------------------------------------------------- over the last axes
def _shape_of(normalized_shape: Any) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


def _checked(name: str, x: Tensor, shape: tuple[int, ...], w: Tensor | None, b: Tensor | None, kinds: str = "f") -> None:
    same_device(name, x, w, b)
    if not shape:
        raise RuntimeError(f"Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = "
                           f"{list(shape)}")
    for label, t in (("weight", w), ("bias", b)):
        if t is not None and tuple(t.meta.shape) != shape:
            raise RuntimeError(f"Expected {label} to be of same shape as normalized_shape, but got {label} of shape {list(t.meta.shape)} and "
                               f"normalized_shape = {list(shape)}")
    if tuple(x.meta.shape[max(len(x.meta.shape) - len(shape), 0):]) != shape:
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape [{', '.join(['*', *map(str, shape)])}], but got input of "
                           f"size{list(x.meta.shape)}")
    of_kinds(name, x, kinds)
    if name != "rms_norm":
        same_types(name, x, weight=w, bias=b)


@op(method=False, spaces=("torch", "nn.functional"), autocast="cuda full", batch="row norm")
def layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05,  # noqa: A002
               cudnn_enable: bool = True) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes. J. L. Ba et al., "Layer normalization", 2016."""
    shape = _shape_of(normalized_shape)
    _checked("layer_norm", input, shape, weight, bias)
    return to_dtype(LAYER_NORM((input, weight, bias), (float(eps),), (len(shape),))[0], input.meta.dtype)  # whatever the weights' type


@op(method=False)
def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:  # noqa: A002
    """`layer_norm` with the means and reciprocal deviations it used."""
    shape = _shape_of(normalized_shape)
    _checked("native_layer_norm", input, shape, weight, bias)
    out, mean, rstd = LAYER_NORM((input, weight, bias), (float(eps),), (len(shape),))
    kept = (*input.meta.shape[:len(input.meta.shape) - len(shape)], *(1,) * len(shape))
    return out, to_dtype(mean.reshape(kept), input.meta.dtype), to_dtype(rstd.reshape(kept), input.meta.dtype)


@op(method=False, spaces=("torch", "nn.functional"), autocast="cuda full", batch="row norm")
def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:  # noqa: A002
    """x / sqrt(mean(x^2) + eps) * weight over the last axes. B. Zhang and R. Sennrich, 2019.  eps None: that of the type it is computed in, so
    float32's for 16 bits."""
    shape = _shape_of(normalized_shape)
    _checked("rms_norm", input, shape, weight, None, "fc")
    small = finfo(input.meta.dtype.opmath).eps if eps is None else eps
    if input.meta.dtype.is_complex:
        made = input * ((input * input).mean(tuple(range(-len(shape), 0)), True) + small).rsqrt()
        return made if weight is None else made * weight
    return to_dtype(RMS_NORM((input, weight), (float(small),), (len(shape),))[0], input.meta.dtype)


# --------------------------------------------------------------------------------------------------------- over groups of channels
@op(method=False, spaces=("torch", "nn.functional"), autocast="cuda full", batch="group norm")
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05,  # noqa: A002
               cudnn_enabled: bool = True) -> Tensor:
    """Each group of channels of each image normalised. Y. Wu and K. He, "Group normalization", 2018.  Images with their
    channels innermost give such a result."""
    return _in_groups(GROUP_NORM, input, num_groups, weight, bias, eps)[0]


def _in_groups(formula: Rowwise, x: Tensor, groups: int, w: Tensor | None, b: Tensor | None, eps: float) -> list[Tensor]:
    same_device(formula.name, x, w, b)
    shape = x.meta.shape
    if len(shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    if groups <= 0 or shape[1] % groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(shape)} and "
                           f"num_groups={groups}")
    for label, t in (("weight", w), ("bias", b)):
        if t is not None and tuple(t.meta.shape) != (shape[1],):
            raise RuntimeError(f"Expected {label} to be a vector of size equal to the number of channels in input, but got {label} of shape "
                               f"{list(t.meta.shape)} and input of shape {list(shape)}")
    if x.meta.dtype.kind != "f":
        raise NotImplementedError(f'"GroupNormKernelImpl" not implemented for \'{x.meta.dtype.name.capitalize()}\'')
    same_types(formula.name, x, weight=w, bias=b)
    narrow = x.meta.dtype if x.meta.dtype.itemsize == 2 else None  # weights may be wider than a narrow input
    # row by row whatever the layout: a group's channels are short pieces of what lies innermost, and folding those takes longer than two copies
    outs = formula((contiguous(as_images(x)), w, b), (float(eps),), (groups,), result=narrow)
    outs[0] = laid_as(outs[0], x)
    return outs


@op(method=False)
def native_group_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float) -> Any:  # noqa: A002
    """`group_norm` with the mean and reciprocal deviation of each group, which have gradients too."""
    if isinstance(input, Tensor) and N * C * HxW != input.meta.numel:
        raise RuntimeError(f"native_group_norm(): N * C * HxW is {N} * {C} * {HxW}, but input has {input.meta.numel} elements")
    out, mean, rstd = _in_groups(NATIVE_GROUP_NORM, input, group, weight, bias, eps)[:3]
    return out, to_dtype(mean, input.meta.dtype), to_dtype(rstd, input.meta.dtype)


@op(method=False, spaces=("nn.functional",), batch="group norm")
def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,  # noqa: A002
                  bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-05) -> Tensor:
    """Each channel of each image normalised. D. Ulyanov et al., "Instance normalization", 2016."""
    if not use_input_stats:
        from .normalization import batch_norm
        made: Tensor = batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
        return made
    n, c = input.meta.shape[:2]
    size = layout.numel(input.meta.shape[2:])
    if size == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.meta.shape!r}")
    if running_mean is not None or running_var is not None:
        with no_recording():
            flat = input.detach().reshape(n, c, size)
            for running, value in ((running_mean, flat.mean(2).mean(0)), (running_var, flat.var(2).mean(0))):
                if running is not None:
                    running.mul_(1.0 - momentum).add_(value.to(running.meta.dtype), alpha=momentum)
    return group_norm(contiguous(input), c or 1, weight, bias, eps)  # row by row whatever the layout, as in PyTorch
