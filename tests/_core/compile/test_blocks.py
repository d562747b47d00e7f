"""The blocks that a record holds are its device's, off the free lists until they are dropped."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._core.compile import blocks
from flambeau._core.runtime.device import CPU


@pytest.fixture(params=["cpu", "cuda"])
def dev(request: Any) -> Any:
    with torch.simulate(gpus=1, model="T4"):
        yield CPU if request.param == "cpu" else torch.zeros(1, device="cuda").device


@pytest.mark.parametrize("nbytes", [100, 5000, 1 << 21])
def test_a_claimed_block_is_given_to_nobody(dev: Any, nbytes: int) -> None:
    own = blocks.of(dev)
    t = torch.empty(nbytes, dtype=torch.uint8, device=dev)
    start, size = own.whole(t.data_ptr() + nbytes - 1)
    assert start == t.data_ptr() and size >= nbytes and own.claim(start, size) is None
    del t
    held = own.claim(start, size)
    assert held.address == start and own.claim(start, size) is None
    others = [torch.empty(nbytes, dtype=torch.uint8, device=dev) for _ in range(3)]
    assert all(o.data_ptr() != start for o in others)
    del held
    assert own.claim(start, size) is not None


def test_a_block_that_is_taken_counts_as_in_use(dev: Any) -> None:
    own = blocks.of(dev)
    before = own.allocated()
    held = own.take(3000)
    assert held.size >= 3000 and own.allocated() >= before + 3000 and own.claim(held.address, held.size) is None
    del held
    assert own.allocated() == before
