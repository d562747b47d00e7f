"""The categorical distribution."""

from __future__ import annotations

import math
from typing import Any

from .._core import dtypes, ops
from .._core.autograd.mode import no_grad
from .._core.layout import Size
from . import constraints
from .bernoulli import one_of
from .distribution import Distribution
from .utils import lazy_property, logits_to_probs, probs_to_logits

_ops: Any = ops


class Categorical(Distribution):
    """An index of [0, K) with chances proportional to `probs` (..., K), or to exp(`logits`)."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _fields = {"probs": 1, "logits": 1}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        one_of(probs, logits)
        given = logits if probs is None else probs
        self._given = "logits" if probs is None else "probs"
        if given.dim() < 1:
            raise ValueError(f"`{self._given}` parameter must be at least one-dimensional.")
        self.__dict__[self._given] = probs / probs.sum(-1, keepdim=True) if probs is not None else (
            logits - logits.logsumexp(-1, keepdim=True))
        self._num_events = self._param.size(-1)
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    def _expand_more(self, new: Any, batch_shape: Size) -> None:
        new._given, new._num_events = self._given, self._num_events

    @property
    def _param(self) -> Any:
        return self.__dict__[self._given]

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Any:
        """Log-probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter, (..., K)."""
        return self._param.size()

    @property
    def mean(self) -> Any:
        return _ops.full(self._extended_shape(), math.nan, dtype=self.probs.dtype, device=self.probs.device)

    mode = property(lambda self: self.probs.argmax(-1))
    variance = property(lambda self: self.mean)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        n = math.prod(sample_shape)
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            shape = self._extended_shape(sample_shape)
            if not n or not rows.size(0):
                return _ops.empty(tuple(shape), dtype=dtypes.int64, device=rows.device)
            return _ops.multinomial(rows, n, True).t().reshape(shape)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value = value.long().unsqueeze(-1)
        value, logits = _ops.broadcast_tensors(value, self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Any:
        # a chance of 0 adds nothing: keep 0 (-inf) from being NaN
        logits = self.logits.clamp(min=dtypes.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        return self._enumerated(_ops.arange(self._num_events, dtype=dtypes.int64, device=self._param.device), expand)
