"""Steps that wait and maps that are done again: less memory at once, the same bits, and nothing done again that would see something else."""

from __future__ import annotations

from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import flambeau as torch
from flambeau import nn
from flambeau._core.compile import captured, lowering, passes
from flambeau._core.compile.record import Launch
from flambeau.nn import functional as F
from tests._core.compile.test_memory import _MODELS, spoil, trained
from tests._core.compile.test_passes import _STEP, held_against_python, same_bits


def lowered(patch: pytest.MonkeyPatch, share: float = 0.0) -> None:
    """Steps of any size are lowered as far as they can be, and memory is filled with NaN once nobody reads it."""
    patch.setattr(lowering, "FIXED", 0)
    patch.setattr(lowering, "SHARE", share)
    patch.setattr(captured, "shortened", partial(passes.shortened, spoils=True))


@settings(max_examples=50, deadline=None)
@given(st.lists(_STEP, min_size=3, max_size=15), st.sampled_from([(3, 4), (5, 8), (16, 16), (1, 7)]), st.integers(0, 99))
def test_random_programs_are_those_of_python(steps: Any, shape: tuple[int, int], seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lowered(patch)
        held_against_python(steps, shape, seed, torch.capture, spoil, 3)


@pytest.mark.parametrize("name", sorted(_MODELS))
def test_training_steps_are_those_of_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch)
    trained(name)


N = 4096


def launches(f: Any, patch: pytest.MonkeyPatch, *args: Any) -> tuple[list[str], int]:
    """The launches of a replay whose bits are the function's, and the bytes of its memory."""
    lowered(patch)
    seen: list[Any] = []
    real = captured.bind

    def bind(plan: Any, steps: Any) -> Any:
        seen[:] = steps
        return real(plan, steps)
    patch.setattr(captured, "bind", bind)
    g = torch.capture(f)
    for k in range(4):
        given = [a + k for a in args]
        kept = [a.clone() for a in given]
        for x, y in zip(g(*given), f(*kept), strict=True):
            assert same_bits(x, y)
        assert all(same_bits(a, b) for a, b in zip(given, kept, strict=True))
    (plan,) = g.records
    return [s.prepared.name for s in seen if isinstance(s, Launch)], plan.pool.nbytes


def _long(change: Any) -> Any:
    """A value that is read at once and much later, while others take memory; between, `change` is done to what it was computed from."""
    def f(x: Any) -> Any:
        a = x.cumsum(0)
        b = torch.exp(a)
        early = b.cumsum(0).sum()
        change(a, x)
        wide = a.expand(8, N).cumsum(0).cumsum(1)
        total = wide.cumsum(0).sum()
        return early, total, b.cumsum(0), a.cumsum(0)
    return f


def test_a_map_is_done_again_where_its_result_is_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = launches(_long(lambda a, x: None), monkeypatch, torch.rand(N) / N)
    assert found.count("exp") == 2


@pytest.mark.parametrize("change", [lambda a, x: a.add_(1), lambda a, x: a[5:6].zero_(), lambda a, x: a.view(64, 64).t()[3].mul_(2)])
def test_not_where_what_it_reads_has_changed(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = launches(_long(change), monkeypatch, torch.rand(N) / N)
    assert found.count("exp") == 1


def test_not_where_what_it_reads_is_gone_or_is_an_argument_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(x: Any) -> Any:
        a = x.cumsum(0)
        b = torch.exp(a)
        early = b.cumsum(0).sum() + a.cumsum(0).sum()
        wide = x.expand(8, N).cumsum(0).cumsum(1)
        return early, wide.cumsum(0).sum(), b.cumsum(0)
    found, _ = launches(gone, monkeypatch, torch.rand(N) / N)
    assert found.count("exp") == 1

    def argument(x: Any) -> Any:
        b = torch.exp(x)
        early = b.cumsum(0).sum()
        x.add_(1)
        wide = x.expand(8, N).cumsum(0).cumsum(1)
        return early, wide.cumsum(0).sum(), b.cumsum(0)
    found, _ = launches(argument, monkeypatch, torch.rand(N) / N)
    assert found.count("exp") == 1
    state = torch.zeros(N)

    def of_state(x: Any) -> Any:
        b = torch.exp(state)
        early = b.cumsum(0).sum()
        x.add_(1)  # which may be the state
        wide = x.expand(8, N).cumsum(0).cumsum(1)
        return early, wide.cumsum(0).sum(), b.cumsum(0)
    found, _ = launches(of_state, monkeypatch, torch.rand(N) / N)
    assert found.count("exp") == 1


def test_draws_are_those_of_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        b = F.dropout(x.cumsum(0), 0.5)
        early = b.cumsum(0).sum()
        wide = x.expand(8, N).cumsum(0).cumsum(1)
        return early, wide.cumsum(0).sum(), b.cumsum(0)
    lowered(monkeypatch)
    g = torch.capture(f)
    x = torch.rand(N)
    for k in range(5):
        torch.manual_seed(k)
        wanted = f(x)
        torch.manual_seed(k)
        assert all(same_bits(a, b) for a, b in zip(g(x), wanted, strict=True))


def test_a_step_waits_whose_result_nobody_reads_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    w = torch.rand(64, 1024)

    def f(x: Any) -> Any:
        wide = x @ w  # read last
        a = x.cumsum(0).expand(40, 64, 64).cumsum(0)
        return a.sum(), wide.cumsum(0)
    patched, most = launches(f, monkeypatch, torch.rand(64, 64))
    monkeypatch.setattr(passes, "lower", lambda graph: None)
    plain, more = launches(f, monkeypatch, torch.rand(64, 64))
    assert sorted(patched) == sorted(plain)
    assert patched != plain
    assert most <= more - 64 * 1024 * 4


def test_a_small_gpt_takes_at_most_four_fifths_of_the_memory_that_python_takes() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2, self.qkv, self.proj = nn.LayerNorm(128), nn.LayerNorm(128), nn.Linear(128, 384), nn.Linear(128, 128)
            self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (y.view(b, t, 4, c // 4).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, dim=2))
            x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous().view(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln2(x))))
    net = nn.Sequential(nn.Embedding(65, 128), *[Block() for _ in range(4)], nn.LayerNorm(128), nn.Linear(128, 65, bias=False))
    optimizer = torch.optim.AdamW(net.parameters())
    ids, wanted = torch.randint(0, 65, (12, 64)), torch.randint(0, 65, (768,))

    def step() -> Any:
        loss = F.cross_entropy(net(ids).view(-1, 65), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    e = torch.explain(step)()
    assert e.peak[1] <= 0.8 * e.peak[0]
