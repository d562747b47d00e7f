"""Legacy constructors."""

from __future__ import annotations

import pytest

import flambeau


def test_new_of_a_sparse_tensor_takes_indices_and_values_or_a_size():
    sparse = flambeau.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,), dtype=flambeau.float64)
    made = sparse.new(sparse._indices(), sparse._values() * 3, sparse.shape)
    assert made.is_sparse and made.dtype is flambeau.float64 and made.to_dense().tolist() == [3, 0, 6, 0]
    assert sparse.new(sparse._indices(), sparse._values()).shape == (3,)
    for arguments, shape in (((3, 4), (3, 4)), (((5,),), (5,)), ((), (0,))):
        made = sparse.new(*arguments)
        assert made.is_sparse and made.shape == shape and made._nnz() == 0 and made.dtype is flambeau.float64
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        flambeau.ones(2).new(sparse._indices(), sparse._values(), (4,))
