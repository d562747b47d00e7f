"""Pointwise operations of one operand: one row each, a formula and its names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtypes import bool_, int64
from ..engine.fields import has
from ..engine.plans import Compose
from ..kernels import bessel, special
from ..kernels import expr as E
from ..kernels.expr import Expr, where
from ..tensor import Tensor
from .elementwise import Pointwise
from .table import REQUIRED, planned, pointwise

if TYPE_CHECKING:
    from collections.abc import Callable

REAL, FLOAT, INTEGRAL = "buif", "bufic", "bui"


def _unary(name: str, formula: Any, *aliases: str, promote: str = "float", grad: Any = None, accept: str = "buifc",
           spaces: tuple[str, ...] = ("torch",), inplace: bool = True, doc: str = "") -> None:
    pointwise(name, "input", formula, promote=promote, grad=grad, accept=accept, aliases=aliases, spaces=spaces,
              inplace=inplace, doc=doc)


# ------------------------------------------------------------------------------------------------- exponentials and roots
_unary("exp", E.exp, doc="e to the power input.")
_unary("exp2", E.exp2, "special.exp2")
_unary("expm1", E.expm1, "special.expm1", doc="exp(input) - 1, accurate near 0.")
_unary("log", E.log)
_unary("log2", E.log2)
_unary("log10", E.log10)
_unary("log1p", E.log1p, "special.log1p", doc="log(1 + input), accurate near 0.")
_unary("sqrt", E.sqrt)
_unary("rsqrt", E.rsqrt, doc="1 / sqrt(input).")
_unary("square", lambda x: x * x if x.dtype is not bool_ else E.cast(x, int64), promote="default")
_unary("reciprocal", lambda x: 1.0 / x if x.dtype.kind in "fc" else 1 / x, grad=lambda g, x, y: -g * E.conj(y * y))

# ------------------------------------------------------------------------------------------------------------ trigonometry
for _name, _long in (("sin", ""), ("cos", ""), ("tan", ""), ("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan"), ("sinh", ""),
                     ("cosh", ""), ("tanh", ""), ("asinh", "arcsinh"), ("acosh", "arccosh"), ("atanh", "arctanh")):
    _unary(_name, getattr(E, _name), *([_long] if _long else []))
_unary("deg2rad", lambda x: x * (math.pi / 180.0), accept=REAL)
_unary("rad2deg", lambda x: x * (180.0 / math.pi), accept=REAL)
_unary("sinc", lambda x: where(x == 0.0, E.const(1, x.dtype), E.sin(x * math.pi) / (x * math.pi)), "special.sinc",
       grad=lambda g, x, y: g * E.conj(where(x == 0.0, x * (-math.pi ** 2 / 3.0), (E.cos(x * math.pi) - y) / x)))  # at 0 by its series, which has a slope

# ------------------------------------------------------------------------------------------------- probability and special
_unary("sigmoid", lambda x: special.sigmoid(x), "special.expit", grad=lambda g, x, y: g * E.conj(y * (1.0 - y)),
       doc="1 / (1 + exp(-input)).")
_unary("erf", E.erf, "special.erf", accept=REAL)
_unary("erfc", E.erfc, "special.erfc", accept=REAL)
_unary("erfinv", bessel.erfinv, "special.erfinv", accept=REAL,
       grad=lambda g, x, y: g * (0.5 * math.sqrt(math.pi)) * E.exp(y * y), doc="The inverse of erf on (-1, 1).")
_unary("lgamma", E.lgamma, "special.gammaln", accept=REAL, doc="log |gamma(input)|.")
_unary("digamma", lambda x: special.polygamma(0, x), "special.digamma", "special.psi", accept=REAL, doc="The derivative of lgamma.")


def _logit(x: Expr, eps: Any) -> Expr:
    if eps is not None:
        lo, hi = E.const(eps, x.dtype), E.const(1.0 - eps, x.dtype)
        x = where(x < lo, lo, where(x > hi, hi, x))
    return E.log(x / (1.0 - x))


def _logit_grad(g: Expr, x: Expr, y: Expr, eps: Any) -> Expr:
    slope = g / (abs(x) * (1.0 - x))  # -0 as 0
    if eps is None:
        return where((x < 0.0) | (x > 1.0), E.const(math.nan, x.dtype), slope)
    return where((x < eps) | (x > 1.0 - eps), E.const(0, x.dtype), slope)


pointwise("logit", "input", _logit, promote="float", grad=_logit_grad, consts={"eps": None}, aliases=("special.logit",), accept=REAL,
          doc="log(p / (1 - p)), with the input clamped to [eps, 1 - eps] when eps is given.")

# ------------------------------------------------------------------------------------------------------- signs and rounding
def _neg(x: Expr) -> Expr:
    if x.dtype is bool_:
        raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the "
                           "`~` or `logical_not()` operator instead.")
    return -x


_unary("neg", _neg, "negative", promote="default")


def _positive(input: Tensor) -> Any:  # noqa: A002 (PyTorch's name)
    """`input` itself.  Raises RuntimeError for bool."""
    if input.meta.dtype is bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return Compose(lambda t: t)


positive = planned("positive", _positive, gives="Tensor")




def _abs_formula(x: Expr) -> Expr:
    return x if x.dtype.kind in "bu" else abs(x)


_unary("abs", _abs_formula, "absolute", promote="default", inplace=True, accept="uifc8")


def _sign(x: Expr) -> Expr:
    if x.dtype.kind == "b":
        return x
    one, zero = E.const(1, x.dtype), E.const(0, x.dtype)
    return where(x > zero, one, where(x < zero, -one, zero)) if x.dtype.kind != "u" else where(x > zero, one, zero)


_unary("sign", _sign, promote="default", accept=REAL)


def _sgn(x: Expr) -> Expr:
    if not x.dtype.is_complex:
        return _sign(x)
    size = abs(x)
    unit = x / E.complex_(size, E.const(0, size.dtype))
    return where(size == 0.0, E.const(0, x.dtype), unit)


_unary("sgn", _sgn, promote="default")


def _signbit(x: Expr) -> Expr:
    if x.dtype.kind in "bu":
        return E.const(False, bool_)
    return x < 0 if x.dtype.kind == "i" else E.copysign(E.const(1, x.dtype), x) < 0.0


_unary("signbit", _signbit, promote="default", accept=REAL, inplace=False)
for _name in ("floor", "ceil", "trunc"):
    _unary(_name, getattr(E, _name), *(["fix"] if _name == "trunc" else []), promote="default", accept="uif")
_unary("frac", lambda x: x - E.trunc(x), promote="default", accept="f")


def _round(x: Expr, decimals: int) -> Expr:
    if decimals == 0 or x.dtype.kind in "bui":
        return E.round_(x)
    scale = 10.0 ** abs(decimals)
    return E.round_(x * scale) / scale if decimals > 0 else E.round_(x / scale) * scale


pointwise("round", "input", _round, consts={"decimals": 0}, keyword=("decimals",), accept="uif", aliases=("special.round",),
          doc="To the nearest integer, halves to even; or to `decimals` places.")

# -------------------------------------------------------------------------------------------------------------- predicates
_unary("isnan", lambda x: (E.isnan(E.real(x)) | E.isnan(E.imag(x))) if x.dtype.is_complex else E.isnan(x), promote="default",
       accept="buifc8", inplace=False)


def _isinf(x: Expr) -> Expr:
    if x.dtype.is_complex:
        return _isinf(E.real(x)) | _isinf(E.imag(x))
    return abs(x) == math.inf if x.dtype.kind == "f" else E.const(False, bool_)


def _isfinite(x: Expr) -> Expr:
    if x.dtype.is_complex:
        return _isfinite(E.real(x)) & _isfinite(E.imag(x))
    return abs(x) < math.inf if x.dtype.kind == "f" else E.const(True, bool_)


_unary("isinf", _isinf, promote="default", inplace=False)
_unary("isfinite", _isfinite, promote="default", inplace=False)
_unary("isposinf", lambda x: x == math.inf if x.dtype.kind == "f" else E.const(False, bool_), promote="default", accept=REAL,
       inplace=False)
_unary("isneginf", lambda x: x == -math.inf if x.dtype.kind == "f" else E.const(False, bool_), promote="default", accept=REAL,
       inplace=False)
_unary("isreal", lambda x: E.imag(x) == 0.0 if x.dtype.is_complex else E.const(True, bool_), promote="default", inplace=False)
_unary("logical_not", lambda x: ~E.to_bool(x), promote="default")
has("logical_not", on_leaves=True)
_unary("bitwise_not", lambda x: ~x, promote="default", accept=INTEGRAL)


def _nan_to_num(x: Expr, nan: Any, posinf: Any, neginf: Any) -> Expr:
    if x.dtype.is_complex:
        return E.complex_(_nan_to_num(E.real(x), nan, posinf, neginf), _nan_to_num(E.imag(x), nan, posinf, neginf))
    if x.dtype.kind != "f":
        return x
    from ..dtypes import finfo
    limits, wide = finfo(x.dtype), E.cast(x, x.dtype.opmath)
    out = where(E.isnan(wide), E.const(0.0 if nan is None else nan, wide.dtype), wide)
    out = where(wide == math.inf, E.const(limits.max if posinf is None else posinf, wide.dtype), out)
    return E.cast(where(wide == -math.inf, E.const(limits.min if neginf is None else neginf, wide.dtype), out), x.dtype)


# each operand in its own type: the limits of a 16-bit type are its own
pointwise("nan_to_num", "input", _nan_to_num, consts={"nan": None, "posinf": None, "neginf": None}, promote="none", lacks="complex",
          grad=lambda g, x, y, nan, posinf, neginf: where(abs(x) < math.inf, g, E.const(0, g.dtype)),
          doc="NaN, inf and -inf replaced by numbers: 0 and the type's greatest and lowest by default.")


# ------------------------------------------------------------------------------------------------------------- activations
def _activation(name: str, formula: Any, grad: Any = None, numbers: dict[str, Any] | None = None,
                consts: dict[str, Any] | None = None, spaces: tuple[str, ...] = ("nn.functional",), method: bool = False,
                accept: str = "f", keyword: tuple[str, ...] = (), flag: bool = True, inplace: bool = True, promote: str = "default",
                check: Any = None, types: Any = None, lacks: str = "", doc: str = "") -> Pointwise:
    return pointwise(name, "input", formula, grad=grad, numbers=numbers, consts=consts, spaces=spaces, method=method, flag=flag,
              accept=accept, keyword=keyword, inplace=inplace, promote=promote, check=check, types=types, lacks=lacks, doc=doc)


def _zero(g: Expr) -> Expr:
    return E.const(0, g.dtype)


_activation("relu", lambda x: where(x > 0, x, where(E.isnan(x), x, E.const(0, x.dtype))) if x.dtype.kind == "f" else where(
    x > 0, x, E.const(0, x.dtype)), lambda g, x, y: where(y <= 0.0, _zero(g), g), spaces=("torch", "nn.functional"), method=True,
    accept="uif", doc="max(input, 0).")
_activation("relu6", lambda x: where(x < 0, E.const(0, x.dtype), where(x > 6, E.const(6, x.dtype), x)),
            lambda g, x, y: where((x <= 0.0) | (x >= 6.0), _zero(g), g), accept="uif")
_activation("leaky_relu", lambda x, slope: where(x > 0.0, x, x * slope), lambda g, x, y, slope: where(x > 0.0, g, g * slope),
            {"negative_slope": 0.01})
_activation("elu", lambda x, alpha: where(x > 0.0, x, alpha * E.expm1(x)),
            lambda g, x, y, alpha: where(x <= 0.0, g * alpha * E.exp(x), g), {"alpha": 1.0})
_activation("celu", lambda x, alpha: where(x > 0.0, x, alpha * E.expm1(x / alpha)),
            lambda g, x, y, alpha: where(x <= 0.0, g * E.exp(x / alpha), g), {"alpha": 1.0},
            spaces=("torch", "nn.functional"))
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
_activation("selu", lambda x: _SELU_SCALE * where(x > 0.0, x, _SELU_ALPHA * E.expm1(x)),
            lambda g, x, y: where(x <= 0.0, g * (_SELU_SCALE * _SELU_ALPHA) * E.exp(x), g * _SELU_SCALE),
            spaces=("torch", "nn.functional"))
_activation("silu", lambda x: x * special.sigmoid(x),
            lambda g, x, y: g * E.conj(special.sigmoid(x) * (1.0 + x * (1.0 - special.sigmoid(x)))) if x.dtype.is_complex else (
                g * special.sigmoid(x) * (1.0 + x * (1.0 - special.sigmoid(x)))), accept="fc", lacks="complex")
_activation("mish", lambda x: x * E.tanh(special.softplus(x)), lambda g, x, y: g * (
    E.tanh(special.softplus(x)) + x * special.sigmoid(x) * (1.0 - E.tanh(special.softplus(x)) * E.tanh(special.softplus(x)))))


def _gelu(x: Expr, approximate: str) -> Expr:
    """Hendrycks and Gimpel, https://arxiv.org/abs/1606.08415: x Phi(x), or its tanh approximation."""
    if approximate == "tanh":
        return 0.5 * x * (1.0 + E.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))
    if approximate != "none":
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}.")
    return 0.5 * x * (1.0 + E.erf(x * math.sqrt(0.5)))


