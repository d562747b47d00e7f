"""Views by ints, slices, None and ..., and what is taken for an index."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau as fb


def test_basic_indices_share_memory():
    t = fb.zeros(3, 4)
    t[1:, ::2].fill_(5.0)
    assert t.tolist() == [[0, 0, 0, 0], [5, 0, 5, 0], [5, 0, 5, 0]]
    assert t[1].data_ptr() == t.data_ptr() + 16 and t[None].shape == (1, 3, 4)


@pytest.mark.parametrize("index,error", [(7, IndexError), ((0, 0, 0), IndexError), ((slice(None, None, -1),), ValueError), (1.5, IndexError),
                                         ((Ellipsis, Ellipsis, 0), IndexError)])
def test_wrong_indices(index, error):
    with pytest.raises(error):
        fb.zeros(3, 4)[index]
    for kind in (fb.int8, fb.int16, fb.float32):
        with pytest.raises(IndexError, match="must be long, int, byte or bool"):
            fb.zeros(3)[fb.zeros(1, dtype=kind)]
    with pytest.raises(IndexError, match="out of bounds"):
        fb.zeros(3)[fb.tensor([0, 5])]
    with pytest.raises(IndexError, match="mask"):
        fb.zeros(3)[fb.tensor([True, False])]


@pytest.mark.parametrize("index", [((0, 1), 2), ((0, 2),), (slice(None), (3, 1)), (0, (1, 2)), ((0, 1), (2, 3)), ([0, 1], (2, 3)), (slice(None), range(2)),
                                   (slice(None), (True, False, True, False)), ((0, 1), Ellipsis), (None, (1, 0))])
def test_a_tuple_inside_an_index_is_a_tensor_of_positions(index):
    a = np.arange(12.0).reshape(3, 4)
    t = fb.tensor(a)
    assert t[index].tolist() == a[index].tolist()
    a[index], t[index] = -1, -1
    assert t.tolist() == a.tolist()


def test_a_list_of_indices_is_taken_for_a_tuple_and_says_so():
    a = np.arange(12.0).reshape(3, 4)
    t, i = fb.tensor(a), fb.tensor([0, 2])
    for listed in ([[0, 1], [1, 2]], [(0, 1), (1, 2)], [slice(0, 2), 1], [None, 0], [Ellipsis, 1]):
        with pytest.warns(UserWarning, match="non-tuple sequence"):
            assert t[listed].tolist() == a[tuple(listed)].tolist()
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        assert t[[i, i]].tolist() == [0, 10]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert t[[0, 2]].tolist() == a[[0, 2]].tolist() and t[[True, False, True]].tolist() == a[[0, 2]].tolist() and t[np.array([0, 2])].shape == (2, 4)


def test_another_ellipsis_stands_for_no_axes():
    t = fb.arange(6).reshape(2, 3)
    assert t[..., ...].tolist() == t.tolist() and t[0, ..., ...].tolist() == [0, 1, 2]


def test_a_short_list_that_holds_more_than_numbers_is_a_tuple_of_indices(device):
    a = np.arange(24).reshape(2, 3, 4)
    x = fb.tensor(a, device=device)
    t = fb.tensor([0, 1], device=device)
    cases = [([[0, 1], [1, 2]], a[[0, 1], [1, 2]]), ([[0, 1]], a[[0, 1]]), ([t, t], a[[0, 1], [0, 1]]), ([t[1], t[0]], a[1, 0]), ([slice(0, 1), 1], a[0:1, 1]),
             ([..., 1], a[..., 1]), ([None, 1], a[None, 1]), ([[[0, 1]], [[1, 0]]], a[[[0, 1]], [[1, 0]]]), ([(0, 1), (1, 2)], a[[0, 1], [1, 2]]),
             ([np.array([0, 1]), np.array([1, 2])], a[[0, 1], [1, 2]]), ([[True, False], 1], a[[True, False], 1]), ([[0, 1], [1]], a[[0, 1], [1, 1]]),
             ([range(2), 1], a[[0, 1], 1])]
    for index, expected in cases:
        with pytest.warns(UserWarning, match="non-tuple sequence"):
            found = x[index]
        np.testing.assert_array_equal(found.cpu().numpy(), expected)
        y, b = x.clone(), a.copy()
        with pytest.warns(UserWarning, match="non-tuple sequence"):
            y[index] = -1
        b[tuple(i.tolist() if isinstance(i, fb.Tensor) else list(i) if isinstance(i, (tuple, range)) else i for i in index)] = -1
        np.testing.assert_array_equal(y.cpu().numpy(), b)


def test_lists_of_numbers_and_long_ones_are_positions_along_the_first_axis(device):
    x = fb.arange(6, device=device).reshape(3, 2)
    assert x[[0, 2]].tolist() == [[0, 1], [4, 5]] and x[[1.7]].tolist() == [[2, 3]] and x[[True, False, True]].tolist() == [[0, 1], [4, 5]]
    assert x[[[0]] * 32].shape == (32, 1, 2) and x[[]].shape == (0, 2) and x[range(2)].tolist() == [[0, 1], [2, 3]]
    assert x[([[0, 1]],)].shape == (1, 2, 2)
