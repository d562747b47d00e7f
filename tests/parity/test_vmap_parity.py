"""`vmap` against PyTorch's, operation by operation: the same results, at once for the whole batch unless listed as one by one."""

# ruff: noqa: E501, B023 (tables, a row a line; functions that are called at once)
from __future__ import annotations

import numpy as np
import pytest
import torch

import flambeau as fb
from flambeau.func import batching

RNG = np.random.default_rng(0)
A = RNG.standard_normal((5, 3, 4)).astype(np.float32)
B = RNG.standard_normal((5, 3, 4)).astype(np.float32)
V = RNG.standard_normal((5, 4)).astype(np.float32)
S = RNG.standard_normal(5).astype(np.float32)
M = RNG.standard_normal((5, 4, 6)).astype(np.float32)
W = RNG.standard_normal((4, 4)).astype(np.float32)
Q = (W @ W.T + 4 * np.eye(4))[None] + np.zeros((5, 1, 1))
Q = Q.astype(np.float32)
I = RNG.integers(0, 3, (5, 2))
IMG = RNG.standard_normal((5, 2, 3, 8, 8)).astype(np.float32)
K = RNG.standard_normal((5, 4, 3, 3, 3)).astype(np.float32)
LOGITS = RNG.standard_normal((5, 6, 7)).astype(np.float32)
LABELS = RNG.integers(0, 7, (5, 6))

