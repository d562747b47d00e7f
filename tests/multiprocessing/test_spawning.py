"""spawn and start_processes: results through shared tensors, and how failures come back."""

from __future__ import annotations

import os
import signal
import time

import pytest

import flambeau
import flambeau.multiprocessing as mp


def _write(i, out, fail=None):
    out[i] = 10 * i + 1
    if fail == "raise" and i == 1:
        raise ValueError("rank 1 is bad")
    if fail == "kill" and i == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if fail == "exit" and i == 1:
        os._exit(3)
    if fail is not None:
        time.sleep(30)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_results_come_through_shared_tensors(method):
    out = flambeau.zeros(2).share_memory_()
    assert mp.start_processes(_write, (out,), nprocs=2, start_method=method) is None
    assert out.tolist() == [1, 11]


def test_spawn_gives_a_context_when_it_does_not_wait():
    out = flambeau.zeros(1).share_memory_()
    context = mp.spawn(_write, (out,), nprocs=1, join=False)
    assert len(context.pids()) == 1
    while not context.join(timeout=10):
        pass
    assert out.tolist() == [1] and context.join()


@pytest.mark.parametrize("fail,kind,text", [
    ("raise", mp.ProcessRaisedException, r"-- Process 1 terminated with the following error:\nTraceback(.|\n)*rank 1 is bad"),
    ("kill", mp.ProcessExitedException, "process 1 terminated with signal SIGKILL"),
    ("exit", mp.ProcessExitedException, "process 1 terminated with exit code 3"),
])
def test_the_first_failure_ends_all(fail, kind, text):
    start = time.monotonic()
    with pytest.raises(kind, match=text) as caught:
        mp.start_processes(_write, (flambeau.zeros(2).share_memory_(), fail), nprocs=2, start_method="fork")
    assert caught.value.error_index == 1 and time.monotonic() - start < 10
    if fail == "exit":
        assert caught.value.exit_code == 3
