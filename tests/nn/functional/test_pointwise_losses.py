"""The losses that are one formula an element, against NumPy, and their gradients against finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau
from flambeau.autograd import gradcheck
from flambeau.nn import functional as F

RNG = np.random.default_rng(0)
X, T = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3))
P, Q = RNG.uniform(0.1, 0.9, (4, 3)), RNG.uniform(0.1, 0.9, (4, 3))
S = np.where(X > T, 1.0, -1.0)
COUNTS = RNG.integers(0, 5, (4, 3)).astype(np.float64)


def _huber(d, delta):
    return np.where(d <= delta, d * d / 2, delta * (d - delta / 2))


def _smooth(d, beta):
    return np.where(d < beta, d * d / 2 / beta, d - beta / 2)


def _stirling(t):
    safe = np.where(t > 1, t, 1)
    return np.where(t > 1, safe * np.log(safe) - safe + np.log(2 * math.pi * safe) / 2, 0)


LOSSES = {
    "mse": (F.mse_loss, (X, T), lambda x, t: (x - t) ** 2),
    "l1": (F.l1_loss, (X, T), lambda x, t: abs(x - t)),
    "smooth l1": (lambda x, t, reduction: F.smooth_l1_loss(x, t, reduction=reduction, beta=0.5), (X, T),
                  lambda x, t: _smooth(abs(x - t), 0.5)),
    "huber": (lambda x, t, reduction: F.huber_loss(x, t, reduction, 0.7), (X, T), lambda x, t: _huber(abs(x - t), 0.7)),
    "bce": (F.binary_cross_entropy, (P, Q), lambda p, q: -(q * np.log(p) + (1 - q) * np.log(1 - p))),
    "bce with logits": (F.binary_cross_entropy_with_logits, (X, Q),
                        lambda x, q: np.log1p(np.exp(-abs(x))) + np.maximum(x, 0) - x * q),
    "kl": (F.kl_div, (X, Q), lambda x, q: q * (np.log(q) - x)),
    "kl of logarithms": (lambda x, t, reduction: F.kl_div(x, t, reduction=reduction, log_target=True), (X, T),
                         lambda x, t: np.exp(t) * (t - x)),
    "poisson": (lambda x, t, reduction: F.poisson_nll_loss(x, t, full=True, reduction=reduction), (X, COUNTS),
                lambda x, t: np.exp(x) - t * x + _stirling(t)),
    "poisson of rates": (lambda x, t, reduction: F.poisson_nll_loss(x, t, log_input=False, reduction=reduction),
                         (P, COUNTS), lambda x, t: x - t * np.log(x + 1e-8)),
    "gaussian": (lambda x, t, v, reduction: F.gaussian_nll_loss(x, t, v, full=True, reduction=reduction), (X, T, P),
                 lambda x, t, v: (np.log(v) + (x - t) ** 2 / v + np.log(2 * math.pi)) / 2),
    "soft margin": (F.soft_margin_loss, (X, S), lambda x, t: np.log1p(np.exp(-t * x))),
    "margin ranking": (lambda a, b, t, reduction: F.margin_ranking_loss(a, b, t, 0.3, reduction=reduction), (X, T, S),
                       lambda a, b, t: np.maximum(0, -t * (a - b) + 0.3)),
    "hinge": (F.hinge_embedding_loss, (X, S), lambda x, t: np.where(t == 1, x, np.maximum(0, 1 - x))),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients(name):
    loss, arrays, formula = LOSSES[name]
    expected = formula(*arrays)
    args = [flambeau.from_numpy(a.copy()) for a in arrays]
    np.testing.assert_allclose(loss(*args, reduction="none").numpy(), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(loss(*args, reduction="sum").numpy(), expected.sum(), rtol=1e-12)
    np.testing.assert_allclose(loss(*args, reduction="mean").numpy(), expected.mean(), rtol=1e-12)
    with pytest.raises(ValueError, match="not a? ?valid"):
        loss(*args, reduction="median")
    args[0].requires_grad_()
    assert gradcheck(lambda x: loss(x, *args[1:], reduction="none"), (args[0],))


def test_logits_of_any_size_neither_overflow_nor_vanish():
    x = flambeau.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(x, flambeau.tensor([1.0, 0.0, 0.5, 1.0, 0.0]), reduction="none")
    assert loss.tolist() == pytest.approx([1e4, 0.0, math.log(2), 0.0, 1e4], rel=1e-6, abs=1e-30)
    loss.backward(flambeau.ones(5))
    assert x.grad.tolist() == pytest.approx([-1.0, 0.0, 0.0, 0.0, 1.0], abs=1e-30)


def test_weights():
    args = [flambeau.from_numpy(a.copy()) for a in (X, Q)]
    w = flambeau.tensor([1.0, 2.0, 3.0], dtype=flambeau.float64)
    plain = F.binary_cross_entropy_with_logits(*args, reduction="none").numpy()
    weighted = F.binary_cross_entropy_with_logits(*args, w, reduction="none").numpy()
    np.testing.assert_allclose(weighted, plain * [1, 2, 3], rtol=1e-12)
    heavier = F.binary_cross_entropy_with_logits(*args, pos_weight=w, reduction="none").numpy()
    low = np.log1p(np.exp(-abs(X))) + np.maximum(-X, 0)
    np.testing.assert_allclose(heavier, (1 - Q) * X + (1 + (np.array([1, 2, 3]) - 1) * Q) * low, rtol=1e-12)


@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.huber_loss])
def test_weights_of_differences(loss):
    args = [flambeau.from_numpy(a.copy()) for a in (X, T)]
    w = flambeau.arange(X.size, dtype=flambeau.float64).reshape(X.shape)
    each = loss(*args, reduction="none").numpy() * w.numpy()
    np.testing.assert_allclose(loss(*args, reduction="none", weight=w).numpy(), each, rtol=1e-12)
    np.testing.assert_allclose(loss(*args, reduction="sum", weight=w).numpy(), each.sum(), rtol=1e-12)
    mean = each.mean() if loss is F.huber_loss else each.sum() / w.numpy().sum()  # PyTorch's two ways
    np.testing.assert_allclose(loss(*args, weight=w).numpy(), mean, rtol=1e-12)
    with pytest.raises(ValueError, match="Weights and input must have the same size"):
        loss(*args, weight=w[:2])


def test_the_slope_at_the_corner_of_a_margin():
    """PyTorch's clamp counts it, and so do these."""
    a, b = flambeau.tensor([1.0, 2.0, 0.0], requires_grad=True), flambeau.tensor([1.0, 0.0, 0.0], requires_grad=True)
    F.margin_ranking_loss(a, b, flambeau.tensor([1.0, 1.0, -1.0]), reduction="sum").backward()
    assert a.grad.tolist() == [-1.0, 0.0, 1.0] and b.grad.tolist() == [1.0, 0.0, -1.0]
    a.grad, target = None, flambeau.tensor([-1.0, -1.0, 1.0], requires_grad=True)
    F.hinge_embedding_loss(a, target, reduction="sum").backward()
    assert a.grad.tolist() == [-1.0, 0.0, 1.0] and target.grad is None  # a target only chooses
    # that of classes has none there
    a.grad = None
    F.multi_margin_loss(a, flambeau.tensor(1), reduction="sum").backward()
    assert a.grad.tolist() == [0.0, 0.0, 0.0]


