"""The Wishart distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import linalg
from .._core import dtypes, ops
from .._core.layout import Size
from . import constraints
from .distribution import common_shape
from .exp_family import ExponentialFamily
from .gamma import Gamma
from .multivariate_normal import half_log_det, one_matrix, to_scale_tril
from .utils import is_number, lazy_property, standard_normal

_ops: Any = ops
_linalg: Any = linalg


def _mvdigamma(x: Any, p: int) -> Any:
    """The derivative of the logarithm of the multivariate gamma function."""
    return (x.unsqueeze(-1) - _ops.arange(p, dtype=x.dtype, device=x.device) / 2).digamma().sum(-1)


class Wishart(ExponentialFamily):
    """The Wishart distribution of (n, n) matrices: df > n - 1 degrees of freedom, and one of three matrices for the scale."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _fields = {"df": 0, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2}

    def __init__(self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
                 validate_args: bool | None = None) -> None:
        name, matrix = one_matrix(covariance_matrix, precision_matrix, scale_tril)
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        n = matrix.shape[-1]
        if is_number(df):
            df = _ops.tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch_shape = common_shape(matrix.shape[:-2], df.shape)
        self.df = df.expand(batch_shape)
        self.__dict__[name] = matrix.expand((*batch_shape, -1, -1))
        if bool(self.df.le(n - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = to_scale_tril(name, matrix)

    @property
    def arg_constraints(self) -> dict[str, Any]:
        n = self.__dict__["_event_shape"][0] if "_event_shape" in self.__dict__ else 1
        return {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(n - 1)}

    def _expand_more(self, new: Any, batch_shape: Size) -> None:
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril

    def _whole(self, matrix: Any) -> Any:
        return matrix.expand((*self._batch_shape, *self._event_shape))

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the scale."""
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The scale."""
        factor = self._unbroadcasted_scale_tril
        return self._whole(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the scale."""
        return self._whole(_ops.cholesky_inverse(self._unbroadcasted_scale_tril))

    mean = property(lambda self: self.df.unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix)

    @property
    def mode(self) -> Any:
        factor = self.df - self._event_shape[0] - 1
        return _ops.where(factor > 0, factor, math.nan).unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df.unsqueeze(-1).unsqueeze(-1) * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Samples by Bartlett's decomposition: chi-squared numbers on the diagonal of the factor, normal ones below."""
        shape = self._extended_shape(sample_shape)
        n = self._event_shape[0]
        factor = self._unbroadcasted_scale_tril
        degrees = self.df.unsqueeze(-1) - _ops.arange(n, dtype=factor.dtype, device=factor.device)
        chi2 = Gamma(0.5 * degrees, 0.5, validate_args=False).rsample(sample_shape)
        a = chi2.clamp(min=dtypes.finfo(factor.dtype).tiny).sqrt().diag_embed() + standard_normal(shape, factor.dtype, factor.device).tril(-1)
        root = factor @ a
        return root @ root.mT

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n, factor = self._event_shape[0], self._unbroadcasted_scale_tril
        half = self.df / 2
        ratio = _ops.cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (-self.df * (n * math.log(2) / 2 + half_log_det(factor)) - _ops.mvlgamma(half, p=n)
                + (self.df - n - 1) / 2 * _linalg.slogdet(value).logabsdet - ratio / 2)

    def entropy(self) -> Any:
        n, half = self._event_shape[0], self.df / 2
        return ((n + 1) * (n * math.log(2) / 2 + half_log_det(self._unbroadcasted_scale_tril)) + _ops.mvlgamma(half, p=n)
                - (self.df - n - 1) / 2 * _mvdigamma(half, n) + self.df * n / 2)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[0] - 1) / 2

    def _log_normalizer(self, *natural_params: Any) -> Any:
        x, y = natural_params
        p = self._event_shape[0]
        power = y + (p + 1) / 2
        return power * (p * math.log(2) - _linalg.slogdet(-2 * x).logabsdet) + _ops.mvlgamma(power, p=p)
