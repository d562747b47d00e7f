"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.layout import Size
from . import constraints
from .exponential import Exponential
from .gumbel import EULER
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .utils import broadcast_all

_ops: Any = ops


class Weibull(TransformedDistribution):
    """The two-parameter Weibull distribution: scale x^(1 / concentration) of an exponential x."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(_ops.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, self._steps(), validate_args=validate_args)

    def _steps(self) -> list[Any]:
        self.concentration_reciprocal = self.concentration.reciprocal()
        return [PowerTransform(exponent=self.concentration_reciprocal), AffineTransform(loc=0, scale=self.scale)]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Weibull, _instance)
        batch_shape = Size(batch_shape)
        new.scale, new.concentration = self.scale.expand(batch_shape), self.concentration.expand(batch_shape)
        super(Weibull, new).__init__(self.base_dist.expand(batch_shape), new._steps(), validate_args=False)
        new._validate_args = self._validate_args
        return new

    mean = property(lambda self: self.scale * _ops.exp(_ops.lgamma(1 + self.concentration_reciprocal)))

    @property
    def mode(self) -> Any:
        c = self.concentration
        # 0 for a concentration up to 1, where the power of a negative number would be NaN
        return self.scale * ((c - 1).clamp(min=0) / c) ** self.concentration_reciprocal

    @property
    def variance(self) -> Any:
        r = self.concentration_reciprocal
        return self.scale.pow(2) * (_ops.exp(_ops.lgamma(1 + 2 * r)) - _ops.exp(2 * _ops.lgamma(1 + r)))

    def entropy(self) -> Any:
        r = self.concentration_reciprocal
        return EULER * (1 - r) + _ops.log(self.scale * r) + 1
