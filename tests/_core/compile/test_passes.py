"""Random programs: what is replayed after all passes gives, to the bit, what Python's run gives, and reads nothing that it has not written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import flambeau as torch
from flambeau._core.compile import history, passes
from flambeau._core.compile import kept as keeping
from flambeau.nn import functional as F

_TYPES = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.bool)


def _floating(t: Any) -> Any:
    return t if t.is_floating_point() else t.float()


def _like(a: Any, b: Any) -> Any:
    """`b` where it broadcasts with `a`; else a number's worth of it."""
    try:
        torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        return b.sum()
    return b


def _part(t: Any, k: int) -> Any:
    """A view."""
    kinds = [lambda: t.t() if t.dim() == 2 else t, lambda: t[1:] if t.dim() and t.shape[0] > 1 else t, lambda: t[..., ::2] if t.dim() else t,
             lambda: t.reshape(-1) if t.is_contiguous() else t, lambda: t.unsqueeze(0), lambda: t.select(0, 0) if t.dim() > 1 else t,
             lambda: t.expand(3, *t.shape) if t.dim() < 2 else t, lambda: t.detach()]
    return kinds[k % len(kinds)]()


# each takes two tensors and a number, and gives one
_OPS: dict[str, Any] = {
    "add": lambda a, b, k: a + _like(a, b),
    "mul": lambda a, b, k: a * _like(a, b),
    "sub": lambda a, b, k: _floating(a) - _floating(_like(a, b)),
    "affine": lambda a, b, k: a * (k + 1) + 0.5,
    "tanh": lambda a, b, k: torch.tanh(_floating(a)),
    "sigmoid": lambda a, b, k: torch.sigmoid(_floating(a)),
    "exp": lambda a, b, k: torch.exp(_floating(a).clamp(-3, 3)),
    "relu": lambda a, b, k: F.relu(_floating(a)),
    "gelu": lambda a, b, k: F.gelu(_floating(a)),
    "where": lambda a, b, k: torch.where(a > 0, a, _like(a, b)),
    "compare": lambda a, b, k: a < _like(a, b),
    "cast": lambda a, b, k: a.to(_TYPES[k % len(_TYPES)]),
    "sum": lambda a, b, k: a.sum(k % a.dim()) if a.dim() else a.sum(),
    "mean": lambda a, b, k: _floating(a).mean(),
    "amax": lambda a, b, k: a.amax(k % a.dim(), keepdim=True) if a.dim() else a,
    "argmax": lambda a, b, k: _floating(a).argmax(),
    "softmax": lambda a, b, k: _floating(a).softmax(-1) if a.dim() else a,
    "norm": lambda a, b, k: F.layer_norm(_floating(a), a.shape[-1:]) if a.dim() else a,
    "cumsum": lambda a, b, k: a.cumsum(0) if a.dim() else a,
    "matmul": lambda a, b, k: a.float() @ a.float().t() if a.dim() == 2 else a,
    "view": lambda a, b, k: _part(a, k),
    "clone": lambda a, b, k: a.clone(),
    "contiguous": lambda a, b, k: _part(a, k).contiguous(),
    "rand": lambda a, b, k: _floating(a) + torch.rand(a.shape),
    "dropout": lambda a, b, k: F.dropout(_floating(a), 0.4),
    "cat": lambda a, b, k: torch.cat([a, a]) if a.dim() else a,
    "index": lambda a, b, k: a[torch.tensor([0, 0])] if a.dim() else a,
    "add_": lambda a, b, k: _into(a, k, lambda t: t.add_(_like_of(t, b))),
    "mul_": lambda a, b, k: _into(a, k, lambda t: t.mul_(2)),
    "copy_": lambda a, b, k: _into(a, k, lambda t: t.copy_(_like_of(t, b))),
    "fill_": lambda a, b, k: _into(a, k, lambda t: t.fill_(k)),
    "tanh_": lambda a, b, k: _into(a, k, lambda t: t.tanh_() if t.is_floating_point() else t),
}


def _like_of(t: Any, b: Any) -> Any:
    """A tensor that may be written into `t`."""
    b = b.to(t.dtype)
    return b if b.shape == t.shape else b.reshape(-1)[:1].reshape(()) if b.numel() else torch.zeros((), dtype=t.dtype)


def _into(a: Any, k: int, write: Any) -> Any:
    """Writes through a view of `a`, where that has an element a place."""
    t = _part(a, k)
    if a.dtype is torch.bool or (t.dim() and 0 in t.stride()) or (a.dim() and 0 in a.stride()):
        return a
    write(t)
    return a


_STEP = st.tuples(st.sampled_from(sorted(_OPS)), st.integers(0, 63), st.integers(0, 63), st.integers(0, 7))


