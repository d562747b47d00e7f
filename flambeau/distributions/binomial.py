"""The binomial distribution."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.autograd.mode import no_grad
from .._core.layout import Size
from . import constraints
from .bernoulli import Binary, one_of
from .distribution import Distribution
from .utils import broadcast_all

_ops: Any = ops


class Counted(Binary):
    """A count of trials beside the chance of a success."""

    def _take_counted(self, total_count: Any, probs: Any, logits: Any) -> Size:
        one_of(probs, logits)
        self._given = "logits" if probs is None else "probs"
        self.total_count, value = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = self.total_count.type_as(value)
        self.__dict__[self._given] = value
        return Size(value.size())


class Binomial(Counted, Distribution):
    """How many of `total_count` trials succeed, each with probability `probs` (or log-odds `logits`)."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval, "logits": constraints.real}
    has_enumerate_support = True
    _fields = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._take_counted(total_count, probs, logits), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().minimum(self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return _ops.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        choose = _ops.lgamma(n + 1) - _ops.lgamma(value + 1) - _ops.lgamma(n - value + 1)
        # n log(1 - p) = -n (max(logits, 0) + log(1 + exp(-|logits|)))
        return value * logits + choose - n * (logits.clamp(min=0) + _ops.log1p(_ops.exp(-_ops.abs(logits))))

    def entropy(self) -> Any:
        """The entropy, summed over the support.  Raises NotImplementedError unless all counts are the same."""
        count = int(self.total_count.max())
        if not bool((self.total_count == count).all()):
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(_ops.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        count = int(self.total_count.max())
        if not bool((self.total_count == count).all()):
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        return self._enumerated(_ops.arange(1 + count, dtype=self._param.dtype, device=self._param.device), expand)
