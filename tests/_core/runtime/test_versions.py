"""Inference tensors: what is made in inference mode counts no versions, is written there only, and is saved for no gradient."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau.nn import functional as F

WRITE = "Inplace update to inference tensor outside InferenceMode is not allowed"
SAVE = "Inference tensors cannot be saved for backward"
VIEW = "A view was created in inference mode and is being modified inplace in normal mode"
TIMES = 6  # so often that calls are planned, learned and replayed


def test_what_is_made_in_the_mode(device):
    n = fb.ones(3, 4, device=device)
    for _ in range(TIMES):
        with fb.inference_mode():
            made = [fb.ones(3, 4, device=device), n + 1, n.clone(), n.to(fb.float64), fb.add(n, n), n.softmax(0), n @ n.t(), fb.cat([n, n]), n.sort(0)[0],
                    fb.add(n, n, out=fb.empty(3, 4, device=device)), fb.tensor([1.0, 2.0], device=device), n.cpu() + 0, fb.rand(3, device=device)]
            shown = [n, n.view(12), n[0], n.t(), n.detach(), n.data, n.expand(2, 3, 4), n.contiguous(), n.float(), n.add_(1)]
        assert all(t.is_inference() and fb.is_inference(t) for t in made)
        assert not any(t.is_inference() for t in shown)
        assert all(t.view(-1).is_inference() and t.detach().is_inference() and t.data.is_inference() for t in made[:1])
        assert not any(t.is_inference() for t in (made[0] + 1, made[0].clone(), fb.ones(2, device=device)))


def test_what_shares_memory_in_the_mode():
    array = np.ones(3, np.float32)
    for _ in range(TIMES):
        with fb.inference_mode():
            assert fb.from_numpy(array).is_inference() and fb.frombuffer(bytearray(8), dtype=fb.float32).is_inference()
        assert not fb.from_numpy(array).is_inference()


def test_versions_are_counted_for_caches_only(device):
    n = fb.ones(3, device=device)
    with fb.inference_mode():
        t = fb.ones(3, device=device)
        for _ in range(TIMES):
            assert t.add_(1) is t and t.mul_(2).is_inference()
        before = n._version
        n.add_(1)
        assert n._version == before + 1
        with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
            getattr(t, "_version")  # noqa: B009
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        getattr(t.view(3), "_version")  # noqa: B009


WRITES: dict[str, Any] = {
    "add_": lambda t: t.add_(1), "copy_": lambda t: t.copy_(fb.ones(3, 4, device=t.device)), "x[0] =": lambda t: t.__setitem__(0, 1.0),
    "zero_": lambda t: t.zero_(),
    "of a view": lambda t: t.view(12).mul_(2), "uniform_": lambda t: t.uniform_(), "t_": lambda t: t.t_(), "resize_": lambda t: t.resize_(2, 2),
    "out": lambda t: fb.add(fb.ones(3, 4, device=t.device), 1, out=t), "tril_": lambda t: t.tril_(),
    "index_fill_": lambda t: t.index_fill_(0, fb.tensor([0], device=t.device), 1.0),
    "scatter_": lambda t: t.scatter_(0, fb.zeros(1, 4, dtype=fb.int64, device=t.device), 1.0), "relu": lambda t: F.relu(t, inplace=True),
    "add_ of what requires grad": lambda t: t.add_(fb.ones(3, 4, device=t.device, requires_grad=True)), "foreach": lambda t: fb._foreach_add_([t], 1.0),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("grad", [True, False])
def test_writes_outside_are_errors(name, grad, device):
    write = WRITES[name]
    for _ in range(TIMES):
        with fb.inference_mode():
            t = fb.ones(3, 4, device=device)
        with fb.set_grad_enabled(grad), pytest.raises(RuntimeError, match=WRITE):
            write(t)
        with fb.inference_mode():
            write(fb.ones(3, 4, device=device))
        if "requires" not in name:
            with fb.no_grad():
                write(fb.ones(3, 4, device=device))


def test_sizes_and_places_stay_where_a_relaying_write_is_refused():
    with fb.inference_mode():
        t = fb.ones(3, 4)
    with pytest.raises(RuntimeError, match=WRITE):
        t.t_()
    assert t.shape == (3, 4)


SAVES: dict[str, Any] = {
    "mul": lambda i, g: i * g, "mm": lambda i, g: i @ g.t(), "linear": lambda i, g: F.linear(i, g), "div": lambda i, g: i / g,
    "pow": lambda i, g: g ** i,
    "mse_loss": lambda i, g: F.mse_loss(g, i), "conv": lambda i, g: F.conv1d(i[None], g[None]), "bmm": lambda i, g: fb.bmm(i[None], g.t()[None]),
    "layer_norm": lambda i, g: F.layer_norm(i, (4,), g[0]), "attention": lambda i, g: F.scaled_dot_product_attention(i[None], g[None], g[None]),
    "mul_": lambda i, g: (g + 0).mul_(i), "cross_entropy": lambda i, g: F.cross_entropy(g, i),
    "prelu": lambda i, g: F.prelu(i, g[0, :1]),
}


@pytest.mark.parametrize("name", SAVES)
def test_what_would_be_saved_is_an_error_when_it_is_recorded(name, device):
    call = SAVES[name]
    g = fb.ones(3, 4, device=device, requires_grad=True)
    with fb.inference_mode():
        i = fb.ones(3, 4, device=device)
    for _ in range(TIMES):
        call(i.clone(), g).sum().backward()
        with pytest.raises(RuntimeError, match=SAVE):
            call(i, g)
        with fb.no_grad():
            call(i, g)
        with fb.inference_mode():
            assert not call(i, g).requires_grad
        assert not call(i, g.detach()).requires_grad


def test_what_saves_nothing_goes(device):
    g = fb.ones(3, 4, device=device, requires_grad=True)
    with fb.inference_mode():
        i = fb.full((3, 4), 2.0, device=device)
    for _ in range(TIMES):
        for call in (lambda: g + i, lambda: g - i, lambda: fb.cat([g, i]), lambda: g.detach() + i, lambda: fb.stack([i, g])):
            made = call()
            assert not made.is_inference()
            if made.requires_grad:
                assert fb.autograd.grad(made.sum(), g)[0].tolist() == fb.ones(3, 4).tolist()
    n = fb.zeros(3, 4, device=device)
    assert not n.copy_(i).is_inference() and n.tolist() == i.tolist()


def test_a_function_saves_none():
    class Twice(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, None

    with fb.inference_mode():
        i = fb.ones(3)
    with pytest.raises(RuntimeError, match=SAVE):
        Twice.apply(fb.ones(3, requires_grad=True), i)


def test_views_made_in_the_mode_of_what_was_made_outside(device):
    for _ in range(TIMES):
        n, g = fb.ones(3, 4, device=device), fb.ones(3, 4, device=device, requires_grad=True)
        h = g * 2
        with fb.inference_mode():
            of_n, of_g, of_h = n.view(12), g[0], h[0]
            chained = n.t()[0]
            of_n.add_(1)
        assert of_n.add_(1).tolist() == [3.0] * 12 and of_g.requires_grad and of_h.requires_grad
        for t, factor in ((of_n, g.view(12)), (of_g, g[1]), (of_h, g[1]), (chained, g[:, 0])):
            with pytest.raises(RuntimeError, match=VIEW):
                t.mul_(factor)


def test_requiring_grad():
    with fb.inference_mode():
        i, wanted = fb.ones(3), fb.ones(3, requires_grad=True)
        assert wanted.requires_grad and wanted.is_leaf and not (wanted * 2).requires_grad
        assert fb.ones(3).requires_grad_().requires_grad
        with fb.enable_grad():
            assert not (fb.ones(3, requires_grad=True) * 2).requires_grad
        with fb.inference_mode(False):
            assert (fb.ones(3, requires_grad=True) * 2).requires_grad and not fb.ones(3).is_inference()
    for ask in (lambda: i.requires_grad_(), lambda: setattr(i, "requires_grad", True), lambda: fb.nn.Parameter(i)):
        with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor outside InferenceMode is not allowed"):
            ask()
    assert i.requires_grad_(False) is i
    n = fb.zeros(3)
    n.data = i
    assert n.is_inference()


def test_modes_of_other_threads_are_their_own():
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with fb.inference_mode():
            inside.set()
            done.wait()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    made = [fb.ones(3) + 1 for _ in range(TIMES)]
    done.set()
    thread.join()
    assert not any(t.is_inference() for t in made)


def test_a_training_after_an_evaluation(device):
    """What the engine keeps beyond a call is no inference tensor, though its first call was in the mode."""
    fb.manual_seed(0)
    model = fb.nn.Sequential(fb.nn.Conv2d(1, 4, 3), fb.nn.BatchNorm2d(4), fb.nn.GELU(), fb.nn.AdaptiveAvgPool2d(2), fb.nn.Flatten(), fb.nn.Linear(16, 8),
                             fb.nn.LayerNorm(8), fb.nn.Dropout(0.1), fb.nn.Linear(8, 5)).to(device)
    encoder = fb.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(device)
    recurrent = fb.nn.LSTM(5, 6, batch_first=True).to(device)
    x, y = fb.rand(3, 1, 9, 9, device=device), fb.tensor([0, 1, 2], device=device)

    def loss():
        z = model(x)
        more = encoder(fb.nn.functional.interpolate(x, size=(8, 8), mode="bilinear")[:, 0]).sum() + recurrent(z[:, None])[0].sum()
        return F.cross_entropy(z, y) + more + F.huber_loss(z, fb.zeros(3, 5, device=device)) + z.std() + z.logsumexp(0).sum()

    for _ in range(TIMES):
        with fb.inference_mode():
            assert loss().is_inference()
        loss().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_compiled_and_captured_steps():
    @fb.compile
    def step(x):
        x.add_(1)
        return x * 2

    for _ in range(TIMES):
        with fb.inference_mode():
            i = fb.ones(3)
            assert step(i).is_inference() and i.tolist() == [2.0] * 3
        n = fb.ones(3)
        assert not step(n).is_inference() and n._version == 1
        with fb.inference_mode():
            n = fb.zeros(3)
            step(n)
        with pytest.raises(RuntimeError, match=WRITE):
            step(n)
