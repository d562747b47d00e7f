"""The expression language: one node a description, types, constants, folding that holds for every value, deep trees."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._core.dtypes import ALL, bool_, complex64, float16, float32, float64, int32, int64, promote_types, uint8
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret

X, Y, I = E.input(0, float32), E.input(1, float32), E.input(2, int64)  # noqa: E741


def value(e, *inputs):
    """What the interpreter gives for an expression."""
    return interpret.evaluate((e,), lambda leaf, args: inputs[leaf.value])[0]


def test_equal_descriptions_are_one_object():
    assert X + Y * 2.0 is X + Y * 2.0 and E.sin(X) is E.sin(X) and E.input(0, float32) is X
    assert X + Y is not Y + X and E.input(0, float64) is not X
    assert E.const(1, int64) is not E.const(1, float32) and E.const(0.0, float32) is not E.const(-0.0, float32)
    assert E.const(float("nan"), float32) is E.const(float("nan"), float32) and E.const(True, bool_) is E.const(3, bool_)
    assert len({X + Y, X + Y, X - Y}) == 2


def test_comparisons_build_expressions_and_have_no_truth():
    assert (X == Y).op == "eq" and (X == Y).dtype is bool_ and (X != 1).op == "ne" and (X < Y).dtype is bool_
    for wrong in (lambda: bool(X), lambda: 1 if X > 0 else 2, lambda: X and Y, lambda: not X, lambda: 0 < X < 1):
        with pytest.raises(TypeError, match=r"write where\(condition, a, b\)"):
            wrong()


@given(st.sampled_from(ALL), st.sampled_from(ALL))
def test_operands_are_promoted_together(a, b):
    try:
        want = promote_types(a, b)
    except RuntimeError:
        return
    e = E.input(0, a) + E.input(1, b)
    assert e.dtype is want and all(x.dtype is want for x in e.args)
    assert (E.input(0, a) < E.input(1, b)).dtype is bool_


def test_numbers_take_the_type_beside_them():
    assert (X + 1).dtype is float32 and (2 * X).dtype is float32 and (I + 1).dtype is int64 and (I * 2.5).dtype is float32
    assert (E.input(0, uint8) + 1).dtype is uint8 and (E.input(0, bool_) + 1).dtype is int64 and (E.input(0, float16) * 1.5).dtype is float16
    assert (X * 1j).dtype is complex64 and (X + True).dtype is float32
    with pytest.raises(TypeError, match="combines expressions and numbers, not str"):
        X + "1"


def test_float_functions_of_integers_are_floats():
    assert E.sqrt(I).dtype is float32 and (I / 2).dtype is float32 and E.floor(I) is I and E.atan2(I, I).dtype is float32
    assert (I // 2).dtype is int64 and abs(E.input(0, complex64)).dtype is float32 and (-X).dtype is float32 and E.unary("neg", -X) is X
    assert (X ** 2) is X * X and (X ** 1) is X and (X ** 0.5).op == "pow" and (X ** 3).op == "mul"


@given(st.integers(-(1 << 70), 1 << 70), st.sampled_from([d for d in ALL if d.kind in "ui"]))
def test_integer_constants_wrap(v, d):
    bits = d.itemsize * 8
    want = v & ((1 << bits) - 1)
    if d.is_signed and want >= 1 << (bits - 1):
        want -= 1 << bits
    assert E.const(v, d).value == want


def test_constants_are_cast_when_the_program_is_built():
    assert E.cast(E.const(2.7, float32), int32).value == 2 and E.cast(E.const(3, int64), float32).value == 3.0
    assert E.cast(E.const(float("nan"), float32), bool_).value is True and E.cast(X, float32) is X and E.cast(X, int32).op == "cast"


def test_folds_hold_for_every_value():
    assert X * 1 is X and 1 * X is X and X / 1.0 is X and E.where(X > 0, Y, Y) is Y and E.where(True, X, Y) is X and E.where(False, X, Y) is Y
    # these do not hold for NaN, infinities or signed zeros, and stay
    for e in (X * 0, X + 0, X - X, X / X, 0 + X):
        assert e.args and e.op in ("mul", "add", "sub", "div")
    for x in (math.nan, math.inf, -0.0):
        got = value(X * 0, x)
        assert math.isnan(got) if not math.isfinite(x) else got == 0 and math.copysign(1, got) == -1


def test_where_takes_numbers_and_promotes():
    assert E.where(X > 0, 1, 2).dtype is int64 and E.where(X > 0, 1.0, 2).dtype is float32 and E.where(X, X, 0).args[0].dtype is bool_
    assert E.where(I > 0, I, X).dtype is float32


def test_complex_parts():
    z = E.input(0, complex64)
    assert E.real(z).dtype is float32 and E.imag(X).op == "const" and E.conj(X) is X and E.conj(z).dtype is complex64
    assert E.complex_(X, 1.0).dtype is complex64 and E.complex_(I, I).dtype is complex64 and E.complex_(E.input(0, float64), 0.0).dtype.itemsize == 16


def test_walks_visit_children_first_and_shared_nodes_once():
    s = X * Y
    roots = (s + s, E.exp(s))
    order = [id(e) for e in E.walk(roots)]
    assert len(order) == len(set(order)) == 5
    assert order.index(id(X)) < order.index(id(s)) < order.index(id(roots[0]))


def test_rebuilding_replaces_leaves_and_keeps_what_does_not_change():
    e = E.exp(X * 2.0) + Y
    (same,) = E.rebuild((e,), lambda n: None)
    assert same is e
    (swapped,) = E.rebuild((e,), lambda n: Y if n is X else None)
    assert swapped is E.exp(Y * 2.0) + Y


def test_texts_tell_expressions_apart_and_say_the_same_twice():
    assert E.program_text((X + Y,)) == E.program_text((X + Y,)) != E.program_text((Y + X,))
    assert E.show(X + 1.5) == "add:float32(input[0]:float32,const[1.5]:float32)" and repr(X) == "input[0]:float32"
    assert E.program_text((E.const(0.0, float32),)) != E.program_text((E.const(-0.0, float32),))
    a, b = E.program_text((X * Y + X * Y,)), E.program_text((X * Y + Y * X,))
    assert a != b and a.count("mul") == 1  # shared nodes are listed once


def test_deep_trees_need_no_recursion():
    e = X
    for i in range(sys.getrecursionlimit() * 3):
        e = e * 1.0001 + float(i % 3)
    assert sum(1 for _ in E.walk((e,))) > 3000 and len(E.program_text((e,))) > 1000
    assert math.isfinite(value(e, 1.0))
    assert E.rebuild((e,), lambda n: None)[0] is e


@settings(max_examples=100, deadline=None)
@given(st.recursive(st.sampled_from(["x", "y", "1.5", "2"]), lambda s: st.tuples(st.sampled_from(["+", "-", "*"]), s, s).map(
    lambda t: f"({t[1]} {t[0]} {t[2]})"), max_leaves=8), st.integers(-5, 5), st.integers(-5, 5))
def test_formulas_mean_what_python_means(text, x, y):
    got = eval(text, {"x": E.input(0, float64), "y": E.input(1, float64)})
    want = eval(text, {"x": float(x), "y": float(y)})
    assert got == want if not isinstance(got, E.Expr) else value(got, float(x), float(y)) == want
