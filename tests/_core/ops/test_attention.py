"""Attention against a softmax between two products, in NumPy and float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch

attend = torch.nn.functional.scaled_dot_product_attention
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}


def weights(q: Any, k: Any, mask: Any = None, causal: bool = False, scale: float | None = None) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(np.isinf(top), 0.0, top))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1.0, total)


def oracle(q: Any, k: Any, v: Any, g: Any, keep: Any = 1.0, scale: float | None = None, **how: Any) -> tuple[Any, ...]:
    """The output and the gradients of q, k and v; keep: what dropout multiplies the weights by."""
    q, k, v, g = (np.asarray(t, np.float64) for t in (q, k, v, g))
    p = weights(q, k, scale=scale, **how)
    dp = g @ np.swapaxes(v, -1, -2) * keep
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    return (p * keep) @ v, ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(p * keep, -1, -2) @ g


def made(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


def run(device: str, dtype: str, arrays: tuple[Any, ...], g: Any, *args: Any, **kwargs: Any) -> list[Any]:
    inputs = [torch.tensor(a).to(getattr(torch, dtype)).to(device).requires_grad_() for a in arrays]
    out = attend(*inputs, *args, **kwargs)
    grads = torch.autograd.grad(out, inputs, torch.tensor(g).to(getattr(torch, dtype)).to(device))
    assert out.dtype is getattr(torch, dtype)
    return [t.detach().cpu().double().numpy() for t in (out, *grads)]


def close(got: Any, expected: Any, dtype: str) -> None:
    for name, a, b in zip("oqkv", got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * max(1.0, np.abs(b).max(initial=0.0)), err_msg=name)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients(device: str, dtype: str, mask: str | None, causal: bool) -> None:
    both = causal and mask is not None  # they go together where widths are equal and the mask has four axes
    width = 24 if both else 40
    q, k, v, g = made(2, 3, 70, 24), made(2, 3, 70, 24, seed=1), made(2, 3, 70, width, seed=2), made(2, 3, 70, width, seed=3)
    m = None
    if mask == "bool":
        m = made(2, 1, 70, 70) > -0.3
        m[0, 0, 7] = False  # a query that sees nothing
    elif mask == "float":
        m = made(3, 70, 70).astype(np.float32).astype(np.float64)
        m[1, 9] = -np.inf
        m = m[None] if both else m
    rounded = [torch.tensor(a).to(getattr(torch, dtype)).double().numpy() for a in (q, k, v, g)]
    if m is not None and mask == "float":
        m = torch.tensor(m).to(getattr(torch, dtype)).double().numpy()
    given = None if m is None else torch.tensor(m).to(device) if mask == "bool" else torch.tensor(m).to(getattr(torch, dtype)).to(device)
    got = run(device, dtype, tuple(rounded[:3]), rounded[3], given, is_causal=causal)
    close(got, oracle(*rounded, mask=m, causal=causal), dtype)


@settings(max_examples=40, deadline=None)
@given(st.tuples(*[st.integers(1, 3)] * 2), st.sampled_from([1, 5, 128, 131, 300]), st.sampled_from([1, 6, 256, 270]), st.sampled_from([1, 8, 33, 64]),
       st.sampled_from([1, 16, 40]), st.booleans(), st.booleans(), st.integers(0, 3))
def test_sizes(lead: tuple[int, int], length: int, source: int, depth: int, value_depth: int, causal: bool, turned: bool, few: int) -> None:
    """Sizes around the blocks', queries in transposed layout, fewer key heads than query heads."""
    batch, heads = lead
    key_heads, group = (1, heads) if few == 0 else (heads, 1)
    arrays = [made(batch, h, t, e, seed=s) for s, (h, t, e) in enumerate(
        ((heads, length, depth), (key_heads, source, depth), (key_heads, source, value_depth), (heads, length, value_depth)))]
    inputs = [torch.tensor(a) for a in arrays[:3]]
    if turned:
        inputs = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in inputs]
    inputs = [t.requires_grad_() for t in inputs]
    out = attend(*inputs, is_causal=causal, enable_gqa=group > 1)
    got = [out, *torch.autograd.grad(out, inputs, torch.tensor(arrays[3]))]
    expected = oracle(arrays[0], *[np.repeat(a, group, 1) for a in arrays[1:3]], arrays[3], causal=causal)
    summed = [expected[0], expected[1], *[e.reshape(batch, key_heads, group, *e.shape[2:]).sum(2) for e in expected[2:]]]
    close([t.detach().numpy() for t in got], summed, "float64")


