"""One program on many arrays as one launch, on NVIDIA GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...kernels.expr import Expr
    from ...kernels.programs import Map, Prepared, Reduce
    from .launches import Launches


def maps(launches: Launches, device: int, name: str, program: Map, arrays: tuple[int, ...], into: tuple[int, ...], sizes: tuple[int, ...],
         told: Expr | None = None) -> Prepared | None:
    """``entry(*numbers, [told,] *shared, *addresses)``: see `kernels.cuda_c.joined.maps`."""
    from ...kernels.cuda_c import joined
    try:
        return launches.kernel(name, joined.maps(program, arrays, into, sizes, told))
    except NotImplementedError:
        return None


def reductions(launches: Launches, device: int, name: str, program: Reduce, sizes: tuple[int, ...]) -> Prepared | None:
    """``entry(out, workspace, *addresses)``: see `kernels.cuda_c.joined.reductions`; the launch's workspace is passed by the caller."""
    from ...kernels.cuda_c import joined
    try:
        kernel, workspace = joined.reductions(program, sizes)
    except NotImplementedError:
        return None
    made = launches.kernel(name, kernel)
    made.workspace = workspace
    return made
