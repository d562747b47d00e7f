"""Maps of vectors and matrices, and of the parts of an axis."""

from __future__ import annotations

from typing import Any

from .. import linalg
from .._core import dtypes, ops
from .._core.layout import Size
from . import constraints
from .pointwise_transforms import _softplus
from .transform import Plain, Transform
from .utils import sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

_ops: Any = ops
_linalg: Any = linalg


class CorrCholeskyTransform(Transform):
    """A vector of n (n - 1) / 2 numbers to the Cholesky factor of an (n, n) correlation matrix.

    tanh makes each a canonical partial correlation z; row i is z times the square root of what the elements before left of
    its unit length (Lewandowski, Kurowicka & Joe, 2009).
    """

    domain, codomain = constraints.real_vector, constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        x = _ops.tanh(x)
        eps = dtypes.finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - r ** 2).sqrt().cumprod(-1)
        r = r + _ops.eye(r.shape[-1], dtype=r.dtype, device=r.device)
        one = _ops.ones_like(left[..., :1])
        return r * _ops.cat([one, left[..., :-1]], -1)

    def _inverse(self, y: Any) -> Any:
        left = (1 - _ops.cumsum(y * y, -1)).clamp(min=dtypes.finfo(y.dtype).eps)
        left = _ops.cat([_ops.ones_like(left[..., :1]), left[..., :-1]], -1)
        t = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return ((1 + t).log() - (1 - t).log()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        left = 1 - (y * y).cumsum(-1)
        # each element is scaled by the root of what its predecessors left; tanh adds its own slope
        scales = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        slopes = -2 * (x + _softplus(-2.0 * x) - 0.6931471805599453).sum(-1)
        return scales + slopes

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class SoftmaxTransform(Plain):
    """y = softmax(x) over the last axis; the inverse is the logarithm."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Any) -> Any:
        return x.softmax(-1)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Plain):
    """n numbers to the simplex of n + 1: each takes its share (a sigmoid) of what the ones before left of a stick."""

    domain, codomain = constraints.real_vector, constraints.simplex
    bijective = True

    @staticmethod
    def _offset(n: int, like: Any) -> Any:
        """log(n), ..., log(1): so that zeros map to equal shares."""
        return _ops.arange(n, 0, -1, dtype=like.dtype, device=like.device).log()

    def _call(self, x: Any) -> Any:
        info = dtypes.finfo(x.dtype)
        z = _ops.sigmoid(x - self._offset(x.shape[-1], x)).clamp(min=info.tiny, max=1.0 - info.eps)
        one = _ops.ones_like(z[..., :1])
        return _ops.cat([z, one], -1) * _ops.cat([one, (1 - z).cumprod(-1)], -1)

    def _inverse(self, y: Any) -> Any:
        head = y[..., :-1]
        left = (1 - head.cumsum(-1)).clamp(min=dtypes.finfo(y.dtype).tiny)
        return head.log() - left.log() + self._offset(head.shape[-1], y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._offset(x.shape[-1], x)
        # dy/dx = z (1 - z) times the stick left before = y (1 - z), and log(1 - z) = -softplus(x)
        return (y[..., :-1].log() - _softplus(x)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        return Size((*shape[:-1], shape[-1] - 1))


class LowerCholeskyTransform(Plain):
    """Square matrices to lower triangular ones with a positive diagonal, its exponential."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Plain):
    """Square matrices to positive definite ones, by their Cholesky factor."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(_linalg.cholesky(y))


class _Parts(Transform):
    """Several maps, each for its part of the axis `dim`."""

    transforms: list[Any]
    dim: int
    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _pieces(self, x: Any) -> list[Any]:
        raise NotImplementedError

    def _joined(self, pieces: list[Any]) -> Any:
        raise NotImplementedError

    def _call(self, x: Any) -> Any:
        return self._joined([t(p) for t, p in zip(self.transforms, self._pieces(x), strict=True)])

    def _inverse(self, y: Any) -> Any:
        return self._joined([t.inv(p) for t, p in zip(self.transforms, self._pieces(y), strict=True)])


class CatTransform(_Parts):
    """Maps of consecutive parts, of `lengths`, of the axis `dim`."""

    def __init__(self, tseq: Any, dim: int = 0, lengths: Any = None, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"{len(self.transforms)} transforms but {len(self.lengths)} lengths")
        self.dim = dim

    event_dim = property(lambda self: max(t.event_dim for t in self.transforms))
    length = property(lambda self: sum(self.lengths))

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _pieces(self, x: Any) -> list[Any]:
        if not -x.dim() <= self.dim < x.dim():
            raise AssertionError(f"dim {self.dim} is out of range for a tensor of {x.dim()} dimensions")
        if x.size(self.dim) != self.length:
            raise AssertionError(f"Expected size {self.length} along dim {self.dim}, got {x.size(self.dim)}")
        return list(x.split(self.lengths, self.dim))

    def _joined(self, pieces: list[Any]) -> Any:
        return _ops.cat(pieces, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        found = []
        for t, a, b in zip(self.transforms, self._pieces(x), self._pieces(y), strict=True):
            found.append(sum_rightmost(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim))
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        if dim < 0:
            return _ops.cat(found, dim)
        total = found[0]
        for f in found[1:]:
            total = total + f
        return total

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Parts):
    """One map for each index of the axis `dim`."""

    def __init__(self, tseq: Any, dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Any:
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _pieces(self, x: Any) -> list[Any]:
        if not -x.dim() <= self.dim < x.dim():
            raise AssertionError(f"dim {self.dim} is out of range for a tensor of {x.dim()} dimensions")
        if x.size(self.dim) != len(self.transforms):
            raise AssertionError(f"Expected size {len(self.transforms)} along dim {self.dim}, got {x.size(self.dim)}")
        return [x.select(self.dim, i) for i in range(x.size(self.dim))]

    def _joined(self, pieces: list[Any]) -> Any:
        return _ops.stack(pieces, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        found = [t.log_abs_det_jacobian(a, b) for t, a, b in zip(self.transforms, self._pieces(x), self._pieces(y), strict=True)]
        return _ops.stack(found, self.dim)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
