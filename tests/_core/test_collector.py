"""Blocks in which nothing is collected: of several threads at once, in a program that had turned the collector off, and in a child of a fork."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from flambeau._core import collector
from tests import processes


def test_blocks_within_blocks() -> None:
    assert gc.isenabled()
    with collector.held():
        with collector.held():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_stays_off_where_the_program_turned_it_off() -> None:
    gc.disable()
    try:
        with collector.held():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_block_that_ends_leaves_that_of_another_thread() -> None:
    inside, end, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        with collector.held():
            inside.set()
            end.wait(30)
            seen.append(gc.isenabled())
    thread = threading.Thread(target=other)
    with collector.held():
        thread.start()
        assert inside.wait(30)
    seen.append(gc.isenabled())
    end.set()
    thread.join()
    assert seen == [False, False] and gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_has_none_of_the_blocks_of_other_threads() -> None:
    processes.says("""
import gc, os, threading
from flambeau._core import collector
inside, end = threading.Event(), threading.Event()
def other():
    with collector.held():
        inside.set()
        end.wait(30)
thread = threading.Thread(target=other)
thread.start()
inside.wait(30)
pid = os.fork()
if not pid:
    os._exit(0 if gc.isenabled() and not collector._holders else 1)
assert os.waitpid(pid, 0)[1] == 0
with collector.held():
    pid = os.fork()
    if not pid:
        collector._give()
        os._exit(0 if gc.isenabled() and not collector._holders else 1)
assert os.waitpid(pid, 0)[1] == 0
end.set()
thread.join()
assert gc.isenabled()
""")
