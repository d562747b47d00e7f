"""Initial values: each function fills its tensor in place, outside the tape, and returns it.

Fans follow Glorot & Bengio (2010) and He et al. (2015): a weight of shape (out, in, *kernel) has
fan_in = in * prod(kernel) and fan_out = out * prod(kernel).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .._core import dtypes, ops
from .._core.errors import warn
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor
from ..autograd import no_grad

_LINEAR = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
           "sigmoid")


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The factor by which a weight's standard deviation makes up for a nonlinearity; `param` is leaky_relu's slope."""
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3.0
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif not isinstance(param, bool) and isinstance(param, int | float):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4.0
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform on [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with the given mean and standard deviation."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                  generator: Any = None) -> Tensor:
    """Normal with values outside [a, b] redrawn.

    Where [a, b] has more than 3 in 10 of the normal distribution, elements outside are drawn again; else uniform candidates are taken with a
    probability in proportion to the density.  (PyTorch does so from 2.13 on, and these are its numbers.)
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warn("mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be "
             "incorrect.")

    if tensor.is_meta:
        return tensor

    def cdf(x: float) -> float:
        return (1.0 + math.erf((x - mean) / std / math.sqrt(2.0))) / 2.0

    with no_grad():
        if cdf(b) - cdf(a) > 0.3:
            low, high = (tensor.new_tensor(x, device="cpu").item() for x in (a, b))  # as the type has them
            tensor.normal_(mean, std, generator=generator)
            while (outside := (tensor < low) | (tensor > high)).any():
                tensor.copy_(ops.where(outside, ops.empty_like(tensor).normal_(mean, std, generator=generator), tensor))
            return tensor
        peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
        open_ = None  # the elements that have no value yet
        while open_ is None or open_.any():
            candidates = (tensor if open_ is None else ops.empty_like(tensor)).uniform_(a, b, generator=generator)
            density = ((candidates - mean) / std).pow(2) * -0.5 - peak
            if open_ is not None:
                tensor.copy_(ops.where(open_, candidates, tensor))
            refused = ops.empty_like(tensor).uniform_(generator=generator).log() > density
            open_ = refused if open_ is None else open_ & refused
        return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """The value `val` everywhere."""
    with no_grad():
        return tensor.fill_(val)


# the same by the names that libraries take for loops of their own
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_, _no_grad_fill_ = uniform_, normal_, trunc_normal_, constant_


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


_no_grad_zero_ = zeros_

def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix (ones on the diagonal) in a 2-D tensor."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        tensor.zero_()
        diagonal: Any = tensor
        diagonal.diagonal().fill_(1)
    return tensor


def dirac_(tensor: Any, groups: int = 1) -> Tensor:
    """A convolution weight of 3 to 5 dimensions that hands its input channels through, group by group."""
    dims = tensor.dim()
    if dims not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    each = tensor.shape[0] // groups
    filled: Tensor = tensor
    centre = tuple(k // 2 for k in tensor.shape[2:])
    with no_grad():
        tensor.zero_()
        for g in range(groups):
            for d in range(min(each, tensor.shape[1])):
                tensor[(g * each + d, d, *centre)] = 1
    return filled


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform on [-a, a] with a = gain * sqrt(6 / (fan_in + fan_out))."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    a = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(tensor, -a, a, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with std = gain * sqrt(2 / (fan_in + fan_out))."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                     generator: Any = None) -> Tensor:
    """Uniform on [-b, b] with b = gain * sqrt(3 / fan); `a` is leaky_relu's slope."""
    if 0 in tensor.shape:
        warn("Initializing zero-element tensors is a no-op")
        return tensor
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                    generator: Any = None) -> Tensor:
    """Normal with std = gain / sqrt(fan); `a` is leaky_relu's slope."""
    if 0 in tensor.shape:
        warn("Initializing zero-element tensors is a no-op")
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A (semi-)orthogonal matrix of shape (size(0), rest), from the QR decomposition of a normal one (Saxe et al.,
    2013)."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    import numpy as np

    rows = tensor.shape[0]
    cols = tensor.numel() // rows
    with no_grad():
        home = "cpu" if generator is None else generator.device
        flat = ops.empty((rows, cols), dtype=dtypes.float32, device=home).normal_(0, 1, generator=generator)
        matrix = unasked(flat.cpu)().numpy().astype(np.float64)
        q, r = np.linalg.qr(matrix.T if rows < cols else matrix)
        # QR leaves the signs open; a positive diagonal of R makes Q uniformly distributed.
        q = q * np.sign(np.diag(r))
        q = (q.T if rows < cols else q) * gain
        unasked(tensor.copy_)(ops.from_numpy(np.ascontiguousarray(q)).reshape(tensor.shape))
    return tensor


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """A 2-D tensor, normal but for the fraction `sparsity` of each column, which is zero (Martens, 2010)."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for col in range(cols):
            tensor[unasked(ops.randperm(rows)[:zeros].to)(tensor.device), col] = 0
    filled: Tensor = tensor
    return filled


def _old_name(new: Callable[..., Tensor]) -> Callable[..., Tensor]:
    name = new.__name__[:-1]

    def old(*args: Any, **kwargs: Any) -> Tensor:
        warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning)
        return new(*args, **kwargs)

    old.__name__ = old.__qualname__ = name
    old.__doc__ = f"The old name of `{name}_`."
    return old


uniform = _old_name(uniform_)
normal = _old_name(normal_)
constant = _old_name(constant_)
eye = _old_name(eye_)
dirac = _old_name(dirac_)
xavier_uniform = _old_name(xavier_uniform_)
xavier_normal = _old_name(xavier_normal_)
kaiming_uniform = _old_name(kaiming_uniform_)
kaiming_normal = _old_name(kaiming_normal_)
orthogonal = _old_name(orthogonal_)
sparse = _old_name(sparse_)
