"""The plan of memory: nobody reads what is gone, values that live at once lie apart, and a step takes no more than it must."""

from __future__ import annotations

import ctypes
from functools import partial
from threading import Thread
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import flambeau as torch
from flambeau import nn
from flambeau._core.compile import captured, history, kept, memory, passes
from flambeau._core.runtime import capture, cpu_memory
from flambeau.nn import functional as F
from tests._core.compile.test_passes import _STEP, held_against_python, same_bits


@pytest.fixture
def spoils(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is filled with NaN as soon as nobody is said to read it any more."""
    for module in (captured, kept, history):
        monkeypatch.setattr(module, "shortened", partial(passes.shortened, spoils=True))


@pytest.fixture(params=[0, memory.FIXED], ids=["taken", "kept"])
def pools(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools that each replay takes from the allocator, and those that are kept."""
    monkeypatch.setattr(memory, "FIXED", request.param)


def spoil(made: Any) -> None:
    """Fills the memory that the next replays get with NaN."""
    for plan in made.records:
        if plan.pool is not None and plan.pool.nbytes:
            address, free = cpu_memory.block(plan.pool.nbytes)
            ctypes.memset(address, 0xFF, plan.pool.nbytes)
            free.append(address)
            for block in plan.claimed:
                ctypes.memset(block.address, 0xFF, block.size)


@settings(max_examples=50, deadline=None)
@given(st.lists(_STEP, min_size=3, max_size=15), st.sampled_from([(3, 4), (5, 8), (16, 16), (1, 7)]), st.integers(0, 99), st.booleans())
def test_random_programs_read_nothing_that_is_gone(steps: Any, shape: tuple[int, int], seed: int, taken: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "FIXED", 0 if taken else memory.FIXED)
        patch.setattr(captured, "shortened", partial(passes.shortened, spoils=True))
        held_against_python(steps, shape, seed, torch.capture, spoil, 3)


class _Attends(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, 2, c // 2).transpose(1, 2) for y in self.qkv(self.ln(x)).split(c, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(x)))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.cell(x)[0])


_MODELS: dict[str, Any] = {
    "attention": (lambda: nn.Sequential(_Attends(32), _Attends(32)), (4, 16, 32)),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, stride=2),
                                           nn.GELU(), nn.Flatten(), nn.Linear(72, 5)), (4, 3, 16, 16)),
    "dropout": (lambda: nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.3), nn.SiLU(), nn.Linear(64, 64), nn.Softmax(-1), nn.Linear(64, 3)), (8, 16)),
    "recurrent": (_Recurrent, (4, 6, 8)),
}


def _step(make: Any, optimizer: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = make()
    steps = optimizer(net.parameters())

    def step(x: Any) -> Any:
        steps.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        steps.step()
        return loss
    return net, step


def trained(name: str) -> Any:
    """A model's captured step, which has gone on as Python's has, its memory spoiled before each call."""
    make, shape = _MODELS[name]
    net, step = _step(make, partial(torch.optim.AdamW, lr=0.01))
    other, plain = _step(make, partial(torch.optim.AdamW, lr=0.01))
    replayed = torch.capture(step)
    g = torch.Generator().manual_seed(1)
    for _ in range(5):
        x = torch.randn(*shape, generator=g)
        spoil(replayed)
        state = torch.get_rng_state()
        wanted = plain(x)
        torch.set_rng_state(state)
        assert same_bits(replayed(x).detach(), wanted.detach())
    for p, q in zip([*net.parameters(), *net.buffers()], [*other.parameters(), *other.buffers()], strict=True):
        assert same_bits(p.detach(), q.detach())
    return replayed


@pytest.mark.parametrize("name", sorted(_MODELS))
@pytest.mark.usefixtures("spoils", "pools")
def test_training_steps_read_nothing_that_is_gone(name: str) -> None:
    replayed = trained(name)
    (plan,) = replayed.records
    assert plan.pool is not None
    assert plan.pool.nbytes == memory.arrange(plan.pool.life.values)
    assert plan.pool.nbytes <= 1.1 * memory.peak(plan.pool.life.values)


@pytest.mark.parametrize(("name", "usual"), [("attention", False), ("attention", True), ("convolutions", True)])
@pytest.mark.usefixtures("spoils", "always_kept")
def test_compiled_steps_read_nothing_that_is_gone(name: str, usual: bool) -> None:
    make, shape = _MODELS[name]
    losses = []
    for compiles in (True, False):
        torch.manual_seed(0)
        net = make()
        steps = torch.optim.AdamW(net.parameters(), lr=0.01)

        def loss_of(x: Any, net: Any = net) -> Any:
            return net(x).square().mean()
        call = torch.compile(loss_of) if usual and compiles else loss_of

        def step(x: Any, call: Any = call, steps: Any = steps) -> Any:
            steps.zero_grad()
            loss = call(x)
            loss.backward()
            steps.step()
            return loss
        whole = torch.compile(step) if compiles and not usual else step
        g = torch.Generator().manual_seed(1)
        losses.append([whole(torch.randn(*shape, generator=g)).item() for _ in range(9)] + [p.tolist() for p in net.parameters()])
        state: Any = (call if usual else whole)
        assert not compiles or any(r.plan.pool is not None for r in state.__compiled__.records)
    assert losses[0] == losses[1]


@pytest.mark.usefixtures("pools")
def test_the_fill_finds_a_value_whose_life_is_told_too_short(spoils: None, monkeypatch: pytest.MonkeyPatch) -> None:
    right = memory._value

    def short(those: Any) -> Any:
        v = right(those)
        v.last = max(v.first, v.last - 1)
        return v
    net = nn.Sequential(nn.Linear(16, 64), nn.Softmax(-1), nn.Linear(64, 16), nn.Softmax(-1), nn.Linear(16, 4))
    x = torch.rand(32, 16)
    with torch.no_grad():
        wanted = net(x)
        good, bad = torch.capture(net), torch.capture(net)
        for _ in range(3):
            assert same_bits(good(x), wanted)
        monkeypatch.setattr(memory, "_value", short)
        bad(x)
        bad(x)
        assert not same_bits(bad(x), wanted)


def test_a_pool_is_taken_for_a_replay_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FIXED", 0)
    w = torch.rand(64, 64)
    f = torch.capture(lambda x: ((x @ w).softmax(-1) @ w).tanh() @ w)
    x = torch.rand(64, 64)
    for _ in range(3):
        f(x)
    (plan,) = f.records
    assert not plan.claimed
    assert plan.pool.nbytes >= 64 * 64 * 4
    free = cpu_memory.size_class(plan.pool.nbytes).free
    before = len(free)
    assert f(x).shape == (64, 64)  # which is dropped
    assert len(free) == before


def test_threads_have_pools_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FIXED", 0)
    w = torch.rand(96, 96)
    work = lambda x: ((x @ w).softmax(-1) @ w).tanh() @ w  # noqa: E731
    f = torch.capture(work)
    xs = [torch.rand(96, 96) for _ in range(4)]
    for _ in range(2):
        f(xs[0])
    wanted = [work(x) for x in xs]
    wrong: list[int] = []

    def many(i: int) -> None:
        for _ in range(50):
            if not same_bits(f(xs[i]), wanted[i]):
                wrong.append(i)
    threads = [Thread(target=many, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 900)), max_size=40))
