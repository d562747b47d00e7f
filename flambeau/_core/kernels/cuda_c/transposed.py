"""Maps whose inputs lie across the output: tiles of 32 by 32 elements go through shared memory, of 64 by 64 small ones.

Threads that are neighbours read neighbours of the input, wait for each other, and write neighbours of the output: lines of 128 bytes,
of types of 2 bytes too, and 16 bytes or more of each thread on their way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import axes as walks
from .lower import from_stored
from .types import stored
from .writer import Walk, is_wide

if TYPE_CHECKING:
    from ..axes import Axis
    from ..programs import Map
    from .kernel import Launch
    from .writer import Writer

SIDE = 32
THREADS = 256
SHORTEST = 16  # axes shorter than this fill too little of a tile
SHARED = 48 << 10


def plan(program: Map, axes: list[Axis], sizes: list[int], used: list[int]) -> tuple[int, list[int]] | None:
    """The axis along which inputs lie, and which inputs; None where tiles would not help."""
    outs, inner = len(program.outs), axes[-1]
    if len(axes) < 2 or inner.size < SHORTEST:
        return None
    for a in range(len(axes) - 2, -1, -1):
        turned = [k for k in used if k >= outs and _near(axes[a], k, sizes) and inner.strides[k] and not _near(inner, k, sizes)]
        if not turned or axes[a].size < SHORTEST:
            continue
        if any(_near(axes[a], k, sizes) for k in range(outs)) or sum(sizes[k] for k in turned) * side(sizes, turned, axes[a], inner) ** 2 * 9 // 8 > SHARED:
            return None
        return a, turned
    return None


def side(sizes: list[int], turned: list[int], across: Axis, inner: Axis) -> int:
    """Of a tile."""
    return 2 * SIDE if max(sizes[k] for k in turned) <= 2 and min(across.size, inner.size) >= 2 * SIDE else SIDE


def _near(axis: Axis, k: int, sizes: list[int]) -> bool:
    """Whether elements along the axis lie side by side, parts of complex ones among them."""
    return 0 < abs(axis.strides[k]) <= 2 * sizes[k]


def write(w: Writer, program: Map, axes: list[Axis], a: int, turned: list[int], sizes: list[int], used: list[int], numbers: int,
          rank: int) -> tuple[str, tuple[Launch, ...], int]:
    """The source, the launches and the bytes of workspace."""
    from .map import element, gathers
    outs = len(program.outs)
    across, inner = axes[a], axes[-1]
    n = side(sizes, turned, across, inner)
    step = THREADS // n
    tiles = [walks.Axis(-(-x.size // n), tuple(s * n for s in x.strides), number) for x, number in ((across, -1), (inner, -2))]
    packed = [*axes[:a], *axes[a + 1:-1], *tiles]
    wide = is_wide(axes, sizes, n)
    walk = Walk(w, packed, wide)
    t = walk.t
    pointers = {k: w.pointer(k) for k in range(len(sizes)) if k in used or gathers(program, k - outs)}
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
