"""Maps: a thread computes a few neighbours along the innermost axis.

Operands that step to the neighbour, or not at all, along that axis are read and written 16 bytes at a time where their
addresses allow it, which is looked at when the kernel runs.  What a thread computes does not depend on that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import axes as walks
from . import transposed
from .lower import from_stored, to_stored
from .types import stored
from .writer import Walk, coordinates, is_wide, seen

if TYPE_CHECKING:
    from ..expr import Expr
    from ..programs import Map
    from .kernel import Launch
    from .writer import Writer

THREADS = 256
LONGEST = 160  # operations for all neighbours together: more would take too many registers, and long to compile


def write(w: Writer, program: Map, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...],
          numbers: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    if any(t is not None for t in program.targets):
        from .scatter import write as scatter
        return scatter(w, program, domain, strides, numbers)
    rank, sizes = len(domain), [d.itemsize for d in w.types]
    coords = coordinates(program, rank)
    axes = walks.walk_axes(domain, seen(program, strides, rank), sizes, coords)
    if not axes:
        axes = [walks.Axis(1, (0,) * len(sizes), None)]
    used = [k for k in range(len(sizes)) if k < len(program.outs) or walks.facts(program).read[k - len(program.outs)]]
    tiles = transposed.plan(program, axes, sizes, used)
    if tiles is not None:
        return transposed.write(w, program, axes, *tiles, sizes, used, numbers, rank)
    v = _width(program, axes, sizes, used)
    packed = list(axes)
    inner = axes[-1]
    # one index for v neighbours; the innermost axis is walked in steps of v
    packed[-1] = walks.Axis(-(-inner.size // v), tuple(s * v for s in inner.strides), inner.source)
    wide = is_wide(axes, sizes, THREADS * v)
    walk = Walk(w, packed, wide)
    total = walk.size
    t = walk.t
    pointers = {k: w.pointer(k) for k in range(len(sizes)) if k in used or gathers(program, k - len(program.outs))}
    names = w.numbers(numbers)
    i = w.let(t, f"({t})blockIdx.x * {THREADS} + ({t})threadIdx.x", "i")
    w.line(f"if ({i} >= {walk.count()}) return;")
    places, at = walk.places(i, used)
    where = {k: f"{pointers[k]} + {places[k]}" if k in places else pointers[k] for k in used}
    q = {k: w.let("unsigned char* const", where[k], "q") for k in used}
    step = {k: inner.strides[k] for k in used}
    outs, ins = len(program.outs), [k for k in used if k >= len(program.outs)]
    base = None
    if inner.source is not None:
        base = w.let("long long", f"(long long){at[inner.source]} * {v}", "c")
    if base is not None and inner.source is not None:
        at[inner.source] = base
    if v == 1:
        element(w, program, q, pointers, names, {k: from_stored(w, f"*(const {stored(w.types[k])}*){q[k]}", w.types[k]) for k in ins},
                 {k: f"*({stored(w.types[k])}*){q[k]} = {{}}" for k in range(outs)}, at, rank)
    else:
        _neighbours(w, program, q, pointers, names, step, inner, base, at, i, v, t, len(axes) == 1, rank)
    source, found = w.source([("map", THREADS, w.lines)])
    return source, ((found[0], (-(-total // THREADS), 1, 1), (THREADS, 1, 1), 0),), 0


def _width(program: Map, axes: list[walks.Axis], sizes: list[int], used: list[int]) -> int:
    """How many neighbours a thread computes."""
    facts = walks.facts(program)
    operations = facts.operations + 7 * facts.functions
    inner = axes[-1]
    if any(inner.strides[k] not in (0, sizes[k]) for k in used):
        return 1
    moving = [k for k in used if inner.strides[k]]
    v = 16 // max(sizes[k] for k in moving) if moving else 1
    while v > 1 and v * operations > LONGEST:
        v //= 2
    while v > 1 and len(axes) > 1 and not (inner.size % v == 0 and all(x.strides[k] % (v * sizes[k]) == 0 for x in axes[:-1] for k in moving)):
        v //= 2
    return 1 if len(axes) == 1 and inner.size < v else v


def gathers(program: Map, k: int) -> bool:
    """Whether input k is read at offsets of the program's own."""
    from ..expr import walk
    return any(e.op == "gather" and e.value == k for e in walk(program.roots()))


