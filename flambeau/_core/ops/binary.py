"""Pointwise operations of two or three operands, and Python's operators."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes, layout
from ..autograd.mode import _grad
from ..dtypes import bool_
from ..engine import fields
from ..engine.fields import has
from ..engine.fronts import FACTOR, OLD, TENSOR, VALUE, Signature
from ..engine.fronts import NUMBER as EITHER
from ..engine.operation import PLANS, Operation
from ..engine.plans import Compose, Plan, Written, roles
from ..errors import warn_once
from ..kernels import expr as E
from ..kernels.expr import Expr, where
from ..tensor import Tensor
from . import table
from .checks import factor_fits, may_write, of_kinds
from .elementwise import Pointwise
from .table import op, pointwise, write_out

if TYPE_CHECKING:
    from collections.abc import Sequence

INTEGRAL = "bui"
NUMBER = (int, float, complex)


def _operand(name: str, param: str, x: Any) -> Any:
    if isinstance(x, (Tensor, *NUMBER, Expr)):
        return x
    if isinstance(x, np.generic):
        return x.item()
    raise TypeError(f"{name}(): argument '{param}' must be Tensor or Number, not {type(x).__name__}")


def _pair(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    a, b = _operand(name, "input", a), _operand(name, "other", b)
    if not isinstance(a, (Tensor, Expr)) and not isinstance(b, (Tensor, Expr)):
        a = table.of_numbers(name, "input", a)
    return a, b


# ------------------------------------------------------------------------------------------------------------ add and sub
def no_bool(a: Any, b: Any) -> None:
    """Raises RuntimeError for a bool, a tensor or a number, that is subtracted or subtracted from."""
    bools = [x.meta.dtype is bool_ if isinstance(x, Tensor) else isinstance(x, bool) for x in (a, b)]
    if all(bools):
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.")
    if any(bools):
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
                           "`logical_not()` operator instead.")


ADD = Pointwise("add", lambda x, y: x + y, 2)
SUB = Pointwise("sub", lambda x, y: x - y, 2, accept="uifc")
ADD_SCALED = Pointwise("add", lambda x, y, alpha: x + y * alpha, 2)
SUB_SCALED = Pointwise("sub", lambda x, y, alpha: x - y * alpha, 2)


def _exact(*xs: Any) -> bool:
    """Whether operands are such as a plan can be called with: tensors and Python's numbers, not NumPy's."""
    return all(isinstance(x, (Tensor, Expr)) or type(x) in (int, float, complex, bool) for x in xs)


def _planned(made: Pointwise, *operands: Any, consts: tuple[Any, ...] = ()) -> Any:
    """The plan of a formula without numbers, or the result where these operands can have none."""
    return made.planned(operands, (), consts) if _exact(*operands) else made(tuple([_operand(made.name, "other", x) for x in operands]), (), consts)


def _is_tensor(name: str, x: Any) -> None:
    """Raises TypeError for what is no tensor and is to be written."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}_(): argument 'self' must be Tensor, not {type(x).__name__}")


def _written(made: Pointwise, *operands: Any, consts: tuple[Any, ...] = ()) -> Any:
    """`_planned` of a formula that writes over its first operand."""
    _is_tensor(made.name, operands[0])
    if _exact(*operands):
        return made.planned_inplace(operands, (), consts)
    return made.inplace(operands[0], tuple([_operand(made.name, "other", x) for x in operands]), (), consts)


_PAIR = {"input": EITHER, "self": EITHER, "other": EITHER}


def _additive(name: str, plain: Pointwise, scaled: Pointwise, aliases: tuple[str, ...]) -> Any:
    """`add` or `sub`: input + alpha * other, or -."""
    def scale(a: Any, b: Any, alpha: Any) -> None:
        factor_fits(scaled.common((a, b)), alpha)

    def function(input: Any, other: Any, *, alpha: Any = 1) -> Any:  # noqa: A002
        a, b = _pair(name, input, other)
        if name == "sub":
            no_bool(a, b)
        if isinstance(a, Tensor) and a is not input:  # two numbers, of which no plan is kept
            scale(a, b, alpha)
            return scaled((a, b), (alpha,))
        if alpha == 1:
            if type(alpha) is not int:
                scale(a, b, alpha)
            made = _planned(plain, a, b)
            return Compose(lambda a, b, alpha: plain((a, b))) if type(made) is Compose else made
        if isinstance(a, Expr) or isinstance(b, Expr):
            return a + alpha * b if name == "add" else a - alpha * b
        scale(a, b, alpha)
        return scaled.planned((a, b), (alpha,), ()) if _exact(alpha) and a is input and b is other else scaled((a, b), (_operand(name, "alpha", alpha),))

    def inplace(self: Tensor, other: Any, *, alpha: Any = 1) -> Any:
        _is_tensor(name, self)
        a, b = _pair(name, self, other)
        if name == "sub":
            no_bool(a, b)
        if alpha == 1:
            if type(alpha) is not int:
                scale(a, b, alpha)
            made = _written(plain, a, b)
            if type(made) in (Compose, Written):  # what they call must do without alpha
                def general(a: Tensor, b: Any, alpha: Any) -> Tensor:
                    return plain.inplace(a, (a, b))
                return Compose(general) if type(made) is Compose else Written(made.launch, made.numbers, general, made.saved, made.copy, made.dense)
            return made
        scale(a, b, alpha)
        return scaled.planned_inplace((a, b), (alpha,), ()) if _exact(alpha) and b is other else scaled.inplace(
            a, (a, b), (_operand(name, "alpha", alpha),))

    def told(args: tuple[Any, ...], kwargs: dict[str, Any]) -> table.Told:
        a, b = _pair(name, *args)
        if name == "sub":
            no_bool(a, b)
        alpha = kwargs.get("alpha", 1)
        if alpha == 1 and type(alpha) is int:
            return plain, (a, b), (), ()
        scale(a, b, alpha)
        return scaled, (a, b), (alpha,), ()
    function.__doc__ = f"input {'+' if name == 'add' else '-'} alpha * other, broadcast."
    kinds = {"alpha": FACTOR, **_PAIR, "old": OLD}

    def signature(first: str) -> Signature:
        return Signature((first, "other"), ("alpha",), (), {"alpha": 1}, kinds, "old")
    made = table.planned(name, function, inplace=inplace, out=table.writing(told), aliases=aliases, signature=signature("input"),
                         inplace_signature=signature("self"))
    return made


