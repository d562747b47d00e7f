"""Entry points below the public functions, against what the public functions give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb

F = fb.nn.functional


def test_softmax_and_dropout_backward_are_their_gradients() -> None:
    x, g = fb.randn(3, 5, dtype=fb.float64, requires_grad=True), fb.randn(3, 5, dtype=fb.float64)
    y = x.softmax(1)
    want = fb.autograd.grad(y, x, g)[0]
    np.testing.assert_allclose(fb._softmax_backward_data(g, y.detach(), 1, fb.float64).numpy(), want.numpy(), rtol=1e-12, atol=1e-15)
    mask = fb.tensor([True, False, True, True, False])
    np.testing.assert_allclose(fb.native_dropout_backward(g, mask, 2.0).numpy(), g.numpy() * mask.numpy() * 2)


def test_chunks_side_by_side() -> None:
    a, b = fb.arange(3.0).reshape(1, 3), fb.arange(4.0).reshape(1, 4)
    assert fb._chunk_cat([a, b], 1, 2).tolist() == [[[0.0, 1.0, 0.0, 1.0], [2.0, 0.0, 2.0, 3.0]]]
    for wrong in (0, -1):
        with pytest.raises(RuntimeError, match="_chunk_cat expects positive num_chunks"):
            fb._chunk_cat([a, b], 1, wrong)


def test_masked_indices_may_point_outside() -> None:
    x = fb.arange(6.0).reshape(2, 3).requires_grad_()
    mask, at = fb.tensor([True, False, True]), [fb.tensor([0, 99, 1]), fb.tensor([2, -99, 0])]
    got = fb._unsafe_masked_index(x, mask, at, -1.0)
    assert got.tolist() == [2.0, -1.0, 3.0]
    got.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    put = fb._unsafe_masked_index_put_accumulate(x.detach(), mask, at, fb.tensor([10.0, 20.0, 30.0]))
    assert put.tolist() == [[0.0, 1.0, 12.0], [33.0, 4.0, 5.0]]


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "max", "min"])
@pytest.mark.parametrize("initial", [None, 1.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_segments(reduce: str, initial: float | None, axis: int) -> None:
    rng = np.random.default_rng(2)
    data = rng.standard_normal((6, 2) if axis == 0 else (2, 6, 3))
    lengths = np.array([1, 0, 3, 2]) if axis == 0 else np.array([[1, 0, 3, 2], [2, 2, 0, 2]])
    start: dict[str, Any] = {"sum": 0.0, "prod": 1.0, "mean": 0.0, "max": -np.inf, "min": np.inf}
    how: dict[str, Any] = {"sum": np.sum, "prod": np.prod, "mean": np.sum, "max": np.max, "min": np.min}

    def one(rows: Any, sizes: Any) -> Any:
        out, at = [], 0
        for n in sizes:
            first = np.full((1, *rows.shape[1:]), start[reduce] if initial is None else initial)
            v = how[reduce](np.concatenate([first, rows[at:at + n]]), axis=0)
            out.append(v if reduce != "mean" else v / n if n else v + (np.nan if initial is None else 0.0))
            at += n
        return np.stack(out)
    want = one(data, lengths) if axis == 0 else np.stack([one(d, s) for d, s in zip(data, lengths, strict=True)])
    x = fb.tensor(data)
    np.testing.assert_allclose(fb.segment_reduce(x, reduce, lengths=fb.tensor(lengths), axis=axis, initial=initial).numpy(), want)
    offsets = np.concatenate([np.zeros_like(lengths[..., :1]), lengths.cumsum(-1)], -1)
    np.testing.assert_allclose(fb.segment_reduce(x, reduce, offsets=fb.tensor(offsets), axis=axis, initial=initial).numpy(), want)


def test_extremes_of_segments_have_two_names() -> None:
    x, offsets = fb.tensor([1.0, 5.0, -2.0, 3.0]), fb.tensor([0, 1, 1, 4])
    assert fb._segment_reduce(x, "amax", offsets=offsets).tolist() == fb.segment_reduce(x, "max", offsets=offsets).tolist() == [1, -float("inf"), 5]
    assert fb._segment_reduce(x, "amin", offsets=offsets).tolist() == fb.segment_reduce(x, "min", offsets=offsets).tolist() == [1, float("inf"), -2]


def test_segments_that_do_not_fit_are_named() -> None:
    x = fb.ones(5)
    with pytest.raises(RuntimeError, match="sum to"):
        fb.segment_reduce(x, "sum", lengths=fb.tensor([1, 2]))
    with pytest.raises(RuntimeError, match="reduce argument must be either"):
        fb.segment_reduce(x, "median", lengths=fb.tensor([5]))
    assert fb.segment_reduce(x, "sum", offsets=fb.tensor([1, 2, 4]), unsafe=True).tolist() == [1.0, 2.0]


def test_torchs_own_forms_take_weights_first() -> None:
    table, at = fb.rand(5, 3, requires_grad=True), fb.tensor([[0, 4], [4, 1]])
    made = fb.embedding(table, at, 4)
    assert fb.equal(made, F.embedding(at, table)) and fb.equal(fb.embedding(table, at), made)
    made.sum().backward()
    assert table.grad.sum(1).tolist() == [3, 3, 0, 0, 0]  # the row padding_idx gets none
    x, w, b, mean, var = fb.rand(2, 3, 4, 4), fb.rand(3), fb.rand(3), fb.rand(3), fb.rand(3)
    for training in (True, False):
        ours, theirs = (mean.clone(), var.clone()), (mean.clone(), var.clone())
        assert fb.equal(fb.batch_norm(x, w, b, *ours, training, 0.1, 1e-5, False), F.batch_norm(x, *theirs, w, b, training, 0.1, 1e-5))
        assert all(map(fb.equal, ours, theirs))
        assert fb.equal(fb.instance_norm(x, w, b, mean, var, training, 0.0, 1e-5, True), F.instance_norm(x, mean, var, w, b, training, 0.0, 1e-5))


def test_a_sum_and_its_positive_part():
    a, b = fb.tensor([[-3.0], [2.0]]), fb.tensor([1.0, -1.0])
    assert fb._add_relu(a, b).tolist() == [[0, 0], [3, 1]] and fb._add_relu(a, b, alpha=4).tolist() == [[1, 0], [6, 0]]


def test_convolutions_of_any_rank() -> None:
    x, w, b = fb.randn(2, 4, 7, 6), fb.randn(6, 2, 3, 2), fb.randn(6)
    assert fb.equal(fb.convolution(x, w, b, [2, 1], [1], [1, 2], False, [0, 0], 2), F.conv2d(x, w, b, (2, 1), 1, (1, 2), 2))
    line, kernel = fb.randn(2, 3, 5), fb.randn(3, 4, 2)
    assert fb.equal(fb.convolution(line, kernel, None, [2], [0], [1], True, [1], 1), F.conv_transpose1d(line, kernel, None, 2, 0, 1))
    with pytest.raises(TypeError, match=r"'stride' \(position 4\) must be tuple of ints"):
        fb.convolution(x, w, b, 1, [0], [1], False, [0], 2)
    with pytest.raises(TypeError, match=r"'output_padding' \(position 8\)"):
        fb.convolution(x, w, b, [1], [0], [1], False, 0, 2)
    with pytest.raises(RuntimeError, match="list of 1 values"):
        fb.convolution(line, kernel, None, [1, 1], [0], [1], True, [0], 1)
    with pytest.raises(RuntimeError, match="Expected 4-dimensional input"):
        fb.convolution(x[0], w, b, [1], [0], [1], False, [0], 2)


def test_convolutions_over_time_first() -> None:
    rng = np.random.default_rng(1)
    x, w, b = rng.standard_normal((6, 2, 3)), rng.standard_normal((2, 3, 5)), rng.standard_normal(5)
    padded = np.pad(x, ((1, 1), (0, 0), (0, 0)))
    want = sum(padded[k:k + 7] @ w[k] for k in range(2)) + b
    tx, tw, tb = (fb.tensor(a, requires_grad=True) for a in (x, w, b))
    made = fb.conv_tbc(tx, tw, tb, 1)
    np.testing.assert_allclose(made.detach().numpy(), want, rtol=1e-12)
    made.sum().backward()
    np.testing.assert_allclose(tb.grad.numpy(), np.full(5, 14.0))
    np.testing.assert_allclose(tx.grad.numpy(), np.broadcast_to(w.sum((0, 2)), x.shape))
    assert F.conv_tbc is fb.conv_tbc
    for wrong, told in (((tx[0], tw, tb), "Input must have 3 dims"), ((tx, tw[0], tb), "Weight tensor must have 3"), ((tx, tw, tb[None]), "1-D"),
                        ((tx, tw[:, :2], tb), "input channels"), ((tx, tw, tb[:3]), "Bias size")):
        with pytest.raises(RuntimeError, match=told):
            fb.conv_tbc(*wrong)


def test_the_norm_of_a_sparse_tensor() -> None:
    x = fb.tensor([[3.0, 0.0], [0.0, -4.0]]).to_sparse()
    assert fb.native_norm(x).item() == 5 and fb.native_norm(x, 1, (0, 1), False, fb.float64).item() == 7
    with pytest.raises(RuntimeError, match="full reductions"):
        fb.native_norm(x, 2, (0,), False, None)
    with pytest.raises(RuntimeError, match="keepdim"):
        fb.native_norm(x, 2, (), True, None)
    with pytest.raises(NotImplementedError):
        fb.native_norm(fb.ones(2))
