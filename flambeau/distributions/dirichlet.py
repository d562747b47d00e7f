"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

from .._core import ops
from . import constraints
from .exp_family import ExponentialFamily

_ops: Any = ops


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution over the simplex, of concentration (..., K)."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _fields = {"concentration": 1}

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return _ops._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        c = self.concentration
        return _ops.xlogy(c - 1.0, value).sum(-1) + _ops.lgamma(c.sum(-1)) - _ops.lgamma(c).sum(-1)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, True))

    @property
    def mode(self) -> Any:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        # with all concentrations below 1 the density has no bound at any corner: PyTorch names the first
        flat = (self.concentration < 1).all(-1, True)
        corner = _ops.zeros_like(mode).index_fill(-1, _ops.tensor([0], device=mode.device), 1.0)
        return _ops.where(flat, corner, mode)

    @property
    def variance(self) -> Any:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self) -> Any:
        c = self.concentration
        k, total = c.size(-1), c.sum(-1)
        return (_ops.lgamma(c).sum(-1) - _ops.lgamma(total) - (k - total) * _ops.digamma(total)
                - ((c - 1.0) * _ops.digamma(c)).sum(-1))

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Any) -> Any:
        x = natural_params[0]
        return x.lgamma().sum(-1) - _ops.lgamma(x.sum(-1))
