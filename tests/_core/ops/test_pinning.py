"""Page-locked memory and record_stream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import flambeau as torch


@pytest.fixture
def gpu() -> Iterator[None]:
    with torch.simulate(gpus=1, memory="64MiB", queue="lazy"):
        yield


def test_pinned_copies_keep_values_and_are_asynchronous(gpu: None) -> None:
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    for y in (x, x.t()):
        p = y.pin_memory()
        assert p.is_pinned() and not y.is_pinned() and p.tolist() == y.tolist() and p.pin_memory() is p
    p = x.pin_memory()
    there = p.to("cuda", non_blocking=True)
    p.add_(100)  # before the copy has run: as on hardware, it sees this
    assert there.tolist() == (x + 100).tolist()
    there = x.to("cuda", non_blocking=True)
    x.add_(100)  # pageable memory was read before `to` returned
    assert there.tolist() == (x - 100).tolist()


def test_pinned_tensors_carry_gradients(gpu: None) -> None:
    x = torch.ones(3, requires_grad=True)
    (x.pin_memory().to("cuda", non_blocking=True) * 2).backward(torch.ones(3, device="cuda"))
    assert x.grad.tolist() == [2.0] * 3


def test_record_stream_holds_a_block_back(gpu: None) -> None:
    side = torch.cuda.Stream()
    x = torch.ones(1 << 20, device="cuda")
    torch.cuda.synchronize()
    address = x.data_ptr()
    with torch.cuda.stream(side):
        y = x + 1
    x.record_stream(side)
    del x
    z = torch.zeros(1 << 20, device="cuda")
    assert z.data_ptr() != address
    side.synchronize()
    assert torch.zeros(1 << 20, device="cuda").data_ptr() == address and y.tolist()[:2] == [2.0, 2.0]


def test_what_cannot_be_done(gpu: None) -> None:
    with pytest.raises(RuntimeError, match="cannot pin 'cuda:0' memory"):
        torch.ones(2, device="cuda").pin_memory()
    with pytest.raises(RuntimeError, match="record_stream is for tensors on a GPU"):
        torch.ones(2).record_stream(torch.cuda.current_stream())
    with torch.simulate(gpus=0), pytest.raises(RuntimeError, match="no CUDA GPU"):
        torch.ones(2).pin_memory()
