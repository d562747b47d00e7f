"""Streams of simulated GPUs: first-in, first-out queues of work, and who runs it when.

Whoever waits for a stream runs its work itself, unless somebody is at it already (`advance`).  That is all there is in
a *lazy* queue, so that a missing wait shows as a wrong result every time.  An *eager* queue also has a thread that
runs work as it comes, as hardware does.  A *random* one runs bits of any stream, by a seed, whenever something is
queued: the interleavings of hardware, repeatable.

An event is a place in a queue: the number of items that must be done.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from ... import collector

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels.programs import PreparedLaunch
    from .graphs import Graph

MODES = ("eager", "lazy", "random")


class Launch:
    """A queued launch; `site` is the program's line that asked for it, None where it cannot fail."""

    __slots__ = ("prepared", "args", "site")
    queue: Queue | None = None

    def __init__(self, prepared: PreparedLaunch, args: tuple[Any, ...], site: tuple[str, int] | None) -> None:
        self.prepared, self.args, self.site = prepared, args, site

    @property
    def name(self) -> str:
        return self.prepared.name

    def run(self) -> None:
        self.prepared.entry(*self.args)


class Move:
    """A queued copy of bytes; `keep` holds the memory's owners until it is done."""

    __slots__ = ("dst", "src", "nbytes", "keep", "name", "run")
    queue: Queue | None = None

    def __init__(self, dst: int, src: int, nbytes: int, keep: Any, name: str) -> None:
        self.dst, self.src, self.nbytes, self.keep, self.name = dst, src, nbytes, keep, name
        self.run = partial(ctypes.memmove, dst, src, nbytes)


class Wait:
    """Later items wait until `ticket` items of `queue` are done."""

    __slots__ = ("queue", "ticket")
    name = "wait"

    def __init__(self, queue: Queue, ticket: int) -> None:
        self.queue, self.ticket = queue, ticket

    def run(self) -> None:
        pass


class Queue:
    """One stream.  `submitted` and `done` count items; `ready` is when its last item ends on the virtual clock, as far as that is known; later: what
    comes after that (`moments`).  graph: what captures it."""

    __slots__ = ("device", "priority", "items", "submitted", "done", "ready", "later", "turn", "inside", "carry_out", "_wake", "_thread",
                 "closed", "graph", "__weakref__")

    def __init__(self, device: int, priority: int, carry_out: Callable[[int, Any], None]) -> None:
        self.device, self.priority = device, priority
        self.items: deque[Any] = deque()
        self.submitted = self.done = 0
        self.ready = 0.0
        self.later: deque[Any] = deque()
        self.turn = threading.RLock()  # held while an item runs: items run one at a time, in order
        self.inside = False  # whether one does
        self.carry_out = carry_out
        self._wake: Any = None
        self._thread: threading.Thread | None = None
        self.closed = False
        self.graph: Graph | None = None

    def submit(self, item: Any, eager: bool) -> None:
        """Adds an item.  The caller holds the driver's gate, so that counts and items agree."""
        self.items.append(item)
        self.submitted += 1
        if eager:
            self.wake()

    def wake(self) -> None:
        """Lets the thread of an eager queue do what is queued. The caller holds the driver's gate."""
        if self._thread is None:
            self._start()
        # a binary semaphore: released at most once until the thread has taken it
        if self._wake.locked():
            self._wake.release()

    def _start(self) -> None:
        self._wake = threading.Lock()
        self._wake.acquire()
        self._thread = threading.Thread(target=_work, args=(weakref.ref(self), self._wake), daemon=True,
                                        name=f"simulated-gpu-{self.device}")
        with collector.held():  # this waits for the thread, and a finalizer there would wait for the driver's gate
            self._thread.start()

    def close(self) -> None:
        """Ends the thread, once what is queued is done."""
        self.closed = True
        if self._thread is not None and self._thread is not threading.current_thread():
            with contextlib.suppress(RuntimeError):  # it is awake already
                self._wake.release()
            self._thread.join(timeout=10.0)

    def __del__(self) -> None:
        if self._wake is not None:
            try:  # nothing of the module's is needed here: it may be gone
                self._wake.release()
            except RuntimeError:
                pass

    def step(self) -> Wait | None:
        """Runs the next item, if there is one; gives the wait that it must sit out first, if any."""
        with self.turn:
            if self.inside:  # by this thread: for ever would be too long
                raise RuntimeError("a finalizer waits for the very work of a simulated GPU that it interrupts")
            if not self.items:
                return None
            item = self.items[0]
            if item.queue is not None and item.queue.done < item.ticket:
                return item  # type: ignore[no-any-return]
            self.inside = True
            try:
                self.carry_out(self.device, item)
            finally:
                self.inside = False
            self.items.popleft()
            self.done += 1
            return None


def _work(mine: weakref.ref[Queue], wake: Any) -> None:
    """The thread of an eager queue.  It does not keep the queue alive: one that nobody has any more ends it."""
    while True:
        wake.acquire()
        queue = mine()
        if queue is None:
            return
        advance(queue, queue.submitted)
        if queue.closed:
            return
        del queue


def advance(queue: Queue, ticket: int) -> None:
    """Returns when `ticket` items of `queue` are done, running them, and what they wait for, in this thread."""
    path = [(queue, ticket)]  # a stack, not recursion: waits may form long chains
    while path:
        q, n = path[-1]
        if q.done >= n:
            path.pop()
            continue
        blocked = q.step()
        if blocked is not None:
            path.append((blocked.queue, blocked.ticket))
