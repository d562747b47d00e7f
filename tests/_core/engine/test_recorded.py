"""Recorded calls traced with unknown sizes: without the body's Python they leave the graph that the body leaves, and what is unusual goes to the body.

That every public operation's gradients have the same bits is asked in `test_general.py`.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as fl
from flambeau._core.engine import general, traced
from flambeau._core.runtime import caches

if TYPE_CHECKING:
    from collections.abc import Callable

F = fl.nn.functional


def numbers(*shape: int) -> fl.Tensor:
    return fl.arange(int(np.prod(shape)), dtype=fl.float32).reshape(shape) * 37 % 101 / 25 - 2


W, B, I = numbers(16, 16).requires_grad_(), numbers(16).requires_grad_(), fl.tensor([0, 5, 2])
CALLS: dict[str, Callable[[fl.Tensor], Any]] = {
    "reflected": lambda x: 1 / (1 - x),
    "repeat": lambda x: x.repeat(2, 1),
    "nll_loss": lambda x: F.nll_loss(x, fl.arange(len(x)) % 16),
    "to": lambda x: x.to(fl.float64),
    "linear": lambda x: F.linear(x, W, B),
    "matmul": lambda x: x @ W,
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (16,), B, B),
    "cross_entropy": lambda x: F.cross_entropy(x, fl.arange(len(x)) % 16),
    "mse_loss": lambda x: F.mse_loss(x, x.detach() + 1),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True),
    "cat": lambda x: fl.cat((x, x[:2])),
    "split": lambda x: x.split(8, 1)[1],
    "embedding": lambda x: F.embedding(fl.arange(len(x)), x),
    "max_pool2d": lambda x: F.max_pool2d(x[None], 2),
    "pow": lambda x: x ** 2,
    "product": lambda x: x * B,
    "sum": lambda x: x.sum(1),
    "norm": lambda x: x.norm(dim=1),
    "index": lambda x: x[1:, I],
    "gather": lambda x: x.gather(1, fl.ones(len(x), 2, dtype=fl.int64)),
}


def seen(call: Callable[[fl.Tensor], Any], n: int) -> Any:
    """What can be seen of a call and of its gradients, also of those of its gradient."""
    x = numbers(n, 16).requires_grad_()
    y = call(x)
    wanted = [x, *[t for t in (W, B) if t is not x]]
    first = fl.autograd.grad((y * numbers(*y.shape)).sum() if y.dim() else y * 3, wanted, create_graph=True, allow_unused=True)
    again = [g for g in first if g is not None and g.requires_grad]
    second = fl.autograd.grad([(g * numbers(*g.shape)).sum() for g in again], wanted, allow_unused=True) if again else ()
    return y.grad_fn.name(), y._is_view(), [None if t is None else (tuple(t.shape), t.stride(), t.detach().numpy().tobytes()) for t in (y, *first, *second)]


@pytest.mark.parametrize("name", list(CALLS))
def test_a_recorded_body_is_not_entered_for_a_shape_of_a_known_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    caches.forget()
    call = CALLS[name]
    for n in range(40, 48, 2):
        call(numbers(n, 16).requires_grad_())
    entered: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced, "try_kind", lambda operation, *rest: entered.append(operation.name))
        for n in range(50, 62, 2):
            call(numbers(n, 16).requires_grad_())
    assert entered in ([], ["detach"] * 6)
    ours = [seen(call, n) for n in range(50, 62, 2)]
    caches.forget()
    monkeypatch.setattr(general, "kind_of", lambda *_: None)
    assert [seen(call, n) for n in range(50, 62, 2)] == ours


def test_operands_that_require_grad_otherwise_are_left_to_the_body() -> None:
    w = numbers(16, 16)
    for n in range(40, 48):
        F.linear(numbers(n, 16).requires_grad_(), W, B)
    for x, weight in ((numbers(50, 16), W), (numbers(51, 16).requires_grad_(), w), (numbers(52, 16), w)):
        y = F.linear(x, weight, None)
        assert y.requires_grad is (x.requires_grad or weight.requires_grad)
        if y.requires_grad:
            y.sum().backward()
            assert (x.grad is not None) is x.requires_grad
    W.grad = None
    with fl.no_grad():
        assert F.linear(numbers(53, 16).requires_grad_(), W, B).grad_fn is None


def test_a_write_to_what_a_node_keeps_is_told() -> None:
    for n in range(40, 50):
        x = numbers(n, 16).requires_grad_()
        copy = x.clone()
        y = copy @ W
        if n > 46:
            with fl.no_grad():
                copy.mul_(2)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
        else:
            y.sum().backward()
        z = x.softmax(-1)
        if n > 46:
            z.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.sum().backward()


def test_hooks_on_saved_tensors_and_anomaly_detection_see_these_calls() -> None:
    for n in range(40, 50):
        x = numbers(n, 16).requires_grad_()
        kept: list[tuple[int, ...]] = []
        with fl.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: (kept.append(tuple(t.shape)), t)[1], lambda t: t):
            x.softmax(-1)
        assert (n, 16) in kept
        with fl.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan"):
            (x.softmax(-1) * 0 + float("nan")).log().sqrt().sum().backward()


def test_tensors_of_inference_mode_are_refused() -> None:
    with fl.inference_mode():
        given = [numbers(n, 16) for n in range(40, 50)]
    for x in given:
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
            x @ W


def test_views_of_leaves_are_known_as_such() -> None:
    for n in range(40, 50):
        x = numbers(n, 16).requires_grad_()
        part = x.split(8, 1)[1]
        assert part._base is x and part.storage_offset() == 8
        with pytest.raises(RuntimeError, match="in-place|inplace"):
            part.add_(1)
        copy = x.clone()
        a = copy[1:]
        a.mul_(3)
        copy.sum().backward()
        assert x.grad is not None and x.grad[0, 0].item() == 1 and x.grad[1, 0].item() == 3


def test_nothing_of_a_call_is_kept() -> None:
    for n in range(40, 50):
        x = numbers(n, 16).requires_grad_()
        y = F.cross_entropy(x @ W, fl.arange(n) % 16)
        stores = [weakref.ref(t.store) for t in (x, y)]
        del x, y
        gc.collect()
        assert not any(s() is not None for s in stores)


def test_graphs_may_run_twice_where_they_keep_nothing_or_are_retained() -> None:
    for n in range(40, 50):
        x = numbers(n, 16).requires_grad_()
        y = x.softmax(-1).sum()
        y.backward(retain_graph=True)
        y.backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()
