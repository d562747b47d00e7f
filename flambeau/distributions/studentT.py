"""Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

from .._core import ops
from .._core.layout import Size
from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .utils import broadcast_all, is_number, standard_normal

_ops: Any = ops


class StudentT(Distribution):
    """Student's t distribution with `df` degrees of freedom, moved by `loc` and scaled by `scale`."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _fields = {"df": 0, "loc": 0, "scale": 0}

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(Size() if is_number(df) and is_number(loc) and is_number(scale) else self.df.size(), validate_args=validate_args)

    def _expand_more(self, new: Any, batch_shape: Size) -> None:
        new._chi2 = self._chi2.expand(batch_shape)

    @property
    def mean(self) -> Any:
        return _ops.where(self.df <= 1, math.nan, self.loc)

    mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Any:
        df = self.df
        finite = self.scale.pow(2) * df / (df - 2)
        return _ops.where(df <= 1, math.nan, _ops.where(df <= 2, math.inf, finite))

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        x = standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        z = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * x * _ops.rsqrt(z / self.df)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        z = (self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + _ops.lgamma(0.5 * self.df)
             - _ops.lgamma(0.5 * (self.df + 1.0)))
        return -0.5 * (self.df + 1.0) * _ops.log1p(y ** 2.0 / self.df) - z

    def entropy(self) -> Any:
        half = 0.5 * self.df
        beta = _ops.lgamma(half) + math.lgamma(0.5) - _ops.lgamma(half + 0.5)
        return (self.scale.log() + 0.5 * (self.df + 1) * (_ops.digamma(half + 0.5) - _ops.digamma(half)) + 0.5 * self.df.log() + beta)