def test_bounds_of_binary_cross_entropy():
    ends = F.binary_cross_entropy(flambeau.tensor([0.0, 1.0]), flambeau.tensor([1.0, 0.0]), reduction="none")
    assert ends.tolist() == [100.0, 100.0]
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        F.binary_cross_entropy(flambeau.tensor([1.5]), flambeau.tensor([1.0]))
    with pytest.raises(ValueError, match="Using a target size"):
        F.binary_cross_entropy(flambeau.tensor([0.5]), flambeau.tensor([1.0, 0.0]))


def test_bad_arguments():
    a, b = flambeau.zeros(2), flambeau.zeros(2)
    with pytest.raises(RuntimeError, match="negative values for beta"):
        F.smooth_l1_loss(a, b, beta=-1.0)
    with pytest.raises(RuntimeError, match="non-positive values for delta"):
        F.huber_loss(a, b, delta=0.0)
    with pytest.raises(ValueError, match="var has negative entry"):
        F.gaussian_nll_loss(a, b, b - 1)
    with pytest.raises(ValueError, match="must be the same as input size"):
        F.binary_cross_entropy_with_logits(a, flambeau.zeros(3))
    with pytest.warns(UserWarning, match="that is different to the input size"):
        F.mse_loss(flambeau.zeros(2, 1), flambeau.zeros(2))
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        assert F.mse_loss(a + 1, b, size_average=False).item() == 2.0


