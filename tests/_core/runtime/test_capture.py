"""Captures: what a thread's call asked of its device, in order."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.runtime import capture, generators
from flambeau._core.runtime.capture import Capture, Draw, Launch, Read, Unrepeatable, Write


def test_launches_reads_writes_and_draws_come_in_order() -> None:
    x = torch.ones(3)
    (x + x).sum().item()
    with Capture() as found:
        y = x + x
        total = y.sum()
        assert total.item() == 6
        made = torch.tensor([1.0, 2.0])
        torch.rand(2)
    assert not capture.active
    kinds = [type(s) for s in found.steps]
    assert [k for k in kinds if k is not Launch] == [Read, Write, capture.Lent] and kinds[0] is Launch and kinds[-1] is Launch
    first, read, write = found.steps[0], next(s for s in found.steps if isinstance(s, Read)), next(s for s in found.steps if isinstance(s, Write))
    assert isinstance(first, Launch) and first.prepared.name == "add" and first.args == (y.data_ptr(), x.data_ptr(), x.data_ptr())
    assert (read.address, read.value) == (total.data_ptr(), np.float32(6.0).tobytes()) and (write.address, len(write.data)) == (made.data_ptr(), 8)


def test_draws_leave_the_generator_where_it_is_and_are_the_same_for_the_same_streams() -> None:
    before = torch.get_rng_state()
    found = []
    for streams in (1, 1, 2):
        with Capture(streams) as captured:
            generators.default(torch.device("cpu")).take(3)
            made = torch.rand(3)
        found.append((next(s.made for s in captured.steps if isinstance(s, Draw)), made.tolist()))
    assert found[0] == found[1] and min(found[0][0]) >= 1 << 62
    assert all(a != b for a, b in zip(found[0], found[2], strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_what_cannot_be_repeated_ends_it() -> None:
    x = torch.ones(1000)
    for work in (x.tolist, x.numpy, lambda: torch.manual_seed(3), lambda: x[:].numpy()):
        with pytest.raises(Unrepeatable), Capture():
            try:
                work()
            except Exception:  # as bodies do
                raise AssertionError("it is no Exception") from None
    assert not capture.active
    with Capture(), pytest.raises(RuntimeError, match="do not nest"):
        Capture().__enter__()


def test_other_threads_are_not_seen_and_may_capture_too() -> None:
    x = torch.ones(3)
    seen: list[int] = []

    def work() -> None:
        torch.rand(3).tolist()
        with Capture() as mine:
            x.exp()
        seen.append(len(mine.steps))
    with Capture() as found:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        x.cos()
    assert seen == [1] and [s.prepared.name for s in found.steps if isinstance(s, Launch)] == ["cos"]


def test_who_holds_learned_plans_back() -> None:
    assert not capture.now.watched
    capture.now.hold(1)
    capture.now.hold(1)
    capture.now.hold(-1)
    assert capture.now.watched
    capture.now.hold(-1)
    assert not capture.now.watched
