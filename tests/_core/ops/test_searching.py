"""Searching in sorted sequences and sets, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from tests import halving

TYPES = [fb.float32, fb.float64, fb.int64, fb.int32, fb.uint8, fb.float16]
numbers = st.lists(st.integers(0, 9), max_size=20)


@settings(max_examples=100, deadline=None)
@given(numbers, numbers, st.booleans(), st.sampled_from(TYPES), st.booleans())
def test_searchsorted_is_numpys(seq, wanted, right, d, narrow):
    a, w = np.sort(np.array(seq, d.np)), np.array(wanted, d.np)
    want = np.searchsorted(a, w, "right" if right else "left")
    got = fb.searchsorted(fb.tensor(a), fb.tensor(w), right=right, out_int32=narrow)
    assert got.dtype is (fb.int32 if narrow else fb.int64)
    np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(fb.searchsorted(fb.tensor(a), fb.tensor(w), side="right" if right else "left").numpy(), want)
    np.testing.assert_array_equal(fb.bucketize(fb.tensor(w), fb.tensor(a), right=right).numpy(), want)


@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("values", [1, 6])
@pytest.mark.parametrize("right", [False, True])
def test_each_row_searches_its_own_sequence(rows, values, right):
    rng = np.random.default_rng(rows)
    a, w = np.sort(rng.integers(0, 20, (rows, 2, 15)).astype(float)), rng.integers(-2, 22, (rows, 2, values)).astype(float)
    a[0, 0, -3:] = np.nan  # lies before every value, as in PyTorch
    w[0, 0, -1] = np.nan
    a[1, 1] = a[1, 1, ::-1].copy()
    want = np.stack([[halving.places(a[i, j], w[i, j], right) for j in range(2)] for i in range(rows)])
    np.testing.assert_array_equal(fb.searchsorted(fb.tensor(a), fb.tensor(w), right=right).numpy(), want)
    np.testing.assert_array_equal(fb.searchsorted(fb.tensor(a.transpose(0, 2, 1).copy()).mT, fb.tensor(w), right=right).numpy(), want)


def test_unsorted_sequences_with_their_order_and_numbers():
    a = fb.tensor([5.0, 1.0, 3.0])
    order = a.argsort()
    assert fb.searchsorted(a, fb.tensor([2.0, 5.0]), sorter=order).tolist() == [1, 2]
    assert fb.searchsorted(fb.tensor([1, 3, 5]), 4).item() == 2 and fb.bucketize(3, fb.tensor([1, 3, 5]), right=True).item() == 2
    assert fb.searchsorted(fb.tensor([1, 3, 5]), fb.tensor([[0, 9], [3, 4]])).tolist() == [[0, 3], [1, 2]]
    assert fb.searchsorted(fb.zeros(0), fb.tensor([1.0])).tolist() == [0]


@settings(max_examples=60, deadline=None)
@given(numbers, numbers, st.booleans())
def test_membership_is_numpys(a, b, invert):
    a, b = np.array(a, np.int64).reshape(-1, 1), np.array(b, np.int64)
    np.testing.assert_array_equal(fb.isin(fb.tensor(a), fb.tensor(b), invert=invert).numpy(), np.isin(a, b, invert=invert))


def test_membership_of_numbers_and_nan():
    assert fb.isin(3, fb.tensor([1, 3])).item() is True and fb.isin(fb.tensor([1.0, float("nan")]), 1).tolist() == [True, False]
    assert fb.isin(fb.tensor([float("nan")]), fb.tensor([float("nan")])).tolist() == [False]
    with pytest.raises(TypeError):
        fb.isin(1, 2)


def test_positions_of_what_is_not_zero():
    a = np.array([[0, 3, 0], [4, 0, 5]])
    t = fb.tensor(a)
    np.testing.assert_array_equal(t.nonzero().numpy(), np.argwhere(a))
    assert fb.nonzero_static(t, size=2).tolist() == [[0, 1], [1, 0]] and fb.nonzero_static(t, size=4, fill_value=-7).tolist()[3] == [-7, -7]
    assert [x.tolist() for x in t.nonzero(as_tuple=True)] == [[0, 1, 1], [1, 0, 2]] and fb.tensor(5).nonzero().shape == (1, 0)
    assert fb.zeros(0, 3).nonzero().shape == (0, 2) and t.count_nonzero().item() == 3


@pytest.mark.parametrize("call,message", [
    (lambda: fb.searchsorted(fb.zeros(3), fb.zeros(2), side="middle"), "side can only be"),
    (lambda: fb.searchsorted(fb.zeros(3), fb.zeros(2), side="left", right=True), "opposites"),
    (lambda: fb.searchsorted(fb.zeros(2, 3), fb.zeros(3, 3)), "first N-1 dimensions"), (lambda: fb.searchsorted(fb.zeros(2, 3), 1.0), "scalar only when"),
    (lambda: fb.searchsorted(fb.zeros(3), fb.zeros(1), sorter=fb.zeros(3)), "long dtype"),
    (lambda: fb.searchsorted(fb.zeros(3), fb.zeros(1), sorter=fb.tensor([0])), "same size"),
    (lambda: fb.searchsorted(fb.zeros(3), fb.zeros(1), sorter=fb.tensor([0, 1, 3])), "out of range"), (lambda: fb.searchsorted(fb.tensor(1.0), 1.0),
    "positive dimension"),
    (lambda: fb.bucketize(fb.zeros(2), fb.zeros(2, 2)), "1 dimension"), (lambda: fb.nonzero_static(fb.zeros(2), size=-1), "non-negative")])
def test_errors(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


def test_on_every_device(device):
    a, w = np.sort(np.random.default_rng(0).normal(size=50)), np.random.default_rng(1).normal(size=20)
    at = fb.searchsorted(fb.tensor(a).to(device), fb.tensor(w).to(device))
    assert str(at.device) == device
    np.testing.assert_array_equal(at.cpu().numpy(), np.searchsorted(a, w))
    assert fb.isin(fb.tensor(a).to(device), fb.tensor(a[:10]).to(device)).sum().item() == 10
    assert fb.searchsorted(fb.tensor([[1, 2], [3, 4], [5, 6]]).to(device), fb.tensor([[4], [4], [4]]).to(device)).tolist() == [[2], [1], [0]]


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float64, fb.int32])
def test_searches_met_before(dtype):
    """The second search on the same layouts goes by what the first one kept."""
    for edges in ([-2, 0, 0, 3], [1, 1, 2, 7]):
        seq = fb.tensor(edges, dtype=dtype)
        for wanted in ([[0, 3, -5], [9, 1, 2]], [[7, 0, 0], [-2, 3, 1]]):
            for right in (False, True):
                for small in (False, True):
                    found = fb.searchsorted(seq, fb.tensor(wanted, dtype=dtype), right=right, out_int32=small)
                    assert found.dtype is (fb.int32 if small else fb.int64)
                    assert found.tolist() == np.searchsorted(edges, wanted, "right" if right else "left").tolist()
                    turned = fb.tensor(wanted, dtype=dtype).t()
                    assert fb.searchsorted(seq, turned, side="right" if right else "left").tolist() == found.t().tolist()