# (what, function of (module, *tensors), arrays, in_dims)
CASES = {
    "add": (lambda t, a, b: a + b, (A, B), 0), "ranks": (lambda t, a, b: a * b - b, (A, V), 0), "scalars": (lambda t, a, s: a * s + s / 2, (A, S), 0),
    "shared": (lambda t, a, b: a - b, (A, V[0]), (0, None)), "shared left": (lambda t, a, b: a / b, (A[0], V), (None, 0)),
    "numbers": (lambda t, a: 2 - a * 3 + a ** 2 / 2, (A,), 0), "other axis": (lambda t, a: a.sum(0), (A,), 2), "negative axis": (lambda t, a: a.exp(), (A,), -1),
    "rank 0": (lambda t, s: t.sin(s) * s, (S,), 0), "types": (lambda t, a, s: a + s.double(), (A, S), 0),
    "types of vectors": (lambda t, a, s: (a.double() + s).sum(), (A, S), 0), "integers": (lambda t, i, s: i * s, (I, S), 0),
    "compare": (lambda t, a, b: (a > b) & (a != 0) | ~(b <= a), (A, B), 0), "where": (lambda t, a, b: t.where(a > 0, a, b), (A, V), 0),
    "where number": (lambda t, a: t.where(a > 0, a, 0.0), (A,), 0), "clamp": (lambda t, a: a.clamp(-0.5, 0.5), (A,), 0),
    "clamp tensor": (lambda t, a, b: t.clamp(a, min=b), (A, V), 0), "masked_fill": (lambda t, a: a.masked_fill(a > 0, 7.0), (A,), 0),
    "lerp": (lambda t, a, b: t.lerp(a, b, 0.3), (A, B), 0), "addcmul": (lambda t, a, b: t.addcmul(a, b, b, value=2), (A, B), 0),
    "maximum": (lambda t, a, b: t.maximum(a, b) + t.minimum(a, b), (A, V), 0), "atan2": (lambda t, a, b: t.atan2(a, b), (A, B), 0),
    "relu": (lambda t, a: t.nn.functional.relu(a) + t.nn.functional.gelu(a), (A,), 0), "sigmoid": (lambda t, a: a.sigmoid().tanh(), (A,), 0),
    "sum": (lambda t, a: a.sum(), (A,), 0), "sum dim": (lambda t, a: a.sum(-1), (A,), 0), "sum dims": (lambda t, a: a.sum((0, 1)), (A,), 0),
    "mean": (lambda t, a: a.mean(0, keepdim=True), (A,), 0), "mean all": (lambda t, a: t.mean(a), (A,), 0), "var": (lambda t, a: a.var(0), (A,), 0),
    "std all": (lambda t, a: a.std(), (A,), 0), "amax": (lambda t, a: a.amax(), (A,), 0), "max": (lambda t, a: a.max(), (A,), 0),
    "max dim": (lambda t, a: tuple(a.max(1)), (A,), 0), "argmax": (lambda t, a: a.argmax(), (A,), 0), "argmin dim": (lambda t, a: a.argmin(0), (A,), 0),
    "prod": (lambda t, a: a.prod(), (A,), 0), "prod dim": (lambda t, a: a.prod(-1), (A,), 0), "any": (lambda t, a: (a > 0).any(), (A,), 0),
    "all": (lambda t, a: (a > -9).all(0), (A,), 0), "norm": (lambda t, a: a.norm(), (A,), 0), "norm dim": (lambda t, a: t.linalg.vector_norm(a, dim=0), (A,), 0),
    "logsumexp": (lambda t, a: a.logsumexp(-1), (A,), 0), "softmax": (lambda t, a: a.softmax(0), (A,), 0),
    "log_softmax": (lambda t, a: t.nn.functional.log_softmax(a, dim=-1), (A,), 0), "cumsum": (lambda t, a: a.cumsum(0), (A,), 0),
    "sort": (lambda t, a: tuple(a.sort(0)), (A,), 0), "topk": (lambda t, a: tuple(a.topk(2, dim=0)), (A,), 0), "argsort": (lambda t, a: a.argsort(), (A,), 0),
    "reshape": (lambda t, a: a.reshape(-1), (A,), 0), "view": (lambda t, a: a.view(2, 6), (A,), 0), "flatten": (lambda t, a: a.flatten(), (A,), 0),
    "transpose": (lambda t, a: a.transpose(0, 1), (A,), 0), "T": (lambda t, a: a.T + a.mT, (A,), 0), "permute": (lambda t, a: a.permute(1, 0), (A,), 0),
    "unsqueeze": (lambda t, a: a.unsqueeze(0).unsqueeze(-1), (A,), 0), "squeeze": (lambda t, a: a[:, :1].squeeze(-1).squeeze(), (A,), 0),
    "expand": (lambda t, v: v.expand(3, 4), (V,), 0), "repeat": (lambda t, a: a.repeat(2, 1), (A,), 0), "movedim": (lambda t, a: a.movedim(0, 1), (A,), 0),
    "flip": (lambda t, a: a.flip(0), (A,), 0), "roll": (lambda t, a: a.roll(1, 0), (A,), 0), "split": (lambda t, a: a.split(2, dim=-1), (A,), 0),
    "chunk": (lambda t, a: t.chunk(a, 2, 1), (A,), 0), "unbind": (lambda t, a: a.unbind(0), (A,), 0), "iterate": (lambda t, a: sum(r * i for i, r in enumerate(a)), (A,), 0),
    "tril": (lambda t, a: a.tril() + t.triu(a, 1), (A,), 0), "diagonal": (lambda t, a: a.diagonal(), (A,), 0), "narrow": (lambda t, a: a.narrow(1, 1, 2), (A,), 0),
    "unfold": (lambda t, v: v.unfold(0, 2, 1), (V,), 0), "to": (lambda t, a: a.to(t.float64).long().float(), (A,), 0),
    "slice": (lambda t, a: a[1:, ::2], (A,), 0), "row": (lambda t, a: a[0] + a[..., 1:2].sum(), (A,), 0), "None": (lambda t, a: a[None, :, None], (A,), 0),
    "list index": (lambda t, a: a[:, [0, 2]], (A,), 0), "own index": (lambda t, a, i: a[i], (A, I), 0), "own index of shared": (lambda t, a, i: a[i], (A[0], I), (None, 0)),
    "two own indices": (lambda t, a, i: a[i, i + 1], (A, I), 0), "gather": (lambda t, a, i: a.gather(0, i[:, None].expand(2, 4)), (A, I), 0),
    "index_select": (lambda t, a: a.index_select(1, t.tensor([0, 3])), (A,), 0), "take_along": (lambda t, v, i: t.take_along_dim(v, i, 0), (V, I), 0),
    "scatter": (lambda t, v, i: t.zeros_like(v).scatter(0, i, 1.0), (V, I), 0), "scatter_add": (lambda t, v, i: v.scatter_add(0, i, v[:2]), (V, I), 0),
    "cat": (lambda t, a, b: t.cat([a, b], 1), (A, B), 0), "cat shared": (lambda t, a, b: t.cat([a, b]), (A, B[0]), (0, None)),
    "stack": (lambda t, a, b: t.stack([a, b], -1), (A, B), 0), "put": (lambda t, a: _put(t, a), (A,), 0), "in place": (lambda t, a, b: a.clone().add_(b).mul_(2), (A, V), 0),
    "new": (lambda t, a, s: a.new_zeros(2).fill_(1).add_(s) + a.new_full((2,), 3), (A, S), 0), "like": (lambda t, a: t.ones_like(a) + t.zeros_like(a), (A,), 0),
    "matmul": (lambda t, a, m: a @ m, (A, M), 0), "matmul shared": (lambda t, a, w: a @ w, (A, W), (0, None)), "matmul shared left": (lambda t, w, m: w @ m, (W, M), (None, 0)),
    "mv": (lambda t, a, v: a @ v, (A, V), 0), "vm": (lambda t, v, m: v @ m, (V, M), 0), "dot": (lambda t, v, u: t.dot(v, u), (V, V), 0),
    "dot shared": (lambda t, v, u: v @ u, (V, W[0]), (0, None)), "mm": (lambda t, a, m: t.mm(a, m), (A, M), 0), "mv shared": (lambda t, w, v: t.mv(w, v), (W, V), (None, 0)),
    "outer": (lambda t, v: t.outer(v, v), (V,), 0), "einsum": (lambda t, a, m: t.einsum("ij,jk->ik", a, m), (A, M), 0),
    "einsum shared": (lambda t, a, w: t.einsum("...j,kj->...k", a, w), (A, W), (0, None)), "bmm": (lambda t, x: t.bmm(x[0], x[0]), (IMG,), 0),
    "addmm": (lambda t, v, a, m: t.addmm(v[:1], a, m, beta=2, alpha=0.5), (V, A, M), 0), "baddbmm": (lambda t, x: t.baddbmm(x[0], x[1], x[0]), (IMG,), 0),
    "linear": (lambda t, a, w, v: t.nn.functional.linear(a, w, v), (A, W, W[0]), (0, None, None)),
    "linear of each": (lambda t, a, m, b: t.nn.functional.linear(a, m.mT, b), (A, M, M[:, 0]), 0),
    "conv": (lambda t, x, k: t.nn.functional.conv2d(x, k, padding=1), (IMG, K[0]), (0, None)), "conv alone": (lambda t, x, k: t.nn.functional.conv2d(x, k), (IMG[:, 0], K[0]), (0, None)),
    "conv of each": (lambda t, x, k, b: t.nn.functional.conv2d(x, k, b, stride=2), (IMG, K, K[:, :, 0, 0, 0]), 0),
    "conv of each alone": (lambda t, x, k, b: t.nn.functional.conv2d(x, k, b), (IMG[:, 0], K, K[:, :, 0, 0, 0]), 0),
    "conv kernels": (lambda t, x, k: t.nn.functional.conv2d(x, k), (IMG[0], K), (None, 0)),
    "conv_transpose": (lambda t, x, k: t.nn.functional.conv_transpose2d(x, k.transpose(0, 1), stride=2), (IMG, K), 0),
    "max_pool": (lambda t, x: t.nn.functional.max_pool2d(x, 2), (IMG,), 0), "avg_pool": (lambda t, x: t.nn.functional.avg_pool2d(x, 2), (IMG[:, 0],), 0),
    "adaptive_pool": (lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 1), (IMG,), 0),
    "layer_norm": (lambda t, a, v: t.nn.functional.layer_norm(a, (4,), v, v), (A, V), 0), "layer_norm shared": (lambda t, a, v: t.nn.functional.layer_norm(a, (4,), v), (A, V[0]), (0, None)),
    "group_norm": (lambda t, x: t.nn.functional.group_norm(x, 3), (IMG,), 0), "batch_norm": (lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True), (IMG,), 0),
    "batch_norm eval": (lambda t, x, v: t.nn.functional.batch_norm(x, v[:3], v[1:].abs()), (IMG, V), 0),
    "embedding": (lambda t, i, w: t.nn.functional.embedding(i, w), (I, W), (0, None)), "embedding of each": (lambda t, i, w: t.nn.functional.embedding(i, w), (I, A), 0),
    "cross_entropy": (lambda t, x, y: t.nn.functional.cross_entropy(x, y), (LOGITS, LABELS), 0),
    "cross_entropy alone": (lambda t, x, y: t.nn.functional.cross_entropy(x, y), (LOGITS[:, 0], LABELS[:, 0]), 0),
    "cross_entropy options": (lambda t, x, y: t.nn.functional.cross_entropy(x, y, ignore_index=2, label_smoothing=0.1, reduction="sum"), (LOGITS, LABELS), 0),
    "cross_entropy ignoring": (lambda t, x, y: t.nn.functional.cross_entropy(x, y, ignore_index=2), (LOGITS, LABELS), 0),
    "nll_loss": (lambda t, x, y: t.nn.functional.nll_loss(x.log_softmax(-1), y), (LOGITS, LABELS), 0),
    "mse_loss": (lambda t, a, b: t.nn.functional.mse_loss(a, b), (A, B), 0), "smooth_l1": (lambda t, a, b: t.nn.functional.smooth_l1_loss(a, b, reduction="sum"), (A, B), 0),
    "bce": (lambda t, a, b: t.nn.functional.binary_cross_entropy_with_logits(a, b.sigmoid()), (A, B), 0), "kl_div": (lambda t, a, b: t.nn.functional.kl_div(a, b.exp()), (A, B), 0),
    "cosine": (lambda t, a, b: t.nn.functional.cosine_similarity(a, b, dim=0), (A, B), 0), "normalize": (lambda t, a: t.nn.functional.normalize(a, dim=-1), (A,), 0),
    "attention": (lambda t, a: t.nn.functional.scaled_dot_product_attention(a[None], a[None], a[None]), (A,), 0),
    "causal": (lambda t, a: t.nn.functional.scaled_dot_product_attention(a, a, a, is_causal=True), (A,), 0),
    "pad": (lambda t, a: t.nn.functional.pad(a, (1, 1, 0, 2)), (A,), 0), "one_hot": (lambda t, i: t.nn.functional.one_hot(i, 4), (I,), 0),
    "interpolate": (lambda t, x: t.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear"), (IMG,), 0),
    "det": (lambda t, q: t.linalg.det(q) + t.linalg.slogdet(q)[1], (Q,), 0), "inv": (lambda t, q: t.linalg.inv(q), (Q,), 0),
    "cholesky": (lambda t, q: t.linalg.cholesky(q), (Q,), 0), "solve": (lambda t, q, m: t.linalg.solve(q, m), (Q, M), 0), "eigvalsh": (lambda t, q: t.linalg.eigvalsh(q), (Q,), 0),
    "svdvals": (lambda t, a: t.linalg.svdvals(a), (A,), 0), "fft": (lambda t, v: t.fft.rfft(v).abs(), (V,), 0), "trace": (lambda t, w: t.trace(w), (Q,), 0),
    "constant": (lambda t, a: t.ones(2), (A,), 0), "tree": (lambda t, d: {"s": d["a"].sum(), "p": (d["a"], d["b"] * 2)}, ({"a": A, "b": V},), 0),
    "nested axes": (lambda t, d, s: d["a"] * d["b"] + s, ({"a": A, "b": V[0]}, S), ({"a": 0, "b": None}, 0)),
    "twice": (lambda t, a, b: t.vmap(lambda x: x.sum() * x + b)(a), (A, V), 0), "twice shared": (lambda t, a, b: t.vmap(lambda x, y: x @ y, (None, 1))(a, b), (A, M), 0),
    "thrice": (lambda t, a: t.vmap(t.vmap(lambda x: t.where(x > 0, x, -x)))(a), (A,), 0),
    "grad": (lambda t, a, v: t.func.grad(lambda w, x: (x @ w).sin().sum())(v, a), (A, V), 0),
    "grad of shared": (lambda t, a, v: t.func.grad(lambda w, x: (x @ w).sin().sum())(v, a), (A, V[0]), (0, None)),
    "grad of captured": (lambda t, a, v: t.func.grad(lambda w: (a @ w).square().mean())(v), (A, V[0]), (0, None)),
    "second grad": (lambda t, s: t.func.grad(t.func.grad(lambda x: x.sin() * x ** 3))(s), (S,), 0),
    "jacobian": (lambda t, v: t.func.jacrev(lambda x: x.sin() * x.sum())(v), (V,), 0), "hessian": (lambda t, v: t.func.hessian(lambda x: (x.sin() * x).prod())(v), (V,), 0),
    "jvp": (lambda t, v: t.func.jvp(lambda x: x.exp().cumsum(0), (v,), (v,)), (V,), 0), "vjp": (lambda t, v: t.func.vjp(t.sin, v)[1](v), (V,), 0),
    "detach": (lambda t, a: a.detach() * a.requires_grad, (A,), 0), "shape": (lambda t, a: a.new_ones(a.shape) * a.ndim * a.numel() * len(a) * a.size(-1), (A,), 0),
}
CASES |= {
    "unbiased": (lambda t, a: (a.std(True), a.var(False), *t.var_mean(a, False), *t.std_mean(a, True)), (A,), 0), "adjoint": (lambda t, a: a.H, (A,), 0),
    "adjoint, twice": (lambda t, x: t.vmap(lambda a: a.H, 1)(x), (IMG[:, 0],), 0),
    "unbind copies": (lambda t, a: t.unbind_copy(a) + t.unbind_copy(a, 1), (A,), 0), "diagonals": (lambda t, a: t.diag_embed(a), (A,), 0),
    "diagonals between": (lambda t, a: t.diag_embed(a, 1, 2, 0), (A,), 0), "lists apart": (lambda t, a: a[[0, 1], None, [0, 1]], (A,), 0),
}
# done one example after the other
ONE_BY_ONE: set[str] = {"diagonals between", "lists apart"}