_activation("gelu", _gelu, consts={"approximate": "none"}, keyword=("approximate",), flag=False, inplace=False)
_activation("softplus", lambda x, beta, threshold: where(x * beta > threshold, x, special.softplus(x * beta) / beta),
            lambda g, x, y, beta, threshold: where(x * beta > threshold, g, g * special.sigmoid(x * beta)),
            {"beta": 1.0, "threshold": 20.0}, flag=False, inplace=False)


def _softsign_grad(g: Expr, x: Expr, y: Expr) -> Expr:
    size = 1.0 + abs(x)
    if not x.dtype.is_complex:
        return g / (size * size)
    zero = E.const(0, size.dtype)
    along = (E.real(g) * E.real(x) + E.imag(g) * E.imag(x)) / (size * size)
    return g / E.complex_(size, zero) - E.complex_(along, zero) * _sgn(x)


def _no_truths(name: str) -> Callable[[Tensor], None]:
    def check(x: Tensor) -> None:
        if x.meta.dtype is bool_:
            raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")
    return check


_activation("softsign", lambda x: x / (1.0 + abs(x)) if not x.dtype.is_complex else x / E.complex_(1.0 + abs(x), E.imag(x) * 0.0),
            _softsign_grad, flag=False, inplace=False, accept="fc", promote="float", types=_no_truths("softsign"))
