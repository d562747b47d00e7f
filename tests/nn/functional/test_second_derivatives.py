"""Second derivatives of nn.functional's losses, activations, normalizations and resampling, against finite differences of the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import gradgradcheck

F: Any = fb.nn.functional


def x(*shape: int, low: float = -1.0, high: float = 1.0, seed: int = 0) -> Any:
    """Numbers apart from each other and from the places where slopes jump (0, ±0.5, ±1)."""
    a = np.random.default_rng(seed).uniform(low, high, shape)
    a += 0.03 * np.sign(a + 1e-9) * (np.abs(np.abs(a) % 0.5) < 0.02)
    return fb.tensor(a, dtype=fb.float64, requires_grad=True)


LABELS = fb.tensor([0, 2, 1])
SIGNS = fb.tensor([1.0, -1.0, 1.0], dtype=fb.float64)
LOSSES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cross_entropy": (lambda a: F.cross_entropy(a, LABELS, label_smoothing=0.1), (x(3, 4),)),
    "cross_entropy of shares": (lambda a, t: F.cross_entropy(a, t), (x(3, 4), x(3, 4, low=0.1, high=0.9, seed=1))),
    "nll_loss": (lambda a: F.nll_loss(a.log_softmax(1), LABELS), (x(3, 4),)),
    "binary_cross_entropy": (F.binary_cross_entropy, (x(3, low=0.1, high=0.9), x(3, low=0.1, high=0.9, seed=1))),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, (x(3), x(3, low=0.1, high=0.9, seed=1))),
    "mse_loss": (F.mse_loss, (x(3), x(3, seed=1))), "l1_loss": (F.l1_loss, (x(3), x(3, seed=1))),
    "smooth_l1_loss": (lambda a, t: F.smooth_l1_loss(a, t, beta=0.7), (x(4), x(4, seed=1))),
    "huber_loss": (lambda a, t: F.huber_loss(a, t, delta=0.7), (x(4), x(4, seed=1))),
    "kl_div": (lambda a, t: F.kl_div(a, t, reduction="batchmean"), (x(3, 2), x(3, 2, low=0.1, high=0.9, seed=1))),
    "poisson_nll_loss": (lambda a, t: F.poisson_nll_loss(a, t, full=True), (x(3), x(3, low=1.2, high=3.0, seed=1))),
    "gaussian_nll_loss": (lambda a, t, v: F.gaussian_nll_loss(a, t, v, full=True), (x(3), x(3, seed=1), x(3, low=0.2, high=1.0, seed=2))),
    "soft_margin_loss": (lambda a: F.soft_margin_loss(a, SIGNS), (x(3),)),
    "hinge_embedding_loss": (lambda a: F.hinge_embedding_loss(a, SIGNS), (x(3),)),
    "margin_ranking_loss": (lambda a, b: F.margin_ranking_loss(a, b, SIGNS, margin=0.2), (x(3), x(3, seed=1))),
    "cosine_embedding_loss": (lambda a, b: F.cosine_embedding_loss(a, b, SIGNS, margin=-0.9), (x(3, 4), x(3, 4, seed=1))),
    "triplet_margin_loss": (F.triplet_margin_loss, (x(2, 4), x(2, 4, seed=1), x(2, 4, seed=2))),
    "multi_margin_loss": (lambda a: F.multi_margin_loss(a, LABELS, p=2), (x(3, 4),)),
    "multilabel_margin_loss": (lambda a: F.multilabel_margin_loss(a, fb.tensor([[2, 0, -1], [1, -1, -1]])), (x(2, 3),)),
    "multilabel_soft_margin_loss": (lambda a: F.multilabel_soft_margin_loss(a, (x(2, 3, seed=1) > 0).double()), (x(2, 3),)),
}
OTHERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{name: (getattr(F, name), (x(5, seed=3),)) for name in """celu elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6
       selu sigmoid silu softplus softshrink softsign tanh tanhshrink""".split()},
    "glu": (F.glu, (x(2, 4),)), "prelu": (F.prelu, (x(2, 3), x(3, seed=1))), "softmax": (lambda a: F.softmax(a, 1), (x(2, 3),)),
    "log_softmax": (lambda a: F.log_softmax(a, 1), (x(2, 3),)), "softmin": (lambda a: F.softmin(a, 1), (x(2, 3),)),
    "layer_norm": (lambda a, w, b: F.layer_norm(a, (4,), w, b), (x(2, 4), x(4, seed=1), x(4, seed=2))),
    "rms_norm": (lambda a, w: F.rms_norm(a, (4,), w), (x(2, 4), x(4, seed=1))),
    "group_norm": (lambda a, w, b: F.group_norm(a, 2, w, b), (x(2, 4, 2), x(4, seed=1), x(4, seed=2))),
    "batch_norm": (lambda a, w, b: F.batch_norm(a, None, None, w, b, training=True), (x(3, 2), x(2, seed=1), x(2, seed=2))),
    "instance_norm": (F.instance_norm, (x(2, 2, 3),)), "local_response_norm": (lambda a: F.local_response_norm(a, 3), (x(1, 4, 2),)),
    "normalize": (F.normalize, (x(2, 3),)), "cosine_similarity": (F.cosine_similarity, (x(2, 3), x(2, 3, seed=1))),
    "pairwise_distance": (F.pairwise_distance, (x(2, 3), x(2, 3, seed=1))),
    "linear": (F.linear, (x(2, 3), x(4, 3, seed=1), x(4, seed=2))), "bilinear": (F.bilinear, (x(2, 2), x(2, 3, seed=1), x(2, 2, 3, seed=2))),
    "interpolate": (lambda a: F.interpolate(a, scale_factor=1.5, mode="bicubic"), (x(1, 1, 3, 3),)),
    "avg_pool2d": (lambda a: F.avg_pool2d(a, 2), (x(1, 1, 4, 4),)), "max_pool2d": (lambda a: F.max_pool2d(a, 2), (x(1, 1, 4, 4),)),
    "lp_pool1d": (lambda a: F.lp_pool1d(a, 2.0, 2), (x(1, 1, 4, low=0.1),)),
    "embedding": (lambda w: F.embedding(LABELS, w) ** 2, (x(3, 2),)), "embedding_bag": (lambda w: F.embedding_bag(LABELS.view(1, 3), w) ** 2, (x(3, 2),)),
    "pixel_shuffle": (lambda a: F.pixel_shuffle(a, 2) ** 2, (x(1, 4, 1, 1),)), "pad": (lambda a: F.pad(a, (1, 1), mode="reflect") ** 2, (x(1, 1, 3),)),
}


@pytest.mark.parametrize("name", sorted(LOSSES | OTHERS))
def test_second_derivatives(name: str) -> None:
    f, inputs = (LOSSES | OTHERS)[name]
    assert gradgradcheck(f, inputs, atol=2e-4)
