"""A launch by threads before it is written: its real program, where that finds its operands, its loops, and what it will be called with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..complexes import split_of
from ..kernel import Kernel
from ..programs import price, size_of
from . import maps, reductions, rows, scans

if TYPE_CHECKING:
    from ..programs import Program
    from .machine import Machine

_LOOPS: dict[str, Any] = {"map": maps.ByThreads, "reduce": reductions.ByThreads, "rows": rows.ByThreads, "scan": scans.ByThreads}


class Launch:
    """real: the program over real numbers; places: for each of its operands the argument its address is in, and bytes to add; addresses:
    how many arguments are addresses, the workspace's among them; loops: its walk, None where there is nothing to do."""

    def __init__(self, program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], machine: Machine) -> None:
        self.program = self.real = program
        self.loops: Any = None
        self.nbytes, self.flops = price(program, domain, strides)
        self.addresses = len(program.out_types + program.inputs)
        self.places = [(k, 0) for k in range(self.addresses)]
        made = domain[:len(strides[0])] if program.kind == "reduce" else domain[:-1] if program.kind == "rows" else domain
        if size_of(made) == 0:
            return
        split = split_of(program, pairs=True)
        if split is not None:
            self.real, self.places, strides = split.program, split.places, split.strides(strides)
        self.loops = _LOOPS[program.kind](self.real, domain, strides, machine)
        self.addresses += int(self.loops.pieces > 1)

    def kernel(self, source: str = "", launches: Any = (), block: Any = (), workspace: int = 0) -> Kernel:
        """What was written."""
        letters = "".join("c" if d.is_complex else "d" if d.kind == "f" else "q" for d in self.program.scalars)
        return Kernel(source, tuple(launches), "P" * self.addresses + letters, tuple(block), workspace, self.nbytes, self.flops, self.program)
