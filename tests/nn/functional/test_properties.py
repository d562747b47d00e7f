"""What holds of nn.functional's families for any shape and values: against NumPy's formulas, or there and back again."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb

F: Any = fb.nn.functional
quick = settings(max_examples=25, deadline=None)


@st.composite
def numbers(draw: Any, least: int = 1, most: int = 4) -> Any:
    shape = draw(st.lists(st.integers(1, 7), min_size=least, max_size=most))
    return np.random.default_rng(draw(st.integers(0, 2 ** 32 - 1))).standard_normal(shape) * draw(st.sampled_from([0.1, 1.0, 20.0]))


def close(got: Any, want: Any) -> None:
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-10, atol=1e-12 * max(1.0, float(np.abs(want).max(initial=0))))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


LOSSES: dict[str, Any] = {
    "mse_loss": lambda x, t: (x - t) ** 2, "l1_loss": lambda x, t: np.abs(x - t),
    "smooth_l1_loss": lambda x, t: np.where(np.abs(x - t) < 1, (x - t) ** 2 / 2, np.abs(x - t) - 0.5),
    "huber_loss": lambda x, t: np.where(np.abs(x - t) <= 1, (x - t) ** 2 / 2, np.abs(x - t) - 0.5),
    "soft_margin_loss": lambda x, t: softplus(-t * x), "poisson_nll_loss": lambda x, t: np.exp(x) - t * x,
    "binary_cross_entropy_with_logits": lambda x, t: softplus(x) - t * x,
    "kl_div": lambda x, t: np.where(t > 0, np.where(t > 0, t, 1) * (np.log(np.where(t > 0, t, 1)) - x), 0.0),
    "hinge_embedding_loss": lambda x, t: np.where(t == 1, x, np.where(t == -1, np.maximum(0, 1 - x), 0.0))}


@quick
@given(numbers(), st.sampled_from(sorted(LOSSES)), st.sampled_from(["none", "sum", "mean"]))
def test_losses_are_their_formulas(x: np.ndarray, name: str, reduction: str) -> None:
    t = np.random.default_rng(1).random(x.shape)
    t = np.where(t > 0.5, 1.0, -1.0) if name in ("soft_margin_loss", "hinge_embedding_loss") else t
    each = LOSSES[name](x, t)
    if name == "hinge_embedding_loss":
        each = np.where(t == 1, x, np.maximum(0, 1 - x))
    want = {"none": each, "sum": each.sum(), "mean": each.mean()}[reduction]
    close(getattr(F, name)(fb.from_numpy(x), fb.from_numpy(t), reduction=reduction), want)


@quick
@given(st.integers(1, 6), st.lists(st.integers(0, 9), min_size=0, max_size=20), st.sampled_from(["sum", "mean", "max"]), st.data())
def test_bags_are_reductions_of_their_rows(width: int, indices: list[int], mode: str, data: Any) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(indices)), max_size=5)))
    starts = [0, *cuts]
    table = fb.randn(10, width, dtype=fb.float64)
    got = F.embedding_bag(fb.tensor(indices, dtype=fb.int64), table, fb.tensor(starts), mode=mode)
    rows = table.numpy()
    for k, (a, b) in enumerate(zip(starts, [*cuts, len(indices)], strict=True)):
        bag = rows[indices[a:b]]
        want = np.zeros(width) if not len(bag) else {"sum": bag.sum, "mean": bag.mean, "max": bag.max}[mode](0)
        np.testing.assert_allclose(got[k].numpy(), want, rtol=1e-12, atol=1e-14)


@quick
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_shuffles_undo_each_other(factor: int, channels: int, h: int, w: int) -> None:
    x = fb.randn(2, channels * factor ** 2, h, w)
    there = F.pixel_shuffle(x, factor)
    assert there.shape == (2, channels, h * factor, w * factor) and fb.equal(F.pixel_unshuffle(there, factor), x)
    groups = fb.channel_shuffle(x, factor)
    assert fb.equal(fb.channel_shuffle(groups, channels * factor), x)


@quick
@given(numbers(3, 4), st.sampled_from(["constant", "reflect", "replicate", "circular"]), st.data())
def test_padding_is_numpys(x: np.ndarray, mode: str, data: Any) -> None:
    n = x.ndim - 2
    most = [min(x.shape[-1 - k] - (mode == "reflect"), 4) for k in range(n)]
    widths = [(data.draw(st.integers(0, m)), data.draw(st.integers(0, m))) for m in most]
    named = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    options = {"constant_values": 2.5} if mode == "constant" else {}
    want = np.pad(x, [(0, 0)] * 2 + widths[::-1], named, **options)  # type: ignore[call-overload]
    flat = [w for pair in widths for w in pair]
    close(F.pad(fb.from_numpy(x), flat, mode=mode, **({"value": 2.5} if mode == "constant" else {})), want)


@quick
@given(numbers(3, 5), st.data())
def test_nearest_and_linear_resampling(x: np.ndarray, data: Any) -> None:
    """Nearest picks floor(i * in / out); any method gives the same size back unchanged, and a constant back everywhere."""
    size = [data.draw(st.integers(1, 9)) for _ in x.shape[2:]]
    want = x
    for axis, n in enumerate(size, 2):
        want = want.take(np.arange(n) * x.shape[axis] // n, axis)
    t = fb.from_numpy(x)
    close(F.interpolate(t, size=size, mode="nearest"), want)
    mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[x.ndim]
    close(F.interpolate(t, size=x.shape[2:], mode=mode), x)
    close(F.interpolate(fb.full_like(t, 3.5), size=size, mode=mode), np.full((*x.shape[:2], *size), 3.5))
    ends = F.interpolate(t, size=size, mode=mode, align_corners=True)
    corner = (slice(None), slice(None), *(0,) * len(size))
    close(ends[corner], x[corner])


@quick
@given(st.integers(0, 2 ** 31), st.floats(0.0, 0.95), st.sampled_from(["dropout", "alpha_dropout", "dropout1d", "dropout2d", "feature_alpha_dropout"]))
def test_dropout_scales_what_it_leaves(seed: int, p: float, name: str) -> None:
    f, x = getattr(F, name), fb.rand(4, 8, 6) + 1
    x = x.unsqueeze(-1) if name == "dropout2d" else x
    fb.manual_seed(seed)
    first = f(x, p, True)
    fb.manual_seed(seed)
    assert fb.equal(first, f(x, p, True)) and fb.equal(f(x, p, False), x) and first.shape == x.shape
    if "alpha" in name:
        return
    dropped = first == 0
    np.testing.assert_allclose(first[~dropped].numpy(), x[~dropped].numpy() / (1 - p), rtol=1e-5)
    if name != "dropout":  # whole channels
        per = dropped.reshape(4, 8, -1).float().mean(-1)
        assert ((per == 0) | (per == 1)).all()
