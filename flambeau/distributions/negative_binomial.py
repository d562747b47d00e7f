"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.autograd.mode import no_grad
from .._core.layout import Size
from . import constraints
from .binomial import Counted
from .distribution import Distribution
from .gamma import Gamma
from .utils import lazy_property

_ops: Any = ops


class NegativeBinomial(Counted, Distribution):
    """How many successes of chance `probs` (or log-odds `logits`) come before `total_count` failures."""

    arg_constraints = {"total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}
    support = constraints.nonnegative_integer
    _fields = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._take_counted(total_count, probs, logits), validate_args=validate_args)

    mean = property(lambda self: self.total_count * _ops.exp(self.logits))
    variance = property(lambda self: self.mean / _ops.sigmoid(-self.logits))

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @lazy_property
    def _gamma(self) -> Any:
        return Gamma(self.total_count, _ops.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        with no_grad():
            return _ops.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        from ..nn.functional import logsigmoid
        unnormalised = n * logsigmoid(-logits) + value * logsigmoid(logits)
        normalisation = -_ops.lgamma(n + value) + _ops.lgamma(1.0 + value) + _ops.lgamma(n)
        # no failures to wait for: nothing is drawn, and lgamma(0) is infinite on both sides
        return unnormalised - normalisation.masked_fill(n + value == 0.0, 0.0)
