"""The expression language: typed, hash-consed expressions over the elements of a loop domain.

A formula is a Python function from `Expr` to `Expr` (or a tuple of them), written with operators and the functions of
this module.  Equal expressions are the same object, so a tree is its own key and derivatives share subterms.

Leaves
  ``input(i, dtype)``   the current element of operand i
  ``scalar(i, dtype)``  the i-th Python number passed at launch
  ``const(v, dtype)``   a number fixed in the program
  ``coord(d)``          int64 coordinate along axis d of the domain; ``coord(-1)`` is the innermost axis
  ``acc(i, dtype)``     the i-th finished reduction of a row program (see `programs`)
  ``gather(i, off, d)`` the element of operand i at element offset `off` (an int64 expression) from its start

Integer arithmetic wraps; `floordiv`/`rem` round towards minus infinity, `truncdiv`/`fmod` towards zero; `maximum` and
`minimum` give NaN when either side is NaN; casts from float to integer truncate; float to bool is ``x != 0``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtypes import (
    bool_,
    dtype,
    float32,
    get_default_dtype,
    int64,
    promote_types,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Number = bool | int | float | complex

# Every primitive by arity and by what it gives for operands of one type: the same type ("same") or bool ("bool").
UNARY = frozenset("""neg abs not sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh
 asinh acosh atanh erf erfc lgamma floor ceil round trunc""".split())
BINARY = frozenset("""add sub mul div floordiv truncdiv rem fmod pow maximum minimum and or xor shl shr atan2 hypot copysign
 nextafter""".split())
COMPARE = frozenset("lt le gt ge eq ne".split())
FLOAT_ONLY = frozenset("""sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
 atanh erf erfc lgamma div atan2 hypot copysign nextafter""".split())


class Expr:
    """A node: `op`, `dtype`, `args` (child expressions) and `value` (leaf data: index, number, axis).  Immutable."""

    __slots__ = ("op", "dtype", "args", "value", "id", "__weakref__")
    op: str
    dtype: dtype
    args: tuple[Expr, ...]
    value: Any
    id: int

    # comparisons build expressions, so identity is the only equality and the only hash
    __hash__ = object.__hash__

    def __add__(self, o: Any) -> Expr: return add(self, o)
    def __radd__(self, o: Any) -> Expr: return add(o, self)
    def __sub__(self, o: Any) -> Expr: return sub(self, o)
    def __rsub__(self, o: Any) -> Expr: return sub(o, self)
    def __mul__(self, o: Any) -> Expr: return mul(self, o)
    def __rmul__(self, o: Any) -> Expr: return mul(o, self)
    def __truediv__(self, o: Any) -> Expr: return div(self, o)
    def __rtruediv__(self, o: Any) -> Expr: return div(o, self)
    def __floordiv__(self, o: Any) -> Expr: return binary("floordiv", self, o)
    def __rfloordiv__(self, o: Any) -> Expr: return binary("floordiv", o, self)
    def __mod__(self, o: Any) -> Expr: return binary("rem", self, o)
    def __rmod__(self, o: Any) -> Expr: return binary("rem", o, self)
    def __pow__(self, o: Any) -> Expr: return pow_(self, o)
    def __rpow__(self, o: Any) -> Expr: return pow_(o, self)
    def __and__(self, o: Any) -> Expr: return binary("and", self, o)
    def __rand__(self, o: Any) -> Expr: return binary("and", o, self)
    def __or__(self, o: Any) -> Expr: return binary("or", self, o)
    def __ror__(self, o: Any) -> Expr: return binary("or", o, self)
    def __xor__(self, o: Any) -> Expr: return binary("xor", self, o)
    def __rxor__(self, o: Any) -> Expr: return binary("xor", o, self)
    def __lshift__(self, o: Any) -> Expr: return binary("shl", self, o)
    def __rshift__(self, o: Any) -> Expr: return binary("shr", self, o)
    def __neg__(self) -> Expr: return unary("neg", self)
    def __pos__(self) -> Expr: return self
    def __invert__(self) -> Expr: return unary("not", self)
    def __abs__(self) -> Expr: return unary("abs", self)
    def __lt__(self, o: Any) -> Expr: return compare("lt", self, o)
    def __le__(self, o: Any) -> Expr: return compare("le", self, o)
    def __gt__(self, o: Any) -> Expr: return compare("gt", self, o)
    def __ge__(self, o: Any) -> Expr: return compare("ge", self, o)
    def __eq__(self, o: Any) -> Expr: return compare("eq", self, o)  # type: ignore[override]
    def __ne__(self, o: Any) -> Expr: return compare("ne", self, o)  # type: ignore[override]

    def __bool__(self) -> bool:
        raise TypeError("a formula's value is not known while it is being built: write where(condition, a, b) instead of "
                        "`if`, and `&`, `|`, `~` instead of `and`, `or`, `not`")

    def __repr__(self) -> str:
        return show(self)


_table: dict[Any, Expr] = {}


def make(op: str, d: dtype, args: tuple[Expr, ...] = (), value: Any = None) -> Expr:
    """The one node of this description."""
    key = (op, d, args, value) if op != "const" else (op, d, _const_key(value))
    found = _table.get(key)
    if found is None:
        found = Expr()
        found.op, found.dtype, found.args, found.value, found.id = op, d, args, value, len(_table)
        _table[key] = found
    return found


def _const_key(v: Number) -> Any:
    # 0.0 and -0.0 are equal, 1 and True too, and NaN differs from itself: the text tells them apart
    return repr(v)


def input(i: int, d: dtype) -> Expr:  # noqa: A001 (the language's own word)
    return make("input", d, (), i)


def scalar(i: int, d: dtype) -> Expr:
    return make("scalar", d, (), i)


def acc(i: int, d: dtype) -> Expr:
    return make("acc", d, (), i)


def coord(axis: int) -> Expr:
    return make("coord", int64, (), axis)


def gather(operand: int, offset: Expr, d: dtype) -> Expr:
    return make("gather", d, (cast(offset, int64),), operand)


def const(v: Number, d: dtype) -> Expr:
    """The number `v` in type `d`; integers wrap into range, floats of a bool type become their truth."""
    if d.kind == "b":
        v = bool(v)
    elif d.kind in "ui":
        v = int(v.real if isinstance(v, complex) else v) & ((1 << d.itemsize * 8) - 1)
        if d.is_signed and v >> (d.itemsize * 8 - 1):
            v -= 1 << d.itemsize * 8
    elif d.kind == "f":
        v = float(v.real if isinstance(v, complex) else v)
    else:
        v = complex(v)
    return make("const", d, (), v)


def is_const(e: Expr, v: float | None = None) -> bool:
    return e.op == "const" and (v is None or (e.value == v and not (v == 0 and math.copysign(1, e.value.real) < 0)))


def lift(v: Any, like: Expr) -> Expr:
    """A Python number as a constant that combines with `like` as PyTorch's wrapped numbers do."""
    if isinstance(v, Expr):
        return v
    if isinstance(v, bool):
        d = like.dtype
    elif isinstance(v, int):
        d = like.dtype if like.dtype.kind != "b" else int64
    elif isinstance(v, float):
        d = like.dtype if like.dtype.kind in "fc" else get_default_dtype()
    elif isinstance(v, complex):
        d = like.dtype.to_complex()
    else:
        raise TypeError(f"a formula combines expressions and numbers, not {type(v).__name__}")
    return const(v, d)


