"""Loop programs: what a kernel computes over a domain of elements, independent of any target and of any shape.

Four forms cover every generated kernel.  Each names its operands as: outputs first, then inputs, then Python numbers.

``Map``     for every element: outputs = expressions of the inputs at that element.
``Reduce``  the domain is (kept axes..., reduced axes...): accumulate expressions over the reduced axes, then finish them.
``Rows``    the domain is (outer axes..., one inner axis): stages that reduce a row, store a value for the row, or map it.
``Scan``    the domain is (outer axes..., one inner axis): running accumulations along the inner axis.

A target turns a program, a domain and the operands' strides into a `PreparedLaunch` launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expr import Expr, program_text, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dtypes import dtype

# How two partial results combine.  `max`/`min` give NaN if any element is NaN; `argmax`/`argmin` fill two accumulators,
# the value and the int64 position (row-major within the reduced axes) of its first occurrence, NaN counting as extreme.
COMBINE = ("sum", "prod", "max", "min", "and", "or", "argmax", "argmin")
SCANS = ("sum", "prod", "max", "min", "logsumexp")


class Map:
    """outputs[k] at each element is `outs[k]`, stored in that expression's type.

    inputs: the types of the input operands; scalars: the types of the numbers passed at launch.
    targets: for each output None (the element's own place) or (mode, offset): the value goes to the element offset
    `offset` (int64 expression) from the output's start, where mode is "set", "add", "mul", "max" or "min".  Colliding
    offsets are applied in row-major order of the domain, so results do not depend on threads.
    apart: axes of the domain; elements that differ in a coordinate of theirs never share an offset.
    unit: the offsets of elements whose coordinates along `apart` are 0 are multiples of it.
    extent: offsets are below it; 0 where that is not known.  It tells how to sort them, not what they are: it is not in the key.
    joined: (first, count) of outputs of one type that lie next to one another, the element of one behind that of the one before.
    """

    __slots__ = ("outs", "inputs", "scalars", "targets", "apart", "unit", "extent", "joined", "key", "out_types")
    kind = "map"

    def __init__(self, outs: tuple[Expr, ...], inputs: tuple[dtype, ...], scalars: tuple[dtype, ...] = (),
                 targets: tuple[tuple[str, Expr] | None, ...] | None = None, apart: tuple[int, ...] = (), unit: int = 1,
                 joined: tuple[tuple[int, int], ...] = ()) -> None:
        self.outs, self.inputs, self.scalars = outs, inputs, scalars
        self.targets = targets if targets is not None else (None,) * len(outs)
        self.apart, self.unit, self.extent, self.joined = apart, unit, 0, joined
        self.key: tuple[Any, ...] = ("map", outs, inputs, scalars, self.targets, apart, *((unit,) if unit != 1 else ()), *joined)
        self.out_types = tuple([e.dtype for e in outs])

    def within(self, extent: int) -> Map:
        """The same program, known to write offsets below `extent`."""
        made = Map(self.outs, self.inputs, self.scalars, self.targets, self.apart, self.unit, self.joined)
        made.extent = extent
        return made

    def anywhere(self) -> Map:
        """The same program, of whose offsets nothing is known: for renderers that do not sort them, so that they have one kernel for all units."""
        return self if self.unit == 1 else Map(self.outs, self.inputs, self.scalars, self.targets, self.apart, 1, self.joined)

    def roots(self) -> tuple[Expr, ...]:
        return self.outs + tuple(t[1] for t in self.targets if t is not None)

    def text(self) -> str:
        modes = ",".join("-" if t is None else t[0] for t in self.targets)
        return _text(self, modes + "".join(f",{first}+{count}" for first, count in self.joined))


class Reduce:
    """Accumulates `elems[k]` with `combine[k]` over the last `reduced` axes of the domain; outputs are `posts`.

    Accumulators are numbered in order; "argmax"/"argmin" take two (value, then int64 position).  An empty reduction
    gives sum 0, prod 1, and False, or False, max/min the lowest/highest value of the type.  The order of accumulation
    is fixed by the domain alone.
    """

    __slots__ = ("elems", "combine", "posts", "inputs", "scalars", "key", "out_types")
    kind = "reduce"

    def __init__(self, elems: tuple[Expr, ...], combine: tuple[str, ...], posts: tuple[Expr, ...],
                 inputs: tuple[dtype, ...], scalars: tuple[dtype, ...] = ()) -> None:
        self.elems, self.combine, self.posts, self.inputs, self.scalars = elems, combine, posts, inputs, scalars
        self.key: tuple[Any, ...] = ("reduce", elems, combine, posts, inputs, scalars)
        self.out_types = tuple([e.dtype for e in posts])

    def roots(self) -> tuple[Expr, ...]:
        return self.elems + self.posts

    def text(self) -> str:
        return _text(self, ",".join(self.combine))


class Rows:
    """Stages over each row of the innermost axis, in order:

    ("reduce", combine, expr)  a new accumulator from all elements of the row (sum, prod, max, min, and, or)
    ("row", out, expr)         output `out` gets one value a row (its inner stride is 0)
    ("map", out, expr)         output `out` gets a value an element

    An expression may use every accumulator finished before it.  A per-row input has inner stride 0, a per-column one
    has outer strides 0.
    """

    __slots__ = ("stages", "inputs", "scalars", "out_types", "key")
    kind = "rows"

    def __init__(self, stages: tuple[tuple[str, Any, Expr], ...], inputs: tuple[dtype, ...],
                 scalars: tuple[dtype, ...] = ()) -> None:
        self.stages, self.inputs, self.scalars = stages, inputs, scalars
        outs = {s[1]: s[2].dtype for s in stages if s[0] != "reduce"}
        self.out_types = tuple(outs[i] for i in range(len(outs)))
        self.key: tuple[Any, ...] = ("rows", stages, inputs, scalars)

    def roots(self) -> tuple[Expr, ...]:
        return tuple(s[2] for s in self.stages)

    def text(self) -> str:
        return _text(self, ",".join(f"{s[0]}{s[1]}" for s in self.stages))


class Scan:
    """Running `combine` of `elem` along the innermost axis (from its end when `reverse`).

    Output k is `posts[k]`, which may use acc(0), the running value, and, for "max"/"min", acc(1), the int64 position of
    the latest extreme (ties go to the later position, NaN stays).
    """

    __slots__ = ("elem", "combine", "posts", "inputs", "scalars", "reverse", "key", "out_types")
    kind = "scan"

    def __init__(self, elem: Expr, combine: str, posts: tuple[Expr, ...], inputs: tuple[dtype, ...],
                 scalars: tuple[dtype, ...] = (), reverse: bool = False) -> None:
        self.elem, self.combine, self.posts = elem, combine, posts
        self.inputs, self.scalars, self.reverse = inputs, scalars, reverse
        self.key: tuple[Any, ...] = ("scan", elem, combine, posts, inputs, scalars, reverse)
        self.out_types = tuple([e.dtype for e in posts])

    def roots(self) -> tuple[Expr, ...]:
        return (self.elem, *self.posts)

    def text(self) -> str:
        return _text(self, f"{self.combine},{self.reverse}")


Program = Map | Reduce | Rows | Scan


def _text(p: Any, extra: str) -> str:
    types = ",".join(d.name for d in p.inputs) + ";" + ",".join(d.name for d in p.scalars)
    return f"{p.kind}({types};{extra})\n{program_text(p.roots())}"


class PreparedLaunch:
    """A launch with everything fixed but addresses and numbers.

    ``entry(*outputs, *inputs, [workspace], *scalars)`` takes addresses as ints and numbers as int or float; it may be
    called from any thread and lets other Python threads run during long work.  `workspace` is the number of bytes the
    extra address must point to (0: the argument is absent).  `nbytes` and `flops` price the launch.  Equal `name`s mean
    the same kind of work; `program` is None for library routines.  `aligned`: bits that no address may have.  `lasting`:
    False where callers may not keep it, since what it holds is another's to drop.  `settling`: its workspace may change until
    it has run.  `note`: called with the stream before each launch, to keep the program's line for an error that comes later;
    None where nothing is kept.  `condition`: of a launch that does nothing but raise, a launch that writes an int64, which is 0
    where it would not, and its numbers.  `spec`: what a library routine was asked for (`specs`), where it is known.  Of a
    `specs.Product` with an epilogue: `beside` bytes are written for the gradient (0: it reads the result), and `exact` says
    whether the result is that of the operations one by one.
    """

    __slots__ = ("name", "entry", "workspace", "nbytes", "flops", "program", "outputs", "domain", "strides", "keep", "aligned", "beside", "exact", "lasting",
                 "settling", "note", "condition", "spec")

    def __init__(self, name: str, entry: Callable[..., Any], *, outputs: int = 1, workspace: int = 0, nbytes: int = 0,
                 flops: int = 0, program: Program | None = None, domain: tuple[int, ...] = (),
                 strides: tuple[tuple[int, ...], ...] = (), keep: Any = None, aligned: int = 0) -> None:
        self.name, self.entry, self.outputs, self.workspace = name, entry, outputs, workspace
        self.nbytes, self.flops, self.program, self.domain, self.strides = nbytes, flops, program, domain, strides
        self.keep = keep  # what must stay alive while the entry may be called
        self.aligned, self.beside, self.exact, self.lasting = aligned, 0, True, True
        self.settling = False
        self.note: Callable[[Any], None] | None = None
        self.condition: tuple[PreparedLaunch, tuple[int, ...]] | None = None
        self.spec: Any = None


def size_of(domain: tuple[int, ...]) -> int:
    n = 1
    for d in domain:
        n *= d
    return n


def price(program: Program, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[int, int]:
    """Bytes touched (an operand's distinct elements once) and arithmetic operations of one launch."""
    types = program.out_types + program.inputs
    nbytes, n = 0, 1
    last: tuple[int, ...] = ()
    for d, st in zip(types, strides, strict=True):
        if st != last:  # most operands lie alike
            last, n = st, 1
            for size, step in zip(domain, st, strict=False):
                n *= size if step else 1
        nbytes += n * d.itemsize
    ops = _operations.get(program.key)
    if ops is None:
        ops = sum(1 for e in walk(program.roots()) if e.args and e.op not in ("cast", "bitcast"))
        _operations[program.key] = ops
    return nbytes, ops * size_of(domain)


_operations: dict[tuple[Any, ...], int] = {}
