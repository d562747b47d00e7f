"""Bodies traced with unknown sizes: calls of new shapes are carried out without their Python, and left to it wherever more than sizes counts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as fl
from flambeau._core.engine import general, traced, trials
from flambeau._core.runtime import caches

if TYPE_CHECKING:
    from collections.abc import Callable

F = fl.nn.functional


def numbers(*shape: int) -> fl.Tensor:
    return fl.arange(int(np.prod(shape)), dtype=fl.float32).reshape(shape) * 37 % 101 / 25 - 2


W, B, I = numbers(16, 16), numbers(16), fl.tensor([0, 5, 2])
CALLS: dict[str, Callable[[fl.Tensor], Any]] = {
    "cat": lambda x: fl.cat((x, x[:2])),
    "stack": lambda x: fl.stack((x, x), 1),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (16,), B, B),
    "linear": lambda x: F.linear(x, W, B),
    "embedding": lambda x: F.embedding(fl.arange(len(x)), numbers(len(x), 4)),
    "index": lambda x: (x[:, I], x[1:, I, None], x[..., I]),
    "gather": lambda x: x.gather(1, fl.ones(len(x), 2, dtype=fl.int64)),
    "cross_entropy": lambda x: F.cross_entropy(x, fl.arange(len(x)) % 16),
    "mse_loss": lambda x: F.mse_loss(x, x + 1),
    "arange": lambda x: fl.arange(len(x)),
    "tril": lambda x: x.tril(),
    "chunk": lambda x: x.chunk(2),
    "setitem": lambda x: (y := x.clone(), y.__setitem__(0, 1.0))[0],
    "copy_": lambda x: fl.empty(x.shape).copy_(x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "conv2d": lambda x: F.conv2d(x[None, None], W[None, None, :3, :3], padding=1),
}


def values(made: Any) -> Any:
    return [values(t) for t in made] if isinstance(made, (tuple, list)) else (tuple(made.shape), made.stride(), made.tolist())


@pytest.mark.parametrize("name", list(CALLS))
def test_a_body_is_not_entered_for_a_shape_of_a_known_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    caches.forget()
    call = CALLS[name]
    for n in range(40, 48, 2):
        call(numbers(n, 16))
    given = [numbers(n, 16) for n in range(50, 62, 2)]
    learned: list[str] = []
    monkeypatch.setattr(traced, "try_kind", lambda operation, *rest: learned.append(operation.name))
    ours = [values(call(x)) for x in given]
    assert not learned
    caches.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(general, "kind_of", lambda *_: None)
        assert [values(call(x)) for x in given] == ours


def test_indices_that_are_wrong_are_told_for_new_shapes() -> None:
    table = numbers(5, 3)
    for n in range(40, 50):
        assert F.embedding(fl.ones(n, dtype=fl.int64), table).shape == (n, 3)
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        F.embedding(fl.full((60,), 5), table)
    assert F.embedding(fl.ones(60, dtype=fl.int64), table)[59].tolist() == table[1].tolist()


def test_calls_that_are_recorded_have_their_graph() -> None:
    for n in range(40, 50):
        numbers(n, 16).softmax(-1)
    for n in (51, 52):
        x = numbers(n, 16).requires_grad_()
        y = x.softmax(-1)
        (y * numbers(n, 16)).sum().backward()
        assert y.grad_fn is not None and x.grad is not None and x.grad.abs().sum() > 0
        with fl.no_grad():
            assert x.softmax(-1).grad_fn is None


def test_versions_and_views_are_those_of_the_body() -> None:
    for n in range(40, 50):
        x = numbers(n, 16)
        x[1:3] = 2.0
        x.copy_(numbers(1, 16))
        assert x._version == 2 and x[3].tolist() == numbers(16).tolist()
        a, b = x.chunk(2)
        assert a._base is x and b.storage_offset() == (n + 1) // 2 * 16
        a.add_(1)
        assert x._version == 3 and x[0].tolist() == (numbers(16) + 1).tolist()
        with fl.inference_mode():
            y = x.softmax(-1)
        assert y.is_inference() and fl.cat((x, x)).is_inference() is False


DRAWS: dict[str, Callable[[fl.Tensor], Any]] = {
    "rand": lambda x: fl.rand(len(x)),
    "randn": lambda x: fl.randn(len(x), 3),
    "randint": lambda x: fl.randint(0, 9, (len(x),)),
    "randperm": lambda x: fl.randperm(len(x)),
    "rand_like": lambda x: fl.rand_like(x),
    "normal_": lambda x: x.detach().normal_(),
    "uniform_": lambda x: x.detach().uniform_(-1, 2),
    "dropout": lambda x: F.dropout(x, 0.3),
}


@pytest.mark.parametrize("name", list(DRAWS))
@pytest.mark.parametrize("grad", [False, True])
def test_draws_are_those_of_the_body_and_leave_the_generator_where_it_does(name: str, grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(sizes: range) -> Any:
        fl.manual_seed(7)
        given = [numbers(n, 16).requires_grad_(grad) for n in sizes]
        made = [DRAWS[name](x) for x in given]
        gradients = [fl.autograd.grad(y.sum(), x)[0].tolist() for x, y in zip(given, made, strict=True) if y.requires_grad]
        return [values(y.detach()) for y in made], gradients, [y._version for y in made if not name.endswith("_")], fl.get_rng_state().tolist()
    caches.forget()
    drawn(range(40, 48))
    ours = drawn(range(50, 60))
    caches.forget()
    monkeypatch.setattr(general, "kind_of", lambda *_: None)
    assert drawn(range(50, 60)) == ours and set(ours[2]) <= {0}


def test_draws_that_are_made_again_are_given_the_streams_of_then() -> None:
    from flambeau._core.runtime import capture
    from flambeau._core.runtime.random_blocks import Block
    for n in range(40, 50):
        fl.rand(n)
    before = fl.get_rng_state()
    for n in (51, 52):
        found = []
        for _ in range(2):
            found.append(capture.redrawn([Block(5)], lambda n=n: fl.rand(n)))
        assert fl.equal(*found) and fl.equal(before, fl.get_rng_state())
        assert not fl.equal(fl.rand(n), found[0])
        fl.set_rng_state(before)


def test_what_asks_for_something_else_where_sizes_are_known_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown number is no int: a body that asks so would do another thing."""
    from flambeau._core.ops import table

    @table.op()
    def _odd(input: fl.Tensor) -> fl.Tensor:  # noqa: A002
        """No operation."""
        return input.softmax(-1) if type(input.meta.shape[0]) is int else input.softmax(0)
    del table.TABLE["_odd"]  # which others look through
    for n in range(40, 50):
        x = numbers(n, 16)
        assert _odd(x).tolist() == x.softmax(-1).tolist()
    assert "something else" in trials.refused["_odd (traced)"]


def test_threads_call_new_shapes_while_others_are_traced() -> None:
    caches.forget()
    wrong: list[Any] = []

    def work(k: int) -> None:
        for n in range(20 + k, 140, 4):
            x = numbers(n, 8)
            y = fl.cat((x.softmax(-1), x), 1)
            if y.shape != (n, 16) or y[:, 8:].tolist() != x.tolist():
                wrong.append(n)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_work_that_threads_share_is_shared() -> None:
    for n in range(400, 410):
        x = numbers(n, 600)
        assert fl.cat((x, x), 1)[n - 1, 600:].tolist() == x[n - 1].tolist()
        assert (x @ x[:600].t()).shape == (n, min(n, 600))


def test_more_shapes_leave_no_more_behind() -> None:
    import gc

    from flambeau._core.unknowns import Trace

    def living(sizes: range) -> int:
        for n in sizes:
            for call in CALLS.values():
                call(numbers(n, 16))
        gc.collect()
        return sum(type(o) is Trace for o in gc.get_objects())
    before = living(range(40, 60, 2))
    assert living(range(60, 100, 2)) <= before + 4
