"""Complex programs as programs over real numbers, which are all that renderers know.

Every complex operand becomes two real ones over the same memory: the real parts, and one element further the imaginary
parts, each with doubled strides.  Branch cuts are those of C99; the formulas are the textbook ones, with Smith's for
the quotient (R. L. Smith, "Algorithm 116: Complex division", Communications of the ACM 5(8), 1962).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtypes import complex64, int64
from . import expr as E
from .expr import Expr, walk
from .programs import Map, Reduce, Rows, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype
    from .programs import Program

    Pair = tuple[Expr, Expr]


class Split:
    """A program over real numbers in place of a complex one.

    places: for each operand of `program` (operand of the complex program, bytes to add to its address).
    numbers: for each scalar of `program` (scalar of the complex program, part); part is "real", "imag" or, if real, "".
    """

    __slots__ = ("program", "places", "numbers", "widened")

    def __init__(self, program: Program, places: list[tuple[int, int]], numbers: list[tuple[int, str]],
                 widened: list[bool]) -> None:
        self.program, self.places, self.numbers, self.widened = program, places, numbers, widened

    def strides(self, strides: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """The real operands' strides, from the complex program's."""
        return tuple(tuple(2 * s for s in strides[k]) if self.widened[k] else tuple(strides[k]) for k, _ in self.places)


class PairScan(Scan):
    """A scan of complex numbers, of real parts `elem` and imaginary parts `imag`: acc(0), acc(1) are the running value's parts,
    acc(2) the position of an extreme."""

    __slots__ = ("imag",)

    def __init__(self, elem: Expr, imag: Expr, combine: str, posts: tuple[Expr, ...], inputs: tuple[dtype, ...], scalars: tuple[dtype, ...],
                 reverse: bool) -> None:
        super().__init__(elem, combine, posts, inputs, scalars, reverse)
        self.imag = imag
        self.key = ("pairs", imag, *self.key)

    def roots(self) -> tuple[Expr, ...]:
        return (self.elem, self.imag, *self.posts)


def is_complex(program: Program) -> bool:
    """Whether any of its types is complex."""
    return (any(d.is_complex for d in program.out_types + program.inputs + program.scalars)
            or any(e.dtype.is_complex for e in walk(program.roots())))


def split(program: Program, pairs: bool = False) -> Split:
    """The program over real numbers.  Raises NotImplementedError for what has no such form here.

    pairs: for a renderer whose accumulators may be complex.  They are then two elements in succession, the first combined by
    "c" and the name ("cprod", "cmax", "cargmin", ...; the order is that of the real parts, then that of the imaginary ones), the
    second by "".  So are the targets of values that a map combines, and a scan becomes a `PairScan`.

    What only moves numbers of 64 bits moves them as words; not with `pairs`, whose machines ask for addresses that are multiples of a word.
    """
    moved = None if pairs or not isinstance(program, Map) else _words(program)
    if moved is not None:
        return Split(moved, [(k, 0) for k in range(len(program.out_types) + len(program.inputs))], [(k, "") for k in range(len(program.scalars))],
                     [False] * (len(program.out_types) + len(program.inputs)))
    places: list[tuple[int, int]] = []
    for k, d in enumerate(program.out_types + program.inputs):
        places.extend(((k, 0), (k, d.itemsize // 2)) if d.is_complex else ((k, 0),))
    inputs, input_at = _numbering(program.inputs)
    scalars, scalar_at = _numbering(program.scalars)
    numbers = [(k, part) for k, d in enumerate(program.scalars)
               for part in (("real", "imag") if d.is_complex else ("",))]
    widened = [d.is_complex for d in program.out_types + program.inputs]
    work = _Work(input_at, scalar_at, pairs)
    made: Program
    if isinstance(program, Map):
        made = _map(program, work, inputs, scalars)
    elif isinstance(program, Reduce):
        made = _reduce(program, work, inputs, scalars)
    elif isinstance(program, Rows):
        made = _rows(program, work, inputs, scalars)
    else:
        made = _scan(program, work, inputs, scalars)
    return Split(made, places, numbers, widened)


_splits: dict[tuple[Any, ...], Split | None] = {}


def split_of(program: Program, pairs: bool = False) -> Split | None:
    """`split`, made once for a program; None for a real one."""
    key = (pairs, program.key)
    if key not in _splits:
        _splits[key] = split(program, pairs) if is_complex(program) else None
    return _splits[key]


def _words(p: Map) -> Map | None:
    """The map with words in place of complex numbers of two 32-bit parts; None where anything but their places is asked for."""
    done: dict[Expr, Expr] = {}
    for e in walk(p.roots()):
        args = tuple([done[a] for a in e.args])
        if not e.dtype.is_complex:
            if any(a.dtype.is_complex for a in e.args):
                return None
            done[e] = E.make(e.op, e.dtype, args, e.value) if args else e
        elif e.dtype is complex64 and e.op in ("input", "gather", "where"):
            done[e] = E.make(e.op, int64, args, e.value)
        else:
            return None
    if any(d.is_complex for d in p.scalars) or any(t is not None and t[0] != "set" for t in p.targets):
        return None
    targets = tuple([None if t is None else (t[0], done[t[1]]) for t in p.targets])
    inputs = tuple([int64 if d is complex64 else d for d in p.inputs])
    return Map(tuple([done[e] for e in p.outs]), inputs, p.scalars, targets, p.apart, p.unit, p.joined)


def _numbering(types: tuple[dtype, ...]) -> tuple[tuple[dtype, ...], list[int]]:
    """The real types, and where each type's (first) real one is."""
    real: list[dtype] = []
    at = []
    for d in types:
        at.append(len(real))
        real.extend((d.to_real(),) * 2 if d.is_complex else (d,))
    return tuple(real), at


