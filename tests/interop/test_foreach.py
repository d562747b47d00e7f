"""Operations on each tensor of a list, by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch


def lists(device):
    generator = np.random.default_rng(3)
    arrays = [generator.uniform(0.5, 2, shape).astype(np.float32) for shape in ((3,), (2, 4), ())]
    return arrays, [torch.tensor(a, device=device) for a in arrays]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum"])
def test_two_lists_a_number_and_numbers(name: str, device) -> None:
    of = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum, "minimum": np.minimum}[name]
    a, x = lists(device)
    made = getattr(torch, f"_foreach_{name}")
    for second, numbers in (([t + 0.25 for t in x], [v + np.float32(0.25) for v in a]), (1.5, [1.5] * 3), ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])):
        for got, left, right in zip(made(x, second), a, numbers):
            np.testing.assert_allclose(got.cpu().numpy(), of(left, right).astype(np.float32), rtol=1e-6)
    assert getattr(torch, f"_foreach_{name}_")(x, 2.0) is None
    for got, left in zip(x, a):
        np.testing.assert_allclose(got.cpu().numpy(), of(left, np.float32(2)), rtol=1e-6)


def test_one_list(device) -> None:
    a, x = lists(device)
    for name, of in (("sqrt", np.sqrt), ("neg", np.negative), ("exp", np.exp), ("reciprocal", np.reciprocal)):
        for got, left in zip(getattr(torch, f"_foreach_{name}")(x), a):
            np.testing.assert_allclose(got.cpu().numpy(), of(left), rtol=1e-5)
    for got, left in zip(torch._foreach_norm(x), a):
        np.testing.assert_allclose(got.item(), np.linalg.norm(left.ravel()), rtol=1e-6)
    for got, left in zip(torch._foreach_addcmul(x, x, x, 0.5), a):
        np.testing.assert_allclose(got.cpu().numpy(), left + 0.5 * left * left, rtol=1e-6)
    torch._foreach_zero_(x)
    torch._foreach_copy_(x, [torch.full_like(t, 7.0) for t in x])
    assert all((t == 7).all() for t in x)


def test_what_does_not_fit() -> None:
    x = [torch.ones(2)]
    with pytest.raises(RuntimeError, match="at least one tensor"):
        torch._foreach_add([], 1)
    with pytest.raises(RuntimeError, match="same number of tensors, got 1 and 2"):
        torch._foreach_add(x, [1.0, 2.0])
    with pytest.raises(AttributeError):
        torch._foreach_no_such  # noqa: B018
