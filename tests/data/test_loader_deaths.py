"""Whatever dies, and whenever: the right error within seconds, and no process, thread or shared memory is left."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import flambeau
from flambeau.data import DataLoader, Dataset, IterableDataset, pinning, pool

SECONDS = 8.0  # for a case to end; far above what any takes, far below a hang
BIG = 40_000  # elements of a sample: its batches go through shared memory


class Items(Dataset):
    """12 samples; at one of them what `plan` says happens to the process that makes it."""

    def __init__(self, plan="", at=5):
        self.plan, self.at = plan, at

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i == self.at:
            if self.plan == "raise":
                raise KeyError(f"item {i} is bad")
            if self.plan == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.plan == "exit":
                os._exit(3)
            if self.plan == "hang":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(60)
        return flambeau.full((BIG,), float(i)), i


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def shared_memory():
    with open("/proc/self/maps") as f:
        mapped = sum("flambeau-shared" in line for line in f)
    return mapped, {name for name in os.listdir("/dev/shm") if "flambeau" in name}


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class Clean:
    """Nothing is left of what a `with` block started."""

    def __enter__(self):
        gc.collect()
        self.pids = set()
        self.memory, self.fds = shared_memory(), descriptors()
        self.threads = {t for t in threading.enumerate() if t.name == "flambeau-pin"}
        self.start = time.monotonic()
        return self

    def saw(self, iterator):
        self.pids |= {w.pid for w in getattr(iterator, "_pool", pool).workers} if hasattr(iterator, "_pool") else set()
        return iterator

    def __exit__(self, kind, *rest):
        if kind is not None:
            return
        gc.collect()
        assert time.monotonic() - self.start < SECONDS
        assert not [pid for pid in self.pids if running(pid)]
        assert shared_memory() == self.memory
        assert {t for t in threading.enumerate() if t.name == "flambeau-pin"} <= self.threads
        assert descriptors() <= self.fds


@pytest.fixture(scope="module", autouse=True)
def gpu():
    """A GPU to pin memory for."""
    with flambeau.simulate(gpus=1):
        flambeau.ones(2).to("cuda")  # used, as in a program that trains
        yield


def loader_of(data, workers, pin, persistent, **more):
    return DataLoader(data, batch_size=2, num_workers=workers, pin_memory=pin, persistent_workers=persistent, **more)


def read(clean, loader, most=99):
    """The classes of the batches, the numbers checked."""
    seen = []
    for images, classes in clean.saw(iter(loader)):
        assert images.is_pinned() == loader.pin_memory
        assert images[:, 7].tolist() == classes.tolist() and images.shape == (2, BIG)
        seen.append(classes.tolist())
        if len(seen) == most:
            break
    return seen


ALL = [[2 * i, 2 * i + 1] for i in range(6)]
MATRIX = [pytest.param(w, p, k, id=f"workers{w}-pin{int(p)}-persistent{int(k)}")
          for w in (0, 2) for p in (False, True) for k in (False, True) if w or not k]


def caught(kind, clean, loader, most=99):
    """The text of the exception that reading raises; the exception, which keeps frames alive, is gone."""
    try:
        read(clean, loader, most)
    except kind as error:
        assert type(error) is kind
        return str(error)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("pin", [False, True])
def test_persistent_workers_need_workers(pin):
    with pytest.raises(ValueError, match="persistent_workers option needs num_workers > 0"):
        loader_of(Items(), 0, pin, True)


@pytest.mark.parametrize("workers,pin,persistent", MATRIX)
class TestMatrix:
    def test_normal(self, workers, pin, persistent):
        with Clean() as clean:
            loader = loader_of(Items(), workers, pin, persistent)
            assert read(clean, loader) == ALL and read(clean, loader) == ALL
            assert len(clean.pids) == (0 if not workers else workers if persistent else 2 * workers)
            del loader

    def test_loader_error(self, workers, pin, persistent):
        """The loop that reads raises, or is left, and the next one starts over."""
        with Clean() as clean:
            loader = loader_of(Items(), workers, pin, persistent)

            def loop(loader):
                for _ in clean.saw(iter(loader)):
                    raise ArithmeticError("a bad step")

            with pytest.raises(ArithmeticError, match="a bad step"):
                loop(loader)
            assert read(clean, loader, most=2) == ALL[:2]
            assert read(clean, loader) == ALL
            del loader

    def test_loader_killed(self, workers, pin, persistent, tmp_path):
        dead_loader(workers, pin, persistent, "fork", tmp_path)

    def test_worker_error(self, workers, pin, persistent):
        with Clean() as clean:
            loader = loader_of(Items("raise"), workers, pin, persistent)
            text = caught(KeyError, clean, loader)
            assert "item 5 is bad" in text
            if workers:
                assert text.startswith("Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n")
                assert "in __getitem__" in text
            it = clean.saw(iter(loader))  # the batches around the bad one are there
            assert [next(it)[1].tolist() for _ in range(2)] == ALL[:2]
            with pytest.raises(KeyError):
                next(it)
            if workers:
                assert [b[1].tolist() for b in it] == ALL[3:]
            del it, loader

    def test_worker_killed(self, workers, pin, persistent, tmp_path):
        if not workers:  # what makes the batches is the process that reads
            dead_loader(workers, pin, persistent, None, tmp_path, "kill")
            return
        with Clean() as clean:
            loader = loader_of(Items("kill"), workers, pin, persistent)
            text = caught(RuntimeError, clean, loader)
            assert "DataLoader worker (pid(s) " in text and "exited unexpectedly" in text and "SIGKILL" in text
            it = clean.saw(iter(loader))  # a new try has new workers
            first = next(it)[1].tolist()
            assert first == ALL[0]
            for _ in range(2):  # and says it again rather than end as if all were read
                with pytest.raises(RuntimeError, match="exited unexpectedly"):
                    list(it)
            del it, loader

    @pytest.mark.parametrize("how", ["raises", "dies"])
    def test_pin_thread(self, workers, pin, persistent, how, monkeypatch):
        real, count = pinning.pin, iter(range(1000))

        def pin_some(data, device=None):
            if next(count) == 2:
                raise ValueError("no more pages") if how == "raises" else SystemExit
            return real(data, device)

        monkeypatch.setattr(pinning, "pin", pin_some)
        monkeypatch.setattr(threading, "excepthook", lambda args: None)  # pytest's keeps the exception, and with it the batch
        with Clean() as clean:
            loader = loader_of(Items(), workers, pin, persistent)
            if not pin:
                assert read(clean, loader) == ALL
            elif how == "raises":
                text = caught(ValueError, clean, loader)
                assert "no more pages" in text and ("Caught ValueError in pin memory thread" in text) == bool(workers)
            elif workers:
                assert caught(RuntimeError, clean, loader) == "Pin memory thread exited unexpectedly"
            else:
                caught(SystemExit, clean, loader)
            assert read(clean, loader) == ALL
            del loader


PARENT = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import flambeau
from test_loader_deaths import Items, loader_of
if __name__ == "__main__":
    with flambeau.simulate(gpus=1):
        loader = loader_of(Items({plan!r}, at=2), {workers}, {pin}, {persistent}, multiprocessing_context={context!r})
        it = iter(loader)
        batch = next(it)
        print([w.pid for w in it._pool.workers] if {workers} else [], flush=True)
        if {plan!r}:
            next(it)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def dead_loader(workers, pin, persistent, context, tmp_path, plan=""):
    """The process that reads is killed: its workers end by themselves, and take the memory with them."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(tests=os.path.dirname(__file__), workers=workers, pin=pin, persistent=persistent,
                                    context=context if workers else None, plan=plan))
    before = shared_memory()
    env = os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(flambeau.__file__))}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.strip("[]\n").split(",") if pid]
    assert len(pids) == workers
    end = time.monotonic() + 5
    while any(running(pid) for pid in pids):
        assert time.monotonic() < end, "workers outlive their loader"
        time.sleep(0.01)
    assert shared_memory() == before


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_other_starts_die_alike(context, tmp_path):
    dead_loader(2, True, False, context, tmp_path)
    first = multiprocessing.get_context(context).Process(target=int)  # Python's own helpers start with it, and stay
    first.start()
    first.join()
    first.close()
    with Clean() as clean:
        loader = loader_of(Items("kill"), 1, False, False, multiprocessing_context=context)
        assert "SIGKILL" in caught(RuntimeError, clean, loader)
        loader = loader_of(Items(), 1, True, True, multiprocessing_context=context)
        assert read(clean, loader) == ALL == read(clean, loader)
        del loader