def _neighbours(w: Writer, program: Map, q: dict[int, str], pointers: dict[int, str], names: dict[int, str], step: dict[int, int],
                inner: walks.Axis, base: str | None, at: dict[int, str], i: str, v: int, t: str, ragged: bool, rank: int) -> None:
    outs = len(program.outs)
    moving = [k for k in q if step[k]]
    w.need("vec")
    left = w.let("int", f"({t}){w.word(inner.size)} - {i} * {v} < {v} ? (int)(({t}){w.word(inner.size)} - {i} * {v}) : {v}", "left") if ragged else None
    whole = " && ".join(f"((unsigned long long){q[k]} & {v * w.types[k].itemsize - 1}) == 0" for k in moving)
    whole = w.let("bool", whole + (f" && {left} == {v}" if left else ""), "whole")
    held = {}
    for k in q:
        s = stored(w.types[k])
        held[k] = w.fresh("r")
        if k >= outs and not step[k]:
            w.line(f"const {s} {held[k]} = *(const {s}*){q[k]};")
        else:
            w.line(f"Vec<{s}, {v}> {held[k]};")
    w.line(f"if ({whole}) {{")
    for k in moving:
        if k >= outs:
            w.line(f"{held[k]} = *(const Vec<{stored(w.types[k])}, {v}>*){q[k]};")
    w.line("} else {")
    # the ragged end repeats its last element, so that every element computed is one of the domain
    w.line("#pragma unroll")
    w.line(f"for (int k = 0; k < {v}; k++) {{")
    k_at = w.let("int", f"k < {left} ? k : {left} - 1", "k") if left else "k"
    for k in moving:
        if k >= outs:
            w.line(f"{held[k]}.v[k] = ((const {stored(w.types[k])}*){q[k]})[{k_at}];")
    w.line("}")
    w.line("}")
    w.line("#pragma unroll")
    w.line(f"for (int k = 0; k < {v}; k++) {{")
    coords = dict(at)
    if base is not None and inner.source is not None:
        coords[inner.source] = w.let("long long", f"{base} + " + (f"(k < {left} ? k : {left} - 1)" if left else "k"), "c")
    elements = {k: from_stored(w, f"{held[k]}.v[k]" if step[k] else held[k], w.types[k]) for k in q if k >= outs}
    element(w, program, q, pointers, names, elements, {k: f"{held[k]}.v[k] = {{}}" for k in range(outs)}, coords, rank)
    w.line("}")
    for k in range(outs):
        s = stored(w.types[k])
        if not step[k]:  # one element for all: as if they were written in turn
            w.line(f"*({s}*){q[k]} = {held[k]}.v[{f'{left} - 1' if left else v - 1}];")
            continue
        w.line(f"if ({whole}) *(Vec<{s}, {v}>*){q[k]} = {held[k]};")
        w.line("else {")
        w.line("#pragma unroll")
        w.line(f"for (int k = 0; k < {v}; k++) if ({f'k < {left}' if left else 'true'}) (({s}*){q[k]})[k] = {held[k]}.v[k];")
        w.line("}")


def element(w: Writer, program: Map, q: dict[int, str], pointers: dict[int, str], names: dict[int, str], elements: dict[int, str],
             stores: dict[int, str], coords: dict[int, str], rank: int) -> None:
    """The statements for one element."""
    outs = len(program.outs)

    def leaf(e: Expr, args: list[str]) -> str:
        if e.op == "input":
            return elements[outs + e.value]
        if e.op == "scalar":
            return names[e.value]
        if e.op == "coord":
            return f"(long long){coords[e.value % rank]}" if rank and e.value % rank in coords else "0LL"
        if e.op == "gather":
            return w.gather(pointers[outs + e.value], args[0], e.dtype)
        raise NotImplementedError(f"{e.op} in a map")
    values = w.lower(program.outs, leaf, {}, exact=True)
    stored_values = [to_stored(w, x, e.dtype) for x, e in zip(values, program.outs)]
    for k, x in enumerate(stored_values):
        w.line(stores[k].format(x) + ";")