def program(steps: list[tuple[str, int, int, int]], state: Any) -> Any:
    """A function of one tensor that carries the steps out, on what it is given, on a tensor that lives on, and on what they give."""
    def f(x: Any) -> Any:
        pool = [x, state]
        for name, i, j, k in steps:
            a, b = pool[-1 - i % min(len(pool), 5)], pool[-1 - j % len(pool)]
            pool.append(_OPS[name](a, b, k))
            if pool[-1].numel() > 4096:
                pool[-1] = pool[-1].reshape(-1)[:64].clone()
        return pool[-1], pool[len(pool) // 2].clone()
    return f


def spoil(captured: Any) -> None:
    """Fills the memory that is the records' own with NaN."""
    for plan in captured.records:
        for block in plan.claimed:
            ctypes.memset(block.address, 0xFF, block.size)


def same_bits(a: Any, b: Any) -> bool:
    return bool(a.dtype is b.dtype and a.shape == b.shape and a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes()
                if a.dtype is not torch.bfloat16 else same_bits(a.contiguous().view(torch.int16), b.contiguous().view(torch.int16)))


def held_against_python(steps: list[tuple[str, int, int, int]], shape: tuple[int, int], seed: int, make: Callable[[Any], Any], spoil: Callable[[Any], None],
                        times: int) -> Any:
    """What `make` makes of the program, which gave Python's bits so many times, memory of nobody spoilt before each; None where it is no program."""
    g = torch.Generator().manual_seed(seed)
    states = [torch.rand(4, generator=g), torch.rand(4, generator=g)]
    states[1].copy_(states[0])
    eager, made = program(steps, states[0]), make(program(steps, states[1]))
    try:
        eager(torch.rand(*shape, generator=g))
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        return None
    states[1].copy_(states[0])
    for _ in range(times):
        x = torch.rand(*shape, generator=g) - 0.5
        y = x.clone()
        spoil(made)
        torch.manual_seed(seed)
        wanted = eager(x)
        torch.manual_seed(seed)
        found = made(y)
        for a, b in zip((*wanted, x, states[0]), (*found, y, states[1]), strict=True):
            assert same_bits(a, b)
        if make is torch.compile:
            assert (wanted[1]._version, x._version) == (found[1]._version, y._version)
    return made


@settings(max_examples=60, deadline=None)
@given(st.lists(_STEP, min_size=2, max_size=15), st.sampled_from([(3, 4), (5, 8), (1, 7), (16, 16)]), st.integers(0, 99))
def test_random_programs_are_those_of_python(steps: list[tuple[str, int, int, int]], shape: tuple[int, int], seed: int) -> None:
    held_against_python(steps, shape, seed, torch.capture, spoil, 4)


@pytest.mark.usefixtures("always_kept")
def test_random_programs_compiled_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (keeping, history):  # memory is filled with NaN as soon as nobody is said to read it any more
        monkeypatch.setattr(module, "shortened", partial(passes.shortened, spoils=True))
    kept = []

    def spoil_records(made: Any) -> None:
        for record in made.__compiled__.records:
            for block in record.plan.claimed:
                ctypes.memset(block.address, 0xFF, block.size)

    @settings(max_examples=25, deadline=None)
    @given(st.lists(_STEP, min_size=2, max_size=15), st.sampled_from([(3, 4), (5, 8), (1, 7)]), st.integers(0, 99))
    def check(steps: list[tuple[str, int, int, int]], shape: tuple[int, int], seed: int) -> None:
        made = held_against_python(steps, shape, seed, torch.compile, spoil_records, 7)
        if made is not None:
            kept.append(bool(made.__compiled__.records))
    check()
    assert any(kept)


@pytest.mark.parametrize("name", sorted(_OPS))
def test_each_operation_after_and_before_a_map(name: str) -> None:
    for k in range(8):
        test_random_programs_are_those_of_python.hypothesis.inner_test([("affine", 0, 0, 1), (name, 0, 2, k), ("tanh", 0, 0, 0)], (5, 8), k)


def test_what_cannot_be_known_is_replayed_as_it_is() -> None:
    captured = torch.capture(lambda x: ((x * 2).exp() - 1).sqrt(), check=True)  # which keeps the record's memory
    for _ in range(2):
        captured(torch.ones(16))
    (plan,) = captured.records
    assert plan.claimed
    plan.claimed, claimed = [], plan.claimed
    assert passes.passed(plan) is None
    assert passes.shortened(plan) is plan.steps
    plan.claimed = claimed
    graph = passes.passed(plan)
    assert graph is not None
    assert len(graph.order) == 1