def _put(t, a):
    b = a.clone()
    b[0] = 1.0
    b[:, 1] = a[:, 0]
    b[1:, [0, 2]] += 5
    return b


def made(module, x):
    if isinstance(x, dict):
        return {k: made(module, v) for k, v in x.items()}
    return module.tensor(x)


def flat(x):
    if isinstance(x, dict):
        return [z for y in x.values() for z in flat(y)]
    return [z for y in x for z in flat(y)] if isinstance(x, (tuple, list)) else [x]


@pytest.mark.parametrize("name", CASES)
def test_operations(name, monkeypatch):
    function, arrays, dims = CASES[name]
    looped = []
    by_examples = batching.by_examples
    monkeypatch.setattr(batching, "by_examples", lambda level, func, *rest: looped.append(func) or by_examples(level, func, *rest))
    ours = fb.vmap(lambda *a: function(fb, *a), in_dims=dims)(*[made(fb, x) for x in arrays])
    theirs = torch.vmap(lambda *a: function(torch, *a), in_dims=dims)(*[made(torch, x) for x in arrays])
    assert len(flat(ours)) == len(flat(theirs))
    for x, y in zip(flat(ours), flat(theirs), strict=True):
        assert str(x.dtype) == str(y.dtype) and tuple(x.shape) == tuple(y.shape)
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=2e-4, atol=2e-5)
    assert bool(looped) == (name in ONE_BY_ONE), looped
    for size in (1, 2, 3):
        parts = fb.vmap(lambda *a: function(fb, *a), in_dims=dims, chunk_size=size)(*[made(fb, x) for x in arrays])
        for x, y in zip(flat(parts), flat(ours), strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=2e-4, atol=2e-5)


