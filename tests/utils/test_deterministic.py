"""torch.utils.deterministic: its one switch."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau.utils import deterministic


def test_the_switch_is_a_bool_and_is_read_where_tensors_are_made():
    assert deterministic.fill_uninitialized_memory is True and fb.utils.deterministic is deterministic
    with pytest.raises(RuntimeError, match="expected a bool, but got int"):
        deterministic.fill_uninitialized_memory = 3
    fb.use_deterministic_algorithms(True)
    try:
        assert fb.empty(2).isnan().all()
        deterministic.fill_uninitialized_memory = False
        assert deterministic.fill_uninitialized_memory is False
        fb.zeros(1000)
        assert fb.empty(0).shape == (0,)
    finally:
        deterministic.fill_uninitialized_memory = True
        fb.use_deterministic_algorithms(False)
