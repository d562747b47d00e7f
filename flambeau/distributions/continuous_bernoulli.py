"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

from .._core import ops
from .._core.layout import Size
from . import constraints
from .bernoulli import Binary, _cross_entropy
from .exp_family import ExponentialFamily
from .utils import broadcast_all, clamp_probs, probs_to_logits

_ops: Any = ops


class ContinuousBernoulli(Binary, ExponentialFamily):
    """The density on [0, 1] proportional to probs^x (1 - probs)^(1 - x) (Loaiza-Ganem & Cunningham, 2019).

    lims: around probs = 1/2, where the closed forms cancel, Taylor expansions are used instead.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    _fields = {"probs": 0, "logits": 0}

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
                 validate_args: bool | None = None) -> None:
        shape = self._take(probs, logits)
        if probs is not None:
            if validate_args is not None and validate_args and not bool(self.arg_constraints["probs"].check(self.probs).all()):
                raise ValueError("The parameter probs has invalid values")
            self.__dict__["probs"] = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(shape, validate_args=validate_args)

    def _expand_more(self, new: Any, batch_shape: Size) -> None:
        super()._expand_more(new, batch_shape)
        new._lims = self._lims

    def _outside(self) -> Any:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut(self) -> Any:
        """The chances, with those too near 1/2 moved to the limit (their results are replaced)."""
        return _ops.where(self._outside(), self.probs, self._lims[0])

    def _log_constant(self) -> Any:
        """log C, the normalizing constant: C = 2 atanh(1 - 2 p) / (1 - 2 p)."""
        p = self._cut()
        below, above = _ops.where(p <= 0.5, p, 0.0), _ops.where(p >= 0.5, p, 1.0)
        exact = (_ops.log(_ops.abs(_ops.log1p(-p) - _ops.log(p)))
                 - _ops.where(p <= 0.5, _ops.log1p(-2.0 * below), _ops.log(2.0 * above - 1.0)))
        x = (self.probs - 0.5).pow(2)
        return _ops.where(self._outside(), exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Any:
        p = self._cut()
        exact = p / (2.0 * p - 1.0) + 1.0 / (_ops.log1p(-p) - _ops.log(p))
        x = self.probs - 0.5
        return _ops.where(self._outside(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    @property
    def variance(self) -> Any:
        p = self._cut()
        exact = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / (_ops.log1p(-p) - _ops.log(p)).pow(2)
        x = (self.probs - 0.5).pow(2)
        return _ops.where(self._outside(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    stddev = property(lambda self: _ops.sqrt(self.variance))

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        return self.icdf(_ops.rand(tuple(self._extended_shape(sample_shape)), dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -_cross_entropy(logits, value) + self._log_constant()

    def cdf(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        p = self._cut()
        inside = (_ops.pow(p, value) * _ops.pow(1.0 - p, 1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        found = _ops.where(self._outside(), inside, value)
        return _ops.where(value <= 0.0, 0.0, _ops.where(value >= 1.0, 1.0, found))

    def icdf(self, value: Any) -> Any:
        p = self._cut()
        inside = (_ops.log1p(-p + value * (2.0 * p - 1.0)) - _ops.log1p(-p)) / (_ops.log(p) - _ops.log1p(-p))
        return _ops.where(self._outside(), inside, value)

    def entropy(self) -> Any:
        q = _ops.log1p(-self.probs)
        return self.mean * (q - _ops.log(self.probs)) - self._log_constant() - q

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (probs_to_logits(self.probs, is_binary=True),)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        x = natural_params[0]
        outside = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        cut = _ops.where(outside, x, self._lims[0] - 0.5)
        exact = _ops.log(_ops.abs(_ops.expm1(cut))) - _ops.log(_ops.abs(cut))
        return _ops.where(outside, exact, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)
