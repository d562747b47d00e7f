"""The gamma distribution."""

from __future__ import annotations

from typing import Any

from .._core import dtypes, ops
from .._core.layout import Size
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all, is_number

_ops: Any = ops


class Gamma(ExponentialFamily):
    """The gamma distribution of shape `concentration` and rate `rate` (1 / scale).

    `rsample` is differentiable in the concentration by implicit reparametrization (Figurnov, Mohamed & Mnih, 2018).
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    _fields = {"concentration": 0, "rate": 0}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(Size() if is_number(concentration) and is_number(rate) else self.concentration.size(), validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate.pow(2))

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        shape = self._extended_shape(sample_shape)
        value = _ops._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(min=dtypes.finfo(value.dtype).tiny)  # a zero would have no logarithm
        return value

    def log_prob(self, value: Any) -> Any:
        value = _ops.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        c, rate = self.concentration, self.rate
        return _ops.xlogy(c, rate) + _ops.xlogy(c - 1, value) - rate * value - _ops.lgamma(c)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return _ops.igamma(self.concentration, self.rate * value)

    def entropy(self) -> Any:
        c = self.concentration
        return c - _ops.log(self.rate) + _ops.lgamma(c) + (1.0 - c) * _ops.digamma(c)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Any) -> Any:
        x, y = natural_params
        return _ops.lgamma(x + 1) + (x + 1) * _ops.log(-y.reciprocal())
