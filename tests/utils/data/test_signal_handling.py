"""Processes that are workers of a library's own loader, and those of them that died; and the thread that pins their batches."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading

import pytest

import flambeau
from flambeau.utils.data import _utils
from flambeau.utils.data._utils import signal_handling


def test_a_worker_that_died_is_an_error():
    for code, text in (("", None), ("raise SystemExit(3)", "exited unexpectedly with exit code 3"),
                       ("import os; os.kill(os.getpid(), 9)", "is killed by signal: 9")):
        worker = subprocess.Popen([sys.executable, "-c", code])
        signal_handling._set_worker_pids(7, (worker.pid,))
        with pytest.raises(ValueError, match="only once"):
            signal_handling._set_worker_pids(7, ())
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        if text is None:
            signal_handling._error_if_any_worker_fails()
        else:
            with pytest.raises(RuntimeError, match=text):
                signal_handling._error_if_any_worker_fails()
        worker.wait()
        signal_handling._error_if_any_worker_fails()  # its end was asked for
        signal_handling._remove_worker_pids(7)
    with pytest.raises(ValueError, match="Cannot find worker information"):
        signal_handling._remove_worker_pids(7)


class Unpinnable:
    def pin_memory(self):
        raise ValueError("cannot be pinned")


def test_batches_are_pinned_by_a_thread(device):
    if device == "cpu":
        pytest.skip("memory is pinned for a GPU")
    given, taken, done = queue.Queue(), queue.Queue(), threading.Event()
    thread = threading.Thread(target=_utils.pin_memory._pin_memory_loop, args=(given, taken, 0, done), daemon=True)
    thread.start()
    try:
        given.put((4, {"a": flambeau.arange(3)}))
        given.put((5, Unpinnable()))
        number, batch = taken.get(timeout=30)
        assert number == 4 and batch["a"].tolist() == [0, 1, 2] and batch["a"].is_pinned()
        number, failure = taken.get(timeout=30)
        assert number == 5
        with pytest.raises(ValueError, match="cannot be pinned"):
            failure.reraise()
    finally:
        done.set()
        given.put((6, None))
        thread.join(30)
    assert not thread.is_alive()


def test_a_worker_knows_whether_its_starter_lives():
    watch = _utils.worker.ManagerWatchdog()
    assert watch.is_alive()
    watch.manager_pid = -1
    assert not watch.is_alive() and watch.manager_dead
    assert _utils.worker._ResumeIteration(3).seed == 3 and _utils.worker._IterableDatasetStopIteration(2).worker_id == 2
