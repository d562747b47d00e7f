"""`@flambeau.pointwise`: a user's formula as one fused operation with its gradient, on every device."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ..kernels.expr import Expr, lift
from ..tensor import Tensor
from .elementwise import Pointwise


def pointwise(formula: Any = None, *, promote: str = "float") -> Any:
    """Makes one operation of a function written with Python's operators and Flambeau's pointwise functions.

    The function's parameters are tensors or numbers, broadcast and promoted like any operation's operands; keyword-only
    parameters are fixed in the kernel, one kernel a value.  It is run once per combination of types, on expressions, so it
    cannot branch on values (`flambeau.where` chooses).  Returns an expression or a tuple of them.

        @flambeau.pointwise
        def gelu_residual(x, bias, residual):
            y = x + bias
            return 0.5 * y * (1 + flambeau.tanh(0.79788456 * (y + 0.044715 * y * y * y))) + residual

    promote: "float" computes integers in the default float type, "default" keeps the operands' common type.
    Raises TypeError when called with the wrong arguments or when the function returns no expression.
    """
    if formula is None:
        return functools.partial(pointwise, promote=promote)
    parameters = inspect.signature(formula).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    fixed = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters) or not names:
        raise TypeError("a pointwise formula has a fixed number of positional parameters, at least one")
    defaults = {p.name: p.default for p in parameters if p.name in names and p.default is not p.empty}

    def checked(*xs: Expr, **consts: Any) -> Any:
        out = formula(*xs, **consts)
        parts = out if isinstance(out, tuple) else (out,)
        for e in parts:
            if not isinstance(e, Expr):
                raise TypeError(f"the formula {formula.__name__} must return an expression of its operands (or a tuple of them), "
                                f"not {type(e).__name__}")
        return out
    made = Pointwise(formula.__name__, _Fixed(checked), len(names), promote)

    @functools.wraps(formula)
    def call(*args: Any, **kwargs: Any) -> Any:
        consts = tuple((k, kwargs.pop(k, v)) for k, v in fixed.items())
        for k, v in consts:
            if v is inspect.Parameter.empty:
                raise TypeError(f"{formula.__name__}() missing 1 required keyword-only argument: '{k}'")
        got = dict(zip(names, args, strict=False))
        if len(args) > len(names):
            raise TypeError(f"{formula.__name__}() takes {len(names)} positional arguments but {len(args)} were given")
        for k, v in kwargs.items():
            if k not in names or k in got:
                raise TypeError(f"{formula.__name__}() got {'multiple values for' if k in got else 'an unexpected keyword'} argument '{k}'")
            got[k] = v
        operands = []
        for n in names:
            if n not in got and n not in defaults:
                raise TypeError(f"{formula.__name__}() missing 1 required positional argument: '{n}'")
            v = got.get(n, defaults.get(n))
            if not isinstance(v, (Tensor, int, float, complex, Expr)):
                raise TypeError(f"{formula.__name__}(): argument '{n}' must be Tensor or Number, not {type(v).__name__}")
            operands.append(v)
        if not any(isinstance(x, (Tensor, Expr)) for x in operands):
            raise TypeError(f"{formula.__name__}(): at least one argument must be a Tensor")
        like = next((x for x in operands if isinstance(x, Expr)), None)
        if like is not None:  # called inside another formula, of which its numbers become constants
            operands = [lift(x, like) for x in operands]
        return made(tuple(operands), (), consts)
    call.formula = formula  # type: ignore[attr-defined]
    return call


class _Fixed:
    """A formula without launch-time numbers, whatever its Python signature says."""

    numbers = 0

    def __init__(self, formula: Any) -> None:
        self.formula = formula

    def __call__(self, *xs: Any, **consts: Any) -> Any:
        return self.formula(*xs, **consts)
