"""One program on many arrays as one launch, on NVIDIA GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...kernels import specs
    from ...kernels.programs import PreparedLaunch
    from .launches import Launches


def maps(launches: Launches, device: int, spec: specs.JoinedMaps) -> PreparedLaunch | None:
    """See `kernels.cuda_c.foreach.maps`."""
    from ...kernels.cuda_c import foreach
    try:
        return launches.kernel(spec.name, foreach.maps(spec.program, spec.arrays, spec.into, spec.sizes, spec.told))
    except NotImplementedError:
        return None


def reductions(launches: Launches, device: int, spec: specs.JoinedReductions) -> PreparedLaunch | None:
    """See `kernels.cuda_c.foreach.reductions`."""
    from ...kernels.cuda_c import foreach
    try:
        kernel, workspace = foreach.reductions(spec.program, spec.sizes)
    except NotImplementedError:
        return None
    made = launches.kernel(spec.name, kernel)
    made.workspace = workspace
    return made
