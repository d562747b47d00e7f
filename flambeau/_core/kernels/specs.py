"""What operations ask a device's backend for: one class for each kind of work, naming types, shapes, strides and flags.

`runtime.dispatch.find` gives the launch that a backend prepares for a spec.  Specs of one class with equal fields are equal, so that they can
key caches.  A class's docstring says what the launch is called with: addresses first (outputs before inputs), then the address of its
workspace where it has one, then numbers.  Strides are in elements.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, dataclass_transform

if TYPE_CHECKING:
    from ..dtypes import dtype as Type
    from .expr import Expr
    from .programs import Map, Program, Reduce

    Sizes = tuple[int, ...]
    Steps = tuple[int, int, int]
    Operand = tuple[Sizes, Sizes]


@dataclass_transform(frozen_default=True)
class Spec(tuple[Any, ...]):
    """The base: fields are the annotations of a class, in order, with its values as defaults."""

    __slots__ = ()
    fields: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        cls.fields = tuple(cls.__annotations__)
        cls._defaults = {name: cls.__dict__[name] for name in cls.fields if name in cls.__dict__}  # type: ignore[attr-defined]
        for place, name in enumerate(cls.fields):
            setattr(cls, name, property(itemgetter(place)))

    def __new__(cls, *values: Any, **named: Any) -> Spec:
        left = cls.fields[len(values):]
        if left or named:
            given = {**cls._defaults, **named}  # type: ignore[attr-defined]
            values += tuple([given[name] for name in left if name in given])
        if len(values) != len(cls.fields) or not named.keys() <= set(left):
            raise TypeError(f"{cls.__name__} takes {', '.join(cls.fields)}; got {len(values) - len(left)} values and {sorted(named)}")
        return super().__new__(cls, values)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in zip(self.fields, self, strict=True))})"

    def but(self, **changed: Any) -> Any:
        """The same with other values for some fields."""
        return type(self)(*[changed.pop(name, value) for name, value in zip(self.fields, self, strict=True)], **changed)


class Loop(Spec):
    """A loop program over `domain`.  strides: of each operand over the domain, outputs first, then inputs."""

    program: Program
    domain: Sizes
    strides: tuple[Sizes, ...]


class Product(Spec):
    """``entry(C, A, B)``: C = alpha A B + beta C for `batch` matrices (m, k), (k, n) of one type.

    a, b, c: elements from row to row, from column to column, from matrix to matrix.  tf32: whether float32 may be rounded to TF32.  wide:
    whether the partial sums of 16-bit types must be added in float32.  timed: whether to try a library's algorithms, and take the fastest.

    epilogue: what more is done, with an address that the entry takes after B's.  "bias": a row of n numbers is added to every row of C.
    "bias relu", "bias gelu": that, then max(x, 0) or the tanh form of GELU.  Where `recorded`, the address of `PreparedLaunch.beside` bytes
    follows, for what the gradient reads; where these are 0, it reads C itself.  "relu gradient", "gelu gradient": C, taken as the gradient of
    such a function's result, becomes that of its input, by what was written.  "row sums": the m sums of A's rows are written.
    """

    dtype: Type
    m: int
    n: int
    k: int
    a: Steps
    b: Steps
    c: Steps
    batch: int = 1
    alpha: complex = 1.0
    beta: complex = 0.0
    tf32: bool = False
    wide: bool = False
    epilogue: str = ""
    recorded: bool = False
    timed: bool = False


class Convolution(Spec):
    """``entry(OUT, FIRST, SECOND, [bias,] workspace)``: "forward": y of images x and weights w; "images": the gradient x of weights w and
    gradients y; "weights": the gradient w of images x and gradients y.

    x, w, y: shape and strides.  library: whether a library's kernels may be taken; room: bytes of workspace that it may have, None for any
    number; how: how many algorithms to try, whether to take none whose results differ from run to run, and whether float32 may be rounded to TF32.
    The workspace's address is always given.  Where the entry raises NotImplementedError and `PreparedLaunch.workspace` has changed, it may be
    called again with that much.
    """

    kind: str
    dtype: Type
    x: Operand
    w: Operand
    y: Operand
    padding: Sizes
    stride: Sizes
    dilation: Sizes
    groups: int
    bias: bool = False
    library: bool = True
    room: int | None = None
    how: tuple[int, bool, bool] = (0, False, False)


class Attention(Spec):
    """``entry(O, LSE, Q, K, V, [mask,] [workspace,] [seed, offset, p])``: O = softmax(Q K^T scale + mask) V and the logarithms of its sums,
    float64 for float64, else float32.

    sizes: batch, query heads, query heads a key head, queries, keys, depth, depth of values.  steps: names and strides: of "q", "k" and "v"
    along batch, head, row and column; of "o" and "mask" along batch, head and row, their columns being neighbours.  ways: whether a
    library's kernels may be taken, whether our own may, and whether sums must be taken in a fixed order.
    """

    dtype: Type
    mask: Type | None
    causal: bool
    drop: bool
    sizes: Sizes
    scale: float
    steps: tuple[tuple[str, Sizes], ...]
    ways: tuple[bool, bool, bool] = (True, True, False)


class AttentionGradient(Spec):
    """``entry(DQ, DK, DV, DO, O, LSE, Q, K, V, [mask,] [workspace,] [seed, offset, p])`` of an `Attention`; DK and DV are of the key heads.

    steps: also of "g" (DO), "dq", "dk" and "dv" along batch, head and row.
    """

    dtype: Type
    mask: Type | None
    causal: bool
    drop: bool
    sizes: Sizes
    scale: float
    steps: tuple[tuple[str, Sizes], ...]
    ways: tuple[bool, bool, bool] = (True, True, False)


class Sort(Spec):
    """``entry(values, places, source)``: the first `width` elements in order of each row of the last axis of `domain`, equal ones in their
    order; NaN is the greatest.  strides: of the three.  ordered: False where any order will do.  valued: False where the values need not be
    written."""

    dtype: Type
    domain: Sizes
    strides: tuple[Sizes, Sizes, Sizes]
    descending: bool
    width: int
    ordered: bool = True
    valued: bool = True


PARTED = 4096  # elements of a row whose k-th is found by parting it, which takes the square of their number at worst


class Element(Spec):
    """``entry(values, places, source)``: one element of each row of the last axis of `domain`: the k-th (from 0) in order, or, where
    `which` says so, the "median" (of a NaN where there is one), "nanmedian" (NaN left out) or "mode" (the most frequent one).

    Of elements equal to the k-th, the CPU finds the one that PyTorch finds in rows of up to `PARTED`, else the one that a stable sort puts
    there; GPUs always find the latter."""

    dtype: Type
    domain: Sizes
    strides: tuple[Sizes, Sizes, Sizes]
    k: int
    which: str = ""


class Put(Spec):
    """``entry(out, places, values)``: values go to places, all different, along the last axis of `out`, which has length `length`."""

    dtype: Type
    domain: Sizes
    length: int
    strides: tuple[Sizes, Sizes, Sizes]


class Search(Spec):
    """``entry(out, sequence, values)``: where values go in sorted rows of `length`, before equal elements, or with `right` after them.
    By halving, the middle rounded up; NaN in a row lies before every value.

    strides: of out, sequence and values; one step for a sequence that all values are looked for in.  dtype: of the sequence, and of values
    unless `values` says another; result: of out.
    """

    dtype: Type
    result: Type
    shape: Sizes
    length: int
    strides: tuple[Sizes, Sizes, Sizes]
    right: bool
    values: Type | None = None


class Among(Spec):
    """``entry(out, elements, those)``: whether each element is one of those, or with `invert` none of them.  given: type, shape and strides
    of both; out (bool) has the strides `to`."""

    given: tuple[tuple[Type, Sizes, Sizes], tuple[Type, Sizes, Sizes]]
    to: Sizes
    unique: bool
    invert: bool


class NonzeroCount(Spec):
    """``entry(counts, source)``: how many elements are not 0, and how many before each block of a kernel's own size."""

    dtype: Type
    shape: Sizes
    strides: Sizes


