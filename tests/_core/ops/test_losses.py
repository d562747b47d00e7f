"""Losses over classes against NumPy in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck

F = fb.nn.functional
TOLERANCE = {fb.float16: 4e-3, fb.bfloat16: 3e-2, fb.float32: 4e-6, fb.float64: 1e-12}
REDUCTIONS = ("none", "mean", "sum")


def plain(t: Any) -> Any:
    return t.detach().cpu().double().numpy()


def logs_of(x: Any) -> Any:
    shifted = x - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def reduced(losses: Any, reduction: str, by: float) -> Any:
    if reduction == "none":
        return losses
    return losses.sum() / by if reduction == "mean" else losses.sum()


def nll(logs: Any, target: Any, weight: Any = None, ignore: int = -100, reduction: str = "mean", smoothing: float = 0.0) -> Any:
    """(N, C, ...) log-probabilities and (N, ...) classes."""
    used = target != ignore
    classes = logs.shape[1]
    w = np.ones(classes) if weight is None else weight
    at = np.where(used, target, 0)
    picked = -np.take_along_axis(logs, np.expand_dims(at, 1), 1).squeeze(1) * w[at] * used
    if smoothing:
        even = -(logs * w.reshape(1, -1, *[1] * (logs.ndim - 2))).sum(1) * used
        picked = picked * (1 - smoothing) + even * smoothing / classes
    return reduced(picked, reduction, (w[at] * used).sum())


def case(shape: tuple[int, ...], seed: int = 0, ignored: int | None = None) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    target = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    if ignored is not None:
        target[rng.random(target.shape) < 0.3] = ignored
    return rng.standard_normal(shape) * 3, target


def close(got: Any, want: Any, d: Any, wider: float = 1.0) -> None:
    t = TOLERANCE[d] * wider
    np.testing.assert_allclose(plain(got), want, rtol=t, atol=t * max(1.0, float(np.abs(want).max(initial=0.0))))


@pytest.mark.parametrize("d", TOLERANCE, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, -100, 2])
def test_cross_entropy(device: str, d: Any, reduction: str, weighted: bool, ignored: int | None) -> None:
    x, target = case((9, 5), ignored=ignored)
    t = fb.tensor(x).to(d).to(device).requires_grad_()
    w = np.linspace(0.5, 1.5, 5) if weighted else None
    ignore = -100 if ignored is None else ignored
    out = F.cross_entropy(t, fb.tensor(target, device=device), None if w is None else fb.tensor(w).to(d).to(device), ignore_index=ignore,
                          reduction=reduction)
    used = plain(fb.tensor(w).to(d)) if weighted else None
    assert out.dtype is d
    close(out, nll(logs_of(plain(t)), target, used, ignore, reduction), d, 2)
    (grad,) = fb.autograd.grad(out.sum(), t)
    soft = np.exp(logs_of(plain(t)))
    hot = np.eye(5)[np.where(target == ignore, 0, target)]
    factor = (target != ignore) * (1.0 if used is None else used[np.where(target == ignore, 0, target)])
    close(grad, (soft - hot) * (factor / (factor.sum() if reduction == "mean" else 1.0))[:, None], d, 2)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 2, 7, 40]), st.sampled_from([1, 2, 5, 33]), st.lists(st.sampled_from([1, 3, 8]), max_size=3), st.sampled_from(REDUCTIONS),
       st.sampled_from([0.0, 0.1, 1.0]), st.booleans(), st.booleans(), st.sampled_from(["plain", "turned", "expanded"]), st.integers(0, 99))
def test_cross_entropy_of_any_shape(n: int, classes: int, rest: list[int], reduction: str, smoothing: float, weighted: bool, ignoring: bool, layout: str,
                                    seed: int) -> None:
    x, target = case((n, classes, *rest), seed, 0 if ignoring else None)
    if ignoring:
        target.reshape(-1)[0] = classes - 1
        if classes == 1:
            ignoring, target = False, np.zeros_like(target)
    t = fb.tensor(x)
    if layout == "turned":
        t = t.movedim(1, -1).contiguous().movedim(-1, 1)
    elif layout == "expanded":
        t = t[:1].expand(*x.shape)
    w = np.linspace(0.5, 1.5, classes) if weighted else None
    ignore = 0 if ignoring else -100
    out = F.cross_entropy(t, fb.tensor(target), None if w is None else fb.tensor(w), ignore_index=ignore, reduction=reduction,
                          label_smoothing=smoothing)
    logs = logs_of(plain(t))
    close(out, nll(logs, target, w, ignore, reduction, smoothing), fb.float64)


@pytest.mark.parametrize("d", TOLERANCE, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_with_probabilities(device: str, d: Any, reduction: str, smoothing: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 5, 3))
    p = rng.dirichlet(np.ones(5), (4, 3)).transpose(0, 2, 1)
    t, pt = fb.tensor(x).to(d).to(device), fb.tensor(p).to(d).to(device)
    w = fb.tensor(np.linspace(0.5, 1.5, 5)).to(d).to(device)
    out = F.cross_entropy(t, pt, w, reduction=reduction, label_smoothing=smoothing)
    mixed = plain(pt) * (1 - smoothing) + smoothing / 5
    losses = -(logs_of(plain(t)) * mixed * plain(w)[None, :, None]).sum(1)
    close(out, reduced(losses, reduction, 12), d, 3)


@pytest.mark.parametrize("d", TOLERANCE, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5), (2, 4, 3, 2)], ids=str)
def test_nll_loss(device: str, d: Any, reduction: str, weighted: bool, shape: tuple[int, ...]) -> None:
    x, target = case(shape, ignored=1)
    t = fb.tensor(x).to(d).to(device).requires_grad_()
    w = fb.tensor(np.linspace(0.5, 1.5, 4)).to(d).to(device) if weighted else None
    out = F.nll_loss(t, fb.tensor(target, device=device), w, ignore_index=1, reduction=reduction)
    wn = None if w is None else plain(w)
    close(out, nll(plain(t), target, wn, 1, reduction), d, 2)
    (grad,) = fb.autograd.grad(out.sum(), t)
    at = np.where(target == 1, 0, target)
    factor = (target != 1) * (1.0 if wn is None else wn[at])
    want = np.zeros(shape)
    np.put_along_axis(want, at[:, None], -(factor / (factor.sum() if reduction == "mean" else 1.0))[:, None], 1)
    close(grad, want, d)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_one_sample_without_a_batch(reduction: str) -> None:
    x, target = case((1, 5))
    for f, values in ((F.nll_loss, x), (F.cross_entropy, logs_of(x))):
        out = f(fb.tensor(x[0]), fb.tensor(int(target[0])), reduction=reduction)
        assert out.shape == ()
        close(out, -values[0, target[0]], fb.float64)


@pytest.mark.parametrize("options", [{}, {"weight": True}, {"ignore_index": 1}, {"label_smoothing": 0.3}, {"weight": True, "label_smoothing": 0.3}], ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4)], ids=str)
def test_gradients_twice(options: dict[str, Any], reduction: str, shape: tuple[int, ...]) -> None:
    x, target = case(shape)
    options = dict(options)
    if options.pop("weight", False):
        options["weight"] = fb.tensor([0.5, 1.0, 2.0], dtype=fb.float64)
    t, classes = fb.tensor(x, requires_grad=True), fb.tensor(target)
    assert gradcheck(lambda v: F.cross_entropy(v, classes, reduction=reduction, **options), (t,))
    assert gradgradcheck(lambda v: F.cross_entropy(v, classes, reduction=reduction, **options), (t,))
    options.pop("label_smoothing", None)
    assert gradcheck(lambda v: F.nll_loss(v, classes, reduction=reduction, **options), (t,))
    assert gradgradcheck(lambda v: F.nll_loss(v, classes, reduction=reduction, **options), (t,))


def test_gradients_of_probabilities_twice(device: str) -> None:
    x, p = (fb.tensor(np.random.default_rng(i).random((3, 4)) + 0.1, device=device, requires_grad=True) for i in range(2))
    assert gradcheck(F.cross_entropy, (x, p))
    assert gradgradcheck(F.cross_entropy, (x, p))


def test_a_second_gradient_on_each_device(device: str) -> None:
    x, target = case((4, 3), ignored=2)
    t, classes = fb.tensor(x, device=device, requires_grad=True), fb.tensor(target, device=device)
    for f in (F.cross_entropy, F.nll_loss):
        assert gradgradcheck(lambda v, f=f: f(v, classes, ignore_index=2), (t,))


@pytest.mark.parametrize("kind", [fb.uint8, fb.int64], ids=str)
def test_types_of_classes(kind: Any) -> None:
    x, target = case((6, 4))
    close(F.cross_entropy(fb.tensor(x), fb.tensor(target).to(kind)), nll(logs_of(x), target), fb.float64)


def test_nothing(device: str) -> None:
    x = fb.zeros(0, 3, device=device, requires_grad=True)
    target = fb.zeros(0, dtype=fb.int64, device=device)
    for f in (F.cross_entropy, F.nll_loss):
        assert f(x, target).isnan().item() and f(x, target, reduction="sum").item() == 0.0
        assert tuple(f(x, target, reduction="none").shape) == (0,)
        assert tuple(fb.autograd.grad(f(x, target, reduction="sum"), x)[0].shape) == (0, 3)


def test_all_ignored_and_extreme_logits(device: str) -> None:
    x = fb.tensor([[0.0, 1.0], [2.0, 3.0]], device=device, requires_grad=True)
    ignored = fb.tensor([-100, -100], device=device)
    assert F.cross_entropy(x, ignored).isnan().item()
    assert F.cross_entropy(x, ignored, reduction="sum").item() == 0.0
    big = fb.tensor([[1e4, 0.0], [0.0, 1e4], [-math.inf, 0.0], [math.nan, 0.0]], device=device)
    out = F.cross_entropy(big, fb.tensor([0, 0, 1, 1], device=device), reduction="none").cpu()
    assert out[:3].tolist() == [0.0, 1e4, 0.0] and out[3].isnan()
    assert F.cross_entropy(big[2:3], fb.tensor([0], device=device)).item() == math.inf


def test_older_flags() -> None:
    x, target = case((4, 3))
    t, c = fb.tensor(x), fb.tensor(target)
    for flags, reduction in (({"size_average": False}, "sum"), ({"reduce": False}, "none"), ({"size_average": True}, "mean")):
        close(F.cross_entropy(t, c, **flags), nll(logs_of(x), target, reduction=reduction), fb.float64)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_linear_cross_entropy(device: str, bias: bool, reduction: str) -> None:
    rng = np.random.default_rng(0)
    x, target = rng.standard_normal((6, 4)), rng.integers(0, 3, 6)
    w, b = rng.standard_normal((3, 4)), rng.standard_normal(3)
    args = [fb.tensor(a, device=device) for a in (x, w, target, b)]
    out = F.linear_cross_entropy(*args[:3], linear_bias=args[3] if bias else None, reduction=reduction)
    close(out, nll(logs_of(x @ w.T + (b if bias else 0)), target, reduction=reduction), fb.float64)
    w2, t2 = rng.standard_normal((3, 2, 4)), rng.integers(0, 3, (6, 2))
    out = F.linear_cross_entropy(args[0], fb.tensor(w2, device=device), fb.tensor(t2, device=device), reduction=reduction)
    close(out, nll(logs_of(np.einsum("ni,cdi->ncd", x, w2)), t2, reduction=reduction), fb.float64)


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: F.cross_entropy(fb.zeros(3, 2), fb.tensor([0, 1])), ValueError, r"input batch_size \(3\).*target batch_size \(2\)"),
    (lambda: F.cross_entropy(fb.zeros(3, 2), fb.tensor([0, 1, 2])), IndexError, "Target 2 is out of bounds"),
    (lambda: F.nll_loss(fb.zeros(3, 2), fb.tensor([0, -1, 1])), IndexError, "Target -1 is out of bounds"),
    (lambda: F.cross_entropy(fb.zeros(3, 2), fb.tensor([0, 1, 1]), fb.ones(3)), RuntimeError, "weight tensor should be defined"),
    (lambda: F.cross_entropy(fb.zeros(3, 2), fb.tensor([0.0, 1.0, 1.0])), RuntimeError, "expected target dtype to be Long or Byte, but got Float"),
    (lambda: F.cross_entropy(fb.zeros(3, 2), fb.tensor([0, 1, 1]), label_smoothing=1.5), RuntimeError, "label_smoothing must be between"),
    (lambda: F.cross_entropy(fb.zeros(3, 2), fb.tensor([0, 1, 1]), reduction="average"), ValueError, "not a valid value for reduction"),
    (lambda: F.nll_loss(fb.zeros(2, 3, 4), fb.zeros(2, 5, dtype=fb.int64)), RuntimeError, "Expected target size"),
    (lambda: F.linear_cross_entropy(fb.zeros(4), fb.zeros(3, 2, 4), fb.tensor(0)), RuntimeError, "requires batched input"),
    (lambda: F.linear_cross_entropy(fb.zeros(2, 4), fb.zeros(3, 4), fb.zeros(2, 3), ignore_index=0), RuntimeError, "ignore_index"),
    (lambda: F.linear_cross_entropy(fb.zeros(2, 4), fb.zeros(3, 4), fb.tensor([0, 1]), options=object()), TypeError, "options"),
])
def test_bad_input(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_a_changed_input_is_noticed() -> None:
    x = fb.randn(3, 4, requires_grad=True) * 1
    out = F.cross_entropy(x, fb.tensor([0, 1, 2]))
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_changed_classes_are_checked_again() -> None:
    x, target = fb.zeros(2, 3), fb.tensor([0, 1])
    F.cross_entropy(x, target)
    target[0] = 7
    with pytest.raises(IndexError, match="Target 7"):
        F.cross_entropy(x, target)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("extra", [{}, {"weight": True}, {"ignore_index": 2}, {"label_smoothing": 0.2}, {"probabilities": True}], ids=str)
def test_linear_cross_entropy_in_pieces_is_that_of_the_whole(reduction: str, extra: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    extra = dict(extra)
    x, w, b = (fb.tensor(rng.standard_normal(s), requires_grad=True) for s in ((7, 4), (5, 4), (5,)))
    target: Any = fb.tensor(rng.integers(0, 5, 7))
    if extra.pop("probabilities", False):
        target = fb.tensor(rng.dirichlet(np.ones(5), 7))
    if extra.pop("weight", False):
        extra["weight"] = fb.tensor([0.5, 1.0, 2.0, 1.5, 0.25], dtype=fb.float64)
    seen = []
    for options in (None, fb.nn.LinearCrossEntropyOptions(batch_chunk_size=3)):
        loss = F.linear_cross_entropy(x, w, target, linear_bias=b, reduction=reduction, options=options, **extra)
        seen.append([loss.detach(), *fb.autograd.grad(loss.sum(), (x, w, b))])
    for whole, pieces in zip(*seen, strict=True):
        np.testing.assert_allclose(pieces.numpy(), whole.numpy(), rtol=1e-12, atol=1e-14)


def test_how_many_rows_the_options_take() -> None:
    make = fb.nn.LinearCrossEntropyOptions
    assert make(batch_chunk_size=3).rows(100, 8, 1000) == 3
    assert make().rows(1000, 8, 1000) == 16 and make(chunking_method="aspect_ratio:1").rows(1000, 8, 1000) == 8
    assert make(chunking_method=None).rows(1000, 8, 1000) == 1000
    for bad in ({"batch_chunk_size": 0}, {"chunking_method": "aspect_ratio"}, {"acc_policy": "fast"}):
        with pytest.raises(ValueError):
            make(**bad)


def test_a_target_out_of_range_is_refused_each_time() -> None:
    target = fb.tensor([0, 1, 2])
    for _ in range(2):
        with pytest.raises(IndexError, match="Target 2 is out of bounds"):
            F.cross_entropy(fb.zeros(3, 2), target)


@pytest.mark.parametrize("d", [fb.int64, fb.uint8, fb.bool, fb.complex64], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_are_floating_point_numbers(d: Any, smoothing: float) -> None:
    x, classes = fb.ones(4, 3).to(d), fb.tensor([0, 1, 2, 0])
    for target, weight in ((classes, None), (classes, fb.ones(3)), (fb.full((4, 3), 1 / 3), None)):
        with pytest.raises(NotImplementedError, match="log_softmax_lastdim_kernel_impl"):
            F.cross_entropy(x, target, weight, label_smoothing=smoothing)


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (3, 40)])
def test_multilabel_margins(shape):
    rng = np.random.default_rng(3)
    x, t = rng.standard_normal(shape), rng.integers(-1, shape[1], shape)
    x[0, 0] = np.nan  # exceeds nothing, and nothing exceeds it

    def of(row, targets):
        targets = targets[:np.argmax(targets < 0)] if (targets < 0).any() else targets
        over = [1 - row[j] + row[i] for j in targets for i in set(range(len(row))) - set(targets.tolist())]
        return sum(v for v in over if v > 0) / len(row)

    made = F.multilabel_margin_loss(fb.tensor(x), fb.tensor(t), reduction="none")
    np.testing.assert_allclose(made.numpy(), [of(*pair) for pair in zip(x, t, strict=True)], rtol=1e-12)


def test_multilabel_margins_take_no_memory_of_all_pairs():
    from flambeau._core.runtime import cpu_memory
    x, t = fb.randn(256, 256, requires_grad=True), fb.randint(0, 256, (256, 256))
    before = cpu_memory.stats()["reserved_bytes"]
    F.multilabel_margin_loss(x, t).backward()
    assert cpu_memory.stats()["reserved_bytes"] - before < 256 ** 3


def test_a_target_of_several_classes_is_refused():
    with pytest.raises(RuntimeError, match="1D target tensor expected, multi-target not supported"):
        fb.nn.functional.nll_loss(fb.ones(10, 3), fb.zeros(10, 2, dtype=fb.int64))
    with pytest.raises(RuntimeError, match="Expected input and target of one shape"):
        fb.nn.functional.multilabel_margin_loss(fb.ones(0), fb.ones(10, dtype=fb.int64))


@pytest.mark.parametrize("outer", [(), (4, 3)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_loss_of_a_linear_map(outer, bias, reduction):
    loss = fb.nn.LinearCrossEntropyLoss(5, 7, out_features=outer, bias=bias, reduction=reduction, dtype=fb.float64, label_smoothing=0.1)
    g = np.random.default_rng(0)
    x, target = g.standard_normal((2, 5)), g.integers(0, 7, (2, *outer))
    logits = x @ loss.linear.weight.detach().numpy().T + (loss.linear.bias.detach().numpy() if bias else 0)
    logs = logits.reshape(2, 7, *outer)
    logs = logs - np.log(np.exp(logs).sum(1, keepdims=True))
    want = -0.9 * np.take_along_axis(logs, target[:, None], 1)[:, 0] - 0.1 * logs.mean(1)
    want = want if reduction == "none" else want.mean() if reduction == "mean" else want.sum()
    made = loss(fb.tensor(x), fb.tensor(target))
    np.testing.assert_allclose(made.detach().numpy(), want, rtol=1e-12)
    made.sum().backward()
    assert loss.linear.weight.grad.shape == (7 * int(np.prod(outer)), 5) and list(loss.state_dict()) == ["linear.weight", *["linear.bias"] * bias]


def test_the_loss_of_a_linear_map_shows_its_arguments():
    shown = repr(fb.nn.LinearCrossEntropyLoss(3, 4, out_features=(2,), bias=True, reduction="sum"))
    assert "num_classes=4, out_features=(2,), bias=True, reduction=sum" in shown
    with pytest.raises(ValueError, match="not a valid value for reduction"):
        fb.nn.LinearCrossEntropyLoss(3, 4, reduction="all")
