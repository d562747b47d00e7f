"""Bags of embeddings against loops over them."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

W = np.random.default_rng(0).standard_normal((6, 3))


def _loop(indices, offsets, mode, factors=None, padding=None):
    ends = [*offsets[1:], len(indices)]
    out = np.zeros((len(offsets), 3))
    for b, (lo, hi) in enumerate(zip(offsets, ends, strict=True)):
        rows = [W[i] * (1 if factors is None else factors[k]) for k, i in enumerate(indices) if lo <= k < hi and i != padding]
        if rows:
            out[b] = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode](rows, 0)
    return out


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(device: str, mode: str) -> None:
    i, o = [1, 2, 4, 5, 4, 3, 2], [0, 3, 3, 5]
    w = torch.tensor(W, device=device)
    found = F.embedding_bag(torch.tensor(i, device=device), w, torch.tensor(o, device=device), mode=mode)
    np.testing.assert_allclose(found.cpu().numpy(), _loop(i, o, mode))
    found = F.embedding_bag(torch.tensor(i, device=device), w, torch.tensor([*o, 7], device=device), mode=mode, include_last_offset=True, padding_idx=4)
    np.testing.assert_allclose(found.cpu().numpy(), _loop(i, o, mode, padding=4))
    two = torch.tensor([[1, 2], [0, 5]], device=device)
    np.testing.assert_allclose(F.embedding_bag(two, w, mode=mode).cpu().numpy(), _loop([1, 2, 0, 5], [0, 2], mode))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_which_nothing_is_kept(device: str, mode: str) -> None:
    """The same sums, bit by bit, as those that are recorded; of strided operands too."""
    rng = np.random.default_rng(3)
    w = torch.tensor(rng.standard_normal((7, 40)), dtype=torch.float32, device=device)
    i = torch.tensor(rng.integers(0, 7, (6, 10)), device=device)
    for at, table in ((i, w), (i.t(), w[:, ::2]), (i[:, ::3], w.t().contiguous().t())):
        recorded = F.embedding_bag(at, table.detach().requires_grad_(), mode=mode)
        assert torch.equal(F.embedding_bag(at, table, mode=mode), recorded.detach())
    flat, offsets = i.reshape(-1)[::2], torch.tensor([0, 4, 4, 21], device=device)
    assert torch.equal(F.embedding_bag(flat, w, offsets, mode=mode), F.embedding_bag(flat, w.detach().requires_grad_(), offsets, mode=mode).detach())
    if device == "cpu":  # a GPU tells later
        with pytest.raises(RuntimeError, match="idx < num_embeddings, 7: index 7"):
            F.embedding_bag(i + 1, w, mode=mode)


def test_factors_and_gradients() -> None:
    i, o = torch.tensor([1, 2, 4, 5]), torch.tensor([0, 2])
    w, p = torch.tensor(W, requires_grad=True), torch.tensor([0.5, 2.0, 1.0, -1.0], dtype=torch.float64, requires_grad=True)
    np.testing.assert_allclose(F.embedding_bag(i, w, o, mode="sum", per_sample_weights=p).detach().numpy(),
                               _loop([1, 2, 4, 5], [0, 2], "sum", p.detach().numpy()))
    assert torch.autograd.gradcheck(lambda w, p: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=p), (w, p))
    for mode in ("mean", "max"):
        assert torch.autograd.gradcheck(lambda w, mode=mode: F.embedding_bag(i, w, o, mode=mode), (w,))


def test_the_module() -> None:
    m = nn.EmbeddingBag(6, 3, mode="sum", padding_idx=0)
    out = m(torch.tensor([[0, 1], [2, 0]]))
    np.testing.assert_allclose(out.detach().numpy(), m.weight.detach().numpy()[[1, 2]])
    out.sum().backward()
    assert float(m.weight.grad[0].abs().sum()) == 0 and float(m.weight.grad[1].sum()) == 3


def test_mistakes() -> None:
    w = torch.tensor(W)
    with pytest.raises(ValueError, match="mode"):
        F.embedding_bag(torch.tensor([[1]]), w, mode="median")
    with pytest.raises(ValueError, match="offsets has to be None"):
        F.embedding_bag(torch.tensor([[1]]), w, torch.tensor([0]))
    with pytest.raises(ValueError, match="offsets has to be a 1D"):
        F.embedding_bag(torch.tensor([1]), w)
    with pytest.raises(RuntimeError, match="has to be 0"):
        F.embedding_bag(torch.tensor([1, 2]), w, torch.tensor([1]))
    with pytest.raises(NotImplementedError, match="mode='sum'"):
        F.embedding_bag(torch.tensor([[1]]), w, per_sample_weights=torch.ones(1, 1, dtype=torch.float64))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_what_lies_outside_the_table_is_refused(mode):
    w = torch.randn(10, 2)
    for wrong in (-1, 10):
        with pytest.raises(RuntimeError, match="idx >= 0 && idx < num_embeddings, 10"):
            F.embedding_bag(torch.tensor([[wrong, 1]]), w, mode=mode, padding_idx=0)
    with pytest.raises(RuntimeError, match="have the same type as"):
        F.embedding_bag(torch.tensor([[1, 1]]), w, mode="sum", per_sample_weights=torch.ones(1, 2, dtype=torch.float64))


def test_the_first_of_equal_rows_takes_a_maximum_s_gradient():
    table = torch.tensor([[1.0, 5.0], [3.0, 2.0], [3.0, 5.0], [float("nan"), 0.0]], requires_grad=True)
    out = F.embedding_bag(torch.tensor([0, 1, 2, 2, 3, 1]), table, torch.tensor([0, 3, 3, 4]), mode="max")
    assert out[:3].tolist() == [[3, 5], [0, 0], [3, 5]] and out[3, 0].isnan() and out[3, 1].item() == 2
    out.backward(torch.tensor([[1.0, 10.0], [7.0, 7.0], [2.0, 20.0], [4.0, 40.0]]))
    assert table.grad.tolist() == [[0, 10], [1, 40], [2, 20], [4, 0]]


@pytest.mark.parametrize("d", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_sums_of_all_types_are_rounded_once(device: str, d: torch.dtype, mode: str) -> None:
    rng = np.random.default_rng(5)
    for width in (1, 3, 16, 70, 131):
        table = torch.tensor(rng.standard_normal((9, width)), device=device).to(d)
        at, offsets = rng.integers(0, 9, 23), [0, 0, 5, 6, 6, 22, 23]
        rows = table.double().cpu().numpy()[at]
        want = np.stack([rows[a:b].sum(0) / (max(b - a, 1) if mode == "mean" else 1) for a, b in zip(offsets, [*offsets[1:], 23], strict=True)])
        found = F.embedding_bag(torch.tensor(at, device=device), table, torch.tensor(offsets, device=device), mode=mode)
        assert found.dtype is d
        unit = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-21, torch.float64: 2.0**-50}[d]
        np.testing.assert_allclose(found.double().cpu().numpy(), want, rtol=unit, atol=4 * unit if d.itemsize > 2 else 1e-5)


@pytest.mark.parametrize("padding", [None, 4, -1])
def test_gradients_of_bags_with_padding_and_empty_ones(padding: int | None) -> None:
    i, o = torch.tensor([4, 1, 2, 4, 5, 4, 5, 4, 0]), torch.tensor([0, 1, 1, 3, 6, 9])
    w, p = torch.tensor(W, requires_grad=True), torch.randn(9, dtype=torch.float64, requires_grad=True)
    check = torch.autograd.gradcheck, torch.autograd.gradgradcheck
    assert all(f(lambda w, p: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=p, padding_idx=padding), (w, p)) for f in check)
    assert all(f(lambda w: F.embedding_bag(i, w, o, mode="mean", padding_idx=padding), (w,)) for f in check)
    many = torch.autograd.grad(F.embedding_bag(i, w, o, scale_grad_by_freq=True, mode="sum", padding_idx=padding).sum(), w)[0]
    used = [k for k in range(6) if k in i.tolist() and (padding is None or k != padding % 6)]
    assert many[:, 0].tolist() == [1.0 if k in used else 0.0 for k in range(6)]
