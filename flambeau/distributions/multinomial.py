"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.layout import Size
from . import constraints
from .binomial import Binomial
from .categorical import Categorical
from .distribution import Distribution
from .utils import broadcast_all

_ops: Any = ops


class Multinomial(Distribution):
    """How often each of K outcomes comes in `total_count` trials, of chances `probs` (..., K) or exp(`logits`).

    total_count: one int for the whole batch.  `log_prob` also takes other totals with ``validate_args=False``.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    total_count: int

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Multinomial, _instance)
        batch_shape = Size(batch_shape)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(batch_shape)
        new._binomial = Binomial(total_count=self.total_count, probs=new.probs)
        super(Multinomial, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    _param = property(lambda self: self._categorical._param)
    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))
    param_shape = property(lambda self: self._categorical.param_shape)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        draws = self._categorical.sample(Size((self.total_count, *sample_shape)))
        draws = draws.permute(*range(1, draws.dim()), 0)  # the trials last
        counts = _ops.zeros(tuple(self._extended_shape(sample_shape)), dtype=self.mean.dtype, device=draws.device)
        return counts.scatter_add_(-1, draws, _ops.ones_like(draws).to(counts.dtype))

    def entropy(self) -> Any:
        n = self.total_count
        counts = self._binomial.enumerate_support(expand=False)[1:]
        chance = _ops.exp(self._binomial.log_prob(counts))
        return (n * self._categorical.entropy() - _ops.lgamma(_ops.tensor(n + 1.0, dtype=chance.dtype, device=chance.device))
                + (chance * _ops.lgamma(counts + 1)).sum((0, -1)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = _ops.where((value == 0) & (logits == -float("inf")), 0.0, logits)
        return _ops.lgamma(value.sum(-1) + 1) - _ops.lgamma(value + 1).sum(-1) + (logits * value).sum(-1)