_activation("tanhshrink", lambda x: x - E.tanh(x), lambda g, x, y: g * E.conj(E.tanh(x) * E.tanh(x)), flag=False, inplace=False, accept="fc",
            promote="float", types=_no_truths("tanhshrink"))


def _hardtanh(x: Expr, lo: Expr, hi: Expr) -> Expr:
    lo, hi = E.cast(lo, x.dtype), E.cast(hi, x.dtype)
    return where(x < lo, lo, where(x > hi, hi, x))


def _ordered(lo: Any, hi: Any) -> None:
    if isinstance(lo, (int, float)) and isinstance(hi, (int, float)) and lo > hi:
        raise ValueError(f"hardtanh: min_val cannot be greater than max_val, but they are {lo} and {hi}")


def _not_negative(lambd: Any) -> None:
    if isinstance(lambd, (int, float)) and not lambd >= 0:
        raise RuntimeError(f"softshrink: lambda must be zero or greater, but found {lambd}")


_activation("hardtanh", _hardtanh,
            lambda g, x, y, lo, hi: where((x <= lo) | (x >= hi), _zero(g), g), {"min_val": -1.0, "max_val": 1.0}, accept="uif",
            check=_ordered)
_activation("hardsigmoid", lambda x: where(x <= -3.0, E.const(0, x.dtype), where(x >= 3.0, E.const(1, x.dtype), x / 6.0 + 0.5)),
            lambda g, x, y: where((x > -3.0) & (x < 3.0), g / 6.0, _zero(g)))
