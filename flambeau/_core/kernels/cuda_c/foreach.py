"""The same program on many arrays as one launch: an optimizer's step, the scaling of gradients, their norms.

A launch of a small array takes longer to ask for than to do.  Here the addresses of many arrays stand in one parameter, with a
table of where each one's chunks begin; a block takes one chunk and finds its array by bisection.  The text depends on how many
arrays there is room for, not on their sizes, so that models share it.

A list beyond the room of a parameter is cut by the caller (`most`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kernel import Kernel
from ..programs import size_of
from .lower import from_stored, to_stored
from .map import element
from .thread_groups import Group, states_of
from .types import stored, value
from .writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...dtypes import dtype
    from ..expr import Expr
    from ..programs import Map, Program, Reduce
    from .thread_groups import State

THREADS = 256
WORDS = 496  # of a parameter: 4 KiB are to be had everywhere
_ROOMS = (8, 24)  # lists that are shorter than the longest, for which less is passed
_ROUNDS = 8  # vectors a thread takes of a chunk
_LONG = 1 << 16  # elements of a chunk that is reduced
_FIRST = 40  # bits of an entry that say the elements; the rest say the first chunk
_NONE = (1 << 24) - 1


def most(arrays: int, before: int) -> int:
    """How many lists of so many arrays one launch takes; before: arguments that stand before the addresses."""
    return (WORDS - before - 1) // (arrays + 1)


class _Lists:
    """The parameter: `before` arguments, the addresses of list after list, and the table."""

    def __init__(self, program: Program, before: int, types: Sequence[dtype], sizes: Sequence[int], chunk: int) -> None:
        self.types, self.chunk, n, arrays = list(types), chunk, len(sizes), len(types)
        longest = most(arrays, before)
        if not 0 < n <= longest or any(not 0 < s < 1 << _FIRST for s in sizes):
            raise NotImplementedError(f"{n} lists in one launch")
        self.room = next((r for r in _ROOMS if n <= r <= longest), longest)
        first, table = 0, []
        for s in sizes:
            table.append(first << _FIRST | s)
            first += -(-s // chunk)
        if first >= _NONE:
            raise NotImplementedError(f"{first} chunks in one launch")
        self.chunks, self.before, self.count = first, before, n
        self.w = Writer(program, [], before + n * arrays)
        table.append(first << _FIRST)
        table += [_NONE << _FIRST] * (self.room + 1 - len(table))
        self.w.block = [0] * ((self.room - n) * arrays) + table
        self.table = before + self.room * arrays

    def find(self, chunk: str = "(int)blockIdx.x") -> tuple[str, str]:
        """The list of this block's chunk, and how many elements are left of the list from there; pointers to them are `p0` ..."""
        w, t, arrays = self.w, self.table, len(self.types)
        w.line(f"int low = 0, high = {self.room};")
        b = w.let("int", chunk, "b")
        w.line("while (high - low > 1) {")
        w.line("const int middle = (low + high) >> 1;")
        w.line(f"if ((int)(a.w[{t} + middle] >> {_FIRST}) <= {b}) low = middle; else high = middle;")
        w.line("}")
        w.line(f"const unsigned long long entry = a.w[{t} + low];")
        w.line(f"const long long begin = (long long)({b} - (int)(entry >> {_FIRST})) * {self.chunk};")
        w.line(f"const long long rest = (long long)(entry & {(1 << _FIRST) - 1}ULL) - begin;")
        n = w.let("int", f"rest < {self.chunk} ? (int)rest : {self.chunk}", "n")
        for k, d in enumerate(self.types):
            w.line(f"unsigned char* const p{k} = (unsigned char*)a.w[{self.before} + low * {arrays} + {k}] + begin * {d.itemsize};")
        return "low", n

    def whole(self, v: int, used: Sequence[int]) -> str:
        """Whether vectors of v elements may be read and written."""
        return " && ".join(f"((unsigned long long)p{k} & {v * self.types[k].itemsize - 1}) == 0" for k in used)


