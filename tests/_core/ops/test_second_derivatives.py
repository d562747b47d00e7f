"""Second derivatives of every pointwise formula there is, against finite differences of the first, real and complex.

The cases are read from the list of formulas itself: a new one is covered as soon as it exists.  A formula is tried on points
of several intervals and checked on those where it and its slope are finite.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import flambeau as fb
import flambeau.nn.functional  # noqa: F401 (its formulas enter the list)
from flambeau._core.ops import elementwise
from flambeau._core.ops.elementwise import Pointwise, _Derived
from flambeau._core.ops.table import TABLE
from flambeau.autograd import gradcheck, gradgradcheck

# what formulas take beside their operands: numbers passed at launch, and constants of the kernel
NUMBERS = {"alpha": 0.7, "value": 0.9, "slope": 0.2, "beta": 1.5, "threshold": 0.1, "lambd": 0.5, "lo": -0.5, "hi": 0.5, "eps": 1e-3, "n": 3.0,
           "keep": 0.9, "take": 0.1, "unbiased": 2.0, "part": 0.3, "margin": 1.3, "delta": 0.45, "done": 8.0,
           "depth": 3.0, "height": 4.0, "width": 5.0}
CONSTANTS = {"exponent": 3, "rtol": 1e-5, "atol": 1e-8, "equal_nan": False, "logit.eps": None, "_polygamma.n": 2,
             "poisson_nll_loss.eps": 1e-3, "decimals": 0, "nan": None, "posinf": None, "neginf": None,
             "approximate": "none", "top": 4, "grid_places.mode": "bilinear", "padding_mode": "zeros", "align_corners": False}
INTERVALS = ((-0.83, -0.17), (0.17, 0.83), (1.2, 2.4))
# formulas of one operand in one type whose slope by another operand is not known: that one is held fixed
FIXED = {"zeta": (0,)}
# steps from one number to the next: there is no finite difference
STEPS = ("nextafter",)


def _extras(made: Pointwise) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    names = [p.name for p in inspect.signature(made.formula).parameters.values()][made.arity:]
    constants = {n: CONSTANTS[k] for n in names for k in (f"{made.name}.{n}", n) if k in CONSTANTS}
    return tuple(NUMBERS[n] for n in names if n not in constants), tuple(constants.items())


def _operands(made: Pointwise, interval: tuple[float, float], d: Any, n: int = 3) -> list[Any]:
    rng = np.random.default_rng(5)
    found = []
    for i in range(made.arity):
        if i in made.apart:
            found.append(fb.tensor(rng.integers(0, 2, n).astype(bool)))
            continue
        x = rng.uniform(*interval, n)
        x = x * np.exp(0.6j * rng.uniform(-1, 1, n)) if d.is_complex else x
        found.append(fb.tensor(x, dtype=d, requires_grad=i not in FIXED.get(made.name, ())))
    return found


def _call(made: Pointwise, numbers: tuple[Any, ...], constants: tuple[tuple[str, Any], ...], xs: Any) -> Any:
    out = made(tuple(xs), numbers, constants)
    return out if not isinstance(out, tuple) else tuple(o for o in out if o.is_floating_point() or o.is_complex())


def _formulas() -> dict[str, Pointwise]:
    found: dict[str, Pointwise] = {}
    for made in list(elementwise.all_formulas):
        if isinstance(made.formula, _Derived) or "f" not in made.accept or made.lacks == "both" or made.name in ("to", *STEPS):
            continue
        # those of the op table: not optimizers' steps, nor what other tests of this process made
        if not getattr(made.formula, "__module__", "flambeau._core.ops").startswith(("flambeau._core.ops", "flambeau.nn", "flambeau._core.kernels")):
            continue
        numbers, constants = _extras(made)
        types = made.program(_operands(made, (0.2, 0.8), fb.float64, 1), numbers, constants, fb.float64, None)[0].out_types
        if any(t.kind == "f" for t in types):
            name, k = made.name, 2
            while name in found:
                name, k = f"{made.name} {k}", k + 1
            found[name] = made
    return found


FORMULAS = _formulas()


def _finite(made: Pointwise, extras: Any, xs: list[Any]) -> bool:
    out = _call(made, *extras, xs)
    outs = [o for o in (out if isinstance(out, tuple) else (out,)) if o.requires_grad]
    wanted = [x for x in xs if x.requires_grad]
    grads = fb.autograd.grad(outs, wanted, [fb.ones_like(o) for o in outs], allow_unused=True) if outs else ()
    return all(bool(v.detach().isfinite().all()) for v in (*(out if isinstance(out, tuple) else (out,)), *grads) if v is not None)


def _check(made: Pointwise, d: Any) -> int:
    """On how many intervals the slopes were checked."""
    extras = _extras(made)
    checked = 0
    for interval in INTERVALS:
        xs = _operands(made, interval, d)
        if not _finite(made, extras, xs):
            continue
        checked += 1
        f = lambda *v: _call(made, *extras, v)  # noqa: E731
        assert gradcheck(f, tuple(xs), atol=1e-4), interval
        assert gradgradcheck(f, tuple(xs), atol=1e-4), interval
    return checked


@pytest.mark.parametrize("name", FORMULAS)
def test_second_derivatives(name: str) -> None:
    assert _check(FORMULAS[name], fb.float64)


def _complex() -> list[str]:
    """The formulas that can be written for complex numbers and give some or the size of some."""
    found = []
    for name, made in FORMULAS.items():
        if "c" not in made.accept:
            continue
        numbers, constants = _extras(made)
        try:
            made.program(_operands(made, (0.2, 0.8), fb.complex128, 1), numbers, constants, fb.complex128, None)
        except (TypeError, NotImplementedError, RuntimeError, ValueError, AssertionError):
            continue  # compares or rounds: for real numbers only
        found.append(name)
    return found


COMPLEX = _complex()


@pytest.mark.parametrize("name", COMPLEX)
def test_second_derivatives_of_complex_numbers(name: str) -> None:
    if FORMULAS[name].lacks == "complex":
        with pytest.raises(RuntimeError, match="does not support automatic differentiation for outputs with complex dtype"):
            _check(FORMULAS[name], fb.complex128)
        return
    assert _check(FORMULAS[name], fb.complex128)


def test_the_list_is_whole() -> None:
    """What the table has in every program is among the cases, but for answers of true and false and for steps from number to number."""
    listed = {id(made) for made in FORMULAS.values()}
    for name, row in TABLE.items():
        if row.pointwise is None or "f" not in row.pointwise.accept or row.pointwise.lacks == "both" or id(row.pointwise) in listed or name in STEPS:
            continue
        numbers, constants = _extras(row.pointwise)
        types = row.pointwise.program(_operands(row.pointwise, (0.2, 0.8), fb.float64, 1), numbers, constants, fb.float64, None)[0].out_types
        assert all(t is fb.bool for t in types), name
    assert len(FORMULAS) > 130 and {"exp", "mul", "lerp", "gelu", "addcdiv", "softsign", "logaddexp", "silu"} <= set(FORMULAS)
    assert {"exp", "mul", "lerp", "softsign", "logaddexp", "silu", "tanhshrink", "pow"} <= set(COMPLEX)