@pytest.mark.parametrize("shapes", [((5, 3), (4, 3), (4, 2)), ((2, 5, 3), (2, 4, 3), (2, 4, 2)), ((2, 5, 3), (1, 4, 3), (4, 2)),
                                    ((2, 3, 4, 5, 3), (2, 1, 4, 4, 3), (3, 4, 4, 2)), ((1, 1, 5, 3), (2, 3, 4, 3), (2, 1, 4, 2))])
def test_ranks_and_broadcasting(device: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    q, k, v = (made(*s, seed=i) for i, s in enumerate(shapes))
    expected = weights(q, k) @ v
    inputs = [torch.tensor(t, device=device, requires_grad=True) for t in (q, k, v)]
    out = attend(*inputs)
    np.testing.assert_allclose(out.detach().cpu().numpy(), expected, atol=1e-12)
    assert [tuple(g.shape) for g in torch.autograd.grad(out.sum(), inputs)] == list(shapes)


@pytest.mark.parametrize("shape", [(6,), (5, 1), (1, 1, 6), (2, 1, 1, 6), (3, 5, 6), (1, 3, 1, 1), ()])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_are_broadcast(shape: tuple[int, ...], kind: str) -> None:
    q, k, v, g = made(2, 3, 5, 4), made(2, 3, 6, 4), made(2, 3, 6, 4, seed=1), made(2, 3, 5, 4, seed=2)
    m = made(*shape, seed=3) if shape else np.array(0.7)
    m = m > -0.2 if kind == "bool" else m
    for mask in (torch.tensor(m), torch.tensor(m.T.copy()).permute(tuple(range(m.ndim)[::-1]))):
        close(run("cpu", "float64", (q, k, v), g, mask), oracle(q, k, v, g, mask=m), "float64")


def test_gradient_of_a_float_mask(device: str) -> None:
    q, k, v = (torch.tensor(made(1, 2, 4, 3, seed=s), device=device, requires_grad=True) for s in range(3))
    mask = torch.tensor(made(4, 4), device=device, requires_grad=True)
    assert torch.autograd.gradcheck(attend, (q, k, v, mask))


@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradcheck_twice(device: str, mask: str | None, causal: bool) -> None:
    q = torch.tensor(made(1, 4, 3, 2), device=device, requires_grad=True)
    k, v = (torch.tensor(made(1, 2, 4, 2, seed=s), device=device, requires_grad=True) for s in (1, 2))
    m = None if mask is None else torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1]], device=device, dtype=torch.bool)
    if mask == "float":
        m = torch.zeros(3, 4, device=device, dtype=torch.float64).masked_fill(~m, -math.inf) + 0.25

    def f(*t: Any) -> Any:
        return attend(*t, m, is_causal=causal, enable_gqa=True)
    assert torch.autograd.gradcheck(f, (q, k, v))
    assert torch.autograd.gradgradcheck(f, (q, k, v))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dropout_has_the_same_numbers_in_the_gradient(device: str, dtype: str) -> None:
    q, k, v, g = (made(2, 2, 150, 8, seed=s) for s in range(4))
    eye = np.broadcast_to(np.eye(150), (2, 2, 150, 150))
    torch.manual_seed(3)
    p = run(device, dtype, (q, k, eye), made(2, 2, 150, 150), dropout_p=0.3)[0]  # values of an identity: the weights themselves
    keep = np.where(p != 0, 1 / 0.7, 0.0)
    assert abs((p == 0).mean() - 0.3) < 0.01
    torch.manual_seed(3)
    close(run(device, dtype, (q, k, v), g, dropout_p=0.3), oracle(q, k, v, g, keep=keep), dtype)


def test_dropout_of_a_second_gradient_is_the_same() -> None:
    q, k, v = (torch.tensor(made(1, 2, 5, 3, seed=s), requires_grad=True) for s in range(3))
    torch.manual_seed(1)
    out = attend(q, k, v, dropout_p=0.4)
    once = torch.autograd.grad(out.sum(), (q, k, v), retain_graph=True)
    again = torch.autograd.grad(out.sum(), (q, k, v), create_graph=True)
    for a, b in zip(once, again, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), atol=1e-13)

    def f(*t: Any) -> Any:
        torch.manual_seed(1)
        return attend(*t, dropout_p=0.4)
    assert torch.autograd.gradgradcheck(f, (q, k, v))


