"""ctc_loss against all paths, one by one."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional as F

T, N, C = 4, 5, 3
ROWS = [[1, 2], [1, 1], [2], [], [1, 2, 1]]  # the last has more labels than its steps
INS = [4, 4, 3, 2, 2]


def _losses(logs: np.ndarray, ins: list[int]) -> list[float]:
    """-log of the sum over all paths that spell the row: without repeats, then without blanks."""
    found = []
    for n, row in enumerate(ROWS):
        paths = [p for p in product(range(C), repeat=ins[n]) if [c for c, _ in groupby(p) if c] == row]
        total = sum(np.exp(sum(logs[t, n, c] for t, c in enumerate(p))) for p in paths)
        found.append(-np.log(total) if paths else np.inf)
    return found


def _scores() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((T, N, C))


def _loss(scores: torch.Tensor, ins: list[int] = INS, **more: object) -> torch.Tensor:
    targets = torch.tensor([[*row, 0, 0, 0][:3] for row in ROWS], device=scores.device)
    return F.ctc_loss(scores.log_softmax(2), targets, ins, [len(row) for row in ROWS], **more)


@pytest.mark.parametrize("ins", [INS, [3, 4, 0, 0, 4]])
@pytest.mark.parametrize("recorded", [False, True])
def test_losses(device: str, ins: list[int], recorded: bool) -> None:
    scores = torch.tensor(_scores(), device=device, requires_grad=recorded)
    found = _loss(scores, ins, reduction="none")
    np.testing.assert_allclose(found.detach().cpu().numpy(), _losses(scores.detach().log_softmax(2).cpu().numpy(), ins), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ins", [INS, [3, 4, 0, 0, 4]])
def test_gradients_and_their_gradients(ins: list[int]) -> None:
    scores = torch.tensor(_scores(), requires_grad=True)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda s: _loss(s, ins, reduction="none", zero_infinity=True), (scores,))
        assert check(lambda s: _loss(s, ins, zero_infinity=True), (scores,))


def test_each_device_has_the_gradient(device: str) -> None:
    one = torch.tensor(_scores(), requires_grad=True)
    other = torch.tensor(_scores(), device=device, requires_grad=True)
    for scores in (one, other):
        _loss(scores, reduction="sum", zero_infinity=True).backward()
    np.testing.assert_allclose(other.grad.cpu().numpy(), one.grad.numpy(), rtol=1e-12, atol=1e-14)
    assert not one.grad[:, 4].any() and not one.grad[3, 2].any() and one.grad[2, 2].all()


def test_a_class_without_probability_has_no_gradient() -> None:
    logs = np.log(np.random.default_rng(1).dirichlet(np.ones(C), (T, N)))
    logs[2, 0, 2] = -np.inf
    scores = torch.tensor(logs, requires_grad=True)
    loss = F.ctc_loss(scores, torch.tensor([[*row, 0, 0, 0][:3] for row in ROWS]), INS, [len(row) for row in ROWS], reduction="none")
    np.testing.assert_allclose(loss.detach().numpy(), _losses(logs, INS))
    loss[:4].sum().backward()
    assert scores.grad.isfinite().all() and scores.grad[2, 0, 2].item() == 0


def test_what_was_written_to_meanwhile_is_refused() -> None:
    logs = torch.tensor(_scores(), requires_grad=True).log_softmax(2)
    loss = F.ctc_loss(logs, torch.tensor([[1], [1], [1], [1], [1]]), [4] * N, [1] * N)
    logs.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("shape", [(0, 2, 4), (3, 0, 4), (3, 2, 0)])
def test_nothing_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="log_probs tensor must not be empty"):
        F.ctc_loss(torch.zeros(shape), torch.zeros((shape[1], 1), dtype=torch.int64), [0] * shape[1], [0] * shape[1])