DERIVED = {
    "vector": (lambda t, x: (x.sin() * x.sum()), (V[0],)), "matrix": (lambda t, a: (a @ a.T).tanh(), (A[0],)),
    "several outputs": (lambda t, a: (a.sum(0), {"m": a * 2, "s": a.prod()}), (A[0],)),
    "layer": (lambda t, x, w: t.nn.functional.layer_norm(x @ w, (4,)).relu(), (A[0], W)), "scalar": (lambda t, x: x.exp().sum(), (V[0],)),
    "softmax": (lambda t, x: x.softmax(-1), (A[0],)), "branch": (lambda t, x: x * 2 if x.sum() > 1e9 else x ** 3, (V[0],)),
    "independent": (lambda t, x: t.ones(2) * 1.0, (V[0],)), "conv": (lambda t, x, k: t.nn.functional.conv2d(x[None], k[:2])[0, :, :2, :2], (IMG[0, 0], K[0])),
}


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("kind", ["jacrev", "jacfwd"])
def test_jacobians(name, kind):
    function, arrays = DERIVED[name]
    if (name, kind) == ("branch", "jacfwd"):
        pytest.skip("PyTorch's cannot")
    numbers = tuple(range(len(arrays)))
    ours = getattr(fb.func, kind)(lambda *a: function(fb, *a), argnums=numbers)(*[fb.tensor(x) for x in arrays])
    theirs = getattr(torch.func, kind)(lambda *a: function(torch, *a), argnums=numbers)(*[torch.tensor(x) for x in arrays])
    assert len(flat(ours)) == len(flat(theirs))
    for x, y in zip(flat(ours), flat(theirs), strict=True):
        assert tuple(x.shape) == tuple(y.shape)
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=2e-4, atol=2e-5)


