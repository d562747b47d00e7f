"""What the distributions share: broadcasting of parameters, probabilities and log-odds, lazily computed parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import dtypes, ops
from .._core.autograd.mode import enable_grad
from .._core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

_ops: Any = ops


def is_number(x: Any) -> bool:
    """Whether x is a plain number (or a NumPy scalar)."""
    import numpy as np
    return isinstance(x, (int, float, np.generic))


def broadcast_all(*values: Any) -> Any:
    """Tensors and numbers as tensors of one shape.

    Numbers take the type and device of the first tensor, or the default ones when there is no tensor.  Raises ValueError for
    anything else.
    """
    if not all(isinstance(v, Tensor) or is_number(v) for v in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__.")
    first = next((v for v in values if isinstance(v, Tensor)), None)
    dtype = dtypes.get_default_dtype() if first is None else first.dtype
    device = None if first is None else first.device
    tensors = [v if isinstance(v, Tensor) else _ops.tensor(v, dtype=dtype, device=device) for v in values]
    return _ops.broadcast_tensors(*tensors)


def standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    """Standard normal numbers."""
    return _ops.randn(tuple(shape), dtype=dtype, device=device)


def sum_rightmost(value: Any, dim: int) -> Any:
    """The sum over the last `dim` axes of a tensor; a number is its own sum."""
    if dim == 0 or not isinstance(value, Tensor):
        return value
    return value.reshape(*value.shape[:-dim], -1).sum(-1)


# PyTorch's names of the two
_standard_normal, _sum_rightmost = standard_normal, sum_rightmost
euler_constant = 0.57721566490153286060  # Euler and Mascheroni's


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities from log-odds (`is_binary`), or from unnormalised log-probabilities along the last axis."""
    return _ops.sigmoid(logits) if is_binary else logits.softmax(-1)


def clamp_probs(probs: Any) -> Any:
    """Probabilities at least the type's epsilon away from 0 and 1."""
    eps = dtypes.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """The inverse of `logits_to_probs`."""
    p = clamp_probs(probs)
    return p.log() - (-p).log1p() if is_binary else p.log()


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """The elements of (..., n, n) on and below diagonal `diag`, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = _ops.tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """The inverse of `tril_matrix_to_vec`: zeros above the diagonal."""
    length = vec.shape[-1]
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * length + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if not round(n, 12).is_integer():
        raise ValueError(f"The size of last dimension is {length} which cannot be expressed as the lower triangular part of a square D x D "
                         "matrix.")
    size = round(n)
    rows, columns = _ops.tril_indices(size, size, diag, device=vec.device)
    return _ops.zeros((*vec.shape[:-1], size, size), dtype=vec.dtype, device=vec.device).index_put(
        (*_leading(vec), rows, columns), vec)


def _leading(vec: Any) -> tuple[Any, ...]:
    """Indices of the axes before the last, ready to broadcast with it."""
    n = vec.dim() - 1
    return tuple(_ops.arange(vec.shape[i], device=vec.device).reshape(-1, *[1] * (n - i)) for i in range(n))


class lazy_property:
    """A property worked out at its first use and kept in the instance, with gradients whatever the mode then."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        instance.__dict__[self.name] = value
        return value