def test_a_worker_that_exits_says_how():
    with Clean() as clean:
        loader = loader_of(Items("exit", at=0), 1, False, False)
        assert "ended with exit code 3" in caught(RuntimeError, clean, loader)
        del loader


def test_a_worker_that_will_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(pool, "_GRACE", 0.2)
    with Clean() as clean:
        loader = loader_of(Items("hang", at=2), 2, True, False)
        assert read(clean, loader, most=1) == ALL[:1]
        del loader
    with Clean() as clean:
        loader = loader_of(Items("hang", at=2), 2, False, True, timeout=0.3)
        assert caught(RuntimeError, clean, loader) == "DataLoader timed out after 0.3 seconds"
        del loader


def _orphan(worker):
    """Leaves a grandchild that holds everything the worker had open."""
    if os.fork() == 0:
        time.sleep(2.5)
        os._exit(0)


@pytest.mark.parametrize("pin", [False, True])
def test_a_grandchild_does_not_hide_a_death(pin):
    with Clean() as clean:
        loader = loader_of(Items("kill"), 2, pin, False, worker_init_fn=_orphan)
        assert "exited unexpectedly" in caught(RuntimeError, clean, loader)
        assert time.monotonic() - clean.start < 2
        del loader


@pytest.mark.parametrize("pin", [False, True])
def test_a_worker_killed_while_idle(pin):
    with Clean() as clean:
        loader = loader_of(Items(), 2, pin, True)
        assert read(clean, loader) == ALL
        os.kill(min(clean.pids), signal.SIGKILL)
        time.sleep(0.05)
        assert "exited unexpectedly" in caught(RuntimeError, clean, loader)
        assert read(clean, loader) == ALL
        del loader


