"""`torch.kl_div` and its like are the losses of `nn.functional`, with the reduction as a number."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
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


def test_a_grid_of_an_affine_map_and_samplers_of_one_rank() -> None:
    theta = torch.tensor([[[1.0, 0.5, 0.1], [0.0, 2.0, -0.2]]])
    for corners in (True, False):
        assert torch.equal(torch.affine_grid_generator(theta, (1, 3, 4, 5), corners), F.affine_grid(theta, (1, 3, 4, 5), corners))
    assert torch.affine_grid_generator(torch.zeros(2, 3, 4), [2, 1, 2, 3, 4], False).shape == (2, 2, 3, 4, 3)
    assert torch.affine_grid_generator(theta, (1, 3, 0, 5), False).shape == (1, 0, 5, 2)
    with pytest.raises(RuntimeError, match="needs 4d"):
        torch.affine_grid_generator(theta, (1, 3, 4), True)
    with pytest.raises(RuntimeError, match="Expected"):
        torch.affine_grid_generator(theta, (1, 1, 2, 2, 2), True)
    x, grid = torch.rand(1, 2, 4, 5), torch.rand(1, 3, 3, 2)
    volume, places = torch.rand(1, 2, 3, 4, 5), torch.rand(1, 2, 2, 2, 3)
    assert torch.equal(torch.grid_sampler_2d(x, grid, 2, 1, True), F.grid_sample(x, grid, "bicubic", "border", True))
    assert torch.equal(torch.grid_sampler_3d(volume, places, 1, 0, False), F.grid_sample(volume, places, "nearest", "zeros", False))
    with pytest.raises(RuntimeError, match="5D input"):
        torch.grid_sampler_3d(x, grid, 0, 0, False)
    with pytest.raises(RuntimeError, match="4D input"):
        torch.grid_sampler_2d(volume, places, 0, 0, False)


@pytest.mark.parametrize("padding", [None, 1, -4])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_with_what_is_found_on_the_way(mode: int, kind: Any, padding: int | None) -> None:
    rng = np.random.default_rng(0)
    table, at, begins = rng.standard_normal((5, 3)).astype(np.float32), np.array([0, 1, 2, 4, 3, 1]), [0, 2, 2]
    weight = torch.tensor(table, requires_grad=True)
    out, bag, sizes, most = torch.embedding_bag(weight, torch.tensor(at, dtype=kind), torch.tensor(begins, dtype=kind), False, mode, padding_idx=padding)
    assert bag.dtype == sizes.dtype == most.dtype == kind
    assert bag.tolist() == ([] if mode == 0 and padding is None else [0, 0, 2, 2, 2, 2])
    kept = [[i for i in at[a:b] if padding is None or i != padding % 5] for a, b in zip(begins, [2, 2, 6])]
    assert sizes.tolist() == ([0, 0, 0] if mode == 0 else [len(k) for k in kept])
    for row, k in enumerate(kept):
        rows = table[k] if k else np.zeros((1, 3), np.float32)
        np.testing.assert_allclose(out[row].detach().numpy(), (rows.sum(0), rows.mean(0), rows.max(0))[mode], rtol=1e-5, atol=1e-6)
        if mode == 2:
            assert most[row].tolist() == ([k[i] for i in rows.argmax(0)] if k else [0, 0, 0])
    if mode < 2:
        assert most.tolist() == sizes.tolist()
    out.sum().backward()
    counted = sum(len(k) for k in kept) if mode == 0 else sum(bool(k) for k in kept)
    assert weight.grad is not None and abs(float(weight.grad.sum()) - 3 * counted) < 1e-5


def test_bags_that_cannot_be() -> None:
    weight, at, begins = torch.ones(5, 2), torch.tensor([0, 1]), torch.tensor([0])
    assert torch.embedding_bag(weight, at, torch.tensor([0, 2]), False, 1, include_last_offset=True)[2].tolist() == [2]
    weighted = torch.embedding_bag(weight, at, begins, False, 0, False, torch.tensor([2.0, 3.0]))
    assert weighted[0].tolist() == [[5.0, 5.0]]
    for wrong, told in ((lambda: torch.embedding_bag(weight, at, begins, False, 7), "must be sum"),
                        (lambda: torch.embedding_bag(weight, at.float(), begins), "scalar types: Long, Int"),
                        (lambda: torch.embedding_bag(weight, at.reshape(1, 2), begins), "1D"),
                        (lambda: torch.embedding_bag(weight, at, begins, False, 1, False, torch.ones(2)), "only supported with mode='sum'"),
                        (lambda: torch.embedding_bag(weight, at + 9, begins), "num_embeddings")):
        with pytest.raises(RuntimeError, match=told):
            wrong()