def _map(p: Map, work: _Work, inputs: tuple[dtype, ...], scalars: tuple[dtype, ...]) -> Map:
    outs: list[Expr] = []
    targets: list[tuple[str, Expr] | None] = []
    joined: list[tuple[int, int]] = []
    for e, target in zip(p.outs, p.targets, strict=True):
        parts = work.parts(e)
        if target is None and len(parts) == 2:
            joined.append((len(outs), 2))
        outs.extend(parts)
        if target is None:
            targets.extend([None] * len(parts))
            continue
        mode, (offset,) = target[0], work.parts(target[1])
        if not e.dtype.is_complex or mode in ("set", "add"):
            targets.extend([(mode, offset * 2 if e.dtype.is_complex else offset)] * len(parts))
            continue
        targets.extend(((work.pairing(mode), offset * 2), ("", offset * 2)))
    return Map(tuple(outs), inputs, scalars, tuple(targets), p.apart, p.unit, tuple(joined))


def _reduce(p: Reduce, work: _Work, inputs: tuple[dtype, ...], scalars: tuple[dtype, ...]) -> Reduce:
    elems: list[Expr] = []
    combine: list[str] = []
    for e, how in zip(p.elems, p.combine, strict=True):
        parts = work.parts(e)
        work.acc_at.append(work.accs)
        work.accs += len(parts) + how.startswith("arg")
        if how.startswith("arg"):
            work.acc_at.append(work.accs - 1)
        elems.extend(parts)
        combine.extend([how] * len(parts) if len(parts) == 1 or how == "sum" else [work.pairing(how), ""])
    posts = tuple(x for e in p.posts for x in work.parts(e))
    return Reduce(tuple(elems), tuple(combine), posts, inputs, scalars)


def _rows(p: Rows, work: _Work, inputs: tuple[dtype, ...], scalars: tuple[dtype, ...]) -> Rows:
    first: list[int] = []
    at = 0
    for d in p.out_types:
        first.append(at)
        at += 2 if d.is_complex else 1
    stages: list[tuple[str, Any, Expr]] = []
    for kind, what, e in p.stages:
        parts = work.parts(e)
        if kind == "reduce":
            work.acc_at.append(work.accs)
            work.accs += len(parts)
            hows = [what] * len(parts) if len(parts) == 1 or what == "sum" else [work.pairing(what), ""]
            stages.extend((kind, how, x) for how, x in zip(hows, parts, strict=True))
        else:
            stages.extend((kind, first[what] + k, x) for k, x in enumerate(parts))
    return Rows(tuple(stages), inputs, scalars)


def _scan(p: Scan, work: _Work, inputs: tuple[dtype, ...], scalars: tuple[dtype, ...]) -> Scan:
    parts = work.parts(p.elem)
    work.acc_at = [0, len(parts)]
    how = work.pairing(p.combine) if len(parts) == 2 else p.combine
    posts = tuple(x for e in p.posts for x in work.parts(e))
    if len(parts) == 1:
        return Scan(parts[0], how, posts, inputs, scalars, p.reverse)
    return PairScan(parts[0], parts[1], how, posts, inputs, scalars, p.reverse)