class NonzeroWrite(Spec):
    """``entry(out, source, counts, most, step, apart)``: the coordinates of the first `most` elements that are not 0, `step` elements from
    one to the next and `apart` from one axis to the next."""

    dtype: Type
    shape: Sizes
    strides: Sizes


class Chosen(Spec):
    """``entry(out, source, mask, counts)``: of n packed rows of `nbytes` each, those whose element of a packed mask (bool) is set, one behind
    the other; counts are those of a `NonzeroCount` of the mask.  back: the other way round, `source` is such rows, which go to those of `out`."""

    n: int
    nbytes: int
    back: bool = False


class NonzeroFirst(Spec):
    """``entry(out, source)``: the coordinates of the first `size` elements that are not 0, (size, ndim), filled up with `fill`."""

    dtype: Type
    shape: Sizes
    strides: Sizes
    size: int
    fill: int


class Spread(Spec):
    """``entry(out, places, values)``: out[places[i]] = values[i] for i < n, all int64."""

    n: int


class Stepwise(Spec):
    """``entry(out, first, second)``: out[i] = name(first[i], second[i]) for i < n, all of one type; name: "gcd" or "lcm" of integers, "igamma" or "igammac"
    of float32 and float64."""

    name: str
    dtype: Type
    n: int


class Occurrences(Spec):
    """``entry(counts, source, [weights])``: how often each of 0 .. bins - 1 is among n numbers of an integer type (int64 for None) is added to
    counts (int64), or their weights of a type are, one after the other (float64)."""

    n: int
    bins: int
    dtype: Type | None = None
    weights: Type | None = None