add = _additive("add", ADD, ADD_SCALED, ())
sub = _additive("sub", SUB, SUB_SCALED, ("subtract",))


@op(method=False, batch="pointwise")
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Any:  # noqa: A002
    """other - alpha * input."""
    if not isinstance(input, (Tensor, Expr)):
        raise TypeError(f"rsub(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return sub(other, input, alpha=alpha)


MUL = pointwise("mul", "input other", lambda x, y: x & y if x.dtype is bool_ else x * y, aliases=("multiply",), tensors=0,
                doc="input * other, broadcast.")

# ---------------------------------------------------------------------------------------------------------------- division
DIV = Pointwise("div", lambda x, y: x / y, 2, promote="float")
DIV_FLOOR = Pointwise("div", lambda x, y: E.floordiv(x, y), 2, accept="uif")
FLOOR_DIVIDE = Pointwise("floor_divide", DIV_FLOOR.formula, 2, accept="uif", lacks="both")
DIV_TRUNC = Pointwise("div", lambda x, y: E.truncdiv(x, y), 2, accept="uif")
DIV_FLOOR.divides = FLOOR_DIVIDE.divides = DIV_TRUNC.divides = True


def _division(rounding_mode: str | None) -> Pointwise:
    if rounding_mode is None:
        return DIV
    if rounding_mode == "floor":
        return DIV_FLOOR
    if rounding_mode == "trunc":
        return DIV_TRUNC
    raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")


def _div_inplace(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Any:
    return _written(_division(rounding_mode), self, _operand("div", "other", other))


def _div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:  # noqa: A002
    """input / other (integers give the default float type); rounding_mode "trunc" or "floor" rounds and keeps the type."""
    return _divided(_division(rounding_mode), input, other)


def _divided(made: Pointwise, input: Any, other: Any) -> Any:  # noqa: A002
    """The plan of a division, or its result, where it is of two numbers."""
    a, b = _pair("div", input, other)
    return made((a, b), (), ()) if isinstance(a, Tensor) and a is not input else _planned(made, a, b)


def _div_told(args: tuple[Any, ...], kwargs: dict[str, Any]) -> table.Told:
    return _division(kwargs.get("rounding_mode")), _pair("div", *args), (), ()


def _other_mode(name: str, made: Pointwise, doc: str) -> Any:
    """A division by one formula, under a name of its own."""
    def function(input: Any, other: Any) -> Any:  # noqa: A002
        return _divided(made, input, other)

    def inplace(self: Tensor, other: Any) -> Any:
        return _written(made, self, _operand(name, "other", other))

    function.__doc__ = doc
    return table.planned(name, function, inplace=inplace, out=table.writing(lambda args, _: (made, _pair("div", *args), (), ())), kinds=_PAIR)


div = table.planned("div", _div, inplace=_div_inplace, out=table.writing(_div_told), kinds=_PAIR, aliases=("divide",))
true_divide = _other_mode("true_divide", DIV, "input / other; integers give the default float type.")
floor_divide = _other_mode("floor_divide", FLOOR_DIVIDE, "floor(input / other), in the operands' common type.  It has no derivative.")


REMAINDER = pointwise("remainder", "input other", lambda x, y: E.rem(x, y), accept="uif", tensors=0,
                      lacks="of a number", doc="Python's modulus: the sign of other.")
FMOD = pointwise("fmod", "input other", lambda x, y: E.fmod(x, y), accept="uif", doc="C's fmod: the sign of input.")
REMAINDER.divides = FMOD.divides = True
REMAINDER.decides = FMOD.decides = True

# ------------------------------------------------------------------------------------------------------------------- power
class _Power(Pointwise):
    def strides(self, operands: Sequence[Any]) -> tuple[int, ...]:
        """As of any formula, but powers of a number are row-major, as in PyTorch."""
        found = super().strides(operands)
        return found if isinstance(operands[0], Tensor) else layout.contiguous_strides(operands[1].meta.shape)


POW = _Power("pow", lambda x, y: E.pow_(x, y), 2, accept="uifc")
POW_FIXED = Pointwise("pow", lambda x, exponent: _fixed_power(x, exponent), 1)
# roots keep their operand for the gradient, as in PyTorch, and not the result: programs go on to write over that
POW_ROOT = Pointwise("pow", POW_FIXED.formula, 1, grad=lambda g, x, y, exponent: g * _conj(exponent * _below(x, exponent)))
_FIXED = frozenset((0.5, 1, 2, 3, 4, -1, -0.5, -2))


def _conj(x: Expr) -> Expr:
    return E.conj(x) if x.dtype.is_complex else x


def _below(x: Expr, n: float) -> Expr:
    """x to the power of n - 1."""
    return E.rsqrt(x) if n == 0.5 else E.rsqrt(x) / x if n == -0.5 else _fixed_power(x, n - 1)


def _fixed_power(x: Expr, n: float) -> Expr:
    if n == 0:
        return E.const(1, x.dtype)
    if n == 1:
        return x
    if n == 0.5:
        return E.sqrt(x)
    if n == -0.5:
        return E.rsqrt(x)
    if n == 4:
        return (x * x) * (x * x)
    if n == -1:
        return 1.0 / x
    return 1.0 / (x * x) if n == -2 else E.pow_(x, n)


def _power(a: Any, b: Any) -> tuple[Pointwise, tuple[Any, ...], tuple[Any, ...]]:
    """Common fixed exponents get kernels of their own; the others pass through launch or a tensor."""
    a, b = _pair("pow", a, b)
    if isinstance(a, Tensor) and a.meta.dtype is bool_ and type(b) is bool:
        return POW_FIXED, (a,), (("exponent", int(b)),)
    if type(b) is complex and b.imag == 0 and isinstance(a, Tensor) and a.meta.dtype.is_complex:
        b = b.real
    if isinstance(a, Tensor) and type(b) in (int, float):
        if a.meta.dtype.kind in "fc" and b in _FIXED:
            return POW_ROOT if b in (0.5, -0.5) else POW_FIXED, (a,), (("exponent", b),)
        if a.meta.dtype.kind in "bui" and type(b) is int and b < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        if a.meta.dtype.kind in "ui" and type(b) is int:
            dtypes.number(b, a.meta.dtype)
            if b in (1, 2, 3):
                return POW_FIXED, (a,), (("exponent", b),)
        if a.meta.dtype.kind == "f" and a.meta.dtype.itemsize == 2:
            dtypes.number(b, a.meta.dtype, strictly=True)
    return POW, (a, b), ()


def _pow(input: Any, exponent: Any) -> Any:  # noqa: A002
    """input to the power exponent; either may be a number.  Raises RuntimeError for a negative integer power of integers."""
    made, operands, consts = _power(input, exponent)
    return _without_exponent(_planned(made, *operands, consts=consts), operands)


def _without_exponent(plan: Any, operands: tuple[Any, ...]) -> Any:
    """A plan whose calls are given an exponent that is in it, if it is."""
    if len(operands) == 1 and type(plan) in (Plan, Written):
        plan.letters = "tx"
    return plan


def _pow_inplace(self: Tensor, exponent: Any) -> Any:
    made, operands, consts = _power(self, exponent)
    if consts == (("exponent", 1),) and operands[0].meta.dtype is not bool_:
        def as_it_is(t: Tensor, _: Any) -> Tensor:
            if _grad.get() and (t.node is not None or t.base is not None):
                return made.inplace(t, (t,), (), consts)
            may_write(t)
            t.store.version += 1
            return t
        return Compose(as_it_is)
    plan = _without_exponent(_written(made, *operands, consts=consts), operands)
    if type(plan) is Written and plan.letters:  # what it calls must do without the exponent
        plan.general = lambda t, _: made.inplace(t, (t,), (), consts)
    return plan


def _pow_told(args: tuple[Any, ...], kwargs: dict[str, Any]) -> table.Told:
    made, operands, consts = _power(*args, **kwargs)
    return made, operands, (), consts


_POWER = {"input": EITHER, "self": EITHER, "exponent": VALUE}
pow = table.planned("pow", _pow, inplace=_pow_inplace, out=table.writing(_pow_told), kinds=_POWER)  # noqa: A001


def _float_power_inplace(self: Tensor, exponent: Any) -> Tensor:
    wide = _power_type(self, exponent)
    if wide is not self.meta.dtype:
        raise RuntimeError(f"the base given to float_power_ has dtype {self.meta.dtype} but the operation's result requires dtype {wide}")
    made: Tensor = self.pow_(exponent)  # which keeps what its gradient reads of self
    return made


def _power_type(*operands: Any) -> dtypes.dtype:
    return dtypes.complex128 if any(x.meta.dtype.is_complex if isinstance(x, Tensor) else isinstance(x, complex) for x in operands) else dtypes.float64


@op(inplace=_float_power_inplace, out=True, batch="pointwise", out_said="the operation's result requires dtype {made}")
def float_power(input: Any, exponent: Any) -> Any:  # noqa: A002
    """`pow` in float64 (complex128 for complex operands)."""
    from .casts import to_dtype
    wide = _power_type(input, exponent)
    return pow(*[to_dtype(x, wide) if isinstance(x, Tensor) else x for x in (input, exponent)])


# ------------------------------------------------------------------------------------------------------------- comparisons
def _comparison(name: str, alias: str, accept: str = "buif") -> None:
    pointwise(name, "input other", lambda x, y: E.compare(name, x, y), accept=accept, aliases=(alias,)).decides = True


for _short, _long in (("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal")):
    _comparison(_short, _long)


def _eq(x: Expr, y: Expr) -> Expr:
    if x.dtype.is_complex:
        return (E.real(x) == E.real(y)) & (E.imag(x) == E.imag(y))
    return x == y


pointwise("eq", "input other", _eq, accept="buifc8").decides = True
pointwise("ne", "input other", lambda x, y: ~_eq(x, y) if x.dtype.is_complex else x != y, aliases=("not_equal",), accept="buifc8").decides = True


def _isclose(x: Expr, y: Expr, rtol: float, atol: float, equal_nan: bool) -> Expr:
    for what, bound in (("rtol", rtol), ("atol", atol)):
        if bound < 0:
            raise RuntimeError(f"{what} must be greater than or equal to zero, but got {bound}")
    close = _eq(x, y)
    if equal_nan and x.dtype.kind in "fc":
        close = close | (E.isnan(E.real(x)) & E.isnan(E.real(y)))
    if x.dtype is bool_:
        return close
    gap = abs(x - y) if x.dtype.kind != "u" else E.maximum(x, y) - E.minimum(x, y)
    d = dtypes.float64 if x.dtype.kind in "ui" else gap.dtype
    gap, size = E.cast(gap, d), E.cast(abs(y) if y.dtype.kind != "u" else y, d)
    return close | ((gap <= atol + rtol * size) & (gap < math.inf))


pointwise("isclose", "input other", _isclose, consts={"rtol": 1e-05, "atol": 1e-08, "equal_nan": False}, inplace=False, out=False, tensors=2,
          alike=True, doc="|input - other| <= atol + rtol * |other|, element by element.")

# ------------------------------------------------------------------------------------------------------- logical, bitwise
for _name, _f in (("and", lambda x, y: E.to_bool(x) & E.to_bool(y)), ("or", lambda x, y: E.to_bool(x) | E.to_bool(y)),
                  ("xor", lambda x, y: E.to_bool(x) ^ E.to_bool(y))):
    pointwise(f"logical_{_name}", "input other", _f, tensors=2, on_leaves=True)
for _name, _g in (("and", lambda x, y: x & y), ("or", lambda x, y: x | y), ("xor", lambda x, y: x ^ y)):
    pointwise(f"bitwise_{_name}", "input other", _g, accept=INTEGRAL, tensors=0)
pointwise("bitwise_left_shift", "input other", lambda x, y: E.shl(x, y), accept="ui", tensors=0)
pointwise("bitwise_right_shift", "input other", lambda x, y: E.shr(x, y), accept="ui", tensors=0)

# ------------------------------------------------------------------------------------------------------------- extremes
pointwise("maximum", "input other", E.maximum, accept="buif", inplace=False, tensors=2, doc="The greater of two; NaN where either is NaN.")
pointwise("minimum", "input other", E.minimum, accept="buif", inplace=False, tensors=2, doc="The lesser of two; NaN where either is NaN.")


def _prefer(pick: Any) -> Any:
    def formula(x: Expr, y: Expr) -> Expr:
        return where(E.isnan(x), y, where(E.isnan(y), x, pick(x, y))) if x.dtype.kind == "f" else pick(x, y)
    return formula


def _prefer_grad(first: str) -> Any:
    def grad(g: Expr, x: Expr, y: Expr, out: Expr) -> tuple[Expr, Expr]:
        zero = E.const(0, g.dtype)
        x_wins = E.compare(first, x, y) | E.isnan(y)
        return where(x_wins, g, zero), where(x_wins, zero, g)
    return grad


pointwise("fmax", "input other", _prefer(E.maximum), accept="buif", inplace=False, tensors=2, grad=_prefer_grad("ge"),
          doc="The greater of two, ignoring NaN where the other is a number.")
pointwise("fmin", "input other", _prefer(E.minimum), accept="buif", inplace=False, tensors=2, grad=_prefer_grad("le"),
          doc="The lesser of two, ignoring NaN where the other is a number.")


def _clamp_low(g: Expr, x: Expr, lo: Expr, y: Expr) -> tuple[Expr, Expr]:
    zero = E.const(0, g.dtype)
    return where(x >= lo, g, zero), where(x < lo, g, zero)


def _clamp_high(g: Expr, x: Expr, hi: Expr, y: Expr) -> tuple[Expr, Expr]:
    zero = E.const(0, g.dtype)
    return where(x <= hi, g, zero), where(x > hi, g, zero)


def _clamp_both(g: Expr, x: Expr, lo: Expr, hi: Expr, y: Expr) -> tuple[Expr, Expr, Expr]:
    zero = E.const(0, g.dtype)
    return (where((x >= lo) & (x <= hi), g, zero), where((x < lo) & (lo < hi), g, zero),
            where((x > hi) | (lo > hi), g, zero))


CLAMP = Pointwise("clamp", lambda x, lo, hi: E.minimum(E.maximum(x, lo), hi), 3, grad=_clamp_both, accept="uif")
CLAMP_MIN = Pointwise("clamp", lambda x, lo: E.maximum(x, lo), 2, grad=_clamp_low, accept="buif")
CLAMP_MAX = Pointwise("clamp", lambda x, hi: E.minimum(x, hi), 2, grad=_clamp_high, accept="buif")


def _wide(bound: Any) -> bool:
    return isinstance(bound, (Tensor, Expr))


def _number_too(bound: Any) -> bool:
    """Whether PyTorch takes a bound for a number: of tensors those of no axes that are not differentiated."""
    return not isinstance(bound, Tensor) or not bound.meta.shape and bound.node is None


def _clamping(x: Any, lo: Any, hi: Any) -> tuple[Pointwise, tuple[Any, ...]]:
    if not isinstance(x, (Tensor, Expr)):
        raise TypeError(f"clamp(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    if lo is None and hi is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    bounds = {name: _operand("clamp", name, b) for name, b in (("min", lo), ("max", hi)) if b is not None}
    if isinstance(x, Tensor) and len({_wide(b) for b in bounds.values()}) > 1:
        if not all(map(_number_too, bounds.values())):
            raise TypeError(f"clamp() received an invalid combination of arguments - got (Tensor, {type(lo).__name__}, {type(hi).__name__}), but expected "
                            "both bounds to be tensors, or both to be numbers")
        bounds = {name: b.item() if isinstance(b, Tensor) else b for name, b in bounds.items()}
    made, operands = CLAMP if len(bounds) > 1 else CLAMP_MAX if lo is None else CLAMP_MIN, (x, *bounds.values())
    if isinstance(x, Tensor) and not any(isinstance(b, (Tensor, Expr)) for b in bounds.values()):
        common = made.common(operands)
        for b in bounds.values():
            dtypes.number(b, common, strictly=True)
    return made, operands


def _clamp_inplace(self: Tensor, min: Any = None, max: Any = None) -> Tensor:  # noqa: A002
    made, operands = _clamping(self, min, max)
    return made.inplace(self, operands)


@op(inplace=_clamp_inplace, out=None, aliases=("clip",), batch="pointwise", out_type="same")
def clamp(input: Any, min: Any = None, max: Any = None, *, out: Any = None) -> Any:  # noqa: A002
    """min(max(input, min), max); the bounds are numbers, tensors or None.  NaN stays NaN."""
    made, operands = _clamping(input, min, max)
    return made(operands) if out is None else write_out(made, out, operands, (), ())


@op(inplace=lambda self, min: _clamp_inplace(self, min), out=None, batch="pointwise", out_type="same")
def clamp_min(input: Any, min: Any, *, out: Any = None) -> Any:  # noqa: A002
    """max(input, min)."""
    return clamp(input, min, None, out=out)


@op(inplace=lambda self, max: _clamp_inplace(self, None, max), out=None, batch="pointwise", out_type="same")
def clamp_max(input: Any, max: Any, *, out: Any = None) -> Any:  # noqa: A002
    """min(input, max)."""
    return clamp(input, None, max, out=out)


# ---------------------------------------------------------------------------------------------------- floating of two
def _atan2_grad(g: Expr, x: Expr, y: Expr, out: Expr) -> tuple[Expr, Expr]:
    size = x * x + y * y
    inverse = where(size == 0.0, E.const(0, g.dtype), 1.0 / size)  # at (0, 0) there is no slope
    return g * y * inverse, g * -x * inverse


pointwise("atan2", "input other", E.atan2, promote="float", accept="f", tensors=2, aliases=("arctan2",), grad=_atan2_grad)
pointwise("hypot", "input other", E.hypot, accept="f", tensors=2)
pointwise("copysign", "input other", E.copysign, promote="float", accept="f")


def _next_grad(g: Expr, x: Expr, y: Expr, out: Expr) -> tuple[Expr, Expr]:
    return where(x == y, E.const(0, g.dtype), g), E.const(0, g.dtype)


def _next(x: Expr, y: Expr) -> Expr:
    """The next value of float32 or float64: neighbours of one sign are neighbours as whole numbers."""
    whole, smallest = (dtypes.int32, 2.0 ** -149) if x.dtype is dtypes.float32 else (dtypes.int64, 2.0 ** -1074)
    up = x < y
    step = where(up == (x > 0.0), E.const(1, whole), E.const(-1, whole))
    made = where(x == 0.0, where(up, E.const(smallest, x.dtype), E.const(-smallest, x.dtype)), E.bitcast(E.bitcast(x, whole) + step, x.dtype))
    return where(E.isnan(x), x, where(E.isnan(y) | (x == y), y, made))


def _next_in(lost: int, smallest: float, normal: float, greatest: float) -> Any:
    """The next value of a 16-bit type, among values of that type held in float32.  lost: the bits of float32's fraction that it does not
    have.  smallest: its smallest value above 0.  normal: the smallest with all bits of the fraction.  greatest: the greatest."""
    def formula(x: Expr, y: Expr) -> Expr:
        if x.dtype is not dtypes.float32:
            return _next(x, y)
        size, up = abs(x), (x < y)
        away = up == (x > 0.0)  # from 0, for what is not 0
        step = where(away, E.const(1 << lost, dtypes.int32), E.const(-(1 << lost), dtypes.int32))
        scaled = E.bitcast(E.bitcast(x, dtypes.int32) + step, dtypes.float32)
        even = where(up, x + smallest, x - smallest)  # as far apart as the smallest is from 0
        near = where(away, size < normal, size <= normal)
        made = where(size == math.inf, E.copysign(E.const(greatest, x.dtype), x), where(near, even, scaled))
        return where(E.isnan(x), x, where(E.isnan(y) | (x == y), y, made))
    return formula


NEXT = {dtypes.float32: Pointwise("nextafter", _next, 2, grad=_next_grad, accept="f"),
        dtypes.float16: Pointwise("nextafter", _next_in(13, 2.0 ** -24, 2.0 ** -14, 65504.0), 2, grad=_next_grad, accept="f"),
        dtypes.bfloat16: Pointwise("nextafter", _next_in(16, 2.0 ** -133, 2.0 ** -126, dtypes.finfo(dtypes.bfloat16).max), 2, grad=_next_grad, accept="f")}


def _next_of(a: Any, b: Any) -> tuple[Pointwise, tuple[Any, ...]]:
    for place, (name, x) in enumerate((("input", a), ("other", b)), 1):
        if not isinstance(x, (Tensor, Expr)):
            raise TypeError(f"nextafter(): argument '{name}' (position {place}) must be Tensor, not {type(x).__name__}")
    made = NEXT[dtypes.float32]
    return made if isinstance(a, Expr) or isinstance(b, Expr) else NEXT.get(made.common((a, b)), made), (a, b)


def _nextafter(input: Tensor, other: Tensor) -> Any:  # noqa: A002
    """The next value of the operands' type after input, towards other."""
    made, operands = _next_of(input, other)
    return _planned(made, *operands)


def _nextafter_inplace(self: Tensor, other: Tensor) -> Any:
    made, operands = _next_of(self, other)
    return _written(made, *operands)


def _nextafter_told(args: tuple[Any, ...], kwargs: dict[str, Any]) -> table.Told:
    return *_next_of(*args, **kwargs), (), ()


nextafter = table.planned("nextafter", _nextafter, inplace=_nextafter_inplace, out=table.writing(_nextafter_told), kinds=_PAIR)


def _no_complex(x: Any, v: Any) -> None:
    """Raises RuntimeError for complex operands of `heaviside`."""
    if any(isinstance(t, Tensor) and t.meta.dtype.is_complex for t in (x, v)):
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")


pointwise("heaviside", "input values", lambda x, v: where(x == 0, v, E.cast(x > 0, x.dtype)), accept="buif", tensors=2, alike=True, lacks="both",
          types=_no_complex,
          doc="0 below 0, 1 above it, `values` at 0; 0 for NaN.")


def _no_truths(x: Any, y: Any) -> None:
    if x.meta.dtype.kind in "fc" and y.meta.dtype is bool_:
        raise NotImplementedError("\"ldexp\" not implemented for 'Bool': other is a tensor of truths")


pointwise("ldexp", "input other", lambda x, y: x * E.exp2(y), promote="float", tensors=2, types=_no_truths, doc="input * 2**other.")


def _logaddexp(exp: Any, log1p: Any) -> Any:
    def formula(x: Expr, y: Expr) -> Expr:
        top = E.maximum(x, y)
        same = (x == y) & (abs(x) == math.inf)
        return where(same, x, top + log1p(exp(-abs(x - y))))
    return formula


def _soft_share(exp: Any) -> Any:
    def grad(g: Expr, x: Expr, y: Expr, out: Expr) -> tuple[Expr, Expr]:
        if x.dtype.is_complex:
            return g * E.conj(exp(x - out)), g * E.conj(exp(y - out))
        gap = x - y  # not from the result, which may be rounded to 16 bits
        return g / (1.0 + exp(-gap)), g / (1.0 + exp(gap))
    return grad


def _logaddexp_any(x: Expr, y: Expr) -> Any:
    if not x.dtype.is_complex:
        return _logaddexp(E.exp, E.log1p)(x, y)
    swap = E.real(x) < E.real(y)
    top, low = where(swap, y, x), where(swap, x, y)
    same = (E.real(x) == E.real(y)) & (abs(E.real(x)) == math.inf)  # the difference of equal infinities is none
    return where(same, where(E.real(x) < 0.0, top, E.log(E.exp(x) + E.exp(y))), top + E.log1p(E.exp(low - top)))


LOGADDEXP = pointwise("logaddexp", "input other", _logaddexp_any, accept="fc", grad=_soft_share(E.exp), inplace=False, tensors=2,
          doc="log(exp(input) + exp(other)), without overflow.")
pointwise("logaddexp2", "input other", _logaddexp(E.exp2, lambda x: E.log1p(x) * (1 / math.log(2.0))), accept="f",
          grad=_soft_share(E.exp2), inplace=False, tensors=2)


def _xlog(log: Any) -> Any:
    def formula(x: Expr, y: Expr) -> Expr:
        return where(E.isnan(y), y, where(x == 0.0, E.const(0, x.dtype), x * log(y)))
    return formula


pointwise("xlogy", "input other", _xlog(E.log), promote="float", accept="f", tensors=0, aliases=("special.xlogy",),
          grad=lambda g, x, y, out: (where((x == 0.0) & (y <= 0.0), E.const(0, g.dtype), g * E.log(y)), g * (x / y)),
          doc="input * log(other), 0 where input is 0.")
pointwise("xlog1py", "input other", _xlog(E.log1p), promote="float", accept="f", tensors=0, spaces=("special",), method=False, inplace=False,
          grad=lambda g, x, y, out: (where((x == 0.0) & (y <= -1.0), E.const(0, g.dtype), g * E.log1p(y)), g * (x / (y + 1.0))))

# ------------------------------------------------------------------------------------------------------------ three operands


def _ends_alike(a: Tensor, b: Tensor, weight: Any) -> None:
    """The ends are of one type; so is a weight that has axes, while one without may make the ends' integers floating point numbers."""
    for name, t in (("end", b), ("weight", weight)):
        if isinstance(t, Tensor) and t.meta.dtype is not a.meta.dtype and (t is b or t.meta.shape):
            raise RuntimeError(f"lerp(): expected dtype {dtypes.title(a.meta.dtype)} for `{name}` but got dtype {dtypes.title(t.meta.dtype)}; "
                               ".to(dtype) makes them one type.")
    if not isinstance(weight, Tensor):
        of_kinds("lerp", a, "fc")


def _divides_no_integers(x: Tensor, a: Tensor, b: Tensor) -> None:
    if a.meta.dtype.kind in "bui" and b.meta.dtype.kind in "bui":
        raise RuntimeError("Integer division with addcdiv is no longer supported. (input + value * torch.trunc(tensor1 / tensor2)).to(input.dtype) "
                           "is what it was, (input + value * tensor1 / tensor2) for tensors of floating point numbers what it is.")


pointwise("lerp", "input end weight", lambda a, b, w: where(abs(w) < 0.5, a + w * (b - a), b - (b - a) * (1.0 - w)), accept="fc", tensors=2,
          types=_ends_alike,
          grad=lambda g, a, b, w, y: (g * E.conj(1.0 - w), g * E.conj(w), g * E.conj(b - a)), doc="input + weight * (end - input).")
pointwise("addcmul", "input tensor1 tensor2", lambda x, a, b, value: x + E.cast(value, x.dtype) * a * b, numbers={"value": 1}, keyword=("value",), tensors=3,
          accept="uifc", doc="input + value * tensor1 * tensor2.")
pointwise("addcdiv", "input tensor1 tensor2", lambda x, a, b, value: x + value * a / b, numbers={"value": 1}, keyword=("value",), tensors=3,
          accept="fc", types=_divides_no_integers, doc="input + value * tensor1 / tensor2.")

WHERE = Pointwise("where", lambda c, x, y: where(c, x, y), 3, apart=(0,), accept="buifc8")
WHERE.grad_name = "WhereBackward0"


def _where(condition: Tensor, input: Any = None, other: Any = None) -> Any:  # noqa: A002
    """input where condition, else other, broadcast; with the condition alone, the indices where it is true."""
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    return _planned(WHERE, *_choice(condition, input, other))


def _choice(condition: Any, input: Any = None, other: Any = None) -> tuple[Any, Any, Any]:  # noqa: A002
    """The operands of `where`, when they may be so."""
    if not isinstance(condition, (Tensor, Expr)):
        raise TypeError(f"where(): argument 'condition' (position 1) must be Tensor, not {type(condition).__name__}")
    if isinstance(condition, Tensor) and condition.meta.dtype not in (bool_, dtypes.uint8):
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype "
                           f"{condition.meta.dtype}")
    if isinstance(condition, Tensor) and condition.meta.dtype is dtypes.uint8:
        warn_once("where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version of PyTorch. "
                  "Use a boolean condition instead.")
    for one, another in ((input, other), (other, input)):
        if type(one) is int and isinstance(another, Tensor) and another.meta.dtype.kind in "ui":
            dtypes.number(one, another.meta.dtype)
    return condition, _operand("where", "input", input), _operand("where", "other", other)


where_ = table.planned("where", _where, out=table.writing(lambda args, kwargs: (WHERE, _choice(*args, **kwargs), (), ())), method=False,
                       kinds={"condition": TENSOR, "input": VALUE, "other": VALUE})


def _where_method(self: Tensor, condition: Tensor, other: Any) -> Any:
    """self where condition, else other."""
    return where_(condition, self, other)


# --------------------------------------------------------------------------------------------------------------- operators
def _foreign(b: Any) -> Any:
    """What the other side of an operator is among operands: NumPy's arrays as tensors, its numbers as Python's; NotImplemented for what is
    none, so that Python asks the other side."""
    if isinstance(b, (Tensor, *NUMBER, Expr)) or hasattr(type(b), "__torch_function__"):
        return b
    if isinstance(b, np.ndarray):
        from .creation import from_numpy
        return from_numpy(b)
    return b.item() if isinstance(b, np.generic) else NotImplemented


class _Operator(Operation):
    """A binary operator of Python's: an operation under a name of its own. reflected: the operands come the other way round."""

    __slots__ = ("of", "reflected")

    def __init__(self, shown: str, of: Operation, reflected: bool = False) -> None:
        self.of, self.reflected = of, reflected
        body = self._plan if of.planned else self._swapped if reflected else of.body
        signature = Signature(("input", "other"), kinds={"input": TENSOR, "other": (VALUE if of.name == "pow" else EITHER) if of.planned else TENSOR})
        signature.reflected = reflected
        super().__init__(of.name, body, planned=of.planned, shown=shown, signature=signature)

    def _call(self, a: Any, b: Any) -> Any:
        try:
            return self.of.direct(b, a) if self.reflected else self.of.direct(a, b)
        except TypeError:
            if isinstance(b, (Tensor, *NUMBER)):
                raise
            return NotImplemented  # an object that answers for operations, and not for this one: Python asks its own operator

    def _swapped(self, a: Any, b: Any) -> Any:
        return self.of.body(b, a)

    def _plan(self, a: Any, b: Any) -> Any:
        """The plan of the operation behind the operator, its other parameters having their defaults."""
        x, whole = _foreign(b), self.of.started().signature
        if x is NotImplemented:
            return x
        assert whole is not None
        if x is not b or (hasattr(type(b), "__torch_function__") and not isinstance(b, Tensor)):
            return self._call(a, x)
        given = (x, a) if self.reflected else (a, x)
        values = (*given, *whole.defaults[len(whole.defaults) - len(whole.positional) + 2:], *whole.kwdefaults.values())
        args, kwargs = whole.whole((*values, ()) if whole.rest is not None else values)
        made = self.of.body(*args, **kwargs)
        if type(made) not in PLANS:
            return made
        rest = [values[i] for i in self.of.places[2:]]
        if not rest or (type(made) in (Plan, Written) and all(self.of._is_one(i, x) for i, x in zip(self.of.places[2:], rest))):
            return made
        run = made.bind(getattr(made, "letters", "") or roles((*given, *[None] * len(rest))))
        return Compose(lambda a, b: run(a, b, *rest))  # which it is given in the formula's order

    def tripped(self, error: Exception, values: tuple[Any, ...]) -> Any:
        a, b = values
        x = _foreign(b)
        if x is NotImplemented or (not self.of.planned and not isinstance(x, Tensor) and not hasattr(type(x), "__torch_function__")):
            return NotImplemented
        if x is not b or (not self.of.planned and not isinstance(x, Tensor)):
            self.of.started()
            return self._call(a, x)
        return super().tripped(error, values)


def _in_place(f: Any) -> Any:
    """An in-place operator, which leaves what is no tensor and no number (a NumPy array, a class of the program's) to the operator out of place."""
    def call(self: Any, other: Any) -> Any:
        try:
            return f(self, other)
        except TypeError:
            if isinstance(other, (Tensor, *NUMBER, np.generic, Expr)):
                raise
            return NotImplemented
    call.__name__ = call.__qualname__ = f.__name__
    return call


def operators(target: type, functions: dict[str, Any]) -> None:
    """Gives the Tensor Python's operators."""
    sums = fields.of("sums")
    for name, of in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("floordiv", "floor_divide"), ("mod", "remainder"), ("pow", "pow"),
                     ("and", "bitwise_and"), ("or", "bitwise_or"), ("xor", "bitwise_xor"), ("lshift", "bitwise_left_shift"),
                     ("rshift", "bitwise_right_shift"), ("matmul", "matmul"),
                     ("lt", "lt"), ("le", "le"), ("gt", "gt"), ("ge", "ge"), ("eq", "eq"), ("ne", "ne")):
        operation = functions[of].__operation__
        setattr(target, f"__{name}__", _Operator(f"__{name}__", operation).function)
        shown = [f"__{name}__"]
        if name not in ("lt", "le", "gt", "ge", "eq", "ne"):
            shown.append(f"__r{name}__")
            setattr(target, f"__r{name}__", _Operator(f"__r{name}__", operation, reflected=True).function)
        has(" ".join(shown), batch="product" if name == "matmul" else "pointwise")
        if of in sums:
            has(" ".join(shown if sums[of] != "first" else shown[:1]), sums=sums[of])
    target.__rdiv__ = target.__rtruediv__  # type: ignore[attr-defined]
    has("__rdiv__", batch="pointwise")
    inplace = {"add": "add_", "sub": "sub_", "mul": "mul_", "truediv": "div_", "floordiv": "floor_divide_", "mod": "remainder_",
               "pow": "pow_", "and": "bitwise_and_", "or": "bitwise_or_", "xor": "bitwise_xor_",
               "lshift": "bitwise_left_shift_", "rshift": "bitwise_right_shift_"}
    for name, method in inplace.items():
        setattr(target, f"__i{name}__", _in_place(functions[method]))
        has(f"__i{name}__", batch="pointwise")
        if method[:-1] in sums:
            has(f"__i{name}__", sums=sums[method[:-1]])
    target.__neg__ = functions["neg"]  # type: ignore[operator]
    target.__pos__ = functions["positive"]  # type: ignore[operator]
    target.__abs__ = functions["abs"]  # type: ignore[attr-defined]
    target.__invert__ = functions["bitwise_not"]  # type: ignore[operator]
    target.__hash__ = object.__hash__  # type: ignore[assignment]
    target.where = _where_method  # type: ignore[attr-defined]

has("pow", autocast="cuda full")
has("addcdiv addcmul", autocast="cuda widest")
has("add div floor_divide fmod isclose mul pow remainder sub true_divide where", batch="pointwise")
has("add sub", sums="two")
has("mul", sums="one")
has("div true_divide", sums="first")
has("ldexp", out_type="castable")
has("heaviside where", out_type="same")
has("clamp maximum minimum where", gradient_lies="saved")
has("rsub", sparse="composite")
has("heaviside", out_said="{name} is not yet implemented for complex tensors.")
