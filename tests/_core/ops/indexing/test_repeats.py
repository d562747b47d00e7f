"""Positions repeated."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 3, 5))


def test_repeats():
    t = fb.tensor(A)
    np.testing.assert_array_equal(t.repeat_interleave(2, 1).numpy(), A.repeat(2, 1))
    np.testing.assert_array_equal(t.repeat_interleave(fb.tensor([1, 0, 3]), dim=1).numpy(), A.repeat([1, 0, 3], 1))
    np.testing.assert_array_equal(t.repeat_interleave(3).numpy(), A.ravel().repeat(3))
    assert fb.repeat_interleave(fb.tensor([2, 0, 1])).tolist() == [0, 0, 2]
    with pytest.raises(RuntimeError):
        t.repeat_interleave(fb.tensor([1, 2]), dim=1)


def test_repeats_lie_on_the_host_or_beside_the_elements() -> None:
    with fb.simulate(gpus=1):
        x = fb.arange(4.0, device="cuda")
        for where in ("cpu", "cuda"):
            assert x.repeat_interleave(fb.tensor(2, device=where), 0).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        assert x.repeat_interleave(fb.tensor([0, 2, 0, 1], device="cuda")).tolist() == [1, 1, 3]
    assert fb.zeros(0).repeat_interleave(fb.zeros(0, dtype=fb.int64)).shape == (0,)
    assert fb.ones(2).repeat_interleave(fb.tensor([0, 0])).shape == (0,)
