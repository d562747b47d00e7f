"""`torch.kl_div` and its like are the losses of `nn.functional`, with the reduction as a number."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.nn.functional import by_number

X, Y, Z = (torch.rand(4, 3, generator=torch.Generator().manual_seed(i)) for i in range(3))
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0])
OPERANDS: dict[str, tuple[Any, ...]] = {
    "binary_cross_entropy_with_logits": (X, Y), "cosine_embedding_loss": (X, Y, SIGNS), "hinge_embedding_loss": (X, Y.sign()), "kl_div": (X.log(), Y),
    "margin_ranking_loss": (X, Y, Z.sign()), "triplet_margin_loss": (X, Y, Z),
    "ctc_loss": (X.log_softmax(1).unsqueeze(1), torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2]))}


@pytest.mark.parametrize("name", OPERANDS)
def test_numbers_stand_for_words(name: str) -> None:
    loss, of_words = getattr(torch, name), getattr(F, name)
    assert loss is getattr(by_number, name) is not of_words
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = {number: loss(*OPERANDS[name], reduction=number) for number in (0, 1, 2)}
        assert loss(*OPERANDS[name]).tolist() == found[0].tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, word in enumerate(("none", "mean", "sum")):
            assert torch.allclose(found[number], of_words(*OPERANDS[name], reduction=word))
    with pytest.raises(TypeError, match="must be int, not str"):
        loss(*OPERANDS[name], reduction="mean")


def test_a_poisson_loss_is_told_everything() -> None:
    assert torch.allclose(torch.poisson_nll_loss(X, Y, True, False, 1e-8, 2), F.poisson_nll_loss(X, Y, reduction="sum"))
    with pytest.raises(TypeError):
        torch.poisson_nll_loss(X, Y)


def test_grid_sampler_takes_its_modes_as_numbers():
    x, grid = torch.rand(1, 2, 4, 5), torch.rand(1, 3, 3, 2) * 3 - 1.5
    for mode, word in enumerate(("bilinear", "nearest", "bicubic")):
        for padding, outside in enumerate(("zeros", "border", "reflection")):
            want = F.grid_sample(x, grid, word, outside, align_corners=True)
            assert torch.equal(torch.grid_sampler(x, grid, mode, padding, True), want)
    with pytest.raises(ValueError, match="padding_mode must be 0, 1 or 2, got 3"):
        torch.grid_sampler(x, grid, 0, 3, False)
    with pytest.raises(RuntimeError, match="same batch size"):
        torch.grid_sampler(x, torch.rand(2, 3, 3, 2), 0, 0, False)


def test_a_class_alone_is_a_vector_of_one_to_multilabel_margin_loss():
    for x in (torch.tensor(0.1), torch.tensor([0.1])):
        for t in (torch.tensor(0), torch.tensor([0])):
            assert F.multilabel_margin_loss(x, t, reduction="none").shape == ()


def test_multi_margin_loss_has_the_shape_of_its_classes():
    for x in (torch.tensor(0.1), torch.tensor([0.1]), torch.rand(3), torch.rand(1, 3)):
        for t in (torch.tensor(0), torch.tensor([0])):
            assert F.multi_margin_loss(x, t, reduction="none").shape == t.shape and F.multi_margin_loss(x, t).shape == ()
