"""The logistic-normal distribution."""

from __future__ import annotations

from typing import Any

from . import constraints
from .independent import Independent
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import StickBreakingTransform


class LogisticNormal(TransformedDistribution):
    """The stick-breaking image, on the simplex, of normal numbers: (..., K) parameters give (..., K + 1) shares."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, _instance=self._get_checked_instance(LogisticNormal, _instance))

    @property
    def _normal(self) -> Any:
        return self.base_dist.base_dist if isinstance(self.base_dist, Independent) else self.base_dist

    loc = property(lambda self: self._normal.loc)
    scale = property(lambda self: self._normal.scale)
