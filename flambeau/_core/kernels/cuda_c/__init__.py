"""Loop programs as CUDA C.

`render` gives the text of a launch's kernels and how to launch them (`kernel.Kernel`), without a GPU or CUDA's
libraries; `compile` makes machine code of the text through NVRTC, once for each architecture, and keeps it on disk.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..kernel import Kernel
from ..loops.launch import Launch
from ..loops.machine import Machine
from ..programs import Map
from .nvrtc import compile  # noqa: A004 (the word for it)
from .writer import Writer

if TYPE_CHECKING:
    from ..programs import Program

__all__ = ["GPU", "Kernel", "compile", "order", "render"]

GPU = Machine(expsums=True)


def order(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
    """What the order of the sums of a reduction or a row program follows from, as `target.order`; None where that is not known."""
    loops = Launch(program, domain, strides, GPU).loops
    return None if loops is None else loops.order()


def render(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Kernel:
    """The kernels of `program` over `domain`; `strides` are in elements, over the domain, outputs first, then inputs."""
    launch = Launch(program, domain, strides, GPU)
    if launch.loops is None:
        return launch.kernel()
    renderer = importlib.import_module("." + program.kind, __name__)
    if isinstance(program, Map) and launch.loops.ordered:
        # sorting offsets takes room; its address, if there is one, stands before the numbers
        launch.addresses += 1
    numbers = launch.addresses
    w = Writer(launch.real, launch.places, numbers + len(launch.real.scalars))
    if isinstance(program, Map) and program.extent:
        # offsets into complex outputs count their parts
        parts = {2 if d.is_complex else 1 for d, t in zip(program.out_types, program.targets) if t is not None}
        if len(parts) == 1:
            w.extent, w.unit = (n * max(parts) for n in (program.extent, program.unit))
    source, launches, workspace = renderer.write(w, launch.real, launch.loops, numbers)
    return launch.kernel(source, launches, w.block, workspace)
