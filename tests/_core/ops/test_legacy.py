"""Legacy constructors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau

SPARSE = flambeau.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,), dtype=flambeau.float64)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(-9, 9)), max_size=6))
def test_new_of_a_sparse_tensor_takes_indices_and_values(entries):
    dense = np.zeros((4, 5))
    for i, j, v in entries:
        dense[i, j] += v
    where = flambeau.tensor([[e[0] for e in entries], [e[1] for e in entries]], dtype=flambeau.int64)
    made = SPARSE.new(where, flambeau.tensor([e[2] for e in entries], dtype=flambeau.float64), (4, 5))
    assert made.is_sparse and made.dtype is flambeau.float64
    np.testing.assert_array_equal(made.to_dense().numpy(), dense)


def test_new_of_a_sparse_tensor_takes_a_size_or_finds_it():
    assert SPARSE.new(SPARSE._indices(), SPARSE._values()).shape == (3,)
    for arguments, shape in (((3, 4), (3, 4)), (((5,),), (5,)), ((), (0,))):
        made = SPARSE.new(*arguments)
        assert made.is_sparse and made.shape == shape and made._nnz() == 0 and made.dtype is flambeau.float64
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        flambeau.ones(2).new(SPARSE._indices(), SPARSE._values(), (4,))
