"""Sums of 16-bit numbers are kept in float32 and rounded once: products, convolutions and reductions against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb

F = fb.nn.functional
TYPES = (fb.float16, fb.bfloat16)


def _numbers(shape: tuple[int, ...], d: Any, seed: int, scale: float = 1.0) -> tuple[Any, Any]:
    """Numbers that type d has, and the same in float64."""
    x = fb.tensor(np.random.default_rng(seed).standard_normal(shape) * scale).to(d)
    return x, x.double()


def _rounded_once(got: Any, want: Any, size: Any, d: Any, terms: int) -> None:
    """got is `want` rounded to d, but for the float32 rounding of a sum of `terms` numbers of total size `size`."""
    assert got.dtype is d and tuple(got.shape) == tuple(want.shape)
    want, size = want.detach().numpy(), size.detach().numpy()
    half_step = np.abs(want) * fb.finfo(d).eps / 2 + float(fb.finfo(d).smallest_normal) * float(fb.finfo(d).eps)
    assert (np.abs(got.detach().double().numpy() - want) <= 1.01 * half_step + size * terms * float(fb.finfo(fb.float32).eps)).all()


PRODUCTS = {
    "mm": (fb.mm, (3, 300), (300, 5)),
    "bmm": (fb.bmm, (2, 3, 300), (2, 300, 4)),
    "mv": (fb.mv, (4, 300), (300,)),
    "dot": (fb.dot, (300,), (300,)),
    "matmul": (fb.matmul, (2, 3, 300), (300, 4)),
    "einsum": (lambda a, b: fb.einsum("ij,kj->ik", a, b), (3, 300), (4, 300)),
    "tensordot": (lambda a, b: fb.tensordot(a, b, 2), (3, 10, 30), (10, 30, 4)),
    "linear": (F.linear, (3, 300), (4, 300)),
}


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, d: Any) -> None:
    f, left, right = PRODUCTS[name]
    (a, a64), (b, b64) = _numbers(left, d, 1), _numbers(right, d, 2)
    _rounded_once(f(a, b), f(a64, b64), f(a64.abs(), b64.abs()), d, 300)


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_a_bias_is_added_before_the_rounding(d: Any) -> None:
    (x, x64), (w, w64), (b, b64) = _numbers((3, 300), d, 1), _numbers((4, 300), d, 2), _numbers((4,), d, 3, 20.0)
    whole = F.linear(x64.abs(), w64.abs(), b64.abs())
    _rounded_once(F.linear(x, w, b), F.linear(x64, w64, b64), whole, d, 300)
    _rounded_once(fb.addmm(b, x, w.t()), fb.addmm(b64, x64, w64.t()), whole, d, 300)
    base, base64 = _numbers((2, 3, 4), d, 4, 20.0)
    (p, p64), (q, q64) = _numbers((2, 3, 300), d, 5), _numbers((2, 300, 4), d, 6)
    _rounded_once(fb.baddbmm(base, p, q, beta=0.5, alpha=2.0), fb.baddbmm(base64, p64, q64, beta=0.5, alpha=2.0),
                  fb.baddbmm(base64.abs(), p64.abs(), q64.abs(), alpha=2.0), d, 300)


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("turned", [False, True], ids=["plain", "transposed"])
def test_convolutions(n: int, groups: int, turned: bool, d: Any) -> None:
    f: Any = getattr(F, f"conv_transpose{n}d" if turned else f"conv{n}d")
    weight = (8, 6 // groups, *(3,) * n) if turned else (6, 8 // groups, *(3,) * n)
    (x, x64), (w, w64), (b, b64) = _numbers((2, 8, *(5,) * n), d, 1), _numbers(weight, d, 2), _numbers((6,), d, 3, 10.0)
    kw: Any = {"stride": 2, "padding": 1, "groups": groups}
    _rounded_once(f(x, w, b, **kw), f(x64, w64, b64, **kw), f(x64.abs(), w64.abs(), b64.abs(), **kw), d, 8 * 3 ** n)


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_gradients_of_products_and_convolutions(d: Any) -> None:
    """Each gradient is itself one sum, rounded once."""
    for f, shapes in ((F.linear, ((40, 30), (5, 30), (5,))), (lambda x, w, b: F.conv2d(x, w, b, padding=1), ((4, 3, 8, 8), (5, 3, 3, 3), (5,)))):
        narrow, wide = zip(*[_numbers(s, d, i) for i, s in enumerate(shapes)], strict=True)
        narrow, wide = [t.requires_grad_() for t in narrow], [t.requires_grad_() for t in wide]
        out = f(*narrow)
        g, g64 = _numbers(tuple(out.shape), d, 9)
        got = fb.autograd.grad(out, narrow, g)
        want = fb.autograd.grad(f(*wide), wide, g64)
        sizes = [t.detach().abs().requires_grad_() for t in wide]
        bounds = fb.autograd.grad(f(*sizes), sizes, g64.abs())
        for one, exact, size in zip(got, want, bounds, strict=True):
            _rounded_once(one, exact, size, d, 400)


LONG: dict[str, Any] = {
    "sum": lambda t: t.sum(1), "mean": lambda t: t.mean(1), "nansum": lambda t: t.nansum(1), "logsumexp": lambda t: t.logsumexp(1),
    "softmax": lambda t: t.softmax(1), "log_softmax": lambda t: t.log_softmax(1), "layer_norm": lambda t: F.layer_norm(t, t.shape[1:]),
    "rms_norm": lambda t: F.rms_norm(t, t.shape[1:], eps=1e-5), "var": lambda t: t.var(1), "std": lambda t: t.std(1), "norm": lambda t: t.norm(dim=1),
    "norm of order 1": lambda t: t.norm(1, dim=1), "vector_norm": lambda t: fb.linalg.vector_norm(t, 3, dim=1), "cumsum": lambda t: t.cumsum(1),
    "logcumsumexp": lambda t: t.logcumsumexp(1), "matmul": lambda t: t @ t.mT, "cosine_similarity": lambda t: F.cosine_similarity(t[:1], t, dim=1),
    "cdist": lambda t: fb.cdist(t, -t), "avg_pool1d": lambda t: F.avg_pool1d(t.unsqueeze(1), 100), "conv1d": lambda t: F.conv1d(
        t.unsqueeze(1), t[:, :300].unsqueeze(1), stride=500), "batch_norm": lambda t: F.batch_norm(t.mT, None, None, training=True),
    "mse_loss": lambda t: F.mse_loss(t, -t), "var of all": lambda t: t.var(), "sum of all": lambda t: t.sum()}


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("name", LONG)
def test_reductions_do_not_stall(name: str, d: Any, device: str) -> None:
    """A running sum in bfloat16 would stop growing at 256 ones."""
    x, x64 = _numbers((3, 5000), d, 1)
    x, x64 = x.abs(), x64.abs()
    if name in ("sum", "sum of all", "cumsum", "nansum", "matmul", "norm of order 1", "conv1d"):  # within float16's range
        x, x64 = x / 4, (x / 4).double()
    want = LONG[name](x64)
    got = LONG[name](x.to(device)).cpu()
    _rounded_once(got, want, want.abs() * 10 + (1 if name in ("layer_norm", "batch_norm") else 0), d, 30)


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "softmax", "log_softmax", "layer_norm", "rms_norm", "var", "norm", "cumsum", "logsumexp", "matmul"])
def test_gradients_of_reductions_do_not_stall(name: str, d: Any, device: str) -> None:
    """The gradients' own sums run in float32: they differ from float64's by the rounding of what is saved and of the result."""
    x, x64 = _numbers((3, 2000), d, 1)
    x, x64 = (x.abs() / 4), (x.abs() / 4).double().requires_grad_()
    there = x.to(device).requires_grad_()
    out, out64 = LONG[name](there), LONG[name](x64)
    g, g64 = _numbers(tuple(out64.shape), d, 2)
    got, want = fb.autograd.grad(out, there, g.abs().to(device))[0].cpu().double(), fb.autograd.grad(out64, x64, g64.abs())[0]
    assert (got - want).abs().max() <= 4 * float(fb.finfo(d).eps) * want.abs().max()


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_a_gradient_summed_over_broadcast_axes_is_rounded_once(d: Any) -> None:
    (x, x64), (y, y64), (g, g64) = _numbers((200, 3), d, 1), _numbers((3,), d, 2), _numbers((200, 3), d, 3)
    y, y64 = y.requires_grad_(), y64.requires_grad_()
    got = fb.autograd.grad(x * y, y, g)[0]
    _rounded_once(got, fb.autograd.grad(x64 * y64, y64, g64)[0], (x64.abs() * g64.abs()).sum(0), d, 200)


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_composed_operations_round_once(d: Any) -> None:
    x, x64 = _numbers((2, 6, 8, 8), d, 1)
    (w, w64), (b, b64) = _numbers((6,), d, 2), _numbers((6,), d, 3)
    size = x64.abs().max().expand(2, 6, 8, 8) * 20
    _rounded_once(F.group_norm(x, 3, w, b), F.group_norm(x64, 3, w64, b64), size, d, 20)
    mean, var = w.abs(), b.abs() + 1
    _rounded_once(F.batch_norm(x, mean, var, w, b), F.batch_norm(x64, mean.double(), var.double(), w64, b64), size, d, 20)
    for mode in ("bilinear", "bicubic"):
        small = F.interpolate(x64, size=(5, 7), mode=mode)
        _rounded_once(F.interpolate(x, size=(5, 7), mode=mode), small, size[:, :, :5, :7], d, 20)
    _rounded_once(F.adaptive_avg_pool2d(x, (3, 5)), F.adaptive_avg_pool2d(x64, (3, 5)), size[:, :, :3, :5], d, 20)


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_shares_of_a_log_sum_come_from_its_operands(name: str, d: Any) -> None:
    """Not from a result that was rounded to 16 bits, which may be off by percents there."""
    f: Any = getattr(fb, name)
    (x, x64), (y, y64), (g, g64) = _numbers((200,), d, 1, 5.0), _numbers((200,), d, 2, 5.0), _numbers((200,), d, 3)
    got = fb.autograd.grad(f(x.requires_grad_(), y.requires_grad_()), (x, y), g)
    want = fb.autograd.grad(f(x64.requires_grad_(), y64.requires_grad_()), (x64, y64), g64)
    for one, exact in zip(got, want, strict=True):
        _rounded_once(one, exact, 10 * exact.abs(), d, 1)


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_multivariate_gamma_is_rounded_once(d: Any) -> None:
    x, x64 = _numbers((100,), d, 1)
    x, x64 = (x.abs() + 2).requires_grad_(), (x.abs() + 2).double().requires_grad_()
    _rounded_once(x.mvlgamma(4), x64.mvlgamma(4), x64.abs() * 20, d, 5)
    _rounded_once(fb.autograd.grad(x.mvlgamma(4).sum(), x)[0], fb.autograd.grad(x64.mvlgamma(4).sum(), x64)[0], 40 / x64, d, 5)


@pytest.mark.parametrize("d", TYPES, ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags(mode: str, d: Any) -> None:
    (table, table64), (factors, factors64) = _numbers((50, 4), d, 1), _numbers((3, 100), d, 2)
    which = fb.randint(0, 50, (3, 100))
    kw: Any = {"mode": mode}
    weights, weights64 = (factors, factors64) if mode == "sum" else (None, None)
    size = F.embedding_bag(which, table64.abs(), per_sample_weights=None if weights64 is None else weights64.abs(), **kw)
    _rounded_once(F.embedding_bag(which, table, per_sample_weights=weights, **kw), F.embedding_bag(which, table64, per_sample_weights=weights64, **kw),
                  size, d, 100)