class _Work:
    """Expressions taken apart; nodes are shared between calls."""

    def __init__(self, input_at: list[int], scalar_at: list[int], pairs: bool) -> None:
        self.input_at, self.scalar_at, self.pairs = input_at, scalar_at, pairs
        self.acc_at: list[int] = []
        self.accs = 0
        self.done: dict[Expr, tuple[Expr, ...]] = {}

    def parts(self, e: Expr) -> tuple[Expr, ...]:
        """The real expression, or the pair of the real and the imaginary part."""
        for x in walk((e,)):
            if x not in self.done:
                self.done[x] = self._complex(x) if x.dtype.is_complex else (self._real(x),)
        return self.done[e]

    def pairing(self, how: str) -> str:
        """The name of `how` for complex numbers as pairs."""
        if not self.pairs:
            raise NotImplementedError(f"complex numbers combined by {how}")
        return "c" + how

    def pair(self, e: Expr) -> Pair:
        got = self.done[e]
        return (got[0], got[1]) if len(got) == 2 else (got[0], E.const(0.0, got[0].dtype))

    def _real(self, e: Expr) -> Expr:
        if e.op == "input":
            return E.input(self.input_at[e.value], e.dtype)
        if e.op == "scalar":
            return E.scalar(self.scalar_at[e.value], e.dtype)
        if e.op == "acc":
            return E.acc(self.acc_at[e.value], e.dtype)
        if e.op == "gather":
            return E.gather(self.input_at[e.value], self.done[e.args[0]][0], e.dtype)
        if not any(a.dtype.is_complex for a in e.args):
            return E.make(e.op, e.dtype, tuple(self.done[a][0] for a in e.args), e.value) if e.args else e
        re, im = self.pair(e.args[0])
        if e.op == "real":
            return re
        if e.op == "imag":
            return im
        if e.op == "abs":
            return E.hypot(re, im)
        if e.op == "cast":
            return (re != 0) | (im != 0) if e.dtype.kind == "b" else E.cast(re, e.dtype)
        if e.op in ("eq", "ne"):
            other = self.pair(e.args[1])
            return (re == other[0]) & (im == other[1]) if e.op == "eq" else (re != other[0]) | (im != other[1])
        if e.op in ("lt", "le", "gt", "ge"):
            return _before((re, im), self.pair(e.args[1]), e.op)
        raise NotImplementedError(f"{e.op} of complex numbers")

    def _complex(self, e: Expr) -> Pair:
        d = e.dtype.to_real()
        if e.op == "input":
            k = self.input_at[e.value]
            return E.input(k, d), E.input(k + 1, d)
        if e.op == "scalar":
            k = self.scalar_at[e.value]
            return E.scalar(k, d), E.scalar(k + 1, d)
        if e.op == "acc":
            k = self.acc_at[e.value]
            return E.acc(k, d), E.acc(k + 1, d)
        if e.op == "gather":
            k, offset = self.input_at[e.value], self.done[e.args[0]][0] * 2
            return E.gather(k, offset, d), E.gather(k + 1, offset, d)
        if e.op == "const":
            return E.const(e.value.real, d), E.const(e.value.imag, d)
        if e.op == "complex":
            return self.done[e.args[0]][0], self.done[e.args[1]][0]
        if e.op == "cast":
            re, im = self.pair(e.args[0])
            return E.cast(re, d), E.cast(im, d)
        if e.op == "where":
            c = self.done[e.args[0]][0]
            a, b = self.pair(e.args[1]), self.pair(e.args[2])
            return E.where(c, a[0], b[0]), E.where(c, a[1], b[1])
        rule = _RULES.get(e.op)
        if rule is None:
            raise NotImplementedError(f"{e.op} of complex numbers")
        return rule(*(self.pair(a) for a in e.args))


def _before(a: Pair, b: Pair, op: str) -> Expr:
    """Complex numbers in the order of their real parts, then of their imaginary parts; NaN is in none."""
    less = E.compare("lt" if op in ("lt", "le") else "gt", a[0], b[0])
    return (less & (a[1] == a[1]) & (b[1] == b[1])) | ((a[0] == b[0]) & E.compare(op, a[1], b[1]))


def _extreme(op: str) -> Callable[[Pair, Pair], Pair]:
    def choose(a: Pair, b: Pair) -> Pair:
        nan = (a[0] != a[0]) | (a[1] != a[1])
        first = nan | (_before(a, b, op) & (b[0] == b[0]) & (b[1] == b[1]))
        return E.where(first, a[0], b[0]), E.where(first, a[1], b[1])
    return choose


