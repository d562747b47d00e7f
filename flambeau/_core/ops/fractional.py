"""Fractional max pooling: windows at random places, so that the image shrinks by any ratio.

B. Graham, "Fractional max-pooling", 2014: a random start u in [0, 1) for each plane and axis gives the windows' places
floor((i + u) a) - floor(u a), a = (size - kernel) / (outputs - 1), the last window ending at the border.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

from .. import dtypes, layout
from ..autograd import tape
from ..dtypes import dtype, float64, int64
from ..engine.fields import has
from ..kernels import expr as E
from ..kernels.expr import Expr
from ..kernels.programs import Map
from ..tensor import Tensor, empty
from . import launch
from .checks import same_device
from .copies import contiguous
from .pooling import unravelled
from .table import op

Sizes = tuple[int, ...]


def _several(name: str, label: str, value: Any, n: int) -> tuple[Any, ...]:
    out = (value,) * n if isinstance(value, (int, float)) else tuple(value)
    if len(out) != n:
        raise RuntimeError(f"{name}: {label} must either be a single number or a tuple of {n}, but got {list(out)}")
    return out


def _outputs(name: str, image: Sizes, size: Any, ratio: Any) -> Sizes:
    n = len(image)
    if size is not None:
        return tuple(int(s) for s in _several(name, "output_size", size, n))
    if ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    ratios = _several(name, "output_ratio", ratio, n)
    if not all(0 < r < 1 for r in ratios):
        raise ValueError(f"{name}: output_ratio must be between 0 and 1, but got {ratio}")
    return tuple(int(s * r) for s, r in zip(image, ratios, strict=True))


def _starts(sample: Tensor, size: int, kernel: int, outputs: int) -> Tensor:
    """Where the windows along one axis begin: (N, C, outputs) from samples (N, C)."""
    from .creation import full
    from .ranges import arange
    last = full((*sample.meta.shape, 1), size - kernel, dtype=int64, device=sample.meta.device)
    if outputs < 2:
        return last[..., :outputs]
    step = (size - kernel) / (outputs - 1)
    u = sample.unsqueeze(-1)
    i = arange(outputs - 1, dtype=sample.meta.dtype, device=sample.meta.device)
    from .concat import cat
    return cat([((u + i) * step).to(int64) - (u * step).to(int64), last], -1)


def _places(x: Tensor, samples: Tensor, kernel: Sizes, outputs: Sizes) -> Tensor:
    """Positions in the flattened image of each window's elements: (N, C, outputs..., kernel...)."""
    from .ranges import arange
    n = len(kernel)
    image = tuple(x.meta.shape[2:])
    steps = layout.contiguous_strides(image)
    total: Any = 0
    for axis in range(n):
        # the samples of a plane are for (width, height), those of a volume for (depth, height, width)
        which = n - 1 - axis if n == 2 else axis
        start = _starts(samples.select(-1, which), image[axis], kernel[axis], outputs[axis])
        shape = [*x.meta.shape[:2], *([1] * (2 * n))]
        shape[2 + axis] = outputs[axis]
        window = [1] * (2 + 2 * n)
        window[2 + n + axis] = kernel[axis]
        total = total + (start.reshape(shape) + arange(kernel[axis], device=x.meta.device).reshape(window)) * steps[axis]
    made: Tensor = total
    return made


_FEW = 32  # places of a window that one formula looks at


@cache
def _program(d: dtype, kernel: Sizes) -> Map:
    """The greatest of each window and its place in the flattened image, in one pass.

    Numbers: output sizes (as floats), steps between windows (as the image's type), the image's size, its steps, the last windows' begins.
    """
    n, wide = len(kernel), d.opmath
    own, plane = unravelled(E.coord(0), [E.scalar(i, float64) for i in range(n)])

    def rounded(e: Expr) -> Expr:
        return E.cast(E.cast(e, d), wide)
    place = E.const(0, int64)
    for i in range(n):
        # the samples of a plane are for (width, height), those of a volume for (depth, height, width)
        u = E.cast(E.gather(1, plane * n + (1 - i if n == 2 else i), d), wide)
        step, along, last = rounded(E.scalar(n + i, wide)), E.scalar(2 * n + 1 + i, int64), E.scalar(3 * n + 1 + i, int64)
        begin = E.cast(rounded(rounded(u + E.cast(own[i], wide)) * step), int64) - E.cast(rounded(u * step), int64)
        begin = E.where(E.cast(own[i], float64) + 1.0 >= E.scalar(i, float64), last, E.minimum(E.maximum(begin, E.const(0, int64)), last))
        place = place + begin * along
    base, best, where = plane * E.scalar(2 * n, int64), E.const(0, wide), E.const(0, int64)
    for t, taps in enumerate(itertools.product(*map(range, kernel))):
        offset = place
        for i, tap in enumerate(taps):
            offset = offset + E.scalar(2 * n + 1 + i, int64) * tap
        v = E.cast(E.gather(0, base + offset, d), wide)
        more = (v > best) | E.isnan(v)  # the last NaN, as in PyTorch
        best, where = (E.where(more, v, best), E.where(more, offset, where)) if t else (v, offset)
    return Map((E.cast(best, d), where), (d, d), (*[float64] * n, *[wide] * n, *[int64] * (1 + 2 * n)))


