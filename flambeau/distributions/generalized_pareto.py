"""The generalized Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

from .._core import ops
from .._core.layout import Size
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, is_number

_ops: Any = ops


class GeneralizedPareto(Distribution):
    """The generalized Pareto distribution from `loc` upwards: scale `scale`, tail index `concentration` (0: exponential)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True
    _fields = {"loc": 0, "scale": 0, "concentration": 0}

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        shape = Size() if is_number(loc) and is_number(scale) and is_number(concentration) else self.loc.size()
        super().__init__(shape, validate_args=validate_args)

    @property
    def _tail(self) -> tuple[Any, Any]:
        """Which concentrations count as 0, and the concentrations with those replaced by 1."""
        flat = _ops.isclose(self.concentration, _ops.zeros_like(self.concentration))
        return flat, _ops.where(flat, 1.0, self.concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        upper = _ops.where(self.concentration < 0, self.loc - self.scale / self._tail[1], math.inf)
        return constraints.interval(self.loc, upper)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        return self.icdf(_ops.rand(tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        flat, k = self._tail
        return -_ops.log(self.scale) - _ops.where(flat, z, (1 + 1 / k) * _ops.log1p(k * z))

    def log_survival_function(self, value: Any) -> Any:
        """log(1 - F(value))."""
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        flat, k = self._tail
        return _ops.where(flat, -z, -_ops.log1p(k * z) / k)

    def log_cdf(self, value: Any) -> Any:
        """log(F(value))."""
        return _ops.log1p(-_ops.exp(self.log_survival_function(value)))

    def cdf(self, value: Any) -> Any:
        return -_ops.expm1(self.log_survival_function(value))

    def icdf(self, value: Any) -> Any:
        flat, k = self._tail
        rest = _ops.log1p(-value)
        return self.loc + self.scale * _ops.where(flat, -rest, _ops.expm1(-k * rest) / k)

    @property
    def mean(self) -> Any:
        k = self.concentration
        return _ops.where(k < 1, self.loc + self.scale / (1 - k), math.inf)

    @property
    def variance(self) -> Any:
        k = self.concentration
        return _ops.where(k < 0.5, self.scale ** 2 / ((1 - k) ** 2 * (1 - 2 * k)), math.inf)

    def entropy(self) -> Any:
        return _ops.log(self.scale) + self.concentration + 1

    mode = property(lambda self: self.loc)
