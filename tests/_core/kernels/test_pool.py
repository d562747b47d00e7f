"""The thread pool: every chunk once, whoever calls, from however many threads, after a fork too."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from flambeau._core.kernels import native
from flambeau._core.kernels.llvm import compile as compiler
from flambeau._core.kernels.llvm import entry as entries
from flambeau._core.kernels.llvm import pool

# marks each unit of begin..end in the int64 array at slot 0, and spends block[0] turns on each
IR = """
define void @flambeau_mark(i64 %begin, i64 %end, ptr %args, ptr %block) #0 {
entry:
  %to = load ptr, ptr %args
  %turns = load i64, ptr %block
  br label %loop
loop:
  %k = phi i64 [ %begin, %entry ], [ %k1, %mark ]
  %more = icmp slt i64 %k, %end
  br i1 %more, label %spin, label %done
spin:
  %n = phi i64 [ 0, %loop ], [ %n1, %turn ]
  %again = icmp slt i64 %n, %turns
  br i1 %again, label %turn, label %mark
turn:
  fence seq_cst
  %n1 = add i64 %n, 1
  br label %spin
mark:
  %p = getelementptr i64, ptr %to, i64 %k
  %old = atomicrmw add ptr %p, i64 1 seq_cst
  %k1 = add i64 %k, 1
  br label %loop
done:
  ret void
}
"""


@pytest.fixture(autouse=True)
def threads():
    before = native.get_num_threads()
    yield
    native.set_num_threads(before)


@pytest.fixture(scope="module")
def mark():
    code = compiler.functions(("test pool", IR), ("flambeau_mark",), lambda: IR)["flambeau_mark"]

    def make(total: int, chunk: int, turns: int = 0):
        return native.make_entry([(code, total, chunk)], [turns], 1, parallel=True)
    return make


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize(("total", "chunk"), [(1, 1), (7, 3), (1000, 1), (1000, 999), (1000, 1000), (4096, 64),
                                              (200_000, 1)])
def test_every_unit_once(mark, count, total, chunk) -> None:
    native.set_num_threads(count)
    seen = np.zeros(total + 1, np.int64)
    run = mark(total, chunk)
    for _ in range(100):
        run(seen.ctypes.data)
    assert (seen[:total] == 100).all() and seen[total] == 0


def test_many_callers_at_once(mark) -> None:
    native.set_num_threads(3)
    runs = [(mark(500 + k, 1 + k), np.zeros(500 + k, np.int64)) for k in range(6)]

    def work(k: int) -> None:
        run, seen = runs[k]
        for _ in range(400):
            run(seen.ctypes.data)
    callers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    for _, seen in runs:
        assert (seen == 400).all()


def test_workers_sleep_and_wake(mark) -> None:
    native.set_num_threads(2)
    seen = np.zeros(64, np.int64)
    run = mark(64, 1, 50)
    for k in range(10):
        time.sleep(0.003)
        run(seen.ctypes.data)
        assert (seen == k + 1).all()


def test_idle_workers_take_no_processor_time(mark) -> None:
    native.set_num_threads(4)
    seen = np.zeros(64, np.int64)
    mark(64, 1)(seen.ctypes.data)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.1


def test_workers_take_part(mark) -> None:
    if len(native._cpus()) < 2:
        pytest.skip("one CPU")
    native.set_num_threads(2)
    seen = np.zeros(200, np.int64)
    run = mark(200, 1, 2000)
    run(seen.ctypes.data)
    for _ in range(20):  # other processes may keep the second CPU busy: one time of many is enough
        wall, cpu = time.perf_counter(), time.process_time()
        run(seen.ctypes.data)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if cpu > 1.3 * wall:
            return
    assert (seen == 21).all()
    pytest.skip("no second CPU was free")


def test_threads_are_counted_from_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert native._default_threads() == 3
    monkeypatch.setenv("FLAMBEAU_NUM_THREADS", "5")
    assert native._default_threads() == 5
    monkeypatch.setenv("FLAMBEAU_NUM_THREADS", "many")
    monkeypatch.setenv("OMP_NUM_THREADS", "0")
    assert native._default_threads() == len(native._cpus() or range(os.cpu_count() or 1))


@pytest.mark.parametrize("bad", [0, -1])
def test_the_number_of_threads_is_positive(bad) -> None:
    with pytest.raises(RuntimeError, match="positive"):
        native.set_num_threads(bad)


@pytest.mark.parametrize("bad", [1.5, "2", None, True])
def test_the_number_of_threads_is_an_int(bad) -> None:
    with pytest.raises(TypeError, match="int"):
        native.set_num_threads(bad)


def test_the_number_can_change_between_launches(mark) -> None:
    seen = np.zeros(300, np.int64)
    run = mark(300, 3)
    for k, count in enumerate([1, 4, 2, 6, 1, 3]):
        native.set_num_threads(count)
        assert native.get_num_threads() == count
        run(seen.ctypes.data)
        assert (seen == k + 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_workers_of_its_own(mark) -> None:
    native.set_num_threads(3)
    seen = np.zeros(1 << 18, np.int64)
    run, long = mark(256, 4), mark(1 << 18, 8)
    stop = threading.Event()
    # a job may be running at the very moment of the fork
    busy = threading.Thread(target=lambda: [long(seen.ctypes.data) for _ in iter(stop.is_set, True)])
    busy.start()
    try:
        for _ in range(40):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    left = seen.copy()
                    own = np.zeros(256, np.int64)
                    for _ in range(50):
                        run(own.ctypes.data)
                    code = 0 if (own == 50).all() and native._started == 2 else 2
                    code = code if (seen == left).all() else 3  # nobody goes on with what the parent's thread was at
                finally:
                    os._exit(code)
            deadline = time.monotonic() + 20
            while True:
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    break
                assert time.monotonic() < deadline, "the child hangs"
                time.sleep(0.01)
            assert os.waitstatus_to_exitcode(status) == 0
    finally:
        stop.set()
        busy.join()


SCRIPT = """
import sys
sys.path.insert(0, "tests/_core/kernels")
import numpy as np
from flambeau._core.kernels import native
from flambeau._core.kernels.llvm import compile as compiler, entry, pool
text = pool.text
pool.text = lambda: text(futex=False)
compiled = compiler.functions
compiler.functions = lambda parts, names, write: compiled((*parts, "conditions"), names, write)
import test_pool
code = compiled(("test pool", test_pool.IR), ("flambeau_mark",), lambda: test_pool.IR)["flambeau_mark"]
native.set_num_threads(3)
seen = np.zeros(128, np.int64)
run = native.make_entry([(code, 128, 1)], [20], 1, parallel=True)
import time
for k in range(300):
    run(seen.ctypes.data)
    if k % 30 == 0:
        time.sleep(0.002)
assert (seen == 300).all(), seen
print("fine", native._started)
"""


def test_the_pool_without_futexes() -> None:
    assert "pthread_cond_wait" in pool.text(futex=False)
    assert "@pool_run" in entries.text()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, env=dict(os.environ, PYTHONPATH=root),
                          capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["fine", "2"], done.stderr
