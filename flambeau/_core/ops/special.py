"""Special functions: Bessel, Airy, gamma and zeta functions, the normal distribution, orthogonal polynomials."""

from __future__ import annotations

import importlib
import math
from typing import Any

from .. import dtypes, layout
from ..autograd import tape
from ..engine.operation import Operation
from ..kernels import expr as E
from ..kernels.expr import Expr, where
from ..kernels.interpret import memory
from ..kernels.programs import Map
from ..tensor import Tensor, empty, meta, new
from . import launch
from .casts import to_dtype
from .copies import contiguous
from .elementwise import Pointwise
from .results import named
from .table import op, pointwise


def _b() -> Any:
    """The formulas, loaded when one is first asked for."""
    return importlib.import_module("...kernels.bessel", __name__)


def _row(name: str, formula: str, *aliases: str, grad: Any = None, top: bool = False, doc: str = "") -> None:
    pointwise(name, "input", lambda x: getattr(_b(), formula)(x), promote="float", accept="buif", aliases=aliases, grad=grad,
              spaces=("torch",) if top else ("special",), method=top, inplace=top, doc=doc)


_row("i0", "i0", "special.i0", top=True, grad=lambda g, x, y: g * _b().i1(x), doc="The modified Bessel function of the first kind, order 0.")
_row("i0e", "i0e", grad=lambda g, x, y: g * (_b().i1e(x) - _sign(x) * y), doc="exp(-|x|) i0(x).")
_row("i1", "i1", grad=lambda g, x, y: g * where(x == 0.0, E.const(0.5, x.dtype), _b().i0(x) - y / x),
     doc="The modified Bessel function of the first kind, order 1.")
_row("i1e", "i1e", grad=lambda g, x, y: g * where(x == 0.0, E.const(0.5, x.dtype), _b().i0e(x) - y * (_sign(x) + 1.0 / x)), doc="exp(-|x|) i1(x).")
for _name, _formula, _text in (
        ("bessel_j0", "j0", "The Bessel function of the first kind, order 0."), ("bessel_j1", "j1", "The same of order 1."),
        ("bessel_y0", "y0", "The Bessel function of the second kind, order 0."), ("bessel_y1", "y1", "The same of order 1."),
        ("modified_bessel_i0", "i0", "The modified Bessel function of the first kind, order 0."),
        ("modified_bessel_i1", "i1", "The same of order 1."),
        ("modified_bessel_k0", "k0", "The modified Bessel function of the second kind, order 0."),
        ("modified_bessel_k1", "k1", "The same of order 1."), ("scaled_modified_bessel_k0", "k0_scaled", "exp(x) modified_bessel_k0(x)."),
        ("scaled_modified_bessel_k1", "k1_scaled", "exp(x) modified_bessel_k1(x)."),
        ("spherical_bessel_j0", "spherical_j0", "sin(x) / x."), ("airy_ai", "airy_ai", "The Airy function Ai.")):
    _row(_name, _formula, doc=_text)
_row("ndtr", "ndtr", doc="The standard normal distribution function.")
_row("log_ndtr", "log_ndtr", grad=lambda g, x, y: g * (math.sqrt(2 / math.pi) / _b().erfcx(x * -math.sqrt(0.5))), doc="log(ndtr(x)).")
_row("ndtri", "ndtri", grad=lambda g, x, y: g * math.sqrt(2 * math.pi) * E.exp(0.5 * y * y), doc="The inverse of `ndtr` on (0, 1).")
_row("erfcx", "erfcx", grad=lambda g, x, y: g * (2.0 * x * y - 2.0 / math.sqrt(math.pi)), doc="exp(x²) erfc(x).")


def _sign(x: Expr) -> Expr:
    return where(x > 0.0, E.const(1, x.dtype), where(x < 0.0, E.const(-1, x.dtype), 0.0 * x))  # NaN as it is


def _entr(x: Expr) -> Expr:
    inside = where(x > 0.0, -x * E.log(x), where(x == 0.0, E.const(0, x.dtype), E.const(-math.inf, x.dtype)))
    return where(E.isnan(x), x, inside)


pointwise("entr", "input", _entr, promote="float", accept="buif", spaces=("special",), method=False, inplace=False,
          grad=lambda g, x, y: g * (-1.0 - E.log(x)), doc="-x log(x); 0 at 0, -inf below.")
