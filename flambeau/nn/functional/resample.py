"""Resizing and sampling images: `interpolate`, `upsample`, `grid_sample`, `affine_grid`.

A resize is separable: along each dimension every output place is a weighted sum of a few input places. The places and
weights are worked out on the host; the sums are tensor operations, so gradients of any order follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core import dtypes, ops
from ..._core.engine.fields import has
from ..._core.errors import warn
from ..._core.layout import wants_channels_last
from ..._core.ops.casts import in_float32
from ..._core.ops.checks import of_kinds, one_type
from ..._core.ops.copies import laid_as
from ..._core.ops.memory_format import contiguous_format
from ..._core.ops.resampling import grid_places, kept_taps, resized, sampled
from ..._core.runtime.asking import unasked
from .lazy_functional import F

Array = np.ndarray[Any, Any]
_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}


def _places(n_in: int, n_out: int, scale: float | None, align: bool) -> Array:
    """Where each output place lies along the input, in input pixels."""
    out = np.arange(n_out, dtype=np.float64)
    if align:
        return out * ((n_in - 1) / (n_out - 1) if n_out > 1 else 0.0)
    ratio = 1.0 / scale if scale is not None and scale > 0 else n_in / n_out
    return (out + 0.5) * ratio - 0.5


def _cubic(t: Array, a: float) -> Array:
    """Keys's convolution kernel (1981)."""
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


# The filters that a reduction widens: how far each reaches, and its weight at a distance; the cubic one with Pillow's factor, not PyTorch's other.
_FILTERS: dict[str, tuple[float, Callable[[Array], Array]]] = {
    "linear": (1.0, lambda t: np.maximum(1.0 - np.abs(t), 0.0)),
    "cubic": (2.0, lambda t: _cubic(t, -0.5)),
    "lanczos": (3.0, lambda t: np.where(np.abs(t) < 3, np.sinc(t) * np.sinc(t / 3), 0.0)),
}


def _taps(mode: str, n_in: int, n_out: int, scale: float | None, align: bool) -> list[tuple[Array, Array | None]]:
    """Pairs of input indices and weights (None: all one) whose sum is the resized dimension."""
    if mode in ("nearest", "nearest-exact"):
        ratio = 1.0 / scale if scale is not None and scale > 0 else n_in / n_out
        shift = 0.5 if mode == "nearest-exact" else 0.0
        # Single precision, as the reference has it: at exact multiples the rounding decides the pixel.
        where = np.floor((np.arange(n_out, dtype=np.float32) + np.float32(shift)) * np.float32(ratio))
        return [(np.minimum(where.astype(np.int64), n_in - 1), None)]
    places = _places(n_in, n_out, scale, align)
    if mode == "cubic":
        base = np.floor(places).astype(np.int64)
        part = places - base
        return [((base + k).clip(0, n_in - 1), _cubic(part - k, -0.75)) for k in (-1, 0, 1, 2)]
    places = np.maximum(places, 0.0)
    base = np.minimum(np.floor(places).astype(np.int64), n_in - 1)
    part = np.clip(places - base, 0.0, 1.0)
    return [(base, 1.0 - part), (np.minimum(base + 1, n_in - 1), part)]


def _weights(values: Array, like: Any) -> Any:
    """Weights in the type and on the device of the image; single precision but for an image in double."""
    return unasked(ops.from_numpy(values if like.dtype is dtypes.float64 else values.astype(np.float32)).to)(like.device, like.dtype)


def _resized(x: Any, dim: int, n_out: int, mode: str, scale: float | None, align: bool) -> Any:
    n_in = x.shape[dim]
    taps, turned = kept_taps((mode, n_out, scale, align), lambda: _taps(mode, n_in, n_out, scale, align), x, n_in)
    if not taps.weights:
        return x.index_select(dim, taps.places[0])
    if x.meta.plain:
        return resized(x, dim, taps, turned)
    # tensors that answer for operations themselves
    shape = [1] * x.dim()
    shape[dim] = n_out
    parts = [x.index_select(dim, at) * weight.reshape(shape) for at, weight in zip(taps.places, taps.weights)]
    return sum(parts[1:], parts[0])


