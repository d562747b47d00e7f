"""The text of a launch's functions while it is written, and the words of its parameter."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ..c_forms import half
from ..expr import walk
from ..programs import size_of
from .helpers import text as helper_text
from .lower import cast, from_stored, lower
from .types import stored, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype
    from ..expr import Expr
    from ..loops.walk import Axis
    from ..programs import Program
    from .lower import Leaf

PLACEHOLDER = "FLAMBEAU_NAME"


class Writer:
    """Lines, the helpers they use, and the words that follow the arguments' in the parameter."""

    def __init__(self, program: Program, operands: Sequence[tuple[int, int]], first: int) -> None:
        """operands: for each operand of the (real) program the word its address is in, and bytes to add to it; `first`:
        how many words the arguments take."""
        self.program, self.operands, self.first = program, list(operands), first
        self.lines: list[str] = []
        self.helpers: set[str] = set()
        self.block: list[int] = []
        self.depth = 1
        self.names = 0
        self.types = program.out_types + program.inputs
        self.rough = bool(program.out_types) and all(half(d) for d in program.out_types)  # see `rough.py`
        self.parts: list[str] = []  # types, functions and kernels written by hand, in which PLACEHOLDER stands for the tag
        self.extent, self.unit = 0, 1  # what is known of a map's own offsets

    # ------------------------------------------------------------------------------------------------------------ text
    def line(self, text: str) -> None:
        if text.startswith("}"):
            self.depth -= 1
        self.lines.append("  " * self.depth + text)
        if text.endswith("{"):
            self.depth += 1

    def fresh(self, stem: str = "t") -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def let(self, t: str, text: str, stem: str = "t") -> str:
        """A constant of this value."""
        name = self.fresh(stem)
        self.line(f"{t if t.endswith('const') else f'const {t}'} {name} = {text};")
        return name

    def need(self, helper: str) -> str:
        self.helpers.add(helper)
        return helper

    def word(self, v: int) -> str:
        """A number that belongs to the launch, not to the code, as a 64-bit expression."""
        self.block.append(v)
        return f"(long long)a.w[{self.first + len(self.block) - 1}]"

    def source(self, functions: Sequence[tuple[str, int, Sequence[str]]]) -> tuple[str, list[str]]:
        """The whole text and the functions' names, from (stem, most threads of a block, lines)."""
        words = self.first + len(self.block)
        body = "\n".join(f'extern "C" __global__ void __launch_bounds__({threads}) {stem}_{PLACEHOLDER}(const Args a) {{\n'
                         + "\n".join(lines) + "\n}" for stem, threads, lines in functions)
        head = "\n".join([f"struct Args {{ unsigned long long w[{words}]; }};", helper_text(self.helpers), *self.parts, ""])
        tag = hashlib.blake2b((head + body).encode(), digest_size=6).hexdigest()
        return (head + body).replace(PLACEHOLDER, tag) + "\n", [f"{stem}_{tag}" for stem, _, _ in functions]

    # --------------------------------------------------------------------------------------------------------- operands
    def pointer(self, operand: int) -> str:
        """A pointer to the operand's first element, declared."""
        word, extra = self.operands[operand]
        return self.let("unsigned char* const", f"(unsigned char*)a.w[{word}]{f' + {extra}' if extra else ''}", "p")

    def numbers(self, first: int) -> dict[int, str]:
        """The numbers passed at launch, declared, by their place; `first` is the first one's word."""
        used = {e.value: e.dtype for e in walk(self.program.roots()) if e.op == "scalar"}
        out = {}
        for k in sorted(used):
            d, slot = used[k], f"a.w[{first + k}]"
            if self.program.scalars[k].kind == "f":
                from ...dtypes import float64
                text = cast(self, f"__longlong_as_double((long long){slot})", float64, d)
            else:
                text = f"{slot} != 0" if d.kind == "b" else f"({value(d)})(long long){slot}"
            out[k] = self.let(value(d), text, "n")
        return out

    def load(self, pointer: str, offset: str, d: dtype) -> str:
        """The value of the element at `offset` bytes."""
        return from_stored(self, f"*(const {stored(d)}*)({pointer} + {offset})", d)

    def gather(self, pointer: str, offset: str, d: dtype) -> str:
        return from_stored(self, f"((const {stored(d)}*){pointer})[{offset}]", d)

    def lower(self, roots: tuple[Expr, ...], leaf: Leaf, known: dict[Expr, str], exact: bool = False) -> list[str]:
        return lower(self, roots, leaf, known, exact)


class Walk:
    """How a group of axes is walked by one running index, innermost fastest, as C."""

    def __init__(self, w: Writer, axes: Sequence[Axis], wide: bool) -> None:
        self.w, self.axes, self.wide = w, list(axes), wide
        self.t = "long long" if wide else "int"
        self.size = size_of(tuple(x.size for x in axes))

    def count(self) -> str:
        return self.w.let(self.t, f"({self.t}){self.w.word(self.size)}", "n")

    def places(self, index: str, operands: Sequence[int], inner: bool = True) -> tuple[dict[int, str], dict[int, str]]:
        """Byte offsets of the operands at `index`, and the coordinates of the axes that keep theirs, by axis of the domain.

        An operand that the axes do not move has no offset.  inner: False leaves the innermost axis' own steps out."""
        offsets: dict[int, list[str]] = {}
        coords: dict[int, str] = {}
        left = index
        w = self.w
        for k in range(len(self.axes) - 1, -1, -1):
            axis = self.axes[k]
            if k == 0:
                at = left
            else:
                rest = self._quotient(left, axis.size)
                at = w.let(self.t, f"{left} - {rest} * ({self.t}){w.word(axis.size)}", "c")
                left = rest
            if axis.source is not None:
                coords[axis.source] = at
            if k == len(self.axes) - 1 and not inner:
                continue
            for o in operands:
                if axis.strides[o]:
                    offsets.setdefault(o, []).append(f"{at} * ({self.t}){w.word(axis.strides[o])}")
        return {o: w.let(self.t, " + ".join(terms), "o") for o, terms in offsets.items()}, coords

    def _quotient(self, n: str, d: int) -> str:
        w = self.w
        if self.wide:
            return w.let(self.t, f"{n} / ({self.t}){w.word(d)}", "q")
        shift = (d - 1).bit_length()
        multiplier = (((1 << 32) * ((1 << shift) - d)) // d + 1) & 0xFFFFFFFF
        return w.let("int", f"{w.need('divide')}({n}, (unsigned int){w.word(multiplier)}, (int){w.word(shift)})", "q")
