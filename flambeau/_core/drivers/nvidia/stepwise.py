"""Functions that take as many steps as their operands ask for, on NVIDIA GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.cuda_c.handwritten import stepwise as code

if TYPE_CHECKING:
    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Stepwise
    from .launches import Launches


def stepwise(launches: Launches, device: int, spec: Stepwise) -> PreparedLaunch:
    """See `specs.Stepwise`."""
    return launches.kernel(spec.name, code.kernel(spec.name, spec.dtype, spec.n))