def maps(program: Map, arrays: Sequence[int], into: Sequence[int], sizes: Sequence[int], told: Expr | None = None) -> Kernel:
    """``entry(*numbers, [told,] *shared, *addresses)``: for every list of dense arrays the program, element by element.

    arrays: for each input the array of the list that it is, from 0; or -1, -2, ... for a shared one, of one element.  into: the
    array that each output is written to.  sizes: the elements of each list's arrays.  told: a truth; where it holds for any element, the
    int32 at the address `told` becomes 1.
    """
    count = max([*arrays, *into]) + 1
    shared = max([-k for k in arrays if k < 0], default=0)
    types: list[dtype] = [program.inputs[0]] * count
    for k, at in enumerate(arrays):
        if at >= 0:
            types[at] = program.inputs[k]
    for e, at in zip(program.outs, into):
        types[at] = e.dtype
    numbers, tells = len(program.scalars), int(told is not None)
    v = 16 // max(d.itemsize for d in types)
    lists = _Lists(program, numbers + tells + shared, types, sizes, THREADS * v * _ROUNDS)
    w = lists.w
    names = w.numbers(0)
    _, n = lists.find()
    outs, read = len(program.outs), sorted({at for at in arrays if at >= 0})
    fixed = {}
    for k, at in enumerate(arrays):
        if at < 0:
            d = program.inputs[k]
            fixed[outs + k] = w.let(value(d), from_stored(w, f"*(const {stored(d)}*)a.w[{numbers + tells - 1 - at}]", d), "f")
    if tells:
        w.line("bool seen = false;")
    w.need("vec")
    w.line("int done = 0;")
    w.line(f"if ({lists.whole(v, range(count))}) {{")
    w.line(f"done = {n} / {v} * {v};")
    w.line(f"for (int i = (int)threadIdx.x * {v}; i < done; i += {THREADS * v}) {{")
    for k in range(count):
        s = stored(types[k])
        w.line(f"Vec<{s}, {v}>* const q{k} = (Vec<{s}, {v}>*)(p{k} + i * {types[k].itemsize});")
        w.line(f"Vec<{s}, {v}> h{k}{f' = *q{k}' if k in read else ''};")
    w.line("#pragma unroll")
    w.line(f"for (int k = 0; k < {v}; k++) {{")
    _element(w, program, arrays, into, names, fixed, lambda k: f"h{k}.v[k]", types, told)
    w.line("}")
    for k in into:
        w.line(f"*q{k} = h{k};")
    w.line("}")
    w.line("}")
    w.line(f"for (int i = done + (int)threadIdx.x; i < {n}; i += {THREADS}) {{")
    _element(w, program, arrays, into, names, fixed, lambda k: f"(({stored(types[k])}*)p{k})[i]", types, told)
    w.line("}")
    if tells:
        w.line(f"if (seen) atomicOr((int*)a.w[{numbers}], 1);")
    source, found = w.source([("joined", THREADS, w.lines)])
    letters = "".join("d" if d.kind == "f" else "q" for d in program.scalars) + "P" * (tells + shared + count * len(sizes))
    nbytes = sum(sizes) * (sum(types[k].itemsize for k in read) + sum(e.dtype.itemsize for e in program.outs))
    return Kernel(source, ((found[0], (lists.chunks, 1, 1), (THREADS, 1, 1), 0),), letters, tuple(w.block), 0, nbytes, 0, None)


def _element(w: Writer, program: Map, arrays: Sequence[int], into: Sequence[int], names: dict[int, str], fixed: dict[int, str], at: Callable[[int], str],
             types: Sequence[dtype], told: Expr | None) -> None:
    """The statements for one element, of whose arrays `at` names the places."""
    outs = len(program.outs)
    elements = dict(fixed)
    for k, array in enumerate(arrays):
        if array >= 0:
            elements[outs + k] = w.let(value(types[array]), from_stored(w, at(array), types[array]), "x")
    if told is not None:
        def leaf(e: Expr, args: list[str]) -> str:
            return elements[outs + e.value]
        w.line(f"if ({w.lower((told,), leaf, {})[0]}) seen = true;")
    element(w, program, {}, {}, names, elements, {k: f"{at(array)} = {{}}" for k, array in enumerate(into)}, {}, 0)


