"""`torch.kl_div` and its like, whose reduction is a number."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import flambeau

SIGNS = [[1.0, -1.0, 1.0, -1.0]] * 4
CALLS: dict[str, Any] = {
    "kl_div": lambda t, x, y, z, **more: t.kl_div(x.log(), y, **more),
    "kl_div of logarithms": lambda t, x, y, z, **more: t.kl_div(x.log(), y.log(), log_target=True, **more),
    "hinge_embedding_loss": lambda t, x, y, z, **more: t.hinge_embedding_loss(x, t.tensor(SIGNS), 0.7, **more),
    "margin_ranking_loss": lambda t, x, y, z, **more: t.margin_ranking_loss(x, y, t.tensor(SIGNS), 0.1, **more),
    "margin_ranking_loss, broadcast": lambda t, x, y, z, **more: t.margin_ranking_loss(x, y, t.tensor(SIGNS[0]), 0.1, **more),
    "cosine_embedding_loss": lambda t, x, y, z, **more: t.cosine_embedding_loss(x, y, t.tensor(SIGNS[0]), 0.2, **more),
    "binary_cross_entropy_with_logits": lambda t, x, y, z, **more: t.binary_cross_entropy_with_logits(x, y, z.detach(), None, **more),
    "binary_cross_entropy_with_logits, weighted": lambda t, x, y, z, **more: t.binary_cross_entropy_with_logits(x, y, None, z.detach(), **more),
    "triplet_margin_loss": lambda t, x, y, z, **more: t.triplet_margin_loss(x, y, z, 1.0, 2.0, 1e-6, True, **more),
    "ctc_loss": lambda t, x, y, z, **more: t.ctc_loss(x.log_softmax(1).unsqueeze(1), t.tensor([[1, 2]]), t.tensor([4]), t.tensor([2]), 0, **more),
    "ctc_loss of lists": lambda t, x, y, z, **more: t.ctc_loss(x.log_softmax(1).unsqueeze(1), t.tensor([[1, 2]]), [4], [2], **more),
    "poisson_nll_loss": lambda t, x, y, z, reduction=0: t.poisson_nll_loss(x, y, False, True, 1e-6, reduction),
}


def _operands(t: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [t.tensor(rng.uniform(0.1, 0.9, (4, 4)).astype(np.float32).tolist(), requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("reduction", [None, 0, 1, 2, 7], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_the_loss_and_its_gradient_are_pytorchs(name: str, reduction: int | None) -> None:
    more = {} if reduction is None else {"reduction": reduction}
    found = []
    for t in (torch, flambeau):
        operands = _operands(t)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss = CALLS[name](t, *operands, **more)
        loss.sum().backward()
        found.append([loss.detach().tolist(), *[None if x.grad is None else x.grad.tolist() for x in operands]])
    for theirs, ours in zip(*found, strict=True):
        assert (theirs is None) == (ours is None)
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", [n for n in CALLS if n != "ctc_loss" and "," not in n and " " not in n])
def test_words_are_refused(name: str) -> None:
    for t in (torch, flambeau):
        with pytest.raises(TypeError, match="reduction"):
            CALLS[name](t, *_operands(t), reduction="mean")
