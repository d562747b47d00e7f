"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import linalg
from .._core import ops
from .._core.layout import Size
from . import constraints
from .distribution import Distribution, common_shape
from .utils import lazy_property, standard_normal

_ops: Any = ops
_linalg: Any = linalg


def batch_mv(matrix: Any, vector: Any) -> Any:
    """Matrices times vectors, batch by batch, of broadcast batches."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def batch_mahalanobis(factor: Any, x: Any) -> Any:
    """xᵀ M⁻¹ x for M = L Lᵀ, of a lower triangular L (..., n, n) and x (..., n), whose batches broadcast."""
    return _linalg.solve_triangular(factor, x.unsqueeze(-1), upper=False).squeeze(-1).square().sum(-1)


def _precision_to_scale_tril(precision: Any) -> Any:
    """The Cholesky factor of the inverse of `precision`."""
    # with the order of rows and columns reversed, the factor of the precision is the inverse of the one looked for
    flipped = _linalg.cholesky(_ops.flip(precision, (-2, -1)))
    inverse = _ops.flip(flipped, (-2, -1)).mT
    eye = _ops.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return _linalg.solve_triangular(inverse, eye.expand(precision.shape), upper=False)


def half_log_det(factor: Any) -> Any:
    """The logarithm of the determinant of a Cholesky factor."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors (..., n) around `loc`, with one of covariance, precision or its Cholesky factor.

    Raises ValueError unless exactly one of the matrices is given.
    """

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample = True
    _fields = {"loc": 1, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2}

    def __init__(self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
                 validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = one_matrix(covariance_matrix, precision_matrix, scale_tril)
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = common_shape(matrix.shape[:-2], loc.shape[:-1])
        self.__dict__[name] = matrix.expand((*batch_shape, -1, -1))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = to_scale_tril(name, matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, self._get_checked_instance(MultivariateNormal, _instance))
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return new

    def _whole(self, matrix: Any) -> Any:
        return matrix.expand((*self._batch_shape, *self._event_shape, *self._event_shape))

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return self._whole(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return self._whole(_ops.cholesky_inverse(self._unbroadcasted_scale_tril))

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Any:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        eps = standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + batch_mv(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        m = batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + m) - half_log_det(self._unbroadcasted_scale_tril)

    def entropy(self) -> Any:
        h = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half_log_det(self._unbroadcasted_scale_tril)
        return h if not self._batch_shape else h.expand(self._batch_shape)


def one_matrix(covariance_matrix: Any, precision_matrix: Any, scale_tril: Any) -> tuple[str, Any]:
    """The name and the value of the one matrix that is not None.  Raises ValueError unless exactly one is given."""
    given = [(n, m) for n, m in (("covariance_matrix", covariance_matrix), ("precision_matrix", precision_matrix),
                                 ("scale_tril", scale_tril)) if m is not None]
    if len(given) != 1:
        raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
    return given[0]


def to_scale_tril(name: str, matrix: Any) -> Any:
    """The Cholesky factor of the covariance that the matrix called `name` gives."""
    if name == "scale_tril":
        return matrix
    return _linalg.cholesky(matrix) if name == "covariance_matrix" else _precision_to_scale_tril(matrix)
