"""Loop programs as OpenCL C 1.2 with doubles: the ground for GPUs of any maker.

`render` gives a launch's kernels as text, and how they are launched; every choice of how to walk the domain is that of
`kernels.loops`.  A kernel takes buffers, one for each operand and the workspace, then an array of 64-bit words: an offset into each
buffer, the numbers (floats as the bits of a double), and the sizes and strides of the launch, so that launches of a kind share text.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ..loops.launch import Launch
from ..loops.machine import Machine
from . import kinds
from .writer import Writer

if TYPE_CHECKING:
    from ..kernel import Kernel
    from ..programs import Program

__all__ = ["MACHINE", "render"]

# Any device of OpenCL's full profile: groups of 256, 32 KB of local memory; one element a read, which compilers join; another launch
# costs more than cutting a row gains.
MACHINE = Machine(vector=0, block=256, shared=0, tile=16 << 10, launch=inf)


def render(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Kernel:
    """The kernels of `program` over `domain`; `strides` are in elements, over the domain, outputs first, then inputs."""
    launch = Launch(program, domain, strides, MACHINE)
    if launch.loops is None:
        return launch.kernel()
    w = Writer(launch)
    getattr(kinds, "write_" + program.kind)(w, launch.real, launch.loops)
    return launch.kernel(w.source(), w.launches, w.block, launch.loops.workspace)
