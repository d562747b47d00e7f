"""Forks beside threads: no lock that a child waits for without end, and no half-done import."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from flambeau._core import forks
from tests import processes

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
CHILD = """
import os, sys, threading, time
def forked(work, seconds=15):
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    os.kill(pid, 9)
    raise SystemExit("the child hangs")
"""
FIRST = CHILD + """
def first():
    torch.ones(8).sum().item()
    (torch.randn(20, 20) @ torch.randn(20, 20)).softmax(-1).sum().item()
    torch.linalg.svd(torch.eye(4))
    torch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
    torch.fft.fft(torch.ones(8))
    torch.sort(torch.randn(50))
thread = threading.Thread(target=first)
thread.start()
time.sleep(SLEEP)
forked(first)
thread.join()
"""


@pytest.mark.parametrize("sleep", [0.0, 0.01, 0.03, 0.1, 0.2])
def test_a_fork_beside_a_thread_in_its_first_operations(sleep: float, tmp_path: Path) -> None:
    processes.says(FIRST.replace("SLEEP", str(sleep)))


def test_a_fork_beside_a_thread_that_makes_the_first_calls_builtin() -> None:
    processes.says(CHILD + """
from flambeau._core.kernels.calls import Calls
usual = Calls._made
def slow(self):
    time.sleep(0.5)
    return usual(self)
Calls._made = slow
thread = threading.Thread(target=lambda: torch.ones(3) + 1)
thread.start()
time.sleep(0.2)
forked(lambda: (torch.ones(3) + 1).sum().item())
thread.join()
""")


def test_a_fork_waits_for_an_import_that_another_thread_is_in(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.3)\nvalue = 1\n")
    processes.says(CHILD + f"""
sys.path.insert(0, {str(tmp_path)!r})
thread = threading.Thread(target=lambda: __import__("slow_to_import"))
thread.start()
time.sleep(0.1)
def work():
    import slow_to_import
    assert slow_to_import.value == 1
forked(work)
thread.join()
""")


def test_a_program_that_runs_inside_an_import_is_waited_for_once_and_shortly(tmp_path: Path) -> None:
    (tmp_path / "endless_import.py").write_text("import time\ntime.sleep(60)\n")
    processes.says(CHILD + f"""
sys.path.insert(0, {str(tmp_path)!r})
threading.Thread(target=lambda: __import__("endless_import"), daemon=True).start()
time.sleep(0.1)
began = time.monotonic()
for _ in range(5):
    forked(lambda: torch.ones(3).sum().item())
assert time.monotonic() - began < 5
os._exit(0)
""")


def test_no_lock_of_the_package_is_held_in_a_child_by_a_thread_that_it_has_not() -> None:
    processes.says(CHILD + """
from flambeau._core import forks
one, two = forks.once(), forks.lock()
held, go = threading.Event(), threading.Event()
def hold():
    with one, two:
        held.set()
        go.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
def work():
    assert one.acquire(timeout=5) and two.acquire(timeout=5)
forked(work)
mine = forks.lock()
with mine:  # this thread is the child's too
    forked(lambda: mine.release())
go.set()
thread.join()
assert one.acquire(timeout=5) and two.acquire(timeout=5) and len(forks._locks) > 10
""")


def test_modules_make_their_locks_here() -> None:
    """A module's own lock would be held in a child whenever another thread held it at the fork."""
    here = Path(forks.__file__).parent
    made = re.compile(r"^\w+(: [^=]*)? = threading\.R?Lock\(\)", re.MULTILINE)
    assert [str(p) for p in here.parent.rglob("*.py") if p.name != "forks.py" and made.search(p.read_text())] == []


@pytest.mark.parametrize("sent", ["before", "after"])
def test_an_interrupt_that_falls_into_a_fork_comes_after_it(sent: str) -> None:
    """Python ignores what is raised in functions that it calls at a fork; a loader's worker is such a fork."""
    report = processes.says(f"""
import os, signal, time
from flambeau._core import forks
signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may have it ignored
def first(work, when):
    return lambda *given: (os.kill(os.getpid(), signal.SIGINT) if when(*given) else None, work(*given))[1]
if {sent == "before"}:
    forks._importing = first(forks._importing, lambda: True)
else:
    forks._release = first(forks._release, lambda parent: parent)
pid = -1
try:
    pid = os.fork()
    time.sleep(0.3 if not pid else 20)
    print("not interrupted", "in the child" if not pid else "", flush=True)
except KeyboardInterrupt:
    print("interrupted", "in the child" if not pid else "", flush=True)
if not pid:
    os._exit(0)
os.waitpid(pid, 0)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
""")
    assert sorted(line.strip() for line in report.splitlines()) == ["interrupted", "not interrupted in the child"]


def test_a_thread_may_take_a_lock_again_but_for_one_of_those_that_ask() -> None:
    held, asked = forks.lock(), forks.once()
    with held, held, asked:
        assert not asked.acquire(blocking=False)
    assert asked.acquire(blocking=False)
    asked.release()