pointwise("zeta", "input other", lambda s, q: _b().zeta(s, q), promote="float", accept="buif", spaces=("special",), method=False, inplace=False,
          tensors=0, grad=lambda g, s, q, y: (0.0 * g, -g * s * _b().zeta(s + 1.0, q)), lacks="first",
          doc="Hurwitz's zeta function, the sum over k >= 0 of (k + other) ** -input.")


# ------------------------------------------------------------------------------------------------------------------ gamma
def _polygamma(x: Expr, n: int) -> Expr:
    from ..kernels import special
    return special.polygamma(n, x)


_POLYGAMMA = pointwise("_polygamma", "input", _polygamma, promote="float", accept="buif", consts={"n": 0}, method=False, inplace=False,
                       out=False, spaces=())


@op(method=False, out=True, aliases=("special.polygamma",), batch="pointwise", out_type="castable")
def polygamma(n: Any, input: Any) -> Tensor:  # noqa: A002
    """The n-th derivative of digamma.  Raises RuntimeError for a negative n."""
    if isinstance(n, Tensor) and not isinstance(input, Tensor):
        n, input = input, n  # noqa: A001 (the method's order)
    made: Tensor = _POLYGAMMA((input,), (), _order(n))
    return made


def _order(n: Any) -> tuple[tuple[str, int]]:
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"polygamma(): argument 'n' (position 1) must be int, not {type(n).__name__}")
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return (("n", n),)


def _polygamma_(self: Tensor, n: int) -> Any:
    """`polygamma`, in place."""
    return _POLYGAMMA.planned_inplace((self,), (), _order(n))


_methods: Any = Tensor  # the methods take their arguments in the other order than the function


def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """`torch.polygamma(n, self)`."""
    return polygamma(n, self)


_methods.polygamma = _polygamma_method
_methods.polygamma_ = Operation("polygamma_", _polygamma_, planned=True).function


_MOST_TERMS = 1 << 30  # some ten seconds
_AT_ONCE = 1 << 18


@op(out=True, inplace=True, aliases=("special.multigammaln",), batch="pointwise", out_type="castable")
def mvlgamma(input: Tensor, p: int) -> Tensor:  # noqa: A002
    """The logarithm of the multivariate gamma function of dimension p, for input > (p - 1) / 2."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    x = input if input.meta.dtype.is_floating_point else to_dtype(input, dtypes.get_default_dtype())
    d = x.meta.dtype
    x = to_dtype(x, d.opmath)  # the terms are summed before the sum is rounded
    terms = p * x.meta.numel
    if terms > _MOST_TERMS:
        raise RuntimeError(f"mvlgamma: p of {p} for an input of {x.meta.numel} elements asks for {terms} terms: at most {_MOST_TERMS} are summed")
    from .ranges import arange
    step = max(1, _AT_ONCE // max(x.meta.numel, 1))
    total: Any = 0
    for first in range(0, p if x.meta.numel else 1, step):  # a part at a time: the terms are never all held, and Ctrl-C is heard between parts
        halves = arange(first, min(first + step, p), dtype=x.meta.dtype, device=x.meta.device) * 0.5
        total = total + (x.unsqueeze(-1) - halves).lgamma().sum(-1)
    return to_dtype(total + p * (p - 1) * 0.25 * math.log(math.pi), d)


def _host(name: str, function: Any, ins: tuple[Tensor, ...], results: tuple[Any, ...]) -> list[Tensor]:
    """A NumPy function on the values of contiguous tensors of one shape, as a library routine on their device's queue."""
    held = [contiguous(t) for t in ins]
    m = held[0].meta
    if any(t.meta.shape != m.shape for t in held):
        raise RuntimeError(f"{name}: the operands must have one shape, got {', '.join(str(list(t.meta.shape)) for t in held)}")
    outs = [empty(m.shape, d, m.device) for d in results]
    shape, kinds, n = tuple(m.shape), [t.meta.dtype for t in held], len(outs)

    def entry(*addresses: int) -> None:
        def view(address: int, d: Any) -> Any:
            return memory(address, shape, layout.contiguous_strides(shape), d)
        found = function(*[view(a, d) for a, d in zip(addresses[n:], kinds, strict=True)])
        for a, d, f in zip(addresses[:n], results, found if isinstance(found, tuple) else (found,), strict=True):
            view(a, d)[...] = f
    if m.numel:
        launch.routine(name, entry, outs, held, nbytes=sum(t.meta.nbytes for t in (*outs, *held)))
    return outs


