"""`ExponentialFamily`: densities exp(<t(x), θ> - F(θ) + k(x))."""

from __future__ import annotations

from typing import Any

from .._core.autograd.functions import grad
from .._core.autograd.mode import enable_grad
from .distribution import Distribution


class ExponentialFamily(Distribution):
    """A distribution of an exponential family, given by its natural parameters and log-normalizer.

    The entropy follows from the gradients of the log-normalizer F: F(θ) - <θ, ∇F(θ)> - E[k(x)] (Nielsen & Nock, "Entropies
    and cross-entropies of exponential families", 2010).
    """

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Any:
        """The entropy, by differentiating the log-normalizer."""
        with enable_grad():
            natural = [p.detach().requires_grad_() for p in self._natural_params]
            log_normalizer = self._log_normalizer(*natural)
            slopes = grad(log_normalizer.sum(), natural, create_graph=True)
        result = log_normalizer - self._mean_carrier_measure
        for p, s in zip(natural, slopes, strict=True):
            own = p.dim() - len(self.batch_shape)
            result = result - (p * s).reshape(*p.shape[:p.dim() - own], -1).sum(-1)
        return result
