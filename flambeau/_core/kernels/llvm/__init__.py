"""Loop programs as machine code of the CPU, through LLVM.

`prepare` plans a launch (the renderer of the program's kind: `map`, `reduce`, `rows`, `scan`), has the
kernel compiled or loaded (`compile`, `cache`, `elf`) and makes it a Python builtin (`native.make_entry`).

A renderer has ``plan(program, domain, strides) -> Plan`` for a domain with elements and ``write(program, key) -> str``,
the IR text for a plan's key.  Floats among a launch's numbers arrive in their slot as the bits of a double, ints and
bools as an int64; the kernel converts them to the type the program gives them (`Emitter.parameter`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ...unknowns import settled
from .. import small_floats
from ..complexes import split_of
from ..native import make_entry
from ..programs import PreparedLaunch, price, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..complexes import Split
    from ..programs import Program
    from .launches import Plan

_codes: dict[tuple[Any, ...], dict[str, int]] = {}
_renderers: dict[str, Any] = {}  # by a program's kind


def prepare(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> PreparedLaunch:
    """A launch of `program` over `domain`; `strides` are in elements, over the domain, outputs first, then inputs."""
    nbytes, flops = price(program, domain, strides)
    outs = len(program.out_types)
    if program.kind == "map" and size_of(domain) == 0:
        return PreparedLaunch("map", _nothing, outputs=outs, program=program, domain=domain, strides=strides)
    try:
        if size_of(domain) == 0:
            raise NotImplementedError("a reduction of nothing")
        if small_floats.computes(program):
            raise NotImplementedError("numbers of 8 bits")
        split = split_of(program)
        real = program if split is None else split.program
        renderer, plan = _plan(real, domain, strides if split is None else split.strides(strides))
    except NotImplementedError:
        # rare enough to leave to NumPy: reductions of nothing, products and scans of complex numbers, conversions of 8-bit floats
        from .. import interpret
        return interpret.prepare(program, domain, strides)
    try:
        code = _codes.get((program.key, plan.key))
    except TypeError:  # of unknown sizes: code depends on those that are in its key
        plan.key = settled(plan.key)
        code = _codes.get((program.key, plan.key))
    if code is None:
        from . import compile as compiler

        def write() -> str:
            text = str(renderer.write(real, plan.key))
            return text if split is None else text + _adapters(split, plan)
        names = plan.names if split is None else tuple("split_" + n for n in plan.names)
        code = compiler.functions((program.text(), repr(plan.key)), names, write)
        if split is not None:
            code = {n: code["split_" + n] for n in plan.names}
        _codes[program.key, plan.key] = code
    addresses = outs + len(program.inputs) + (1 if plan.workspace else 0)
    floats = [addresses + k for k, d in enumerate(real.scalars) if d.kind == "f"]
    entry = make_entry([(code[name], total, chunk) for name, total, chunk in plan.stages], plan.params,
                       addresses + len(real.scalars), floats, plan.parallel)
    if split is not None and any(d.is_complex for d in program.scalars):
        entry = _parted(entry, addresses, split)
    return PreparedLaunch(program.kind, entry, outputs=outs, workspace=plan.workspace, nbytes=nbytes, flops=flops,
                    program=program, domain=domain, strides=strides)


def order(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[Any, ...] | None:
    """What the order of a program's sums follows from (of a reduction or a row program); None where that is not known."""
    if not size_of(domain) or small_floats.computes(program) or split_of(program) is not None:
        return None
    _plan(program, domain, strides)  # finds the renderer
    found: tuple[Any, ...] = _renderers[program.kind].order(program, domain, strides)
    return found


def _plan(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[Any, Plan]:
    renderer = _renderers.get(program.kind)
    if renderer is None:
        try:
            renderer = _renderers[program.kind] = importlib.import_module("." + program.kind, __name__)
        except ModuleNotFoundError:
            raise NotImplementedError(program.kind) from None
    return renderer, renderer.plan(program, domain, strides)


def _adapters(split: Split, plan: Plan) -> str:
    """Functions that take a complex launch's arguments and call the real kernel with its own, by name with "split_"."""
    from .emit import Emitter, Module
    module = Module()
    operands = len(split.places)
    extra = 1 if plan.workspace else 0
    before = max(k for k, _ in split.places) + 1
    slots = [k for k, _ in split.places] + [before + k for k in range(extra + len(split.program.scalars))]
    for name in plan.names:
        em = Emitter(module, f"void @split_{name}(i64 %begin, i64 %end, ptr %args, ptr %block)")
        own = em.op(f"alloca [{len(slots)} x i64], align 16", "a")
        for k, slot in enumerate(slots):
            value = em.word("%args", slot)
            if k < operands:
                value = em.add(value, str(split.places[k][1]))
            em.line(f"store i64 {value}, ptr {em.at(own, str(8 * k))}, align 8")
        em.line(f"call void @{name}(i64 %begin, i64 %end, ptr {own}, ptr %block)")
        em.line("ret void")
        em.finish()
    return module.text()


def _parted(entry: Callable[..., None], addresses: int, split: Split) -> Callable[..., None]:
    """An entry that takes complex numbers as they are."""
    numbers = split.numbers

    def launch(*args: Any) -> None:
        given = args[addresses:]
        entry(*args[:addresses], *(getattr(given[k], part) if part else given[k] for k, part in numbers))
    return launch


def _nothing(*args: Any) -> None:
    """The launch over a domain without elements."""