def test_jacobians_in_parts_and_hessians():
    def f(t, x):
        return (x.sin().outer(x) * x.sum()).sum(0)
    x, y = fb.tensor(V[0]), torch.tensor(V[0])
    for size in (1, 2, 3, 100):
        np.testing.assert_allclose(fb.func.jacrev(lambda x: f(fb, x), chunk_size=size)(x).numpy(), torch.func.jacrev(lambda x: f(torch, x))(y).numpy(),
                                   rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fb.func.hessian(lambda x: f(fb, x).prod())(x).numpy(), torch.func.hessian(lambda x: f(torch, x).prod())(y).numpy(),
                               rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(fb.func.hessian(lambda x: f(fb, x))(x).numpy(), torch.func.hessian(lambda x: f(torch, x))(y).numpy(), rtol=1e-3, atol=1e-4)


def test_gradients_of_each_example_of_a_network():
    def build(t):
        n = t.nn
        return n.Sequential(n.Conv2d(3, 4, 3), n.GroupNorm(2, 4), n.ReLU(), n.MaxPool2d(2), n.Conv2d(4, 4, 2, groups=2), n.Flatten(), n.Linear(16, 7))
    ours, theirs = build(fb), build(torch)
    ours.load_state_dict({k: fb.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x, y = IMG[:, 0], LABELS[:, 0]
    results = []
    for t, net in ((fb, ours), (torch, theirs)):
        params = {k: v.detach() for k, v in net.named_parameters()}

        def loss(p, image, label, net=net, t=t):
            return t.nn.functional.cross_entropy(t.func.functional_call(net, p, (image[None],)), label[None])
        results.append(t.func.vmap(t.func.grad_and_value(loss), in_dims=(None, 0, 0))(params, t.tensor(x), t.tensor(y)))
    for k in results[0][0]:
        assert results[0][0][k].shape[0] == 5
        np.testing.assert_allclose(results[0][0][k].numpy(), results[1][0][k].numpy(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(results[0][1].numpy(), results[1][1].numpy(), rtol=1e-4)


def test_gradients_of_each_example_of_a_transformer():
    def build(t):
        return t.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    ours, theirs = build(fb), build(torch)
    ours.load_state_dict({k: fb.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = RNG.standard_normal((5, 6, 8)).astype(np.float32)
    results = []
    for t, net in ((fb, ours), (torch, theirs)):
        params = {k: v.detach() for k, v in net.named_parameters()}

        def loss(p, row, net=net, t=t):
            return t.func.functional_call(net, p, (row[None],)).square().mean()
        results.append(t.func.vmap(t.func.grad(loss), in_dims=(None, 0))(params, t.tensor(x)))
    for k in results[0]:
        np.testing.assert_allclose(results[0][k].numpy(), results[1][k].numpy(), rtol=2e-3, atol=1e-5)


def test_errors_are_pytorchs():
    cases = [
        (lambda t, x: x if x.sum() > 0 else -x, {}), (lambda t, x: t.tensor(x.sum().item()), {}), (lambda t, x: x[x > 0], {}),
        (lambda t, x: t.nonzero(x), {}), (lambda t, x: x + t.rand(4), {}), (lambda t, x: t.nn.functional.dropout(x), {}), (lambda t, x: 3, {}),
        (lambda t, x: t.zeros(4).add_(x), {}), (lambda t, x: x, {"in_dims": 5}), (lambda t, x: x, {"in_dims": None}), (lambda t, x: (x, x), {"out_dims": (0, 0, 0)}),
        (lambda t, x: x, {"out_dims": None}), (lambda t, x: x, {"out_dims": 7}), (lambda t, x: x, {"chunk_size": 0}), (lambda t, x: x, {"randomness": "some"}),
        (lambda t, x: x, {"in_dims": (0, 0)}), (lambda t, x: int(x.sum()) * x, {}), (lambda t, x: x.sum(5), {}),
    ]
    for i, (function, options) in enumerate(cases):
        kinds = []
        for t in (fb, torch):
            with pytest.raises((RuntimeError, ValueError, IndexError, TypeError)) as caught:
                t.vmap(lambda x, t=t: function(t, x), **options)(t.tensor(V))
            kinds.append(next(k for k in (ValueError, IndexError, TypeError, RuntimeError) if isinstance(caught.value, k)))
        assert kinds[0] is kinds[1], (i, kinds)


def test_random_numbers():
    x = fb.tensor(V)
    for function in (lambda x: x + fb.rand(4), lambda x: fb.nn.functional.dropout(x, 0.5), lambda x: fb.rand_like(x), lambda x: fb.randperm(9) + x.sum(),
                     lambda x: x.clone().normal_(), lambda x: fb.bernoulli(x.sigmoid())):
        fb.manual_seed(1)
        same = fb.vmap(lambda x: function(x * 0 + 1), randomness="same")(x)
        different = fb.vmap(lambda x: function(x * 0 + 1), randomness="different")(x)
        assert all(fb.equal(same[0], row) for row in same) and not all(fb.equal(different[0], row) for row in different)
    assert fb.equal(fb.vmap(lambda x: fb.nn.functional.dropout(x, training=False))(x), x)


def test_functions_of_the_users():
    class Cube(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 3

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return 3 * x ** 2 * g

    class Ruled(Cube):
        seen = []

        @staticmethod
        def vmap(info, in_dims, x):
            Ruled.seen.append((info.batch_size, in_dims))
            return Cube.apply(x), 0
    x = fb.tensor(V)
    for f in (Cube, Ruled):
        assert fb.allclose(fb.vmap(f.apply)(x), x ** 3)
        assert fb.allclose(fb.vmap(fb.func.grad(lambda v: f.apply(v).sum()))(x), 3 * x ** 2)
    assert Ruled.seen == [(5, (0,)), (5, (0,))]


def test_gradients_through_a_batch():
    x, y = fb.tensor(A, requires_grad=True), torch.tensor(A, requires_grad=True)
    w, v = fb.tensor(V[0], requires_grad=True), torch.tensor(V[0], requires_grad=True)
    for t, a, b in ((fb, x, w), (torch, y, v)):
        t.vmap(lambda r, b=b: (r @ b).softmax(0)[1] * r.norm())(a).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(w.grad.numpy(), v.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_no_examples():
    empty = np.zeros((0, 3), np.float32)
    for f in (lambda t, x: x * 2 + 1, lambda t, x: x.sum(), lambda t, x: x.reshape(-1, 1), lambda t, x: x @ t.ones(3, 2)):
        ours, theirs = fb.vmap(lambda x: f(fb, x))(fb.tensor(empty)), torch.vmap(lambda x: f(torch, x))(torch.tensor(empty))
        assert tuple(ours.shape) == tuple(theirs.shape)
