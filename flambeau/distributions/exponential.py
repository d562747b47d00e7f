"""The exponential distribution."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.layout import Size
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all, is_number

_ops: Any = ops


class Exponential(ExponentialFamily):
    """The exponential distribution of rate `rate`."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    _fields = {"rate": 0}

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(Size() if is_number(rate) else self.rate.size(), validate_args=validate_args)

    mean = property(lambda self: self.rate.reciprocal())
    mode = property(lambda self: _ops.zeros_like(self.rate))
    stddev = property(lambda self: self.rate.reciprocal())
    variance = property(lambda self: self.rate.pow(-2))

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        return _ops.empty(self._extended_shape(sample_shape), dtype=self.rate.dtype, device=self.rate.device).exponential_() / self.rate

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return -_ops.expm1(-self.rate * value)

    def icdf(self, value: Any) -> Any:
        return -_ops.log1p(-value) / self.rate

    def entropy(self) -> Any:
        return 1.0 - _ops.log(self.rate)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        return -_ops.log(-natural_params[0])