_activation("hardswish", lambda x: x * where(x <= -3.0, E.const(0, x.dtype), where(x >= 3.0, E.const(6, x.dtype), x + 3.0)) / 6.0,
            lambda g, x, y: where(x <= -3.0, _zero(g), where(x < 3.0, g * (x / 3.0 + 0.5), g)))
_activation("logsigmoid", lambda x: -special.softplus(-x), lambda g, x, y: g * special.sigmoid(-x), flag=False, inplace=False)
_activation("hardshrink", lambda x, lambd: where((x >= -lambd) & (x <= lambd), E.const(0, x.dtype), x),
            lambda g, x, y, lambd: where((x >= -lambd) & (x <= lambd), _zero(g), g), {"lambd": 0.5},
            spaces=("torch", "nn.functional"), method=True, flag=False, inplace=False).decides = True
_activation("softshrink", lambda x, lambd: where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0.0)),
            lambda g, x, y, lambd: where((x >= -lambd) & (x <= lambd), _zero(g), g), {"lambd": 0.5}, flag=False, inplace=False, check=_not_negative)


def _threshold(x: Expr, threshold: Expr, value: Expr) -> Expr:
    return where(x <= threshold, value, x)



_activation("threshold", _threshold, lambda g, x, y, threshold, value: where(x <= threshold, _zero(g), g),
            {"threshold": REQUIRED, "value": REQUIRED}, spaces=("torch", "nn.functional"), accept="uif")
pointwise("prelu", "input weight", lambda x, w: where(x > 0.0, x, w * x), spaces=(), method=False, accept="f", tensors=2,
          grad=lambda g, x, w, y: (where(x > 0.0, g, w * g), where(x > 0.0, _zero(g), x * g)))

has("acos asin cosh erfinv exp expm1 log log10 log1p log2 reciprocal rsqrt sinh softplus tan", autocast="cuda full")
has("atan2", autocast="cuda widest")
has("prelu", autocast="lower")
has("erf leaky_relu prelu relu threshold", gradient_lies="saved")
has("positive prelu", batch="pointwise")
has("neg positive", sums="itself")
has("abs ceil floor frac hardshrink hardtanh nan_to_num neg round sgn sign trunc", out_type="same")
has("isneginf isposinf signbit", out_type="truth")
has("""abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac isinf isnan log1p nan_to_num neg positive rad2deg relu round sgn sign
 signbit sin sinh sqrt square tan tanh trunc""", sparse="values")
