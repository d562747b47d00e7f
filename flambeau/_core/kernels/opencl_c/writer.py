"""The text of a launch's kernels while it is written: lines, the launch's words, places of elements."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...dtypes import float64
from ..expr import walk
from .lower import cast, from_stored, lower, stored, to_stored, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ...dtypes import dtype
    from ..expr import Expr
    from ..loops.launch import Launch
    from ..loops.thread_groups import Group
    from ..loops.walk import Axis

PRAGMAS = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#pragma OPENCL FP_CONTRACT OFF"
# W: the type that is rounded; T, U: an integer type, and the unsigned one its arithmetic wraps in
HELPERS = {
    "from_float16": "float $name(ushort x) { return vload_half(0, (const half*)&x); }",
    "to_float16": "ushort $name($W x) { ushort y; vstore_half_rte(x, 0, (half*)&y); return y; }",
    "from_bfloat16": "float $name(ushort x) { return as_float((uint)x << 16); }",
    "to_bfloat16": "ushort $name($W x) { uint b = as_uint(x); return x != x ? 0x7fc0 : (ushort)((b + 0x7fff + (b >> 16 & 1)) >> 16); }",
    "power": """$T $name($T a, $T b) {
  if (b < 0) return a == 1 ? 1 : a == ($T)-1 ? ((b & 1) ? ($T)-1 : 1) : 0;
  $U x = ($U)a, p = 1;
  for ($U n = ($U)b; n != 0; n >>= 1) { if (n & 1) p *= x; x *= x; }
  return ($T)p;
}"""}


class Writer:
    """t: the type of indices; p: pointers to the operands; work: to the workspace; numbers: those passed at launch; program, loops: what
    is written."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.program, self.loops = launch, launch.real, launch.loops
        self.t = "long" if self.loops.wide else "int"
        self.work = f"a{launch.addresses - 1} + w[{launch.addresses - 1}]"
        self.helpers: dict[str, str] = {}
        self.block: list[int] = []
        self.kernels: list[str] = []
        self.launches: list[tuple[str, tuple[int, int, int], tuple[int, int, int], int]] = []
        self.names = 0
        self._begin()

    def _begin(self) -> None:
        self.lines: list[str] = []
        self.local: list[str] = []
        self.p = [self.let("global uchar* const", f"a{k} + w[{k}] + {extra}") for k, extra in self.launch.places]
        self.numbers = {}
        for k, d in {e.value: e.dtype for e in walk(self.program.roots()) if e.op == "scalar"}.items():
            word = f"w[{self.launch.addresses + k}]"
            text = f"{word} != 0" if d.kind == "b" else f"({value(d)})(long){word}"
            self.numbers[k] = self.let(value(d), cast(self, f"as_double({word})", float64, d) if self.program.scalars[k].kind == "f" else text)

    def end(self, group: Group, blocks: int, pieces: int = 1) -> None:
        """Ends a kernel, to be launched by so many groups, and begins the next one."""
        given = ", ".join([*(f"global uchar* a{k}" for k in range(self.launch.addresses)), "global const ulong* w"])
        name, size = f"{self.program.kind}_{len(self.kernels)}", f"reqd_work_group_size({group.x}, {group.y}, 1)"
        self.kernels.append("\n".join([f"kernel __attribute__(({size})) void {name}({given}) {{", *self.local, *self.lines, "}"]))
        self.launches.append((name, (blocks, pieces, 1), (group.x, group.y, 1), 0))
        self._begin()

    def source(self) -> str:
        return "\n".join([PRAGMAS, *self.helpers.values(), *self.kernels, ""])

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """The body of a loop or a condition."""
        self.line(head + " {")
        yield
        self.line("}")

    def line(self, text: str) -> None:
        self.lines.append(text)

    def set(self, names: Sequence[str], values: Sequence[str]) -> None:
        for name, v in zip(names, values):
            self.line(f"{name} = {v};")

    def fresh(self) -> str:
        self.names += 1
        return f"t{self.names}"

    def let(self, t: str, text: str) -> str:
        name = self.fresh()
        self.line(f"{t if t.endswith('const') else f'const {t}'} {name} = {text};")
        return name

    def declare(self, types: Sequence[dtype], values: Sequence[str]) -> list[str]:
        """Variables that begin with these values."""
        names = [self.fresh() for _ in types]
        for t, name, v in zip(types, names, values):
            self.line(f"{value(t)} {name} = {v};")
        return names

    def room(self, t: str, n: int) -> str:
        """An array that the group shares."""
        name = self.fresh()
        self.local.append(f"local {t} {name}[{n}];")
        return name

    def need(self, helper: str, **types: str) -> str:
        """The name of a helper, for these types."""
        name, text = "_".join([helper, *types.values()]), HELPERS[helper]
        for k, t in {"name": name, **types}.items():
            text = text.replace(f"${k}", t)
        self.helpers[name] = f"static {text}"
        return name

    def long(self, v: int) -> str:
        """A number that belongs to the launch, not to the text."""
        self.block.append(v)
        return f"(long)w[{self.launch.addresses + len(self.program.scalars) + len(self.block) - 1}]"

    def word(self, v: int) -> str:
        """The same as an index."""
        return self.let(self.t, f"({self.t}){self.long(v)}")

    # --------------------------------------------------------------------------------------------------------- operands
    def places(self, axes: Sequence[Axis], index: str, start: Mapping[int, str] | None = None) -> tuple[dict[int, str], dict[int, str]]:
        """Where the operands' elements at `index` over the axes are, innermost fastest, from `start`; and coordinates, by axis."""
        at = {k: [p] for k, p in (enumerate(self.p) if start is None else start.items())}
        coords = {}
        for a in reversed(axes):
            here = index
            if a is not axes[0]:
                size = self.word(a.size)
                index = self.let(self.t, f"{here} / {size}")
                here = self.let(self.t, f"{here} - {index} * {size}")
            if a.source is not None:
                coords[a.source] = here
            for k, terms in at.items():
                if a.strides[k]:
                    terms.append(f"{here} * {self.word(a.strides[k])}")
        return {k: self.let("global uchar* const", " + ".join(terms)) if len(terms) > 1 else terms[0] for k, terms in at.items()}, coords

    def memory(self, place: str, k: int) -> str:
        """An operand's element as it stands in memory."""
        return f"*(global {stored(self.loops.types[k])}*)({place})"

    def load(self, place: str, k: int) -> str:
        return from_stored(self, self.memory(place, k), self.loops.types[k])

    def store(self, place: str, k: int, v: str) -> None:
        self.line(f"{self.memory(place, k)} = {to_stored(self, v, self.loops.types[k])};")

    def store_all(self, places: Mapping[int, str], values: Sequence[str]) -> None:
        for (k, place), v in zip(places.items(), values):
            self.store(place, k, v)

    def lower(self, roots: tuple[Expr, ...], read: Callable[[int], str], coords: Mapping[int, str], accs: Sequence[str] = ()) -> list[str]:
        """The values of expressions; read: an operand at the element."""
        outs, rank = self.loops.outs, self.loops.rank

        def leaf(e: Expr, args: list[str]) -> str:
            if e.op == "input":
                return read(outs + e.value)
            if e.op == "gather":
                return self.load(f"{self.p[outs + e.value]} + {args[0]} * {e.dtype.itemsize}", outs + e.value)
            if e.op == "coord":
                return f"(long){coords.get(e.value % rank, '0') if rank else '0'}"
            return self.numbers[e.value] if e.op == "scalar" else accs[e.value]
        return lower(self, roots, leaf)

    def over(self, given: Sequence[str], made: Iterable[Expr]) -> list[str]:
        """The values of expressions over acc(k), which stand for the `given`."""
        return lower(self, tuple(made), lambda e, _: given[e.value])

    def assign(self, names: Sequence[str], made: Iterable[Expr], given: Sequence[str]) -> None:
        """Gives variables the values of such expressions."""
        self.set(names, self.over(given, made))
