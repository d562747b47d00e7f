"""Maps whose inputs lie across the output: tiles of 32 by 32 elements go through shared memory, of 64 by 64 small ones.

Threads that are neighbours read neighbours of the input, wait for each other, and write neighbours of the output: lines of 128 bytes,
of types of 2 bytes too, and 16 bytes or more of each thread on their way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loops.maps import THREADS
from .lower import from_stored
from .types import stored
from .writer import Walk

if TYPE_CHECKING:
    from ..kernel import Launch
    from ..loops.maps import Across, ByThreads
    from ..programs import Map
    from .writer import Writer


def write(w: Writer, program: Map, loops: ByThreads, tiles: Across, numbers: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    from .map import element
    outs, sizes, used, turned, rank = loops.outs, loops.sizes, loops.moved, tiles.operands, loops.rank
    across, inner = loops.axes[tiles.axis], loops.inner
    n = tiles.side
    step = THREADS // n
    walk = Walk(w, loops.tiled(), loops.wide)
    t = walk.t
    pointers = {k: w.pointer(k) for k in range(len(sizes)) if k in used or k in loops.gathered}
    names = w.numbers(numbers)
    places, at = walk.places(w.let(t, f"({t})blockIdx.x", "i"), used)
    q = {k: w.let("unsigned char* const", f"{pointers[k]} + {places[k]}" if k in places else pointers[k], "q") for k in used}
    first = {number: w.let(t, f"{at.pop(number)} * {n}", "first") for number in (-1, -2)}
    left = {number: w.let(t, f"({t}){w.word(x.size)} - {first[number]}", "left") for number, x in ((-1, across), (-2, inner))}
    steps = {(k, number): w.let(t, f"({t}){w.word(x.strides[k])}", "by") for number, x in ((-1, across), (-2, inner)) for k in used
             if x.strides[k] not in (0, sizes[k])}

    def offset(k: int, i: str, j: str) -> str:
        """From the tile's corner: i along the axis across, j along the inner one."""
        terms = [f"{place} * {steps.get((k, number), sizes[k])}" for number, x, place in ((-1, across, i), (-2, inner, j)) if x.strides[k]]
        return " + ".join(terms) or "0"
    tile = {k: w.fresh("tile") for k in turned}
    for k in turned:
        # lines of an odd number of 4 bytes: threads that read across them meet at no bank
        w.line(f"__shared__ {stored(w.types[k])} {tile[k]}[{n}][{n + max(1, 4 // sizes[k])}];")
    x, y = w.let("int", "(int)threadIdx.x", "x"), w.let("int", "(int)threadIdx.y", "y")
    w.line("#pragma unroll")
    w.line(f"for (int r = 0; r < {n}; r += {step}) {{")
    w.line(f"if ({x} < {left[-1]} && {y} + r < {left[-2]}) {{")
    for k in turned:
        w.line(f"{tile[k]}[{y} + r][{x}] = *(const {stored(w.types[k])}*)({q[k]} + {offset(k, x, f'({y} + r)')});")
    w.line("}")
    w.line("}")
    w.line("__syncthreads();")
    w.line("#pragma unroll")
    w.line(f"for (int r = 0; r < {n}; r += {step}) {{")
    w.line(f"if ({y} + r < {left[-1]} && {x} < {left[-2]}) {{")
    for number, axis, place in ((-1, across, f"{y} + r"), (-2, inner, x)):
        if axis.source is not None:
            at[axis.source] = w.let("long long", f"(long long){first[number]} + {place}", "c")
    here = {k: f"{q[k]} + {offset(k, f'({y} + r)', x)}" for k in used if k not in turned}
    elements = {k: from_stored(w, f"{tile[k]}[{x}][{y} + r]" if k in turned else f"*(const {stored(w.types[k])}*)({here[k]})", w.types[k])
                for k in used if k >= outs}
    element(w, program, q, pointers, names, elements, {k: f"*({stored(w.types[k])}*)({here[k]}) = {{}}" for k in range(outs)}, at, rank)
    w.line("}")
    w.line("}")
    source, found = w.source([("transposed", THREADS, w.lines)])
    return source, ((found[0], (walk.size, 1, 1), (n, step, 1), 0),), 0
