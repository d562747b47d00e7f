"""Derivatives of expressions: every rule against finite differences, complex ones too, and the sum over many paths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._core.dtypes import bool_, complex128, float32, float64, int64
from flambeau._core.kernels import derive, interpret
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.formulas import plain

X, Y, G = E.input(0, float64), E.input(1, float64), E.input(9, float64)


def evaluate(e, values):
    return interpret.evaluate(plain((e,)), lambda leaf, args: np.asarray(values[leaf.value]))[0]


def slopes(f, points, eps=1e-6):
    """Central differences of a real formula for each operand."""
    out = []
    for k in range(len(points)):
        up, down = list(points), list(points)
        up[k], down[k] = up[k] + eps, down[k] - eps
        out.append((evaluate(f, up) - evaluate(f, down)) / (2 * eps))
    return out


SMOOTH = {  # an interval inside which each primitive is smooth
    "neg": (-2, 2), "abs": (0.2, 2), "sqrt": (0.2, 3), "rsqrt": (0.2, 3), "exp": (-2, 2), "exp2": (-2, 2), "expm1": (-2, 2), "log": (0.2, 3),
    "log2": (0.2, 3),
    "log10": (0.2, 3), "log1p": (-0.5, 3), "sin": (-3, 3), "cos": (-3, 3), "tan": (-1, 1), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atan": (-3, 3),
    "sinh": (-2, 2), "cosh": (-2, 2), "tanh": (-2, 2), "asinh": (-2, 2), "acosh": (1.2, 3), "atanh": (-0.9, 0.9), "erf": (-2, 2), "erfc": (-2, 2),
    "lgamma": (0.3, 4),
    "floor": (0.1, 0.9), "ceil": (0.1, 0.9), "round": (0.6, 0.9), "trunc": (0.1, 0.9)}
PAIRS = {"add": (-2, 2), "sub": (-2, 2), "mul": (-2, 2), "div": (0.3, 2), "pow": (0.3, 2), "maximum": (-2, 2), "minimum": (-2, 2), "rem": (0.3, 0.9),
         "fmod": (0.3, 0.9),
         "atan2": (0.3, 2), "hypot": (0.3, 2), "copysign": (0.3, 2), "floordiv": (0.3, 0.9), "truncdiv": (0.3, 0.9)}


def test_every_primitive_is_tried():
    assert set(SMOOTH) == set(E.UNARY) - {"not"}
    assert set(PAIRS) == set(E.BINARY) - {"and", "or", "xor", "shl", "shr", "nextafter"}


@pytest.mark.parametrize("op", sorted(SMOOTH))
def test_unary_rules(op):
    x = np.random.default_rng(0).uniform(*SMOOTH[op], 40)
    f = E.unary(op, X)
    (got,) = derive.gradients([f], [G], [X])
    (want,) = slopes(f, [x])
    found = np.zeros(40) if got is None else evaluate(got, {0: x, 9: np.full(40, 2.0)})
    np.testing.assert_allclose(found, 2 * want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", sorted(PAIRS))
@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1)])
def test_binary_rules(op, signs):
    signs = (1, signs[1]) if op == "pow" else signs  # a negative base has no real powers
    rng = np.random.default_rng(1)
    x, y = (s * rng.uniform(*PAIRS[op], 40) for s in signs)
    if op in ("rem", "fmod", "floordiv", "truncdiv"):
        x, y = x * 0.9, y + np.sign(y)  # no whole quotient in between
    f = E.binary(op, X, Y)
    got = derive.gradients([f], [G], [X, Y])
    for g, want in zip(got, slopes(f, [x, y]), strict=True):
        found = np.zeros(40) if g is None else evaluate(g, {0: x, 1: y, 9: np.full(40, 3.0)})
        np.testing.assert_allclose(found, 3 * want, rtol=1e-5, atol=1e-5)


Z, W, H = E.input(0, complex128), E.input(1, complex128), E.input(9, complex128)
COMPLEX = {"neg": E.unary("neg", Z), "sqrt": E.sqrt(Z), "exp": E.exp(Z), "log": E.log(Z), "sin": E.sin(Z), "cos": E.cos(Z), "tan": E.tan(Z),
           "tanh": E.tanh(Z), "sinh": E.sinh(Z),
           "mul": Z * W, "div": Z / W, "pow": E.pow_(Z, W), "conj": E.conj(Z) * Z, "abs": E.abs_(Z) * 1.5, "real": E.real(Z * W), "imag": E.imag(Z * W),
           "made": E.complex_(E.real(Z) * E.real(Z), E.imag(W)), "square": Z ** 2, "atan": E.atan(Z), "rsqrt": E.rsqrt(Z), "acosh": E.acosh(Z),
           "log1p": E.log1p(Z)}


@pytest.mark.parametrize("name", sorted(COMPLEX))
def test_complex_rules_are_conjugate_gradients(name):
    """For a real loss L = Re(conj(g) f), the gradient is dL/dRe z + i dL/dIm z."""
    rng = np.random.default_rng(2)
    f = COMPLEX[name]
    z, w = (rng.uniform(0.3, 1.2, 10) + 1j * rng.uniform(0.2, 1.0, 10) for _ in range(2))
    g = rng.normal(size=10) + (1j * rng.normal(size=10) if f.dtype.is_complex else 0)
    g = g if f.dtype.is_complex else g.real
    got = derive.gradients([f], [H if f.dtype.is_complex else G], [Z, W])
    for k, found in enumerate(got):
        parts = []
        for step in (1e-6, 1e-6j):
            up, down = [z, w], [z, w]
            up[k], down[k] = up[k] + step, down[k] - step
            parts.append((np.conj(g) * (evaluate(f, up) - evaluate(f, down)) / 2e-6).real)
        want = parts[0] + 1j * parts[1]
        np.testing.assert_allclose(np.zeros(10) if found is None else evaluate(found, {0: z, 1: w, 9: g}), want, rtol=1e-5, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.recursive(st.sampled_from(["x", "y"]), lambda s: st.one_of(
    st.tuples(st.sampled_from("+-*"), s, s).map(lambda t: f"({t[1]} {t[0]} {t[2]})"),
    st.tuples(st.sampled_from(["sin", "tanh", "exp", "atan"]), s).map(lambda t: f"{t[0]}({t[1]} * 0.3)")), max_leaves=7))
def test_whole_formulas(text):
    f = eval(text, {"x": X, "y": Y, "sin": E.sin, "tanh": E.tanh, "exp": E.exp, "atan": E.atan})
    at = [np.array([0.4, -0.7]), np.array([0.9, 0.2])]
    got = derive.gradients([f], [E.const(1.0, float64)], [X, Y])
    for g, want in zip(got, slopes(f, at), strict=True):
        np.testing.assert_allclose(0 if g is None else evaluate(g, at), want, rtol=1e-4, atol=1e-4)


def test_second_derivatives_come_from_the_first():
    f = E.exp(E.sin(X) * X)
    (d1,) = derive.gradients([f], [E.const(1.0, float64)], [X])
    (d2,) = derive.gradients([d1], [E.const(1.0, float64)], [X])
    x = np.array([0.3, 1.1])
    np.testing.assert_allclose(evaluate(d2, [x]), slopes(d1, [x])[0], rtol=1e-6)


def test_several_roots_add_up_and_unused_leaves_have_none():
    a, b = derive.gradients([X * Y, X + 1.0], [G, E.const(10.0, float64)], [X, E.input(5, float64)])
    assert b is None and evaluate(a, {0: 2.0, 1: 3.0, 9: 1.0}) == 13.0
    assert derive.gradients([X * Y, X], [None, G], [X])[0] is G


def test_ties_are_shared_and_chosen_sides_get_everything():
    for op in ("maximum", "minimum"):
        gx, gy = derive.gradients([E.binary(op, X, Y)], [E.const(1.0, float64)], [X, Y])
        x, y = np.array([1.0, 2.0, 2.0]), np.array([1.0, 1.0, 3.0])
        want = np.array([0.5, 1.0, 0.0])
        np.testing.assert_array_equal(evaluate(gx, [x, y]), want if op == "maximum" else np.array([0.5, 0, 1]))
        np.testing.assert_array_equal(evaluate(gx, [x, y]) + evaluate(gy, [x, y]), 1.0)
    gx, gy = derive.gradients([E.where(X > 0, X * 2, Y)], [E.const(1.0, float64)], [X, Y])
    np.testing.assert_array_equal(evaluate(gx, [np.array([1.0, -1.0]), np.zeros(2)]), [2, 0])


def test_edges_where_a_formula_would_give_nan():
    (g,) = derive.gradients([E.pow_(X, Y)], [E.const(1.0, float64)], [Y])
    assert evaluate(g, [np.array(0.0), np.array(2.0)]) == 0
    (g,) = derive.gradients([E.pow_(X, E.const(0.0, float64))], [E.const(1.0, float64)], [X])
    assert evaluate(g, [np.array(0.0)]) == 0
    (g,) = derive.gradients([E.hypot(X, Y)], [E.const(1.0, float64)], [X])
    assert evaluate(g, [np.array(0.0), np.array(0.0)]) == 0
    (g,) = derive.gradients([E.abs_(X)], [E.const(1.0, float64)], [X])
    assert evaluate(g, [np.array([-2.0, 0.0, 3.0])]).tolist() == [-1, 0, 1]


def test_casts_carry_the_gradient_back_in_the_sources_type():
    x = E.input(0, float32)
    (g,) = derive.gradients([E.cast(x, float64) * 2.0], [G], [x])
    assert g.dtype is float32
    i = E.input(0, int64)
    assert derive.gradients([E.cast(i, float64)], [G], [i]) == [None]
    assert derive.gradients([E.cast(X > 0, float64)], [G], [X]) == [None]
    z = E.cast(X, complex128)
    (g,) = derive.gradients([z * 2j], [H], [X])
    assert g.dtype is float64


def test_primitives_without_a_derivative_say_so():
    odd = E.make("strange", float64, (X,))
    with pytest.raises(NotImplementedError, match="the primitive 'strange' has no derivative"):
        derive.gradients([odd], [G], [X])
    assert derive.gradients([E.nextafter(X, Y)], [G], [X]) == [None] and (X > 0).dtype is bool_


@pytest.mark.parametrize("order", [1, 2])
def test_a_logistic_function_has_a_slope_where_its_exponential_is_infinite(order):
    """n / (1 + exp(u)), in either order of the sum: u and n of any size, by slopes of the logistic function s: s(1 - s), and s(1 - s)(1 - 2s)."""
    at = np.array([-1e5, -800.0, -40.0, -1.0, 0.0, 1.0, 40.0, 800.0, 1e5])
    with np.errstate(over="ignore"):
        s = 1 / (1 + np.exp(at))
    for f in (Y / (1.0 + E.exp(X)), Y / (E.exp(X) + 1.0)):
        by_x, by_y = derive.gradients([f], [E.const(1, float64)], [X, Y])
        if order == 2:
            by_x, = derive.gradients([by_x], [E.const(1, float64)], [X])
        with np.errstate(over="ignore"):
            found = evaluate(by_x, [at, np.full(9, 3.0)])
        want = -s * (1 - s) if order == 1 else s * (1 - s) * (1 - 2 * s)
        np.testing.assert_allclose(found, 3 * want, atol=1e-15)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(evaluate(by_y, [at, np.full(9, 3.0)]), s)


def test_another_quotient_is_derived_by_the_rules():
    for f in (1.0 / (2.0 + E.exp(X)), 1.0 / (1.0 + E.exp2(X)), Y / (1.0 + X), E.exp(X) / (1.0 + E.exp(X))):
        got = derive.gradients([f], [E.const(1, float64)], [X])[0]
        np.testing.assert_allclose(evaluate(got, [0.7, 0.4]), slopes(f, [0.7, 0.4])[0], rtol=1e-8)


INF = np.inf
AT = np.array([-2.0, 0.0, 0.5, 2.0, INF, -INF])
# formulas of cases, one of which has an infinite derivative where another is chosen: (formula, its first and its second derivative at AT)
CASES_OF = {
    "a constant": (E.where(X == 0.0, E.const(1, float64), E.sqrt(E.abs_(X))), [-0.35355339, 0, 0.70710678, 0.35355339, 0, 0],
                   [-0.08838835, 0, -0.70710678, -0.08838835, 0, 0]),
    "two sides": (E.where(E.abs_(X) < 1.0, X * X, 2.0 * E.abs_(X) - 1.0), [-2, 0, 1, 2, 2, -2], [0, 2, 2, 0, 0, 0]),
    "one inside another": (E.where(X > 0.0, E.where(X < 1.0, X * E.log(X), X - 1.0), E.const(0, float64)), [0, 0, 1 + np.log(0.5), 1, 1, 0],
                           [0, 0, 2, 0, 0, 0]),
    "shared": (E.where(X > 0.0, X, E.exp(X)) + E.where(X > 1.0, E.exp(-X), E.const(0, float64)), [np.exp(-2), 1, 1, 1 - np.exp(-2), 1, 0],
               [np.exp(-2), 1, 0, np.exp(-2), 0, 0]),
}


@pytest.mark.parametrize("name", CASES_OF)
def test_the_derivative_of_a_case_that_is_not_chosen_is_left_out(name):
    f, first, second = CASES_OF[name]
    one = E.const(1, float64)
    (slope,) = derive.gradients([f], [one], [X])
    (curve,) = derive.gradients([slope], [one], [X])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(evaluate(slope, [AT]), first, atol=1e-8)
        found = np.zeros(len(AT)) if curve is None else np.broadcast_to(evaluate(curve, [AT]), AT.shape)
        np.testing.assert_allclose(found, second, atol=1e-8)


def test_both_cases_make_one_choice():
    """Derivatives of the two sides of a condition are chosen between, not added."""
    (slope,) = derive.gradients([E.where(X > 0.0, E.sin(X), E.exp(X))], [G], [X])
    assert slope is E.where(X > 0.0, G * E.cos(X), G * E.exp(X))
    (slope,) = derive.gradients([E.sin(E.where(X > 0.0, X, -X))], [G], [X])
    assert [e.op for e in E.walk((slope,))].count("where") == 2  # the value, and its slope


def test_cases_that_are_not_opposite_add_up():
    """One value in cases of two conditions that have nothing in common, and in none."""
    y = E.exp(X)
    at = np.array([-INF, -1.0, 0.5, 2.0, 800.0])
    f = E.where(X > 0.0, y, E.const(0, float64)) + E.where(X < 1.0, 3.0 * y, E.const(0, float64))
    (slope,) = derive.gradients([f], [E.const(1, float64)], [X])
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(evaluate(slope, [at]), (1.0 * (at > 0) + 3.0 * (at < 1)) * np.exp(at))
        (slope,) = derive.gradients([f + y], [E.const(1, float64)], [X])
        np.testing.assert_allclose(evaluate(slope, [at]), (1.0 + 1.0 * (at > 0) + 3.0 * (at < 1)) * np.exp(at))
