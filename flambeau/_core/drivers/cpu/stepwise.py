"""Functions that take as many steps as their operands ask for, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.llvm.handwritten import stepwise as code
from ...kernels.programs import PreparedLaunch

if TYPE_CHECKING:
    from ...kernels.specs import Stepwise


def stepwise(spec: Stepwise) -> PreparedLaunch:
    """See `specs.Stepwise`."""
    return PreparedLaunch(spec.name, code.entry(spec.name, spec.dtype, spec.n), nbytes=3 * spec.n * spec.dtype.itemsize)