class Histogram(Spec):
    """``entry(out, told, source, [workspace,] low, high)``: how many elements fall into each of `bins` equal intervals from low to high; counts
    are of the elements' type.  own: from the least element to the greatest instead, one further out each where these are equal; told
    (int64) becomes 1 where they are not finite, else 0."""

    dtype: Type
    shape: Sizes
    strides: Sizes
    bins: int
    own: bool


class Check(Spec):
    """``entry(source)`` raises `error` where int64 positions lie outside [low, high) and are not `spared`: `text` with one of them in the place
    of "{}", and `high` in that of "{high}".  A device that works behind the host's back says so when the host next waits, with the launch's `name`."""

    shape: Sizes
    strides: Sizes
    low: int
    high: int
    spared: int | None
    text: str
    error: type[Exception] = IndexError
    name: str = "index check"


class Blocks(Spec):
    """``entry(to, *parts)``: `times` times, one behind the other at `to`, `sizes` bytes of each part, which then goes `steps` bytes on."""

    times: int
    sizes: Sizes
    steps: Sizes


class JoinedMaps(Spec):
    """``entry(*numbers, [told,] *shared, *addresses)``: one Map on many arrays; see `cuda_c.joined.maps`."""

    name: str
    program: Map
    arrays: Sizes
    into: Sizes
    sizes: Sizes
    told: Expr | None = None


class JoinedReductions(Spec):
    """``entry(out, workspace, *addresses)``: one Reduce on many arrays; see `cuda_c.joined.reductions`."""

    name: str
    program: Reduce
    sizes: Sizes


class RowsProduct(Spec):
    """``entry(out, crow, columns[, values], dense)``: a matrix of compressed rows (int64 places, `entries` of them) times a dense one (.., columns)
    whose rows lie `step` elements apart.  Not `weighted`: the entries are ones.  mean: the sums are divided by how many entries a row has."""

    dtype: Type
    rows: int
    columns: int
    step: int
    entries: int
    weighted: bool = True
    mean: bool = False


class Fft(Spec):
    """``entry(to, source)``: packed complex transforms of `shape` over `axes`, times `scale`."""

    dtype: Type
    shape: Sizes
    axes: Sizes
    inverse: bool
    scale: float = 1.0


class RealFft(Spec):
    """``entry(to, source)``: "r2c", the transform of packed real numbers, to half of the last axis and one more, or "c2r", that of such a half to
    real numbers.  shape: of the real side; dtype: the complex type.

    kept: "c2r" must not change its source, and the imaginary parts of elements that are real in the half of a real signal's spectrum must
    not count; else the source may be lost, and such parts are 0.  adjoint: the elements of the half that stand for their mirror images too
    count double in "r2c" and half in "c2r", which makes the one the adjoint of the other's opposite.
    """

    kind: str
    dtype: Type
    shape: Sizes
    axes: Sizes
    inverse: bool
    scale: float = 1.0
    kept: bool = False
    adjoint: bool = False
    whole: bool = False


class Lapack(Spec):
    """Linear algebra on `batch` packed matrices, column by column: a whole job by an operation's name (`drivers.cpu.factorizations` says what
    each is told and called with), or a routine by LAPACK's name without the type's letter (`drivers.nvidia.cusolver`)."""

    name: str
    dtype: Type
    batch: int
    sizes: tuple[Any, ...]


class Draw(Spec):
    """``entry(out, *given, stream, *numbers)``: random elements of a `kind`, drawn one after the other from a stream (`kernels.mersenne`), in the
    order of `shape`'s axes, the last one innermost.  given: type and strides of operands that are read.  numbers: floats; `kernels.drawing`
    says of each kind which."""

    kind: str
    dtype: Type
    shape: Sizes
    strides: Sizes
    given: tuple[tuple[Type, Sizes], ...] = ()


class Collective(Spec):
    """``entry(*addresses)``: this rank's part of what a group of processes carries out together.

    carry_out: called with the driver's stream, or, where the host does it when the launch has its turn, with what tells a virtual clock or None, and the
    addresses; it begins, and on the host also ends, the communication.  outputs, nbytes: as a launch's.  size: how many ranks take part; whole: bytes of
    all of them that one rank gives or gets, the larger.  machines: on how many the ranks lie.
    """

    name: str
    carry_out: Any
    outputs: int
    nbytes: int
    size: int = 1
    whole: int = 0
    machines: int = 1