def _widened(n_in: int, n_out: int, mode: str, scale: float | None, align: bool) -> Array:
    """The matrix of a dimension whose filter is widened by the reduction, so that no pixel is skipped."""
    if align:
        ratio = (n_in - 1) / (n_out - 1) if n_out > 1 else 0.0
    else:
        ratio = 1.0 / scale if scale is not None and scale > 0 else n_in / n_out
    wide = max(ratio, 1.0)
    reach, at = _FILTERS[mode]
    support = reach * wide
    matrix = np.zeros((n_out, n_in))
    for i in range(n_out):
        centre = ratio * (i + 0.5)
        first, last = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), n_in)
        t = (np.arange(first, last) - centre + 0.5) / wide
        weight = at(t)
        matrix[i, first:last] = weight / weight.sum()
    return matrix


def _antialiased(x: Any, dim: int, n_out: int, mode: str, scale: float | None, align: bool) -> Any:
    matrix = _widened(x.shape[dim], n_out, mode, scale, align)
    return x.transpose(dim, -1).matmul(_weights(matrix, x).t()).transpose(dim, -1)


def _of_bytes(x: Any, dim: int, n_out: int, mode: str, scale: float | None, align: bool, antialias: bool) -> Any:
    """A dimension of whole values from 0 to 255 in float64, resized to such, with weights in fixed point of 16 bits, as Pillow has it and
    PyTorch for bytes: sums of products are exact, and each dimension is rounded."""
    n_in = x.shape[dim]
    if antialias:
        matrix = _widened(n_in, n_out, mode, scale, align)
    else:
        matrix = np.zeros((n_out, n_in))
        for where, weight in _taps(mode, n_in, n_out, scale, align):
            np.add.at(matrix, (np.arange(n_out), where), 1.0 if weight is None else weight)
    bits = 0
    while bits < 22 and int(0.5 + matrix.max() * (1 << bits + 1)) < 1 << 15:
        bits += 1
    whole = np.trunc(matrix * (1 << bits) + np.copysign(0.5, matrix))
    total = x.transpose(dim, -1).matmul(_weights(whole, x).t()).transpose(dim, -1)
    return ((total + (1 << bits >> 1)) / (1 << bits)).floor().clamp(0, 255)


def _repeated(x: Any, first: int, factors: list[int]) -> Any:
    """Every pixel repeated: a nearest resize by whole factors, which needs no indices.  first: the image's first axis."""
    lead, size, rest = x.shape[:first], x.shape[first:first + len(factors)], x.shape[first + len(factors):]
    shape = [*lead, *[n for s in size for n in (s, 1)], *rest]
    wide = [*lead, *[n for s, f in zip(size, factors) for n in (s, f)], *rest]
    whole = x.reshape(shape).expand(wide).clone(memory_format=contiguous_format)  # also where nothing is repeated
    return whole.reshape(*lead, *[s * f for s, f in zip(size, factors)], *rest)


