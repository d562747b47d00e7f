"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from .._core import ops
from . import constraints
from .cauchy import Cauchy
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform

_ops: Any = ops


class HalfCauchy(TransformedDistribution):
    """|x| for a Cauchy x around 0 of scale `scale`."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, _instance=self._get_checked_instance(HalfCauchy, _instance))

    scale = property(lambda self: self.base_dist.scale)
    mode = property(lambda self: _ops.zeros_like(self.scale))
    variance = property(lambda self: self.base_dist.variance)

    @property
    def mean(self) -> Any:
        return _ops.full(self._extended_shape(), math.inf, dtype=self.scale.dtype, device=self.scale.device)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value = _ops.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        return _ops.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Any) -> Any:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Any:
        return self.base_dist.entropy() - math.log(2)