def cast(e: Expr, d: dtype) -> Expr:
    if e.dtype is d:
        return e
    if e.op == "const":
        return const(_cast_number(e.value, e.dtype, d), d)
    return make("cast", d, (e,))


def _cast_number(v: Number, source: dtype, target: dtype) -> Number:
    if target.kind in "ui" and source.kind == "f" and not math.isfinite(v.real):
        return -(1 << 63)
    return v


def _pair(a: Any, b: Any) -> tuple[Expr, Expr]:
    if not isinstance(a, Expr):
        a = lift(a, b)
    elif not isinstance(b, Expr):
        b = lift(b, a)
    if a.dtype is not b.dtype:
        d = promote_types(a.dtype, b.dtype)
        a, b = cast(a, d), cast(b, d)
    return a, b


def unary(op: str, a: Expr) -> Expr:
    if op in FLOAT_ONLY and a.dtype.kind in "bui":
        a = cast(a, get_default_dtype())
    d = a.dtype.to_real() if op == "abs" else a.dtype
    if op == "neg" and a.op == "neg":
        return a.args[0]
    if op == "neg" and a.op == "const" and a.dtype.kind != "b":
        return const(-a.value, d)
    if op in ("floor", "ceil", "round", "trunc") and a.dtype.kind in "bui":
        return a
    return make(op, d, (a,))


