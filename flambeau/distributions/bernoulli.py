"""The Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

from .._core import ops
from .._core.autograd.mode import no_grad
from .._core.layout import Size
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all, is_number, lazy_property, logits_to_probs, probs_to_logits

_ops: Any = ops


def one_of(probs: Any, logits: Any) -> None:
    """Raises ValueError unless exactly one of the two is given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class Binary:
    """The two ways to give the chance of a success: `probs`, or `logits`, its log-odds."""

    def _take(self, probs: Any, logits: Any) -> Size:
        """Keeps whichever is given, as a tensor; the batch shape of it."""
        one_of(probs, logits)
        given = logits if probs is None else probs
        (value,) = broadcast_all(given)
        self._given = "logits" if probs is None else "probs"
        self.__dict__[self._given] = value
        return Size() if is_number(given) else Size(value.size())

    @property
    def _param(self) -> Any:
        return self.__dict__[self._given]

    def _expand_more(self, new: Any, batch_shape: Size) -> None:
        new._given = self._given

    @lazy_property
    def logits(self) -> Any:
        """Log-odds of a success."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Any:
        """Chances of a success."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()


class Bernoulli(Binary, ExponentialFamily):
    """1 with probability `probs` (or log-odds `logits`), else 0."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0
    _fields = {"probs": 0, "logits": 0}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._take(probs, logits), validate_args=validate_args)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    @property
    def mode(self) -> Any:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return _ops.where(self.probs == 0.5, math.nan, mode)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        with no_grad():
            return _ops.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -_cross_entropy(logits, value)

    def entropy(self) -> Any:
        return _cross_entropy(self.logits, self.probs)

    def enumerate_support(self, expand: bool = True) -> Any:
        return self._enumerated(_ops.arange(2, dtype=self._param.dtype, device=self._param.device), expand)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (_ops.logit(self.probs),)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        return _ops.log1p(_ops.exp(natural_params[0]))


def _cross_entropy(logits: Any, target: Any) -> Any:
    """Of the target chances, under the log-odds: in the form that cannot overflow."""
    return logits.clamp(min=0) - logits * target + (-logits.abs()).exp().log1p()