def _greatest(x: Tensor, samples: Tensor, kernel: Sizes, outputs: Sizes) -> tuple[Tensor, Tensor]:
    image = tuple(x.meta.shape[2:])
    shape = (*x.meta.shape[:2], *outputs)
    values, where = empty(shape, x.meta.dtype, x.meta.device), empty(shape, int64, x.meta.device)
    if values.meta.numel:
        last = [i - k for i, k in zip(image, kernel, strict=True)]
        steps = [e / (o - 1) if o > 1 else 0.0 for e, o in zip(last, outputs, strict=True)]
        count = values.meta.numel
        launch.run(_program(x.meta.dtype, kernel), (count,), [values, where], [contiguous(x.detach()), contiguous(samples.detach())],
                   [(1,), (1,), (0,), (0,)], (*map(float, outputs), *steps, layout.numel(image), *layout.contiguous_strides(image), *last),
                   name="fractional_max_pool")
    return values, where


def _pool(name: str, n: int, x: Tensor, kernel: Any, size: Any, ratio: Any, samples: Tensor | None) -> tuple[Tensor, Tensor]:
    same_device(name, x, samples)
    single = len(x.meta.shape) == n + 1
    if not single and len(x.meta.shape) != n + 2:
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got: {list(x.meta.shape)}")
    if x.meta.dtype.kind != "f":
        raise NotImplementedError(f'"{name}" not implemented for \'{dtypes.title(x.meta.dtype)}\'')
    for i, d in enumerate(x.meta.shape):
        if d == 0 and (i or single):
            raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got{list(x.meta.shape)} with dimension {i} "
                               "being empty.")
    if single:
        x = x.unsqueeze(0)
    image = tuple(x.meta.shape[2:])
    kernels = tuple(int(k) for k in _several(name, "kernel_size", kernel, n))
    outputs = _outputs(name, image, size, ratio)
    for label, i, k, o in zip(("time", "height", "width")[3 - n:], image, kernels, outputs, strict=True):
        if k < 1 or o < 0:
            raise RuntimeError(f"{name}(): kernel_size must be greater than zero and output_size not negative, but got {list(kernels)} and {list(outputs)}")
        if o + k - 1 > i:
            raise RuntimeError(f"{name}(): pool {label} {k} too large relative to input {label} {i}")
    lead = tuple(x.meta.shape[:2])
    if samples is None:
        from .random import rand
        samples = rand(*lead, n, dtype=x.meta.dtype, device=x.meta.device)
    if samples.meta.dtype is not x.meta.dtype or tuple(samples.meta.shape) != (*lead, n):
        raise RuntimeError(f"{name}: Expect _random_samples of shape {[*lead, n]} and the type of the input, but got {list(samples.meta.shape)} of "
                           f"{samples.meta.dtype}")
    shape = (*lead, *outputs)
    flat = x.reshape(*lead, layout.numel(image))
    if math.prod(kernels) <= _FEW:
        values, where = _greatest(x, samples, kernels, outputs)
        if tape.recording(x):
            values = flat.gather(2, where.reshape(*lead, layout.numel(outputs))).reshape(shape)
    else:
        places = _places(x.detach(), samples, kernels, outputs).reshape(*lead, layout.numel(outputs), layout.numel(kernels))
        seen = flat.detach().gather(2, places.reshape(*lead, layout.numel(outputs) * layout.numel(kernels))).reshape(places.meta.shape)
        nan: Any = seen.isnan()
        last = layout.numel(kernels) - 1 - nan.flip(3).to(int64).argmax(3, True)  # NaN, as in PyTorch
        at = places.gather(3, last.where(nan.any(3, True), seen.argmax(3, True))).squeeze(3)
        values, where = flat.gather(2, at).reshape(shape), at.reshape(shape)
    return (values.squeeze(0), where.squeeze(0)) if single else (values, where)


def _define(n: int) -> None:
    name = f"fractional_max_pool{n}d"

    def with_indices(input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,  # noqa: A002
                     _random_samples: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return _pool(name, n, input, kernel_size, output_size, output_ratio, _random_samples)

    def pool(input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,  # noqa: A002
             _random_samples: Tensor | None = None) -> Any:
        made = _pool(name, n, input, kernel_size, output_size, output_ratio, _random_samples)
        return made if return_indices else made[0]
    shape = "(N, C, " + ", ".join("DHW"[3 - n:]) + ")"
    for f, full_name, doc in ((pool, name, f"The greatest of randomly placed windows of {shape}, as many as output_size or output_ratio says; positions in "
                                           "the flattened image with return_indices."),
                              (with_indices, name + "_with_indices", f"`{name}` with positions.")):
        f.__name__ = f.__qualname__ = full_name
        f.__doc__ = doc
        op(method=False, spaces=("nn.functional",))(f)


for _n in (2, 3):
    _define(_n)

has("fractional_max_pool2d fractional_max_pool3d", batch="draws")