def binary(op: str, a: Any, b: Any) -> Expr:
    a, b = _pair(a, b)
    if op in FLOAT_ONLY and a.dtype.kind in "bui":
        d = get_default_dtype()
        a, b = cast(a, d), cast(b, d)
    return make(op, a.dtype, (a, b))


def compare(op: str, a: Any, b: Any) -> Expr:
    return make(op, bool_, _pair(a, b))


# Only identities that hold for every value, NaN, infinities and signed zeros included, are folded here; the gradient
# builder, which may assume more, has its own.
def add(a: Any, b: Any) -> Expr:
    return binary("add", a, b)


def sub(a: Any, b: Any) -> Expr:
    return binary("sub", a, b)


def mul(a: Any, b: Any) -> Expr:
    a, b = _pair(a, b)
    if is_const(a, 1):
        return b  # type: ignore[no-any-return]
    if is_const(b, 1):
        return a  # type: ignore[no-any-return]
    return make("mul", a.dtype, (a, b))


def div(a: Any, b: Any) -> Expr:
    a, b = _pair(a, b)
    return a if is_const(b, 1) and a.dtype.kind in "fc" else binary("div", a, b)


def pow_(a: Any, b: Any) -> Expr:
    """a to the power b; small constant integer exponents become products, which every target does exactly alike."""
    if isinstance(b, (int, float)) and isinstance(a, Expr) and b == int(b) if _finite(b) else False:
        n = int(b)
        if n == 1:
            return a  # type: ignore[no-any-return]
        if n in (2, 3) and a.dtype.kind in "fuic":
            return a * a if n == 2 else a * a * a  # type: ignore[no-any-return]
    return binary("pow", a, b)


def _finite(b: Any) -> bool:
    return isinstance(b, (int, float)) and math.isfinite(b)


