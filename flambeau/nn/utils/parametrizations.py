"""Parametrizations: orthogonal matrices, weight normalization, spectral normalization."""

from __future__ import annotations

from typing import Any

from ... import linalg
from ..._core import ops
from ...autograd import no_grad
from .. import functional as F
from ..module import Module
from . import parametrize
from .weight_norms import norm_except_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]
_ops: Any = ops
_linalg: Any = linalg


class _WeightNorm(Module):
    """g v / ‖v‖ of a magnitude g (per index of `dim`) and a direction v (Salimans & Kingma, 2016)."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return weight_v * (weight_g / norm_except_dim(weight_v, 2, self.dim))

    def right_inverse(self, weight: Any) -> Any:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Splits the parameter `name` into a magnitude (`original0`) and a direction (`original1`)."""
    return parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    """The weight over its largest singular value, which power iteration tracks in training (Miyato et al., 2018)."""

    def __init__(self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.dim() <= dim < weight.dim():
            raise IndexError(f"Dimension out of range (expected to be in range of [-{weight.dim()}, {weight.dim() - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim, self.eps, self.n_power_iterations = dim % weight.dim(), eps, n_power_iterations
        if weight.dim() > 1:
            matrix = self._matrix(weight)
            h, w = matrix.shape
            self.register_buffer("_u", F.normalize(matrix.new_empty(h).normal_(), dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(matrix.new_empty(w).normal_(), dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Any) -> Any:
        if self.dim:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.flatten(1)

    def _iterate(self, matrix: Any, n: int) -> None:
        me: Any = self
        with no_grad():
            m = matrix.detach()
            for _ in range(n):
                me._u.copy_(F.normalize(m.mv(me._v), dim=0, eps=self.eps))
                me._v.copy_(F.normalize(m.t().mv(me._u), dim=0, eps=self.eps))

    def forward(self, weight: Any) -> Any:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        me: Any = self
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # clones: the next call changes the vectors in place
        return weight / _ops.vdot(me._u.clone(), matrix.mv(me._v.clone()))

    def right_inverse(self, value: Any) -> Any:
        return value


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Any:
    """Divides the parameter `name` by its largest singular value.  Raises ValueError where there is no such tensor."""
    weight = getattr(module, name, None)
    if not hasattr(weight, "meta"):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


def _is_orthogonal(q: Any, eps: float | None = None) -> bool:
    n, k = q.size(-2), q.size(-1)
    eye = _ops.eye(k, dtype=q.dtype, device=q.device)
    eps = 10.0 * n * _eps(q.dtype) if eps is None else eps
    return bool(_ops.allclose(q.mT.conj_physical() @ q, eye.expand(*q.shape[:-2], k, k), rtol=0.0, atol=eps))


def _eps(d: Any) -> float:
    from ..._core.dtypes import finfo
    return float(finfo(d).eps)


class _Orthogonal(Module):
    """Matrices with orthonormal columns (rows, where there are more columns) from any matrix.

    matrix_exp and cayley map skew-symmetric matrices; householder makes products of reflections.  A wide matrix is treated
    as the transpose of a tall one; a tall one takes the first columns of a square one.
    """

    def __init__(self, weight: Any, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Any) -> Any:
        n, k = x.size(-2), x.size(-1)
        wide = n < k
        if wide:
            x = x.mT
            n, k = k, n
        if self.orthogonal_map == "householder":
            a = x.tril(diagonal=-1)
            tau = 2.0 / (1.0 + (a * a).sum(-2))
            q = _linalg.householder_product(a, tau)
            q = q * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2).to(q.dtype)
        else:
            a = x.tril()
            if n != k:
                a = _ops.cat([a, a.new_zeros((*a.shape[:-1], n - k))], -1)
            a = a - a.mT.conj_physical()
            if self.orthogonal_map == "matrix_exp":
                q = _linalg.matrix_exp(a)
            else:  # cayley
                eye = _ops.eye(n, dtype=a.dtype, device=a.device)
                q = _linalg.solve(eye - 0.5 * a, eye + 0.5 * a)
            if n != k:
                q = q[..., :k]
        base = getattr(self, "base", None)
        if base is not None:
            q = base @ q
        return q.mT if wide else q

    def right_inverse(self, q: Any) -> Any:
        if tuple(q.shape) != tuple(self.shape):
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {q.shape}.")
        wide = q.size(-2) < q.size(-1)
        if wide:
            q = q.mT
        n, k = q.size(-2), q.size(-1)
        me: Any = self
        if "base" not in self._buffers:
            if self.orthogonal_map != "householder":
                raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                                          "use_trivialization=False.")
            a, tau = _ops.geqrf(q)
            # the sign of R's diagonal goes where nothing else is stored
            a.diagonal(dim1=-2, dim2=-1).sign_()
            a.diagonal(dim1=-2, dim2=-1)[tau == 0.0] *= -1
            return a.mT if wide else a
        if n == k:
            if not _is_orthogonal(q):
                q = _orthonormal(q)
            else:
                q = q.clone()
        else:
            more = _ops.randn((*q.shape[:-2], n, n - k), dtype=q.dtype, device=q.device)
            q = _orthonormal(_ops.cat([q, more], -1))
        me.base = q
        # the map gives the identity for zeros of the strictly lower triangle
        made = _ops.zeros((*q.shape[:-2], n, k), dtype=q.dtype, device=q.device)
        if self.orthogonal_map == "householder":
            made.diagonal(dim1=-2, dim2=-1).fill_(-1.0)  # reflections of nothing are minus the identity
        return made.mT if wide else made


def _orthonormal(x: Any) -> Any:
    """Q of the QR decomposition with a positive diagonal of R: the nearest in order to x's columns."""
    q, r = _linalg.qr(x)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def orthogonal(module: Any, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True) -> Any:
    """Keeps the matrix `name` orthogonal.

    Args:
        orthogonal_map: "matrix_exp", "cayley" or "householder" (default: matrix_exp for square and complex matrices, else
            householder).
        use_trivialization: start from the matrix's own orthogonal part, so that it can also be assigned to.

    Raises ValueError for an unknown map or a tensor of fewer than two dimensions.
    """
    weight = getattr(module, name, None)
    if not hasattr(weight, "meta"):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    w: Any = weight
    if w.dim() < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {w.dim()} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if w.size(-2) == w.size(-1) or w.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    made = _Orthogonal(w, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)
