"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.autograd.mode import no_grad
from .._core.layout import Size
from . import constraints
from .categorical import Categorical
from .distribution import Distribution

_ops: Any = ops


class MixtureSameFamily(Distribution):
    """A sample of one of the components, which are the last batch axis of `component_distribution`.

    Args:
        mixture_distribution: a `Categorical` over the components, whose batch broadcasts to the components'.
        component_distribution: a distribution of batch shape (..., K).

    Raises ValueError when the two do not fit together.
    """

    arg_constraints: dict[str, Any] = {}
    has_rsample = False

    def __init__(self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        mixture, component = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(mixture), reversed(component), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(f"`mixture_distribution.batch_shape` ({mixture}) is not compatible with "
                                 f"`component_distribution.batch_shape`({component})")
        km, kc = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if km != kc:
            raise ValueError(f"`mixture_distribution component` ({km}) does not equal `component_distribution.batch_shape[-1]` ({kc})")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component = km
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(component, component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        batch_shape = Size(batch_shape)
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        super(MixtureSameFamily, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    @property
    def _weights(self) -> Any:
        """The chances of the components, with an axis for each of the event's."""
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *[1] * self._event_ndims)

    def _over_components(self, x: Any) -> Any:
        return (self._weights * x).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Any:
        return self._over_components(self.component_distribution.mean)

    @property
    def variance(self) -> Any:
        # the variance within components, and that of their means
        away = self.component_distribution.mean - self.mean.unsqueeze(-1 - self._event_ndims)
        return self._over_components(self.component_distribution.variance) + self._over_components(away.pow(2))

    def cdf(self, x: Any) -> Any:  # noqa: D102
        x = x.unsqueeze(-1 - self._event_ndims)
        return (self.component_distribution.cdf(x) * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Any) -> Any:
        if self._validate_args:
            self._validate_sample(x)
        each = self.component_distribution.log_prob(x.unsqueeze(-1 - self._event_ndims))
        return (each + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        with no_grad():
            sample_shape = Size(sample_shape)
            which = self.mixture_distribution.sample(sample_shape)
            each = self.component_distribution.sample(sample_shape)
            axis = each.dim() - 1 - self._event_ndims
            which = which.reshape(*which.shape, *[1] * (1 + self._event_ndims))
            index = which.expand(*each.shape[:axis], 1, *self._event_shape)
            return each.gather(axis, index).squeeze(axis)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