def test_values_that_live_at_once_lie_apart(those: list[tuple[int, int, int]]) -> None:
    values = [memory.Value(("c", 0), min(a, b), max(a, b), 0, n) for a, b, n in those]
    total = memory.arrange(values)
    assert total >= memory.peak(values)
    assert total == max([v.at + v.nbytes for v in values], default=0)
    for i, v in enumerate(values):
        assert v.at % memory.ALIGN == 0
        for w in values[:i]:
            if v.first <= w.last and w.first <= v.last:
                assert v.at + v.nbytes <= w.at or w.at + w.nbytes <= v.at


def test_a_map_writes_over_what_it_reads_for_the_last_time() -> None:
    def pool(f: Any, *args: Any) -> tuple[int, bool]:
        g = torch.capture(f)
        for k in range(4):
            given = [a + k for a in args]
            assert same_bits(g(*given), f(*given))
        (plan,) = g.records
        return plan.pool.nbytes, any(v.after is not None for v in plan.pool.life.values)
    n = 4 * 4096
    x = torch.rand(4096)

    def summed(change: Any) -> Any:
        def f(x: Any) -> Any:
            y = x.cumsum(0)
            z = change(y)
            return z.cumsum(0)
        return f
    assert pool(summed(lambda y: y * 2), x) == (n, True)
    # it is read at other elements too, or is of another size
    assert not pool(summed(lambda y: y.flip(0) * 2), x)[1]
    assert not pool(summed(lambda y: y.view(64, 64) * y.view(64, 64).t()), x)[1]
    assert not pool(summed(lambda y: y.double() * 2), x)[1]
    assert not pool(summed(lambda y: y[1:] * 2), x)[1]

    def read_later(x: Any) -> Any:
        y = x.cumsum(0)
        z = y * 2
        return z.cumsum(0) + y.cumsum(0)
    assert not pool(read_later, x)[1]


def test_memory_of_which_python_wrote_the_address_stays_where_it_is() -> None:
    f = torch.capture(lambda x: ((x * 2).cumsum(0) - 1).cumsum(0), check=True)
    for _ in range(2):
        f(torch.ones(16))
    (plan,) = f.records
    assert not memory.keeps_addresses(plan)
    inside = plan.claimed[0].address + 8
    plan.steps.append(capture.Write(plan.claimed[0].address, inside.to_bytes(8, "little")))
    assert memory.keeps_addresses(plan)
    steps = passes.shortened(plan)
    assert plan.pool is None
    assert {x for s in steps if not isinstance(s, capture.Write) for _, x in s.addresses()} & {c.address for c in plan.claimed}
