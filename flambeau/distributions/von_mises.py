"""The von Mises distribution."""

from __future__ import annotations

import math
from typing import Any

from .._core import dtypes, ops
from .._core.autograd.mode import no_grad
from .._core.layout import Size
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, lazy_property

_ops: Any = ops


class VonMises(Distribution):
    """The von Mises distribution on the circle, around the angle `loc` with concentration `concentration`."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    _fields = {"loc": 0, "concentration": 0}

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, Size(), validate_args)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        # i0e(k) = exp(-k) i0(k) stays finite where i0 does not
        return k * (_ops.cos(value - self.loc) - 1) - math.log(2 * math.pi) - _ops.log(_special("i0e")(k))

    @lazy_property
    def _proposal(self) -> Any:
        """The parameter of the wrapped Cauchy proposals, in doubles (Best & Fisher, 1979)."""
        k = self.concentration.detach().double()
        tau = 1 + (1 + 4 * k ** 2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        exact = (1 + rho ** 2) / (2 * rho)
        return _ops.where(k < 1e-5, 1 / k + k, exact)  # its expansion, where the difference above cancels

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Samples by Best and Fisher's rejection method; not differentiable."""
        with no_grad():
            shape = self._extended_shape(sample_shape)
            loc, k, r = (t.double().expand(shape) for t in (self.loc, self.concentration, self._proposal))
            found = _ops.zeros(shape, dtype=dtypes.float64, device=loc.device)
            waiting = _ops.ones(shape, dtype=dtypes.bool_, device=loc.device)
            while bool(waiting.any()):
                u = _ops.rand((3, *shape), dtype=dtypes.float64, device=loc.device)
                z = _ops.cos(math.pi * u[0])
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                accept = (c * (2 - c) - u[1] > 0) | ((c / u[1]).log() + 1 - c >= 0)
                found = _ops.where(waiting & accept, (u[2] - 0.5).sign() * f.clamp(-1, 1).acos(), found)
                waiting = waiting & ~accept
            return ((found + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    @lazy_property
    def variance(self) -> Any:
        """The circular variance, 1 - i1(k) / i0(k)."""
        k = self.concentration
        return 1 - _special("i1e")(k) / _special("i0e")(k)


def _special(name: str) -> Any:
    from .. import special
    return getattr(special, name)
