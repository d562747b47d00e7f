"""index_select, index_add, index_copy, index_fill, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 3, 5))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=6))
def test_index_operations_are_numpys(axis, index):
    t, i = fb.tensor(A), fb.tensor(index, dtype=fb.int64)
    np.testing.assert_array_equal(t.index_select(axis, i).numpy(), A.take(index, axis))
    shape = list(A.shape)
    shape[axis] = len(index)
    source = RNG.normal(size=shape)
    lead = (slice(None),) * axis
    added, filled = A.copy(), A.copy()
    np.add.at(added, (*lead, index), source)
    filled[(*lead, index)] = 7
    np.testing.assert_allclose(t.index_add(axis, i, fb.tensor(source)).numpy(), added)
    np.testing.assert_allclose(t.index_add(axis, i, fb.tensor(source), alpha=2).numpy(), A + 2 * (added - A), atol=1e-12)
    np.testing.assert_array_equal(t.index_fill(axis, i, 7).numpy(), filled)
    if len(set(index)) == len(index):
        copied = A.copy()
        copied[(*lead, index)] = source
        np.testing.assert_array_equal(t.index_copy(axis, i, fb.tensor(source)).numpy(), copied)
        u = t.clone()
        assert u.index_copy_(axis, i, fb.tensor(source)) is u and u.index_fill_(axis, i, 7) is u
        np.testing.assert_array_equal(u.numpy(), filled)


def test_what_is_expanded_takes_no_rows():
    x = fb.zeros(1).expand(6)
    for f in (x.index_copy_, x.index_add_):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            f(0, fb.tensor([2, 1, 0]), fb.ones(3))


def test_a_source_without_axes_is_one_element():
    for f in (lambda t, s: t.scatter(0, fb.tensor([1]), s), lambda t, s: t.scatter_add(0, fb.tensor([1]), s),
              lambda t, s: t.scatter_reduce(0, fb.tensor([1]), s, "sum")):
        assert f(fb.zeros(3), fb.tensor(5.0)).tolist() == [0, 5, 0]


NEGATIVE = {
    "index_select": lambda i: fb.index_select(fb.ones(2, 3), 0, i), "index_select 1": lambda i: fb.index_select(fb.ones(3, 2), 1, i),
    "index_select of nothing": lambda i: fb.index_select(fb.ones(0, 2), 1, i), "index_add": lambda i: fb.index_add(fb.ones(2), 0, i, fb.ones(1)),
    "index_copy": lambda i: fb.ones(2).index_copy_(0, i, fb.ones(1)), "embedding": lambda i: fb.nn.functional.embedding(i, fb.ones(2, 2))}


@pytest.mark.parametrize("name", NEGATIVE)
def test_positions_of_rows_count_from_the_start_only(name):
    error = RuntimeError if name in ("index_select 1", "index_select of nothing") else IndexError  # as PyTorch's paths for these raise
    for _ in range(5):  # also where the call is learned
        NEGATIVE[name](fb.tensor([1]))
        for wrong in (-1, 2):
            with pytest.raises(error, match="out of bounds"):
                NEGATIVE[name](fb.tensor([wrong]))
    assert fb.index_fill(fb.zeros(2), 0, fb.tensor([-1]), 1.0).tolist() == [0, 1] == fb.zeros(2)[fb.tensor([0, -1])].add(fb.tensor([0.0, 1])).tolist()


def test_truths_are_added_as_truths_whatever_scales_them():
    x = fb.tensor([False, False, True])
    assert x.index_add(0, fb.tensor([0, 2]), fb.tensor([True, True]), alpha=2).tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["float32", "int64"])
def test_whole_rows_in_their_order(device: str, name: str) -> None:
    d = getattr(fb, name)
    x = fb.arange(5 * 37).reshape(5, 37).to(d).to(device)
    at = fb.tensor([4, 0, 0, 2, 4, 1], device=device)
    rows = fb.arange(6 * 37).reshape(6, 37).to(d).to(device)
    want, where = x.cpu().numpy(), at.cpu().numpy()
    np.testing.assert_array_equal(x[at].cpu().numpy(), want[where])
    np.testing.assert_array_equal(x.index_select(0, at).cpu().numpy(), want[where])
    added = want.copy()
    np.add.at(added, where, rows.cpu().numpy())
    np.testing.assert_array_equal(x.index_add(0, at, rows).cpu().numpy(), added)
    greatest = want.copy()
    np.maximum.at(greatest, where, rows.cpu().numpy())
    np.testing.assert_array_equal(x.scatter_reduce(0, at.unsqueeze(1).expand(6, 37), rows, "amax").cpu().numpy(), greatest)
    x[at] = rows  # of positions given twice the last counts
    want = want.copy()
    want[where] = rows.cpu().numpy()
    np.testing.assert_array_equal(x.cpu().numpy(), want)
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        x.scatter_reduce(0, (at + 1).unsqueeze(1).expand(6, 37), rows, "amax").cpu()


def test_index_fill_does_not_write_to_its_own_positions():
    at = fb.tensor([2, 1, 0])
    for read in (at, at[:2]):
        with pytest.raises(RuntimeError, match="single memory location"):
            at.index_fill_(0, read, 0)
    assert at.tolist() == [2, 1, 0] and at.index_fill(0, at, 7).tolist() == [7, 7, 7]
