"""assert_close: what it lets pass and what it says."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.testing import assert_allclose, assert_close, make_tensor


def test_what_is_close_passes(device: str) -> None:
    a = torch.tensor([1.0, 2.0, float("inf")], device=device)
    assert_close(a, a + torch.tensor([1e-6, 0.0, 0.0], device=device))
    assert_close([a, {"k": a}], [a, {"k": a.clone()}])
    assert_close(1.0, 1.0 + 1e-8)
    assert_close(torch.tensor([float("nan")]), torch.tensor([float("nan")]), equal_nan=True)
    assert_close(torch.tensor(3, dtype=torch.bfloat16), torch.tensor(3.03, dtype=torch.bfloat16))
    assert_close(np.ones(3), np.ones(3))
    assert_close(torch.tensor([1 + 2j]), torch.tensor([1 + 2j]))


@pytest.mark.parametrize(("a", "b", "text"), [
    (torch.ones(3), torch.ones(4), "attribute 'shape'"),
    (torch.ones(3), torch.ones(3).double(), "attribute 'dtype'"),
    (torch.ones(3), torch.tensor([1.0, 1.0, 2.0]), r"Mismatched elements: 1 / 3 \(33.3%\)"),
    (torch.ones(3), torch.tensor([1.0, 1.0, 2.0]), r"Greatest absolute difference: 1.0 at index \(2,\)"),
    (1, 2, "Scalars are not equal"),
    ([1, 2], [1], "length of the sequences"),
    ({"a": 1}, {"b": 1}, "keys of the mappings"),
    (torch.tensor(float("nan")), torch.tensor(float("nan")), "not close"),
])
def test_what_is_not_says_where(a, b, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        assert_close(a, b)


def test_own_messages_and_bad_arguments() -> None:
    with pytest.raises(AssertionError, match="^mine$"):
        assert_close(1, 2, msg="mine")
    with pytest.raises(AssertionError, match="head: Scalars"):
        assert_close(1, 2, msg=lambda text: "head: " + text)
    with pytest.raises(ValueError, match="rtol"):
        assert_close(1, 1, rtol=1.0)
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close(torch.ones(2), np.ones(2))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32, torch.complex64])
def test_make_tensor(dtype) -> None:
    t = make_tensor(3, 4, dtype=dtype, device="cpu", exclude_zero=dtype is not torch.bool)
    assert t.shape == (3, 4) and t.dtype is dtype
    if dtype is not torch.bool:
        assert bool((t != 0).all())
    assert not make_tensor((5, 6), dtype=torch.float32, device="cpu", noncontiguous=True).is_contiguous()
    low = make_tensor(1000, dtype=torch.float32, device="cpu", low=2, high=3)
    assert 2 <= low.min().item() and low.max().item() < 3


def test_the_old_name_compares_values_alone() -> None:
    assert_allclose(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")], dtype=torch.float64))
    with pytest.raises(AssertionError):
        assert_allclose(torch.tensor([1.0]), torch.tensor([1.1]))
