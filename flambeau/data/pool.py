"""A loader's worker processes, seen from the loader."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from .batch_transport import Unpacker
from .channel import Channel, pair
from .failure import Failure
from .workers import ERROR, Job, main

if TYPE_CHECKING:
    from collections.abc import Callable

_GRACE = 5.0  # seconds for a worker to end what it is doing
_open: weakref.WeakSet[Pool] = weakref.WeakSet()
_starting: set[socket.socket] = set()  # loaders' ends for processes on their way
DEAD = -1


class Event(NamedTuple):
    """What a worker said: `kind` is BATCH, END or ERROR (of `workers`), or DEAD with a text for content."""

    kind: int
    worker: int
    epoch: int
    number: int
    content: Any


class _Worker:
    """One process and the loader's end of its channel."""

    def __init__(self, context: Any, job: Job) -> None:
        here, there = pair()
        self.channel = Channel(here)
        self.unpacker = Unpacker()
        self.id = job.id
        self.alive = True
        self.pidfd: int | None = None
        self.process = context.Process(target=main, args=(there, job), daemon=True, name=f"DataLoader-{job.id}")
        _starting.add(here)
        try:
            with warnings.catch_warnings():
                # Python warns of every fork beside threads. Ours hold no lock of Python's, and the child never uses them.
                warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
                self.process.start()
        except BaseException:
            here.close()
            raise
        finally:
            _starting.discard(here)
            there.close()
        self.pid = self.process.pid
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.pidfd = os.pidfd_open(self.pid)
        # Tells of the death even if a grandchild holds the channel open.
        self.death: int = self.process.sentinel if self.pidfd is None else self.pidfd

    def tell(self, message: Any) -> None:
        """Sends to the worker; a dead one is noticed when it is listened to."""
        with contextlib.suppress(ConnectionError):
            self.channel.send(pickle.dumps(message, 5))

    def returned(self) -> list[int]:
        """Numbers of segments it may use again."""
        home = self.unpacker.returned
        numbers = []
        while home:
            numbers.append(home.popleft())
        return numbers

    def wait(self, seconds: float) -> int | None:
        """Its exit code, once it has ended; None after so many seconds.

        `Process.join` would wait for an inherited pipe, which a grandchild may hold.
        """
        if self.pidfd is None:
            self.process.join(seconds)
            return self.process.exitcode  # type: ignore[no-any-return]
        if not _readable(self.pidfd, seconds):
            return None
        end = time.monotonic() + 1.0
        while self.process.exitcode is None and time.monotonic() < end:  # a fork server tells a little later
            time.sleep(0.001)
        return self.process.exitcode  # type: ignore[no-any-return]

    def close(self) -> None:
        self.channel.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        self.unpacker.close()

    def obituary(self) -> str:
        """How it ended."""
        code = self.wait(1.0)
        if code is None:
            return f"DataLoader worker (pid(s) {self.pid}) exited unexpectedly: it closed its connection"
        if code >= 0:
            how = f"with exit code {code}; its error output may say why"
        else:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"signal {-code}"
            how = f"killed by signal {-code} ({name})"
            if name == "SIGKILL":
                how += "; if nobody killed it, the system has run out of memory"
        return f"DataLoader worker (pid(s) {self.pid}) exited unexpectedly: worker {self.id} ended {how}"


def context_of(given: Any) -> Any:
    """The multiprocessing context for `DataLoader(multiprocessing_context=given)`: a name, a context or None.

    None is what `multiprocessing.set_start_method` chose; where nothing was chosen, fork on Linux, since it starts at once
    and shares the data set, and the platform's default elsewhere.
    """
    if given is None:
        chosen = multiprocessing.get_start_method(allow_none=True)
        return multiprocessing.get_context(chosen or ("fork" if sys.platform == "linux" else None))
    if isinstance(given, str):
        known = multiprocessing.get_all_start_methods()
        if given not in known:
            raise ValueError(f"multiprocessing_context option should specify a valid start method in {known!r}, but got "
                             f"multiprocessing_context={given!r}")
        return multiprocessing.get_context(given)
    if not isinstance(given, multiprocessing.context.BaseContext):
        raise TypeError("multiprocessing_context option should be a valid context object or a string specifying the start method, but "
                        f"got multiprocessing_context={given}")
    return given


