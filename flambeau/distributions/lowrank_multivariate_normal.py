"""Multivariate normal distributions whose covariance is of low rank plus a diagonal."""

from __future__ import annotations

import math
from typing import Any

from .. import linalg
from .._core import ops
from .._core.layout import Size
from . import constraints
from .distribution import Distribution, common_shape
from .multivariate_normal import batch_mahalanobis, batch_mv, half_log_det
from .utils import lazy_property, standard_normal

_ops: Any = ops
_linalg: Any = linalg


def capacitance_tril(factor: Any, diagonal: Any) -> Any:
    """The Cholesky factor of I + Wᵀ D⁻¹ W."""
    scaled = factor.mT / diagonal.unsqueeze(-2)
    k = scaled @ factor
    return _linalg.cholesky(k + _ops.eye(k.shape[-1], dtype=k.dtype, device=k.device))


def lowrank_log_det(diagonal: Any, capacitance: Any) -> Any:
    """log det(W Wᵀ + D) = 2 log det L + log det D, by the matrix determinant lemma."""
    return 2 * half_log_det(capacitance) + diagonal.log().sum(-1)


def lowrank_mahalanobis(factor: Any, diagonal: Any, x: Any, capacitance: Any) -> Any:
    """xᵀ (W Wᵀ + D)⁻¹ x, by Woodbury's identity."""
    inner = batch_mv(factor.mT / diagonal.unsqueeze(-2), x)
    return (x.square() / diagonal).sum(-1) - batch_mahalanobis(capacitance, inner)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors (..., n) of covariance ``cov_factor cov_factorᵀ + diag(cov_diag)``: cov_factor (..., n, rank)."""

    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}
    support = constraints.real_vector
    has_rsample = True
    _fields = {"loc": 1, "cov_diag": 1, "cov_factor": 2, "covariance_matrix": 2, "scale_tril": 2, "precision_matrix": 2}

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            batch_shape = common_shape(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as e:
            raise ValueError(f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}") from e
        self.loc = loc.expand((*batch_shape, -1))
        self.cov_factor = cov_factor.expand((*batch_shape, -1, -1))
        self.cov_diag = cov_diag.expand((*batch_shape, -1))
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = capacitance_tril(cov_factor, cov_diag)

    def _expand_more(self, new: Any, batch_shape: Size) -> None:
        new._unbroadcasted_cov_factor, new._unbroadcasted_cov_diag = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        new._capacitance_tril = self._capacitance_tril

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    @lazy_property
    def variance(self) -> Any:
        """The variances of the coordinates."""
        return (self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag).expand(self._extended_shape())

    def _whole(self, matrix: Any) -> Any:
        return matrix.expand((*self._batch_shape, *self._event_shape, *self._event_shape))

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        w = self._unbroadcasted_cov_factor
        return self._whole(w @ w.mT + _ops.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        w, d = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        # of D^½ (I + D^-½ W Wᵀ D^-½) D^½: better conditioned than the covariance
        root = d.sqrt().unsqueeze(-1)
        scaled = w / root
        k = scaled @ scaled.mT
        return self._whole(root * _linalg.cholesky(k + _ops.eye(k.shape[-1], dtype=k.dtype, device=k.device)))

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance, by Woodbury's identity."""
        w, d = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        a = _linalg.solve_triangular(self._capacitance_tril, w.mT / d.unsqueeze(-2), upper=False)
        return self._whole(_ops.diag_embed(d.reciprocal()) - a.mT @ a)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        shape = self._extended_shape(sample_shape)
        w = standard_normal((*shape[:-1], self.cov_factor.shape[-1]), self.loc.dtype, self.loc.device)
        d = standard_normal(shape, self.loc.dtype, self.loc.device)
        return self.loc + batch_mv(self._unbroadcasted_cov_factor, w) + self._unbroadcasted_cov_diag.sqrt() * d

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        m = lowrank_mahalanobis(self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, value - self.loc, self._capacitance_tril)
        log_det = lowrank_log_det(self._unbroadcasted_cov_diag, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + log_det + m)

    def entropy(self) -> Any:
        log_det = lowrank_log_det(self._unbroadcasted_cov_diag, self._capacitance_tril)
        h = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + log_det)
        return h if not self._batch_shape else h.expand(self._batch_shape)
