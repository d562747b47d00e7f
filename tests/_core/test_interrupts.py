"""Signals that wait while something would be left half changed; and Ctrl-C at any moment of a program whose calls are learned."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from flambeau._core import interrupts
from tests import processes


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """What a handler of two signals was called with; it raises at the first."""
    came: list[int] = []

    def handler(number: int, frame: Any) -> None:
        came.append(number)
        if number == signal.SIGUSR1:
            raise KeyboardInterrupt
    before = {n: signal.signal(n, handler) for n in (signal.SIGUSR1, signal.SIGUSR2)}
    yield came
    for n, old in before.items():
        assert signal.signal(n, old) is handler


def test_what_comes_meanwhile_comes_when_the_block_ends(heard: list[int]) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):
        with interrupts.held():
            with interrupts.held():
                signal.raise_signal(signal.SIGUSR1)
            done.append(list(heard))
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR2)
            done.append(list(heard))
    assert done == [[], []] and heard == [signal.SIGUSR1, signal.SIGUSR2]  # each once
    with interrupts.held():
        pass
    assert len(heard) == 2


def test_an_error_of_the_block_passes(heard: list[int]) -> None:
    with pytest.raises(ValueError, match="own"), interrupts.held():
        signal.raise_signal(signal.SIGUSR2)
        raise ValueError("own")
    assert heard == [signal.SIGUSR2]
    with pytest.raises(KeyboardInterrupt) as caught, interrupts.held():
        signal.raise_signal(signal.SIGUSR1)
        raise ValueError("own")
    assert isinstance(caught.value.__context__, ValueError)


def test_blocks_of_other_threads_hold_nothing(heard: list[int]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def block() -> None:
        with interrupts.held():
            inside.set()
            leave.wait()
    thread = threading.Thread(target=block)
    thread.start()
    inside.wait()
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        leave.set()
        thread.join()


PROGRAM = """
import random, signal, time
from tests._core.runtime import guard_pages
guard_pages.install(lists=True)
from flambeau._core.engine import learning
from flambeau._core.runtime import caches, capture
learning.AFTER, learning._HOPELESS, learning._DOUBLES = 1, 1 << 30, 1 << 30
F, r = torch.nn.functional, random.Random(SEED)
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
def program():
    x, w, at, out = torch.arange(24.0).reshape(4, 6) / 7, torch.ones(6, requires_grad=True) * 1, torch.tensor([3, 1]), torch.empty(0)
    a = F.layer_norm(x, (6,), w)
    b = torch.einsum("ij,kj->ik", torch.sort(torch.cumsum(a, 1), 1)[0], a).index_select(0, at)
    torch.tril(x, out=out)
    out.index_add_(0, at, x[:2]).mul_(2)
    loss = (F.gelu(b).softmax(-1) * b).sum() + out.sum() + torch.var_mean(a, 1)[0].sum() + F.cross_entropy(b, torch.tensor([1, 0]))
    return loss.item(), torch.autograd.grad(loss, w)[0].tolist(), out.tolist()
learning.on = False
want = program()
learning.on = True
came, most, least = 0, 0.02, time.monotonic() + 3
while came < 300 or time.monotonic() < least:
    if r.random() < 0.1:
        caches.forget()  # and learns anew
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-6 + r.random() * r.choice([0.004, most]))
        made = program()
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert made == want, made
    except KeyboardInterrupt:
        came += 1
    finally:
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                break
            except KeyboardInterrupt:
                pass
    state = torch.is_grad_enabled(), capture.active, caches.world, capture.redrawing, capture._repeating, capture.now.watched
    assert state == (True, {}, 0, {}, {}, False), state
    if came % 50 == 0:
        guard_pages.sweep()  # ends the process where a block was given back twice
for _ in range(6):
    assert program() == want
print(came, len(learning.learned))
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_an_interrupt_at_any_moment_leaves_nothing_half_changed(seed: int) -> None:
    came, learned = map(int, processes.says(PROGRAM.replace("SEED", str(seed))).split())
    assert came >= 300 and learned > 5