class Unsendable(IterableDataset):
    def __init__(self, thing):
        self.thing = thing

    def __iter__(self):
        yield 1
        yield {"lambda": lambda: 0, "grad": flambeau.ones(2, requires_grad=True) * 2, "local": None}[self.thing]
        yield 3


@pytest.mark.parametrize("thing,text", [("lambda", "local object"), ("grad", "detach")])
def test_a_batch_that_cannot_be_sent_is_an_error_not_a_hang(thing, text):
    with Clean() as clean:
        it = clean.saw(iter(DataLoader(Unsendable(thing), batch_size=None, num_workers=1)))
        assert next(it) == 1
        with pytest.raises(Exception, match=text) as error:
            next(it)
        assert "sending a batch from DataLoader worker process 0" in str(error.value)
        assert next(it) == 3 and list(it) == []
        del it, error


def test_an_exception_of_a_local_type_or_with_other_arguments():
    class Local(Exception):
        pass

    class Fails(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            if i == 0:
                raise Local("here")
            raise UnicodeDecodeError("utf-8", b"x", 0, 1, "bad byte")

    it = iter(DataLoader(Fails(), num_workers=1))
    with pytest.raises(RuntimeError, match="Caught Local in DataLoader worker process 0"):
        next(it)
    with pytest.raises(RuntimeError, match="Caught UnicodeDecodeError in DataLoader worker process 0"):
        next(it)


class UsesGpu(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, i):
        return flambeau.ones(2).to("cuda")


def test_a_gpu_in_a_forked_worker_is_a_clear_error():
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess"):
        list(DataLoader(UsesGpu(), num_workers=1))


def test_a_gpu_tensor_cannot_be_sent(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_SIM_GPUS", "1")  # the worker starts from nothing and has a GPU of its own
    with pytest.raises(RuntimeError, match="a DataLoader worker cannot send a tensor on cuda:0: return CPU tensors, and move the batch"):
        list(DataLoader(UsesGpu(), num_workers=1, multiprocessing_context="spawn"))


def test_batches_outlive_their_workers():
    with Clean():
        kept = list(loader_of(Items(), 2, False, False))
        arrays = [images.numpy() for images, _ in kept]
        gc.collect()
        assert shared_memory()[0] >= 6
        assert [float(images.sum()) / BIG for images, _ in kept] == [4 * i + 1 for i in range(6)]
        del kept
        assert [float(a[1, 0]) for a in arrays] == [1, 3, 5, 7, 9, 11]
        del arrays


def test_memory_goes_round():
    """Segments are written again when their batches have died, and never before."""
    class Many(Items):
        def __len__(self):
            return 200

    with Clean():
        kept, most = [], 0
        for n, (images, classes) in enumerate(DataLoader(Many(), batch_size=2, num_workers=2)):
            if n % 10 == 0:
                kept.append((images, classes))
            most = max(most, shared_memory()[0])
        assert len(kept) == 10 and most <= 10 + 2 * 5
        assert all((images == classes.unsqueeze(1)).all() for images, classes in kept)
        del kept, images, classes


def test_a_forked_child_leaves_the_workers_alone():
    with Clean() as clean:
        loader = loader_of(Items(), 2, True, True)
        it = clean.saw(iter(loader))
        next(it)
        child = os.fork()
        if child == 0:
            try:
                del it
                ok = [b[1].tolist() for b in loader_of(Items(), 1, False, False)] == ALL and loader._iterator.usable() is False
            except BaseException:
                ok = False
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(it)) == 5
        del it, loader


ENDING = """
import os, sys, time
sys.path.insert(0, {tests!r})
import flambeau
from test_loader_deaths import Items, loader_of
if __name__ == "__main__":
    with flambeau.simulate(gpus=1):
        kept, left = loader_of(Items(), 1, True, True), loader_of(Items(), 1, False, False)
        one, two = iter(kept), iter(left)
        next(one), next(two)
        print([w.pid for it in (one, two) for w in it._pool.workers], flush=True)
        if {how!r} == "raises":
            raise ValueError("the program's own")
        if {how!r} != "ends":
            next(iter(loader_of(Items("hang", at=0), 1, True, False)))
"""


@pytest.mark.parametrize("how,code,words", [("ends", 0, ""), ("raises", 1, "the program's own"),
                                            ("SIGINT", -signal.SIGINT, "KeyboardInterrupt"), ("SIGTERM", -signal.SIGTERM, "")])
def test_a_program_ends_with_loaders_open(how, code, words, tmp_path):
    """However it ends: no worker stays, and nothing is said but what the program says itself."""
    script = tmp_path / "program.py"
    script.write_text(ENDING.format(tests=os.path.dirname(__file__), how=how))
    env = os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(flambeau.__file__))}
    p = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                         start_new_session=True)
    pids = [int(pid) for pid in p.stdout.readline().strip("[]\n").split(",")]
    if how.startswith("SIG"):
        time.sleep(0.2)
        (os.killpg if how == "SIGINT" else os.kill)(p.pid, getattr(signal, how))
    start = time.monotonic()
    _, said = p.communicate(timeout=30)
    assert p.returncode == code and time.monotonic() - start < 4
    assert words in said and said.count("Traceback") == (1 if words else 0)
    end = time.monotonic() + 5
    while any(running(pid) for pid in pids):
        assert time.monotonic() < end, "workers outlive the program"
        time.sleep(0.01)


def test_systems_without_descriptors_of_processes(monkeypatch):
    """Where the channel and Python's own pipes are all that tells of a death."""
    monkeypatch.delattr(os, "pidfd_open")
    with Clean() as clean:
        for pin in (False, True):
            loader = loader_of(Items(), 2, pin, True)
            assert read(clean, loader) == ALL == read(clean, loader)
            loader = loader_of(Items("kill"), 2, pin, False)
            assert "SIGKILL" in caught(RuntimeError, clean, loader)
            del loader