def test_dropout_of_everything_gives_zeros() -> None:
    x = torch.randn(1, 2, 4, 4, requires_grad=True)
    out = attend(x, x, x, dropout_p=1.0)
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), x)[0].any()


def test_nan_and_infinity() -> None:
    q, k, v = (torch.tensor(made(1, 1, 4, 3, seed=s)) for s in range(3))
    q[0, 0, 1, 0] = math.nan
    out = attend(q, k, v)
    assert out[0, 0, 1].isnan().all() and not out[0, 0, [0, 2, 3]].isnan().any()
    masked = attend(q, k, v, torch.ones(4, 4, dtype=torch.bool))
    assert masked[0, 0, 1].isnan().all()
    q[0, 0, 1, 0] = 1e308  # scores of +inf and -inf
    assert attend(q, k * 10, v)[0, 0, 1].isnan().any()
    big = attend(q[:, :, :1] * 1e4, k, v)  # scores far apart: one weight is 1
    best = int((q[0, 0, 0] @ k[0, 0].T).argmax())
    np.testing.assert_allclose(big[0, 0, 0].numpy(), v[0, 0, best].numpy(), rtol=1e-12)


@pytest.mark.parametrize("shapes", [((2, 3, 0, 4), (2, 3, 5, 4), (2, 3, 5, 4)), ((2, 3, 5, 4), (2, 3, 0, 4), (2, 3, 0, 4)),
                                    ((2, 3, 5, 0), (2, 3, 6, 0), (2, 3, 6, 4)), ((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 0)),
                                    ((0, 3, 5, 4), (0, 3, 6, 4), (0, 3, 6, 4))])
def test_nothing(device: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    q, k, v = (torch.tensor(made(*s), device=device, requires_grad=True) for s in shapes)
    out = attend(q, k, v)
    assert tuple(out.shape) == (*shapes[0][:-1], shapes[2][-1])
    if not shapes[1][2]:
        assert not out.any()
    if not shapes[0][3]:
        np.testing.assert_allclose(out.detach().cpu().numpy(), np.broadcast_to(made(*shapes[2]).mean(2, keepdims=True), out.shape), atol=1e-13)
    assert [tuple(g.shape) for g in torch.autograd.grad(out.sum(), (q, k, v))] == list(shapes)


def test_layout_of_the_output_is_the_queries() -> None:
    x = torch.randn(2, 5, 3, 8).transpose(1, 2)
    assert attend(x, x, x).stride() == x.stride()
    y = torch.randn(2, 3, 5, 8)
    assert attend(y, x, x).stride() == y.stride()


def test_the_same_bits_on_any_number_of_threads() -> None:
    q, k, v = (torch.randn(1, 2, 300, 32, requires_grad=True) for _ in range(3))
    before, found = torch.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            out = attend(q, k, v, is_causal=True)
            found.append([out.detach().numpy().copy(), *[t.numpy().copy() for t in torch.autograd.grad(out.sum(), (q, k, v))]])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert (a == b).all()


def test_changing_an_input_is_noticed() -> None:
    q, k, v = (torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3))
    out = attend(q, k, v)
    with torch.no_grad():
        k.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_bad_input() -> None:
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    for args, words in [((q.double(), k, v), "same dtype"), ((q[0, 0, 0], k, v), "at least 2 dimensional"), ((q, k, v, torch.ones(3, 4)), "broadcast|match"),
                        ((q, k, v, torch.ones(4, 4, dtype=torch.int32)), "attn_mask dtype"), ((q, k, v, torch.ones(4, 4).double()), "attn_mask dtype"),
                        ((q, k, v, None, 1.5), "between 0 and 1"), ((q[..., :4], k, v), "last dimension"), ((q, k, v[:, :, :3]), "length"),
                        ((q.long(), k.long(), v.long()), "floating")]:
        with pytest.raises(RuntimeError, match=words):
            attend(*args)
    with pytest.raises(RuntimeError, match="Number of heads"):
        attend(torch.randn(1, 3, 4, 8), k, v, enable_gqa=True)
    with pytest.raises(RuntimeError):
        attend(q, k[:, :, :, :].expand(1, 2, 4, 8).repeat(1, 2, 1, 1), v)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, causal", [("float16", False), ("bfloat16", True)])
