"""The LKJ distribution of Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from typing import Any

from .._core import dtypes, ops
from .._core.layout import Size
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import broadcast_all, standard_normal

_ops: Any = ops


class LKJCholesky(Distribution):
    """Cholesky factors of (dim, dim) correlation matrices of density det(M)^(concentration - 1).

    Lewandowski, Kurowicka & Joe, "Generating random correlation matrices based on vines and extended onion method", 2009.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.size(), Size((dim, dim)), validate_args)
        self._beta = self._shares()

    def _shares(self) -> Any:
        """The distribution of how much of each row lies off the diagonal (the onion method)."""
        c = self.concentration
        marginal = c + 0.5 * (self.dim - 2)
        half = 0.5 * _ops.arange(self.dim - 1, dtype=c.dtype, device=c.device)
        half = _ops.cat([half.new_zeros((1,)), half])  # the first row has no share: any will do
        return Beta(half + 0.5, marginal.unsqueeze(-1) - half)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LKJCholesky, _instance)
        batch_shape = Size(batch_shape)
        new.dim, new.concentration = self.dim, self.concentration.expand(batch_shape)
        new._beta = self._beta.expand((*batch_shape, self.dim))
        super(LKJCholesky, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        share = self._beta.sample(sample_shape).unsqueeze(-1)
        u = standard_normal(self._extended_shape(sample_shape), share.dtype, share.device).tril(-1)
        sphere = u / u.norm(dim=-1, keepdim=True).clamp(min=dtypes.finfo(u.dtype).tiny)  # the first row is zero
        sphere[..., 0, :].fill_(0.0)
        w = _ops.sqrt(share) * sphere
        tiny = dtypes.finfo(w.dtype).tiny
        diagonal = _ops.clamp(1 - _ops.sum(w ** 2, -1), min=tiny).sqrt()
        return w + _ops.diag_embed(diagonal)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        c, n = self.concentration, self.dim
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = _ops.arange(2, n + 1, device=c.device)
        order = 2 * (c - 1).unsqueeze(-1) + n - order
        density = _ops.sum(order * diagonal.log(), -1)
        m1 = n - 1
        alpha = c + 0.5 * m1
        denominator = _ops.lgamma(alpha) * m1
        numerator = _ops.mvlgamma(alpha - 0.5, m1)
        return density - (0.5 * m1 * math.log(math.pi) + numerator - denominator)
