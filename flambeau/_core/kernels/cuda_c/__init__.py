"""Loop programs as CUDA C.

`render` gives the text of a launch's kernels and how to launch them (`kernel.Kernel`), without a GPU or CUDA's
libraries; `compile` makes machine code of the text through NVRTC, once for each architecture, and keeps it on disk.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..programs import Map, price, size_of
from .kernel import Kernel
from .nvrtc import compile  # noqa: A004 (the word for it)
from .writer import Writer

if TYPE_CHECKING:
    from ..complexes import Split
    from ..programs import Program

__all__ = ["Kernel", "compile", "render"]

_splits: dict[tuple[Any, ...], Split | None] = {}


def render(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Kernel:
    """The kernels of `program` over `domain`; `strides` are in elements, over the domain, outputs first, then inputs."""
    nbytes, flops = price(program, domain, strides)
    codes = "P" * len(program.out_types + program.inputs)
    letters = "".join("c" if d.is_complex else "d" if d.kind == "f" else "q" for d in program.scalars)
    kept = size_of(domain[:len(strides[0])]) if program.kind == "reduce" else size_of(domain[:-1]) if program.kind == "rows" else size_of(domain)
    if kept == 0:
        return Kernel("", (), codes + letters, (), 0, nbytes, flops, program)
    split = _split(program)
    real = program if split is None else split.program
    places = [(k, 0) for k in range(len(codes))] if split is None else split.places
    workspaces = 0
    while True:
        # the workspace's address, if there is one, stands before the numbers
        numbers = len(codes) + workspaces
        w = Writer(real, places, numbers + len(real.scalars))
        if isinstance(program, Map) and program.extent:
            # offsets into complex outputs count their parts
            parts = {2 if d.is_complex else 1 for d, t in zip(program.out_types, program.targets) if t is not None}
            if len(parts) == 1:
                w.extent, w.unit = (n * max(parts) for n in (program.extent, program.unit))
        renderer = importlib.import_module("." + real.kind, __name__)
        source, launches, workspace = renderer.write(w, real, domain, strides if split is None else split.strides(strides), numbers)
        if bool(workspace) == bool(workspaces):
            break
        workspaces = 1
    return Kernel(source, launches, codes + "P" * workspaces + letters, tuple(w.block), workspace, nbytes, flops, program)


def _split(program: Program) -> Split | None:
    """The program over real numbers in place of a complex one; None for a real one."""
    if program.key not in _splits:
        from .. import complexes
        _splits[program.key] = complexes.split(program, pairs=True) if complexes.is_complex(program) else None
    return _splits[program.key]