def test_lengths_of_ctc_loss_are_integers_that_the_targets_have():
    import flambeau.nn.functional as F
    scores, targets = flambeau.randn(6, 2, 4).log_softmax(2), flambeau.tensor([[1, 2, 3], [3, 2, 1]])
    want = F.ctc_loss(scores, targets, [6, 5], [3, 2])
    for ins, outs in ((flambeau.tensor([6, 5]), flambeau.tensor([3, 2], dtype=flambeau.int32)), ((6, 5), [3, 2])):
        assert F.ctc_loss(scores, targets, ins, outs).item() == want.item()
    one = F.ctc_loss(scores[:, 0], targets[0], flambeau.tensor(6), flambeau.tensor(3))
    assert one.item() == pytest.approx(F.ctc_loss(scores[:, :1], targets[:1], [6], [3]).item())
    for ins, outs, message in (([6, 5], [4, 2], "at least 4 at dimension 1"), (flambeau.tensor([6.0, 5.0]), [3, 2], "input_lengths must be integral"),
                               ([6, 5], flambeau.tensor([3.0, 2.0]), "target_lengths must be integral"), ([6, 5], [3, -1], "at least 0")):
        with pytest.raises(RuntimeError, match=message):
            F.ctc_loss(scores, targets, ins, outs)


@pytest.mark.parametrize(("argument", "call"), [
    ("target", lambda w: F.soft_margin_loss(flambeau.ones(3), w)),
    ("weight", lambda w: F.binary_cross_entropy(flambeau.full((3,), 0.5), flambeau.ones(3), weight=w)),
    ("weight", lambda w: F.binary_cross_entropy_with_logits(flambeau.ones(3), flambeau.ones(3), weight=w)),
    ("pos_weight", lambda w: F.binary_cross_entropy_with_logits(flambeau.ones(3), flambeau.ones(3), pos_weight=w)),
    ("weight", lambda w: F.nll_loss(flambeau.zeros(2, 3), flambeau.tensor([0, 2]), weight=w)),
    ("weight", lambda w: F.cross_entropy(flambeau.zeros(2, 3), flambeau.tensor([0, 2]), weight=w)),
    ("weight", lambda w: F.multi_margin_loss(flambeau.zeros(2, 3), flambeau.tensor([0, 2]), weight=w))])
def test_losses_refuse_gradients_that_pytorch_does_not_give(argument, call):
    w = flambeau.ones(3)
    for _ in range(3):
        assert call(w).isfinite()
    w.requires_grad_()
    for _ in range(3):
        with pytest.raises(RuntimeError, match=f"not differentiable with respect to argument '{argument}'"):
            call(w)
    with flambeau.no_grad():
        assert call(w).isfinite()


def test_a_weight_of_a_loss_of_many_labels_has_a_gradient():
    x, t = flambeau.tensor([[0.5, -1.0, 2.0]]), flambeau.tensor([[1.0, 0.0, 1.0]])
    w = flambeau.ones(3, requires_grad=True)
    F.multilabel_soft_margin_loss(x, t, weight=w).backward()
    np.testing.assert_allclose(w.grad.numpy(), F.binary_cross_entropy_with_logits(x, t, reduction="none").numpy()[0] / 3, rtol=1e-6)


def test_infinities_have_the_slope_of_their_case():
    """And values: what is 0 by its case is 0, whatever the other case makes of it."""
    inf = math.inf
    x = flambeau.tensor([inf, -inf, 0.5], dtype=flambeau.float64, requires_grad=True)
    for loss in (F.smooth_l1_loss, F.huber_loss):
        (slope,) = flambeau.autograd.grad(loss(x, flambeau.zeros(3, dtype=flambeau.float64), reduction="sum"), x)
        assert slope.tolist() == [1, -1, 0.5]
    marks = flambeau.tensor([-1.0, 1.0, -1.0], dtype=flambeau.float64)
    assert F.hinge_embedding_loss(x, marks, reduction="none").tolist() == [0, -inf, 0.5]
    assert F.margin_ranking_loss(x, 0 * marks, -marks, reduction="none").tolist() == [0, 0, 0]
    counts = flambeau.tensor([-inf, 0.0, 3.0], dtype=flambeau.float64)
    made = F.poisson_nll_loss(flambeau.full((3,), -1.0, dtype=flambeau.float64), counts, full=True, reduction="none")
    np.testing.assert_allclose(made.tolist(), [-inf, math.exp(-1), math.exp(-1) + 3 * math.log(3) + math.log(6 * math.pi) / 2])
    weight = flambeau.tensor([inf], dtype=flambeau.float64, requires_grad=True)
    (slope,) = flambeau.autograd.grad(F.prelu(x, weight).sum(), x)
    assert slope.tolist() == [1, inf, 1]