def reductions(program: Reduce, sizes: Sequence[int]) -> tuple[Kernel, int]:
    """``entry(out, workspace, *addresses)``: out[i] is the reduction of all elements of the i-th dense array; and the workspace's bytes.

    The order of the sums is always the same.
    """
    d = program.inputs[0]
    v = 16 // d.itemsize
    lists = _Lists(program, 2, [d], sizes, _LONG)
    w, g = lists.w, Group("block", THREADS, 1)
    states = states_of(program.combine, [e.dtype for e in program.elems])
    state, = states
    part, = state.types
    _, n = lists.find()
    state.declare(w)
    w.need("vec")
    w.line("int done = 0;")
    w.line(f"if ({lists.whole(v, [0])}) {{")
    w.line(f"done = {n} / {v} * {v};")
    w.line("#pragma unroll 4")
    w.line(f"for (int i = (int)threadIdx.x * {v}; i < done; i += {THREADS * v}) {{")
    w.line(f"const Vec<{stored(d)}, {v}> h = *(const Vec<{stored(d)}, {v}>*)(p0 + i * {d.itemsize});")
    w.line("#pragma unroll")
    w.line(f"for (int k = 0; k < {v}; k++) {{")
    _join(w, program, state, "h.v[k]", d)
    w.line("}")
    w.line("}")
    w.line("}")
    w.line(f"for (int i = done + (int)threadIdx.x; i < {n}; i += {THREADS}) {{")
    _join(w, program, state, f"((const {stored(d)}*)p0)[i]", d)
    w.line("}")
    g.gather(w, states, everyone=False)
    w.line(f"if (threadIdx.x == 0) (({part}*)a.w[1])[blockIdx.x] = {state.names[0]};")
    first, w.lines = w.lines, []

    warp = Group("warp", 32, 8)
    row, _ = warp.start(w, "int", lists.count)
    state.declare(w)
    w.line(f"const int end = (int)(a.w[{lists.table} + {row} + 1] >> {_FIRST});")
    w.line(f"for (int c = (int)(a.w[{lists.table} + {row}] >> {_FIRST}) + (int)threadIdx.x; c < end; c += 32) {{")
    state.join(w, [f"((const {part}*)a.w[1])[c]"])
    w.line("}")
    warp.gather(w, states, everyone=False)
    w.line("if (threadIdx.x == 0) {")
    accs = [w.let(part, state.names[0], "acc")]
    post, = program.posts

    def leaf(e: Expr, args: list[str]) -> str:
        return accs[int(e.value)]
    x, = w.lower((post,), leaf, {})
    w.line(f"(({stored(post.dtype)}*)a.w[0])[{row}] = {to_stored(w, x, post.dtype)};")
    w.line("}")
    source, names = w.source([("joined_reduce", THREADS, first), ("joined_finish", 256, w.lines)])
    launches = ((names[0], (lists.chunks, 1, 1), (THREADS, 1, 1), 0), (names[1], (-(-lists.count // 8), 1, 1), (32, 8, 1), 0))
    kernel = Kernel(source, launches, "P" * (2 + len(sizes)), tuple(w.block), 0, size_of((sum(sizes), d.itemsize)), 0, None)
    return kernel, max(d.opmath.itemsize, post.dtype.itemsize, 8) * lists.chunks


def _join(w: Writer, program: Reduce, state: State, text: str, d: dtype) -> None:
    x = w.let(value(d), from_stored(w, text, d), "x")

    def leaf(e: Expr, args: list[str]) -> str:
        return x
    state.join(w, w.lower(program.elems, leaf, {}))