def _stepwise(name: str, x: Tensor, y: Tensor) -> Tensor:
    """A function of two elements that takes as many steps as they ask for, on tensors of one type and shape: a library routine on their device's queue."""
    from ..kernels.specs import Stepwise
    from .routines import require
    shape = tuple(x.meta.shape)
    strides = layout.result_strides(shape, [(shape, x.meta.strides), (shape, y.meta.strides)])
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])  # the result's elements, in the order of memory
    x, y = contiguous(x.permute(order)), contiguous(y.permute(order))
    out = new(meta(shape, strides, x.meta.dtype, x.meta.device))
    if out.meta.numel:
        require(out.meta.device, Stepwise(name, out.meta.dtype, out.meta.numel), (out.ptr, x.ptr, y.ptr))
    return out


def _paired(name: str, a: Any, b: Any, numbers: bool = False) -> tuple[Tensor, Tensor]:
    if not numbers:
        for i, (param, x) in enumerate((("input", a), ("other", b)), 1):
            if not isinstance(x, Tensor):
                raise TypeError(f"{name}(): argument '{param}' (position {i}) must be Tensor, not {type(x).__name__}")
    from .checks import scalar_tensor, to_one_device
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(a).__name__}")
    like = a if isinstance(a, Tensor) else b
    a, b = (x if isinstance(x, Tensor) else scalar_tensor(x, like) for x in (a, b))
    from .queries import result_type
    common = result_type(a, b)
    x, y = to_one_device(name, (a, b))
    from ..layout import broadcast_shapes
    shape = broadcast_shapes(x.meta.shape, y.meta.shape)
    return to_dtype(x, common).expand(shape), to_dtype(y, common).expand(shape)


def _gamma_pair(name: str, input: Tensor, other: Tensor, upper: bool) -> Tensor:  # noqa: A002
    a, x = _paired(name, input, other)
    if a.meta.dtype.kind not in "f":
        raise NotImplementedError(f"\"{name}\" not implemented for '{a.meta.dtype.name.capitalize()}'")
    if a.meta.dtype.itemsize == 2:
        return to_dtype(_gamma_pair(name, to_dtype(a, dtypes.float32), to_dtype(x, dtypes.float32), upper), a.meta.dtype)
    out = _stepwise(name, a, x)

    def back(node: Any, g: Tensor) -> Any:
        ea, _ = node[tape.EDGES]
        if ea is not None:
            raise NotImplementedError(f"{name}: the derivative with respect to 'input' is not implemented, as in PyTorch")
        p, q = tape.kept(node, node[tape.SAVED])
        slope = (-q + (p - 1) * q.log() - p.lgamma()).exp()
        return None, g * (-slope if upper else slope)
    return tape.record(out, back, (a, x), tape.keep(a, x), "IgammacBackward0" if upper else "IgammaBackward0")