class Pool:
    """`count` workers. Tasks go to each by `put`; what they answer comes from `receive`, which one thread calls."""

    def __init__(self, context: Any, dataset: Any, make_fetch: Callable[..., Any], count: int, seed: int,
                 init: Callable[[int], Any] | None) -> None:
        import numpy.random  # noqa: F401, ICN001  the workers seed it, and would each import it after a fork

        self.owner = os.getpid()
        self.closed = False
        self.workers: list[_Worker] = []
        self.helper: threading.Thread | None = None  # who else listens, and has to end with the workers
        self._bell, self._clapper = socket.socketpair()
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        self._ready: list[int] = []
        self._by_fd: dict[int, _Worker] = {}
        self._closing = threading.Lock()
        _open.add(self)
        try:
            for i in range(count):
                worker = _Worker(context, Job(i, count, seed, dataset, make_fetch, init, self.owner))
                self.workers.append(worker)
                for descriptor in (worker.channel.fileno(), worker.death):
                    self._by_fd[descriptor] = worker
                    self._poll.register(descriptor, select.POLLIN)
        except BaseException:
            self.close()
            raise

    def put(self, worker: int, epoch: int, number: int | None, entry: Any) -> None:
        """Gives a task to a worker. number None: an iteration begins, tasks of earlier ones are void."""
        w = self.workers[worker]
        w.tell((epoch, number, entry, w.returned()))

    def receive(self, timeout: float | None = None) -> Event | None:
        """The next thing a worker says; None when the pool is being closed.

        Raises TimeoutError after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            while self._ready:
                descriptor = self._ready.pop(0)
                worker = self._by_fd.get(descriptor)
                if worker is None:
                    return None  # the bell
                if not worker.alive:
                    continue
                channel = worker.channel.fileno()
                if descriptor != channel and channel in self._ready:
                    self._ready.remove(channel)  # what it had to say before it died comes now
                if descriptor == channel or _readable(channel):
                    received = worker.channel.receive()
                    if received is not None:
                        try:
                            opened = worker.unpacker.open(*received)
                        except Exception as error:  # no room for another mapping, say
                            text = f"DataLoader cannot take what worker {worker.id} (pid(s) {worker.pid}) sent: {error!r}"
                            return Event(DEAD, worker.id, 0, 0, text)
                        if opened is None:
                            continue
                        (kind, epoch, number), content = opened
                        try:
                            return Event(kind, worker.id, epoch, number, content())
                        except Exception as error:
                            where = f"receiving a batch of DataLoader worker process {worker.id}"
                            return Event(ERROR, worker.id, epoch, number, Failure(error, where))
                return self._bury(worker)
            left = None if end is None else max(end - time.monotonic(), 0.0)
            self._ready = [descriptor for descriptor, _ in self._poll.poll(None if left is None else left * 1000)]
            if not self._ready and left == 0.0:
                raise TimeoutError

    def _bury(self, worker: _Worker) -> Event:
        worker.alive = False
        for descriptor in (worker.channel.fileno(), worker.death):
            self._poll.unregister(descriptor)
        return Event(DEAD, worker.id, 0, 0, worker.obituary())

    def close(self) -> None:
        """Ends the workers and whoever listens to them, within seconds whatever they do. May be called at any time, by any
        thread, repeatedly."""
        if self.owner != os.getpid() or not self._closing.acquire(blocking=False):
            return
        self.closed = True
        _open.discard(self)
        for w in self.workers:
            w.tell(None)
        end = time.monotonic() + _GRACE
        for w in self.workers:
            w.wait(max(end - time.monotonic(), 0))
        for stop in ("terminate", "kill"):
            late = [w for w in self.workers if w.process.is_alive()]
            for w in late:
                getattr(w.process, stop)()
            for w in late:
                w.wait(1.0)
        self._clapper.close()  # rings
        if self.helper is not None and self.helper is not threading.current_thread():
            self.helper.join(_GRACE)
        self._by_fd.clear()
        for w in self.workers:
            w.close()
            with contextlib.suppress(ValueError):  # it would not die
                w.process.close()
        self._bell.close()

    def disown(self) -> None:
        """In a forked child: leaves the workers to the parent, whose death must show as a closed channel."""
        self.closed = True
        for w in self.workers:
            w.channel.close()
        self._bell.close()
        self._clapper.close()


def _readable(descriptor: int, seconds: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _in_child() -> None:
    for pool in list(_open):
        pool.disown()
    _open.clear()
    for end in _starting:
        end.close()
    _starting.clear()


os.register_at_fork(after_in_child=_in_child)
