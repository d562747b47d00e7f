"""The Laplace distribution."""

from __future__ import annotations

from typing import Any

from .._core import dtypes, ops
from .._core.layout import Size
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, is_number

_ops: Any = ops


class Laplace(Distribution):
    """The Laplace (two-sided exponential) distribution around `loc`, of scale `scale`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _fields = {"loc": 0, "scale": 0}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(Size() if is_number(loc) and is_number(scale) else self.loc.size(), validate_args=validate_args)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: 2 * self.scale.pow(2))
    stddev = property(lambda self: 2 ** 0.5 * self.scale)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        u = _ops.rand(tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device) * 2 - 1
        # not -1 itself, whose logarithm would be infinite
        u = u.clamp(min=dtypes.finfo(self.loc.dtype).eps - 1)
        return self.loc - self.scale * u.sign() * _ops.log1p(-u.abs())

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -_ops.log(2 * self.scale) - _ops.abs(value - self.loc) / self.scale

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        away = value - self.loc
        return 0.5 - 0.5 * away.sign() * _ops.expm1(-away.abs() / self.scale)

    def icdf(self, value: Any) -> Any:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * _ops.log1p(-2 * term.abs())

    def entropy(self) -> Any:
        return 1 + _ops.log(2 * self.scale)