@op(out=True, inplace=True, aliases=("special.gammainc",), batch="pointwise", out_apart="but itself")
def igamma(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """The regularized lower incomplete gamma function P(input, other).  Differentiable in `other`."""
    return _gamma_pair("igamma", input, other, False)


@op(out=True, inplace=True, aliases=("special.gammaincc",), batch="pointwise", out_apart="but itself")
def igammac(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """The regularized upper incomplete gamma function Q(input, other).  Differentiable in `other`."""
    return _gamma_pair("igammac", input, other, True)


# ---------------------------------------------------------------------------------------------------------------- integers
def _divisors(name: str, input: Any, other: Any) -> Tensor:  # noqa: A002
    a, b = _paired(name, input, other)
    if a.meta.dtype.kind not in "ui":
        raise NotImplementedError(f"\"{name}\" not implemented for '{a.meta.dtype.name.capitalize()}'")
    return _stepwise(name, a, b)


@op(out=True, inplace=True, batch="pointwise", out_type="castable")
def gcd(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """The greatest common divisor of integers; gcd(0, 0) is 0."""
    return _divisors("gcd", input, other)


@op(out=True, inplace=True, batch="pointwise", out_type="castable")
def lcm(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """The least common multiple of integers, never negative."""
    return _divisors("lcm", input, other)


_FREXP = named("frexp", "mantissa exponent")
_PARTS = {dtypes.float32: (dtypes.int32, 23, 8), dtypes.float64: (dtypes.int64, 52, 11)}  # the bits as integers, those of the fraction, of the exponent


def _frexp(x: Expr) -> tuple[Expr, Expr]:
    """The parts of an IEEE number: bits of its exponent are read, and those of -1 put in their place."""
    whole, fraction, wide = _PARTS[x.dtype]
    most = (1 << wide) - 1

    def exponent(v: Expr) -> Expr:
        return E.shr(E.bitcast(v, whole), E.const(fraction, whole)) & E.const(most, whole)
    small = (exponent(x) == 0) & (x != 0.0)  # no bit of the fraction is left out: multiplied, they are no longer so small
    y = where(small, x * 2.0 ** (fraction + 1), x)
    e = exponent(y)
    kept = E.bitcast(y, whole) & E.const(~(most << fraction), whole)
    itself = (x == 0.0) | (e == most)
    mantissa = where(itself, x, E.bitcast(kept | E.const((most >> 1) - 1 << fraction, whole), x.dtype))
    less = where(small, E.const(fraction + 1, whole), E.const(0, whole))
    return mantissa, E.cast(where(itself, E.const(0, whole), e - less - ((most >> 1) - 1)), dtypes.int32)


@op(out=True, out_said="torch.{name}() expects {result} to have dtype {made} but got {found}")
def frexp(input: Tensor) -> Any:  # noqa: A002
    """mantissa in (-1, -1/2] or [1/2, 1) and int32 exponent with input = mantissa * 2 ** exponent.  Differentiable."""
    if not input.meta.dtype.is_floating_point:
        raise RuntimeError(f"torch.frexp() only supports floating-point dtypes, got {input.meta.dtype}")
    half = input.meta.dtype.itemsize == 2
    x = contiguous(to_dtype(input.detach(), dtypes.float32) if half else input.detach())
    mantissa, exponent = (empty(x.meta.shape, d, x.meta.device) for d in (x.meta.dtype, dtypes.int32))
    if x.meta.numel:
        launch.run(Map(_frexp(E.input(0, x.meta.dtype)), (x.meta.dtype,)), (x.meta.numel,), [mantissa, exponent], [x], [(1,)] * 3, name="frexp")
    if half:
        mantissa = to_dtype(mantissa, input.meta.dtype)

    def back(node: Any, g: Tensor) -> Any:
        (power,) = tape.kept(node, node[tape.SAVED])
        return (g / power.to(g.meta.dtype).exp2(),)
    return _FREXP(tape.record(mantissa, back, (input,), tape.keep(exponent), "FrexpBackward0"), exponent)


# ------------------------------------------------------------------------------------------------- orthogonal polynomials
_UNROLLED, _MOST_DEGREES = 24, 4096


def _chebyshev(kind: str) -> Any:
    """The recurrence, and beyond degree 6 the closed form in the angle (beyond 24, outside [-1, 1], in the hyperbolic one)."""
    first: Any = {"t": lambda x: x, "u": lambda x: x + x, "v": lambda x: x + x - 1.0, "w": lambda x: x + x + 1.0}[kind]

    def formula(x: Expr, n: Expr) -> Expr:
        n = E.trunc(n)
        one = E.const(1, x.dtype)
        p, q = one, first(x)
        out = where(n == 0.0, p, q)
        for k in range(2, _UNROLLED + 1):
            p, q = q, (x + x) * q - p
            out = where(n == float(k), q, out)
        inside = E.acos(where(abs(x) <= 1.0, x, one))
        outside = E.acosh(where(abs(x) > 1.0, abs(x), one + one))
        odd = n - 2.0 * E.floor(n * 0.5)
        flip = where((x < 0.0) & (odd == 1.0), -one, one)
        h = n + 0.5
        if kind == "t":
            near, far, ends = E.cos(n * inside), E.cosh(n * outside) * flip, one * flip
        elif kind == "u":
            near, far, ends = E.sin((n + 1.0) * inside) / E.sin(inside), E.sinh((n + 1.0) * outside) / E.sinh(outside) * flip, (n + 1.0) * flip
        else:
            cosine = (E.cos(h * inside) / E.cos(0.5 * inside), E.cosh(h * outside) / E.cosh(0.5 * outside))
            sine = (E.sin(h * inside) / E.sin(0.5 * inside), E.sinh(h * outside) / E.sinh(0.5 * outside))
            if kind == "w":
                cosine, sine = sine, cosine
            near = cosine[0]
            far = where(x > 0.0, cosine[1], flip * sine[1])
            plain, twice = (one, 2.0 * n + 1.0) if kind == "v" else (2.0 * n + 1.0, one)
            ends = where(x > 0.0, plain, flip * twice)
        out = where((n > 6.0) & (abs(x) <= 1.0), where(abs(x) == 1.0, ends, near), where(n > float(_UNROLLED), far, out))
        return where(n < 0.0, 0.0 * one, out)
    return formula


def _shifted(formula: Any) -> Any:
    return lambda x, n: formula(x + x - 1.0, n)


for _kind in "tuvw":
    _shape = _chebyshev(_kind)
    pointwise(f"chebyshev_polynomial_{_kind}", "input n", _shape, promote="float", accept="buif", spaces=("special",), method=False,
              inplace=False, tensors=0, doc=f"The Chebyshev polynomial {_kind.upper()} of degree n at input; 0 for a negative n.")
    pointwise(f"shifted_chebyshev_polynomial_{_kind}", "input n", _shifted(_shape), promote="float", accept="buif",
              spaces=("special",), method=False, inplace=False, tensors=0,
              doc=f"The Chebyshev polynomial {_kind.upper()} of degree n at 2 input - 1.")


_A_LAUNCH = 32  # degrees


def _by_recurrence(name: str, second: Any, step: Any, doc: str) -> None:
    """p0 = 1, p1 = second(x), p(k+1) = step(x, k, pk, p(k-1)), up to the largest degree asked for, 32 degrees a launch."""
    def on(x: Expr, n: Expr, p: Any, q: Any, out: Any, done: Any, steps: int) -> Any:
        for k in range(steps):
            p, q = q, step(x, done + float(k), q, p)
            out = where(E.trunc(n) == done + float(k + 1), q, out)
        return out, p, q

    def begin(x: Expr, n: Expr, top: int) -> Any:
        """Up to degree `top`; with the last two polynomials where more are to come."""
        p, q = E.const(1, x.dtype), second(x)
        out = where(E.trunc(n) == 0.0, p, where(E.trunc(n) == 1.0, q, 0.0 * x))
        made = on(x, n, p, q, out, E.const(1, x.dtype), max(min(top, _A_LAUNCH) - 1, 0))
        return made if top > _A_LAUNCH else made[0]

    def go_on(x: Expr, n: Expr, out: Expr, p: Expr, q: Expr, done: Expr) -> Any:
        return on(x, n, p, q, out, done, _A_LAUNCH)
    first = Pointwise(name, begin, 2, promote="float", accept="buif")
    more = Pointwise(name, go_on, 5, promote="float", accept="buif")

    def call(input: Any, n: Any) -> Any:  # noqa: A002
        _paired(name, input, n, True)
        top = n if not isinstance(n, Tensor) else n.detach().max().item() if n.meta.numel else 0
        top = min(max(int(top), 0), _MOST_DEGREES)
        # few kernels for many degrees: as many steps as the next power of two
        at_once = 1 << (min(top, _A_LAUNCH + 1) - 1).bit_length() if top else 0
        got = first((input, n), (), (("top", at_once),))
        for done in range(_A_LAUNCH, top, _A_LAUNCH):
            got = more((input, n, *got), (float(done),))
        return got[0] if top > _A_LAUNCH else got
    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    op(method=False, out=True, spaces=("special",), name=name)(call)


_by_recurrence("hermite_polynomial_h", lambda x: x + x, lambda x, k, q, p: (x + x) * q - 2.0 * k * p, "The physicists' Hermite polynomial of degree n.")
_by_recurrence("hermite_polynomial_he", lambda x: x, lambda x, k, q, p: x * q - k * p, "The probabilists' Hermite polynomial of degree n.")
_by_recurrence("laguerre_polynomial_l", lambda x: 1.0 - x, lambda x, k, q, p: ((2.0 * k + 1.0 - x) * q - k * p) / (k + 1.0),
               "The Laguerre polynomial of degree n.")
_by_recurrence("legendre_polynomial_p", lambda x: x, lambda x, k, q, p: ((2.0 * k + 1.0) * x * q - k * p) / (k + 1.0),
               "The Legendre polynomial of degree n.")