@pytest.mark.parametrize("heads, key_heads, length, source, depth, value_depth", [
    (2, 2, 128, 128, 64, 64), (4, 2, 70, 133, 64, 64), (2, 2, 150, 40, 128, 128), (4, 1, 9, 130, 32, 48), (2, 2, 64, 64, 72, 40)])
@pytest.mark.parametrize("way", ["CUDNN_ATTENTION", "FLASH_ATTENTION", "each after the other"])
def test_ways_of_a_gpu(way: str, heads: int, key_heads: int, length: int, source: int, depth: int, value_depth: int, dtype: str, causal: bool) -> None:
    """cuDNN's attention and ours, on rows beside each other as a layer's projection leaves them, and either after the other."""
    from flambeau._core.runtime import dispatch
    from flambeau.nn.attention import SDPBackend, sdpa_kernel
    ways = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION] if way.startswith("each") else [SDPBackend[way]] * 2
    d, names = getattr(torch, dtype), []
    arrays = [made(2, n, h, e, seed=k) for k, (n, h, e) in enumerate(((length, heads, depth), (source, key_heads, depth), (source, key_heads, value_depth)))]
    rows = [torch.tensor(a).to(d).cuda().requires_grad_() for a in arrays]
    g = torch.tensor(made(2, heads, length, value_depth, seed=5)).to(d)
    with dispatch.observe(lambda dev, stream, prepared, args: names.append(prepared.name)):
        with sdpa_kernel(ways[0]):
            out = attend(*[t.transpose(1, 2) for t in rows], is_causal=causal, enable_gqa=True)
        with sdpa_kernel(ways[1]):
            grads = torch.autograd.grad(out, rows, g.cuda())
    told = [n for n in names if "attention" in n]
    old = (torch.backends.cudnn.version() or 0) < 91501
    assert len(told) == 2 and (ways[0] is SDPBackend.CUDNN_ATTENTION or told[0] == "attention"), told
    if torch.backends.cudnn.is_available() and not old and ways[0] is SDPBackend.CUDNN_ATTENTION:
        assert told == ["cudnn_attention", "attention_backward" if way.startswith("each") else "cudnn_attention_backward"]
    q, k, v = (t.detach().cpu().double().numpy().swapaxes(1, 2) for t in rows)
    k, v = (np.repeat(t, heads // key_heads, 1) for t in (k, v))
    right = list(oracle(q, k, v, g.double().numpy(), causal=causal))
    right[2:] = [t.reshape(2, key_heads, heads // key_heads, *t.shape[2:]).sum(2) for t in right[2:]]
    close([out.detach().cpu().double().numpy(), *[t.cpu().double().numpy().swapaxes(1, 2) for t in grads]], right, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("fixed", [False, True])
def test_gradients_in_a_fixed_order(fixed: bool) -> None:
    """The same bits each time where that is asked for; near the others where it is not."""
    from flambeau.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (torch.tensor(made(1, 2, 200, 64, seed=s)).half().cuda().requires_grad_() for s in range(3))
    torch.use_deterministic_algorithms(fixed)
    try:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            found = [torch.autograd.grad(attend(q, k, v, is_causal=True).float().square().sum(), (q, k, v)) for _ in range(4)]
    finally:
        torch.use_deterministic_algorithms(False)
    for again in found[1:]:
        for a, b in zip(found[0], again, strict=True):
            assert torch.equal(a, b) if fixed else torch.allclose(a, b, rtol=1e-2, atol=1e-2)


def test_a_mask_beside_is_causal_is_refused_where_pytorch_refuses_it() -> None:
    x, mask = torch.ones(2, 3, 4, 8), torch.zeros(4, 4)
    assert attend(x, x, x, mask, is_causal=True).shape == (2, 3, 4, 8)
    for q, k, v, m, p in ((x[0], x[0], x[0], mask, 0.0), (x, x, x[..., :5], mask, 0.0), (x[:, :1], x, x, mask, 0.0), (x, x, x, mask[None], 0.0),
                          (x, x, x, mask, 0.1), (x, x, x, mask.clone().requires_grad_(), 0.0)):
        with pytest.raises(RuntimeError, match="attn_mask should not be set when is_causal=True"):
            attend(q, k, v, m, p, is_causal=True)
