"""Python numbers beside tensors of integers, called again and again: the second call goes by the first one's plan."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as fb

OPERATORS = [operator.add, operator.sub, operator.mul, operator.mod, operator.eq, operator.ne, operator.lt, operator.le, operator.gt,
             operator.ge, operator.and_, operator.or_, operator.xor, operator.floordiv, operator.truediv]


@pytest.mark.parametrize("operation", OPERATORS, ids=lambda o: o.__name__)
@pytest.mark.parametrize("d", [fb.int64, fb.int32, fb.uint8, fb.float32], ids=str)
def test_numbers_of_both_kinds_in_turn(operation, d, device) -> None:
    a = np.arange(1, 7)
    t = fb.tensor(a, dtype=d, device=device)
    for number in (2, 3, 2, 1.5, 2, True, 4):
        if isinstance(number, float) and operation in (operator.and_, operator.or_, operator.xor):
            continue
        if d is fb.float32 and operation in (operator.and_, operator.or_, operator.xor):
            continue
        if operation is operator.sub and number is True:
            with pytest.raises(RuntimeError, match="with a bool tensor is not supported"):
                operation(t, number)
            continue
        got = operation(t, number)
        expected = operation(a.astype(np.float64) if d.is_floating_point else a, number)
        np.testing.assert_allclose(got.cpu().numpy().astype(np.float64), np.asarray(expected, np.float64).astype(np.float64) if d is not fb.uint8
                                   or got.dtype is not fb.uint8 else np.asarray(expected).astype(np.uint8).astype(np.float64), rtol=1e-6)


def test_items_of_every_type() -> None:
    for d, value in ((fb.float32, 0.5), (fb.float64, 1e300), (fb.int64, -(1 << 62)), (fb.int32, -7), (fb.int16, 300), (fb.int8, -3),
                     (fb.uint8, 250), (fb.bool, True), (fb.bfloat16, 2.5), (fb.float16, 0.25), (fb.complex64, 1 + 2j)):
        got = fb.tensor([[value]], dtype=d).item()
        assert got == value and type(got) is type(value)
    assert fb.arange(5)[3].item() == 3 and fb.ones(3, 3).t()[2, 1].item() == 1.0
    with pytest.raises(RuntimeError, match="2 elements cannot be converted to Scalar"):
        fb.ones(2).item()


@given(st.lists(st.integers(-(1 << 20), 1 << 20), max_size=9), st.integers(-(1 << 10), 1 << 10))
def test_whole_numbers_stay_whole(values, number):
    x = fb.tensor(values, dtype=fb.int64)
    for f in (lambda a: a + number, lambda a: number - a, lambda a: a * number):
        assert f(x).dtype is fb.int64 and f(x).tolist() == [f(v) for v in values]
    assert (x + (number + 0.5)).tolist() == [float(np.float32(v) + np.float32(number + 0.5)) for v in values]
