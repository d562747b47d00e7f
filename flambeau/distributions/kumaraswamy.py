"""Kumaraswamy's distribution."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.layout import Size
from . import constraints
from .gumbel import EULER
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform
from .utils import broadcast_all

_ops: Any = ops


def _moment(a: Any, b: Any, n: int) -> Any:
    """E[x^n] = b B(1 + n / a, b)."""
    first = 1 + n / a
    return _ops.exp(b.log() + _ops.lgamma(first) + _ops.lgamma(b) - _ops.lgamma(first + b))


class Kumaraswamy(TransformedDistribution):
    """Kumaraswamy's distribution on (0, 1): F(x) = 1 - (1 - x^concentration1)^concentration0."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(_ops.full_like(self.concentration0, 0), _ops.full_like(self.concentration0, 1), validate_args=validate_args)
        super().__init__(base, self._steps(), validate_args=validate_args)

    def _steps(self) -> list[Any]:
        return [PowerTransform(exponent=self.concentration0.reciprocal()), AffineTransform(loc=1.0, scale=-1.0),
                PowerTransform(exponent=self.concentration1.reciprocal())]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Kumaraswamy, _instance)
        batch_shape = Size(batch_shape)
        new.concentration1, new.concentration0 = self.concentration1.expand(batch_shape), self.concentration0.expand(batch_shape)
        return super().expand(batch_shape, _instance=new)

    mean = property(lambda self: _moment(self.concentration1, self.concentration0, 1))
    variance = property(lambda self: _moment(self.concentration1, self.concentration0, 2) - self.mean.pow(2))

    @property
    def mode(self) -> Any:
        a, b = self.concentration1, self.concentration0
        inside = (a > 1) & (b > 1)
        ratio = _ops.where(inside, (a - 1) / (a * b - 1), 0.5)
        return _ops.where(inside, ratio ** a.reciprocal(), float("nan"))

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        harmonic = _ops.digamma(b + 1) + EULER
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - _ops.log(a) - _ops.log(b)