@in_float32
def interpolate(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
                antialias: bool = False) -> Any:
    """Resizes the spatial dimensions of (N, C, *spatial) to `size` or by `scale_factor`.

    Modes: "nearest", "nearest-exact" and "area" for one to three spatial dimensions, "linear" (1), "bilinear" and
    "bicubic" (2), "trilinear" (3), "lanczos" (2, with `antialias` alone). `align_corners` makes the corner pixels' centres meet. `antialias`
    widens the filter when shrinking ("bilinear", "bicubic" and "lanczos"), as Pillow does. Raises ValueError or NotImplementedError for
    combinations that do not fit.
    """
    made = _interpolated(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    return laid_as(made, input) if input.meta.plain else made


def _interpolated(input: Any, size: Any, scale_factor: Any, mode: str, align_corners: bool | None, recompute_scale_factor: bool | None,
                  antialias: bool) -> Any:
    if input.dtype is not dtypes.uint8:
        of_kinds(f"upsample_{mode}", input, "f")
    interpolating = mode in ("linear", "bilinear", "bicubic", "trilinear", "lanczos")
    if not interpolating and mode in ("nearest", "nearest-exact", "area") and align_corners is not None:
        raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear")
    dims = input.dim() - 2
    if dims not in (1, 2, 3) or not interpolating and mode not in ("nearest", "nearest-exact", "area"):
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: nearest | "
                                  f"linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact (got {mode})")
    if (size is None) == (scale_factor is None):
        raise ValueError("only one of size or scale_factor should be defined" if size is not None else
                         "either size or scale_factor should be defined")
    scales: list[float | None] = [None] * dims
    if size is not None:
        target = [int(s) for s in size] if isinstance(size, tuple | list) else [int(size)] * dims
        if len(target) != dims:
            raise ValueError(f"Input and output must have the same number of spatial dimensions, but got input with "
                             f"spatial dimensions of {list(input.shape[2:])} and output size of {size}. Please "
                             "provide input tensor in (N, C, d1, d2, ...,dK) format and output size in (o1, o2, "
                             "...,oK) format.")
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    else:
        factors = [float(f) for f in scale_factor] if isinstance(scale_factor, tuple | list) else [
            float(scale_factor)] * dims
        if len(factors) != dims:
            raise ValueError(f"Input and scale_factor must have the same number of spatial dimensions, but got input "
                             f"with spatial dimensions of {list(input.shape[2:])} and scale_factor of shape "
                             f"{scale_factor}.")
        target = [dtypes.number(s * f, dtypes.int64) for s, f in zip(input.shape[2:], factors)]
        if not recompute_scale_factor:
            scales = list(factors)
    if min(target) < 1 or min(input.shape[2:]) < 1:
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input {list(input.shape[2:])} "
                           f"and output {target}")
    if not input.shape[1]:
        raise RuntimeError(f"Non-empty {input.dim()}D data tensor expected but got a tensor with sizes {list(input.shape)}")
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and input.dim() == 4):
        raise ValueError("Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input")
    if interpolating and _LINEAR.get(mode, 2) != dims:
        raise NotImplementedError(f"Got {input.dim()}D input, but {mode} mode needs {_LINEAR.get(mode, 2) + 2}D input")
    if mode == "lanczos" and (align_corners or not antialias):
        raise ValueError("Lanczos mode does not support align_corners=True" if align_corners else "Lanczos mode requires antialias=True")
    if mode == "area":
        pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[dims - 1]
        return pool(input, target)
    align = bool(align_corners)
    last = wants_channels_last(input.shape, input.stride())
    image, first = (input.movedim(1, -1), 1) if last else (input, 2)
    if not interpolating and all(t % s == 0 and (f is None or f == t // s)
                                 for t, s, f in zip(target, input.shape[2:], scales)):
        made = _repeated(image, first, [t // s for t, s in zip(target, input.shape[2:])])
        return made.movedim(-1, 1) if last else made
    kind = {"bicubic": "cubic"}.get(mode, "linear" if interpolating and mode != "lanczos" else mode)
    of_bytes = interpolating and input.dtype is dtypes.uint8
    if of_bytes and dims != 2:
        raise NotImplementedError(f"\"upsample_{mode}\" not implemented for 'Byte'")
    out = image.to(dtypes.float64) if of_bytes else image
    # The last dimension first: what follows then has fewer gathers along short strides.
    for d in reversed(range(dims)):
        if of_bytes:
            if target[d] != input.shape[d + 2]:
                out = _of_bytes(out, d + first, target[d], kind, scales[d], align, antialias)
        elif antialias:
            out = _antialiased(out, d + first, target[d], kind, scales[d], align)
        elif target[d] != input.shape[d + 2] or (scales[d] is not None and scales[d] != 1.0):
            out = _resized(out, d + first, target[d], kind, scales[d], align)
    made = out.to(dtypes.uint8) if of_bytes else out
    if made is image:
        return input.clone()
    return made.movedim(-1, 1) if last else made


def upsample(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
             align_corners: bool | None = None) -> Any:
    """The old name of `interpolate`."""
    warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """`interpolate` by the nearest pixel."""
    warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Bilinear `interpolate` with the corners aligned."""
    warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


# -- sampling at given places
# --------------------------------------------------------------------------------------------


def affine_grid(theta: Any, size: Any, align_corners: bool | None = None) -> Any:
    """The sampling grid (N, H, W, 2) or (N, D, H, W, 3) of affine maps `theta` (N, 2, 3) or (N, 3, 4), for
    `grid_sample`
    to an output of `size` (N, C, H, W) or (N, C, D, H, W)."""
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    spatial = list(size)[2:]
    n = len(spatial)
    if n not in (2, 3):
        raise NotImplementedError(f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
                                  f"respectively. Got size {list(size)}.")
    if tuple(theta.shape[1:]) != (n, n + 1) or theta.dim() != 3:
        raise ValueError(f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {list(size)}. Got "
                         f"{tuple(theta.shape)}.")
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {list(size)}")
    if align_corners and min(spatial) == 1:
        warn("Since version 1.3.0, affine_grid's unit grid spans a dimension of size 1 with the point 0 where align_corners=True, as it has no corners. See "
             "the documentation of affine_grid for details.")
    return placed_by(theta, spatial, bool(align_corners))


def placed_by(theta: Any, spatial: list[int], align_corners: bool) -> Any:
    """The places that affine maps `theta` (N, n, n + 1) send the points of a grid of this size to: (N, *spatial, n)."""
    n, axes = len(spatial), []
    for s in spatial:
        line = np.linspace(-1, 1, s) if s != 1 else np.zeros(1)
        axes.append(line if align_corners else line * (s - 1) / max(s, 1))
    mesh = np.meshgrid(*axes, indexing="ij")
    base = np.stack([*reversed(mesh), np.ones_like(mesh[0])], -1).reshape(-1, n + 1)
    points = unasked(ops.from_numpy(base).to)(theta.device, theta.dtype)
    return points.matmul(theta.transpose(1, 2)).reshape(theta.shape[0], *spatial, n)


def grid_sample(input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: bool | None = None) -> Any:
    """Values of (N, C, H, W) or (N, C, D, H, W) at the places `grid` (N, *out, 2 or 3) names: x, y(, z) from -1 to 1.

    Modes "bilinear", "nearest" and, for images, "bicubic"; places outside are "zeros", the "border" or a "reflection".
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but "
                         f"got: '{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
                         f"'reflection', but got: '{padding_mode}'")
    one_type("grid_sampler", input, grid)
    if align_corners is None:
        warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. "
             "Please specify align_corners=True if the old behavior is desired.")
        align_corners = False
    dims = input.dim() - 2
    if input.dim() and grid.dim() and input.shape[0] != grid.shape[0]:
        raise RuntimeError(f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
                           f"{list(input.shape)} and grid with sizes {list(grid.shape)}")
    if dims >= 1 and grid.dim() > 1 and grid.shape[-1] != dims:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {dims} in last dimension, but got grid with sizes {list(grid.shape)} for an input "
                           f"with sizes {list(input.shape)}")
    if dims not in (2, 3) or grid.dim() != input.dim():
        raise RuntimeError(f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got "
                           f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}")
    if 0 in input.shape[2:]:
        raise RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {list(input.shape)}")
    if mode == "bicubic" and dims == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    # the nearest element is that of the place in the grid's own type
    return (_sampled if mode == "nearest" else _sampled_wide)(input, grid, mode, padding_mode, align_corners)


def _sampled(input: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool) -> Any:
    n, c, *size = input.shape
    places, weights = grid_places(grid, tuple(size), mode, padding_mode, bool(align_corners))
    return sampled(input.flatten(2), places, weights, grid).reshape(n, c, *grid.shape[1:-1])


_sampled_wide = in_float32(_sampled)

has("grid_sample", autocast="cpu full, cuda widest")
has("interpolate upsample grid_sample", batch="batches of images")
has("upsample_bilinear upsample_nearest", batch="composite", sparse="composite")
has("interpolate", sparse="composite")
