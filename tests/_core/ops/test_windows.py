"""Windows put back: against sums place by place."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau._core.ops.windows import added_up


def by_places(pieces: np.ndarray, at: int, sizes: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> np.ndarray:
    n = len(sizes)
    counts, kernel = pieces.shape[at:at + n], pieces.shape[pieces.ndim - n:]
    out = np.zeros((*pieces.shape[:at], *sizes, *pieces.shape[at + n:pieces.ndim - n]), pieces.dtype)
    for windows in itertools.product(*map(range, counts)):
        for places in itertools.product(*map(range, kernel)):
            here = tuple(w * s + k * d for w, s, k, d in zip(windows, stride, places, dilation, strict=True))
            out[(slice(None),) * at + here] += pieces[(slice(None),) * at + windows + (Ellipsis, *places)]
    return out


@pytest.mark.parametrize(("shape", "at", "sizes", "stride", "dilation"), [
    ((2, 5, 3), 1, (15,), (3,), (1,)), ((2, 5, 7), 1, (15,), (2,), (1,)), ((5, 4, 3), 0, (17,), (3,), (2,)), ((3, 9), 0, (13,), (2,), (1,)),
    ((2, 3, 4, 2, 2), 1, (6, 8), (2, 2), (1, 1)), ((1, 3, 4, 3, 2), 1, (7, 9), (2, 2), (1, 1)), ((4, 3, 2, 3, 3), 0, (12, 11), (3, 4), (1, 1)),
    ((2, 2, 3, 5, 3, 2, 2), 1, (5, 7, 10), (2, 2, 2), (1, 1, 1)), ((0, 3, 2), 1, (6,), (2,), (1,)), ((2, 3, 6, 2, 2), 1, (9, 9), (2, 1), (3, 2))])
def test_each_place_gets_what_its_windows_have(device: str, shape: tuple[int, ...], at: int, sizes: tuple[int, ...], stride: tuple[int, ...],
                                               dilation: tuple[int, ...]) -> None:
    pieces = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    windows = torch.tensor(pieces, device=device)
    want = by_places(pieces, at, sizes, stride, dilation)
    for x in (windows, windows.movedim(0, -1).contiguous().movedim(-1, 0)):  # any strides
        made = added_up(x, at, sizes, stride, dilation)
        assert made.is_contiguous() and made.cpu().numpy().tolist() == want.tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3))
def test_any_windows(count: int, kernel: int, stride: int, dilation: int, more: int) -> None:
    sizes = ((count - 1) * stride + (kernel - 1) * dilation + 1 + more,)
    pieces = np.arange(1.0, 1 + 2 * count * kernel).reshape(2, count, kernel)
    made = added_up(torch.tensor(pieces), 1, sizes, (stride,), (dilation,))
    assert made.numpy().tolist() == by_places(pieces, 1, sizes, (stride,), (dilation,)).tolist()


def test_windows_must_lie_inside() -> None:
    with pytest.raises(RuntimeError, match=r"windows of \[3\] .* axes of \[8\]"):
        added_up(torch.ones(4, 3), 0, (8,), (2,), (1,))


def test_one_value_for_all_places(device: str) -> None:
    g = torch.arange(6.0, device=device).reshape(2, 3)
    made = added_up(g.unsqueeze(-1).expand(2, 3, 4), 1, (10,), (3,), (1,))
    assert made.cpu().tolist() == by_places(np.repeat(np.arange(6.0).reshape(2, 3, 1), 4, 2), 1, (10,), (3,), (1,)).tolist()


@pytest.mark.parametrize(("size", "step"), [(3, 1), (2, 2), (4, 3), (2, 5)])
def test_unfolding_has_a_gradient_of_any_order(device: str, size: int, step: int) -> None:
    x = torch.randn(3, 9, 2, dtype=torch.float64, device=device, requires_grad=True)

    def f(t: torch.Tensor) -> torch.Tensor:
        return (t.unfold(1, size, step) ** 3).sum()
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    windows = x.detach().unfold(1, size, step)
    counts = added_up(torch.ones_like(windows), 1, (9,), (step,), (1,))
    torch.testing.assert_close(g.detach(), 3 * x.detach() ** 2 * counts)
    (gg,) = torch.autograd.grad(g.sum(), x)
    torch.testing.assert_close(gg, 6 * x.detach() * counts)
