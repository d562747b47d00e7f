"""Loop programs as machine code of the CPU, through LLVM.

`prepare` plans a launch (`layouts`, and the renderer of the program's kind: `map`, `reduce`, `rows`, `scan`), has the
kernel compiled or loaded (`compile`, `cache`, `elf`) and makes it a Python builtin (`native.make_entry`).

A renderer has ``plan(program, domain, strides) -> Plan`` for a domain with elements and ``write(program, key) -> str``,
the IR text for a plan's key.  Floats among a launch's numbers arrive in their slot as the bits of a double, ints and
bools as an int64; the kernel converts them to the type the program gives them (`Emitter.parameter`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..native import make_entry
from ..programs import Prepared, price, size_of

if TYPE_CHECKING:
    from ..programs import Program

_codes: dict[tuple[Any, ...], dict[str, int]] = {}


def prepare(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Prepared:
    """A launch of `program` over `domain`; `strides` are in elements, over the domain, outputs first, then inputs."""
    nbytes, flops = price(program, domain, strides)
    outs = len(program.out_types)
    if program.kind == "map" and size_of(domain) == 0:
        return Prepared("map", _nothing, outputs=outs, program=program, domain=domain, strides=strides)
    renderer = importlib.import_module("." + program.kind, __name__)
    plan = renderer.plan(program, domain, strides)
    code = _codes.get((program.key, plan.key))
    if code is None:
        from . import compile as compiler
        code = compiler.functions((program.text(), repr(plan.key)), plan.names, lambda: renderer.write(program, plan.key))
        _codes[program.key, plan.key] = code
    addresses = outs + len(program.inputs) + (1 if plan.workspace else 0)
    entry = make_entry([(code[name], total, chunk) for name, total, chunk in plan.stages], plan.params,
                       addresses + len(program.scalars),
                       [addresses + k for k, d in enumerate(program.scalars) if d.kind == "f"], plan.parallel)
    return Prepared(program.kind, entry, outputs=outs, workspace=plan.workspace, nbytes=nbytes, flops=flops,
                    program=program, domain=domain, strides=strides)


def _nothing(*args: Any) -> None:
    """The launch over a domain without elements."""
