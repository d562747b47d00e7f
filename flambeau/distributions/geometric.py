"""The geometric distribution."""

from __future__ import annotations

from typing import Any

from .._core import dtypes, ops
from .._core.autograd.mode import no_grad
from .._core.layout import Size
from . import constraints
from .bernoulli import Binary
from .distribution import Distribution
from .utils import broadcast_all

_ops: Any = ops


class Geometric(Binary, Distribution):
    """How many failures come before the first success of chance `probs` (or log-odds `logits`)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _fields = {"probs": 0, "logits": 0}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._take(probs, logits), validate_args=validate_args)
        if self._validate_args and probs is not None:
            value = self.probs
            if not bool((value > 0).all()):
                raise ValueError(f"Expected parameter probs ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} "
                                 f"to be positive but found invalid values:\n{value}")

    mean = property(lambda self: 1.0 / self.probs - 1.0)
    mode = property(lambda self: _ops.zeros_like(self.probs))
    variance = property(lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        with no_grad():
            u = _ops.rand(tuple(self._extended_shape(sample_shape)), dtype=self.probs.dtype, device=self.probs.device)
            return (u.clamp(min=dtypes.finfo(u.dtype).tiny).log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        # a certain success has 0 log(0) = 0 for no failures
        certain = (probs == 1) & (value == 0)
        return value * (-_ops.where(certain, 0.0, probs)).log1p() + self.probs.log()

    def entropy(self) -> Any:
        from .bernoulli import _cross_entropy
        return _cross_entropy(self.logits, self.probs) / self.probs