def where(c: Any, a: Any, b: Any) -> Expr:
    """a where c is true, else b."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        like = const(0.0, get_default_dtype()) if isinstance(a, float) or isinstance(b, float) else const(0, int64)
        a = lift(a, like)
    a, b = _pair(a, b)
    c = to_bool(c)
    if a is b:
        return a  # type: ignore[no-any-return]
    if c.op == "const":
        return a if c.value else b  # type: ignore[no-any-return]
    return make("where", a.dtype, (c, a, b))


def to_bool(c: Any) -> Expr:
    return cast(c, bool_) if isinstance(c, Expr) else const(bool(c), bool_)


def bitcast(e: Expr, d: dtype) -> Expr:
    """The same bits read as type `d` of the same size."""
    return make("bitcast", d, (e,))


def isnan(a: Expr) -> Expr:
    return compare("ne", a, a) if a.dtype.kind in "fc" else const(False, bool_)


def _unary_function(op: str) -> Callable[[Any], Expr]:
    def call(a: Any) -> Expr:
        return unary(op, a if isinstance(a, Expr) else const(a, get_default_dtype()))
    call.__name__ = call.__qualname__ = op
    call.__doc__ = f"The primitive `{op}` of one expression."
    return call


def _binary_function(op: str) -> Callable[[Any, Any], Expr]:
    def call(a: Any, b: Any) -> Expr:
        return binary(op, a, b)
    call.__name__ = call.__qualname__ = op
    call.__doc__ = f"The primitive `{op}` of two expressions."
    return call


sqrt, rsqrt, exp, exp2, expm1 = map(_unary_function, ("sqrt", "rsqrt", "exp", "exp2", "expm1"))
log, log2, log10, log1p = map(_unary_function, ("log", "log2", "log10", "log1p"))
sin, cos, tan, asin, acos, atan = map(_unary_function, ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, tanh, asinh, acosh, atanh = map(_unary_function, ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
erf, erfc, lgamma = map(_unary_function, ("erf", "erfc", "lgamma"))
floor, ceil, round_, trunc, abs_ = map(_unary_function, ("floor", "ceil", "round", "trunc", "abs"))
maximum, minimum, atan2, hypot = map(_binary_function, ("maximum", "minimum", "atan2", "hypot"))
copysign, nextafter, fmod, rem = map(_binary_function, ("copysign", "nextafter", "fmod", "rem"))
floordiv, truncdiv, shl, shr = map(_binary_function, ("floordiv", "truncdiv", "shl", "shr"))


# Complex values.  Renderers see only real types: `complexes.lower` rewrites a program into pairs of reals first.
def real(a: Expr) -> Expr:
    return make("real", a.dtype.to_real(), (a,)) if a.dtype.is_complex else a


def imag(a: Expr) -> Expr:
    return make("imag", a.dtype.to_real(), (a,)) if a.dtype.is_complex else const(0, a.dtype)


def convert(e: Expr, d: dtype) -> Expr:
    """A value in another type, as assignments and casts of tensors have it: a real type takes a complex number's real part, and a
    truth says whether either part is other than 0."""
    if e.dtype.is_complex and not d.is_complex:
        return (real(e) != 0) | (imag(e) != 0) if d.kind == "b" else cast(real(e), d)
    return cast(e, d)


def complex_(re: Any, im: Any) -> Expr:
    re, im = _pair(re, im)
    if re.dtype.to_complex().to_real() is not re.dtype:
        re, im = cast(re, float32), cast(im, float32)
    return make("complex", re.dtype.to_complex(), (re, im))


def conj(a: Expr) -> Expr:
    return complex_(real(a), -imag(a)) if a.dtype.is_complex else a


def walk(roots: tuple[Expr, ...], known: Iterable[Expr] = ()) -> Iterator[Expr]:
    """Every node once, children before parents, without recursion (formulas can be deep); not those that are known, nor what only they need."""
    seen: set[Expr] = set(known)
    stack: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        e, ready = stack.pop()
        if ready:
            yield e
        elif e not in seen:
            seen.add(e)
            stack.append((e, True))
            stack.extend((c, False) for c in reversed(e.args) if c not in seen)


def rebuild(roots: tuple[Expr, ...], change: Callable[[Expr], Expr | None]) -> tuple[Expr, ...]:
    """The expressions with each node replaced by `change(node)` where that is not None; children are rebuilt first."""
    done: dict[Expr, Expr] = {}
    for e in walk(roots):
        new = change(e)
        if new is None:
            args = tuple(done[a] for a in e.args)
            new = e if args == () or all(x is y for x, y in zip(args, e.args, strict=True)) else make(e.op, e.dtype, args, e.value)
        done[e] = new
    return tuple(done[r] for r in roots)


def show(e: Expr) -> str:
    """The expression as text, which also serves as a stable key across processes."""
    text: dict[Expr, str] = {}
    for x in walk((e,)):
        if x.args:
            value = "" if x.value is None else f"[{x.value}]"
            text[x] = f"{x.op}{value}:{x.dtype.name}({','.join(text[a] for a in x.args)})"
        else:
            text[x] = f"{x.op}[{x.value!r}]:{x.dtype.name}"
    return text[e]


def program_text(roots: tuple[Expr, ...]) -> str:
    """All expressions as one numbered listing, linear in the number of nodes: the disk cache's key."""
    number: dict[Expr, int] = {}
    lines = []
    for x in walk(roots):
        number[x] = len(number)
        lines.append(f"{x.op}[{x.value!r}]:{x.dtype.name}({','.join(str(number[a]) for a in x.args)})")
    lines.append("-> " + ",".join(str(number[r]) for r in roots))
    return "\n".join(lines)