# --------------------------------------------------------------------------------------------------------- arithmetic
def _mul(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _div(a: Pair, b: Pair) -> Pair:
    wide = E.abs_(b[0]) >= E.abs_(b[1])
    big, small = E.where(wide, b[0], b[1]), E.where(wide, b[1], b[0])
    nought = (b[0] == 0) & (b[1] == 0)
    ratio = E.where(nought, small, small / big)
    scale = 1.0 / (big + small * ratio)
    x, y = E.where(wide, a[0], a[1]), E.where(wide, a[1], a[0])
    re = (x + y * ratio) * scale
    im = E.where(wide, y - x * ratio, x * ratio - y) * scale
    zero = E.abs_(b[0])
    return E.where(nought, a[0] / zero, re), E.where(nought, a[1] / zero, im)


def _scale(a: Pair, k: float) -> Pair:
    return a[0] * k, a[1] * k


def _add(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def _sub(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


def _neg(a: Pair) -> Pair:
    return -a[0], -a[1]


def _one(like: Pair) -> Pair:
    return E.const(1.0, like[0].dtype), E.const(0.0, like[0].dtype)


def _times_i(a: Pair) -> Pair:
    return -a[1], a[0]


def _over_i(a: Pair) -> Pair:
    return a[1], -a[0]


# ---------------------------------------------------------------------------------------------------------- functions
# At zeros and infinities these have the values of C99's annex G: where a part is 0 or beyond all size, it is that whatever the other part is.
def _endless(x: Expr) -> Expr:
    return E.abs_(x) == float("inf")


def _aimless(y: Expr) -> Expr:
    """Whether an angle has no direction: it is infinite, or no number."""
    return y - y != 0.0


def _exp(a: Pair) -> Pair:
    size, lost = E.exp(a[0]), _endless(a[0]) & _aimless(a[1])
    # a real argument stays real, at infinity too
    return (E.where((a[1] == 0) | lost, size, size * E.cos(a[1])),
            E.where(a[1] == 0, a[1], E.where(lost & (a[0] < 0.0), E.copysign(size, a[1]), size * E.sin(a[1]))))


def _log(a: Pair) -> Pair:
    return E.log(E.hypot(a[0], a[1])), E.atan2(a[1], a[0])


def _log1p(a: Pair) -> Pair:
    re, im = a
    near = (E.abs_(re) < 0.5) & (E.abs_(im) < 0.5)  # elsewhere |1 + a|^2 - 1 says less of |1 + a| than 1 + a itself: next to -1, nothing
    size = E.where(near, E.log1p(re * (re + 2.0) + im * im) * 0.5, E.log(E.hypot(re + 1.0, im)))
    return size, E.atan2(im, re + 1.0)


def _sqrt(a: Pair) -> Pair:
    re, im = a
    t = E.sqrt((E.abs_(re) + E.hypot(re, im)) * 0.5)
    half = E.where(t == 0, E.abs_(im), E.abs_(im) / (t * 2.0))
    right, tall = E.const(0.0, re.dtype) <= re, _endless(im)
    return E.where(tall, E.abs_(im), E.where(right, t, half)), E.where(tall, im, E.copysign(E.where(right, half, t), im))


def _sin(a: Pair) -> Pair:
    return _over_i(_sinh(_times_i(a)))


def _cos(a: Pair) -> Pair:
    return _cosh(_times_i(a))


def _sinh(a: Pair) -> Pair:
    x, y = a
    re = E.where(_endless(x) & _aimless(y), E.abs_(x), E.sinh(x) * E.cos(y))
    return E.where(x == 0.0, x, re), E.where(y == 0.0, y, E.cosh(x) * E.sin(y))


def _cosh(a: Pair) -> Pair:
    x, y = a
    im = E.where(x == 0.0, x * E.copysign(1.0, y), E.sinh(x) * E.sin(y))
    return E.where(_endless(x) & _aimless(y), E.abs_(x), E.cosh(x) * E.cos(y)), E.where(y == 0.0, y * E.copysign(1.0, x), im)


def _tanh(a: Pair) -> Pair:
    x, y = a[0] * 2.0, a[1] * 2.0
    below = E.cosh(x) + E.cos(y)
    far = E.abs_(a[0]) > 20.0  # cosh would overflow, and the real part is 1 to the last bit
    small = E.exp(-E.abs_(x))
    im = E.where(far, E.where(_endless(x) & _aimless(y), E.copysign(small, y), E.sin(y) * 2.0 * small), E.sin(y) / below)
    return E.where(x == 0.0, a[0], E.where(far, E.copysign(1.0, a[0]), E.sinh(x) / below)), E.where(y == 0.0, a[1], im)


def _asinh(a: Pair) -> Pair:
    return _over_i(_asin(_times_i(a)))


def _asin(a: Pair) -> Pair:
    # Hull, Fairgrieve and Tang (ACM TOMS 23(3), 1997), their rescue of tiny values left out: on the ellipse through z
    # with foci -1 and 1, `half` is the longer half axis; gap = 2 (half - x) and over = half - 1 without cancellation
    x, y = E.abs_(a[0]), E.abs_(a[1])
    r, s = E.hypot(x + 1.0, y), E.hypot(x - 1.0, y)
    half, square = (r + s) * 0.5, y * y
    far = square / (r + (x + 1.0))
    gap = far + E.where(x <= 1.0, s + (1.0 - x), square / (s + (x - 1.0)))
    over = (far + E.where(x < 1.0, square / (s + (1.0 - x)), s + (x - 1.0))) * 0.5
    wide = _wide(x, y)  # where squares may overflow, the half axes are |z|, but for 1 / |z|^2 of it
    re = E.where(wide, E.atan2(x, y), E.atan2(x, E.sqrt((half + x) * gap * 0.5)))
    im = E.where(wide, E.log(E.hypot(x * 0.5, y * 0.5)) + math.log(4.0), E.log1p(over + E.sqrt(over * (half + 1.0))))
    return E.where(x == 0.0, a[0], E.copysign(re, a[0])), E.copysign(im, a[1])


def _wide(x: Expr, y: Expr) -> Expr:
    return (x > 1e8) | (y > 1e8)


def _acos(a: Pair) -> Pair:
    re, im = _asin(a)
    return math.pi / 2 - re, -im


def _acosh(a: Pair) -> Pair:
    re, im = _acos(a)
    return E.abs_(im), E.copysign(re, a[1])


def _atanh(a: Pair) -> Pair:
    x, y = a
    size = E.abs_(x)
    gap = (1.0 - size) * (1.0 - size) + y * y
    wide, over = _wide(size, E.abs_(y)), E.hypot(x, y)
    endless = _endless(over)
    small = E.where(endless, E.copysign(0.0, x), x / over / over)
    flat = E.where(y != y, y, E.copysign(math.pi / 2, y))
    return (E.where(x == 0.0, x, E.where(wide, small, E.copysign(E.log1p(size * 4.0 / gap) * 0.25, x))),
            E.where(endless, flat, E.atan2(y * 2.0, (1.0 - x) * (x + 1.0) - y * y) * 0.5))


def _pow(a: Pair, b: Pair) -> Pair:
    re, im = _exp(_mul(b, _log(a)))
    nought, none = (a[0] == 0) & (a[1] == 0), (b[0] == 0) & (b[1] == 0)  # anything to the power of 0 is 1, here as in NumPy
    zero = E.const(0.0, re.dtype)
    re = E.where(none, zero + 1.0, E.where(nought & (b[0] > 0.0), zero, re))
    return re, E.where(none | (nought & (b[0] > 0.0)), zero, im)


_RULES: dict[str, Callable[..., Pair]] = {
    "neg": _neg, "add": _add, "sub": _sub, "mul": _mul, "div": _div, "exp": _exp, "log": _log, "log1p": _log1p,
    "sqrt": _sqrt, "sin": _sin, "cos": _cos, "sinh": _sinh, "cosh": _cosh, "tanh": _tanh, "asin": _asin, "acos": _acos,
    "asinh": _asinh, "acosh": _acosh, "atanh": _atanh, "pow": _pow,
    "tan": lambda a: _over_i(_tanh(_times_i(a))),
    "atan": lambda a: _over_i(_atanh(_times_i(a))),
    "exp2": lambda a: _exp(_scale(a, math.log(2.0))),
    "expm1": lambda a: _sub(_exp(a), _one(a)),
    "log2": lambda a: _scale(_log(a), 1 / math.log(2.0)),
    "log10": lambda a: _scale(_log(a), 1 / math.log(10.0)),
    "rsqrt": lambda a: _div(_one(a), _sqrt(a)),
    "maximum": _extreme("ge"), "minimum": _extreme("le"), "round": lambda a: (E.round_(a[0]), E.round_(a[1])),
}
