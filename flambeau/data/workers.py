"""Workers of a loader: threads that fetch batches ahead.

Threads, not processes: kernels, file reads and decoders let go of the interpreter's lock, nothing has to be pickled or
sent, and a device that has been used stays usable. Each worker has a shallow copy of the data set, so that what
`worker_init_fn` sets on it is the worker's own.
"""

from __future__ import annotations

import copy
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_local = threading.local()


class WorkerInfo:
    """What `get_worker_info()` gives inside a worker: `id`, `num_workers`, `seed` and the worker's `dataset`."""

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any) -> None:
        self.id = id
        self.num_workers = num_workers
        self.seed = seed
        self.dataset = dataset

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed}, dataset={self.dataset!r})"


def get_worker_info() -> WorkerInfo | None:
    """Which worker of a loader this is; None outside workers."""
    return getattr(_local, "info", None)


class _Failure:
    """An exception on its way from a worker to the reader."""

    def __init__(self, error: BaseException, worker: int) -> None:
        self.error = error
        self.worker = worker

    def throw(self) -> None:
        """Raises the exception again, its message saying which worker it came from."""
        error = self.error
        text = f"Caught {type(error).__name__} in DataLoader worker {self.worker}: {error}"
        try:
            again = type(error)(text)
        except Exception:  # an exception that wants other arguments
            again = RuntimeError(text)
        raise again from error


_END = object()


def _work(info: WorkerInfo, make_fetch: Callable[[Any], Callable[[Any], Any]], tasks: queue.Queue[Any],
          results: queue.Queue[Any], init: Callable[[int], Any] | None) -> None:
    _local.info = info
    failure = None
    try:
        if init is not None:
            init(info.id)
    except Exception as error:
        failure = _Failure(error, info.id)
    fetch = None
    while True:
        task = tasks.get()
        if task is None:
            return
        epoch, number, index = task
        try:
            if failure is not None:
                value: Any = failure
            else:
                if fetch is None or number < 0:
                    fetch = make_fetch(info.dataset)
                if number < 0:  # only a new iteration
                    continue
                value = fetch(index)
        except StopIteration:
            value = _END
        except Exception as error:
            value = _Failure(error, info.id)
        results.put((epoch, number, info.id, value))
        del value, task, index


class Pool:
    """`count` workers and the queues between them and the reader."""

    def __init__(self, dataset: Any, make_fetch: Callable[[Any], Callable[[Any], Any]], count: int, seed: int,
                 init: Callable[[int], Any] | None) -> None:
        self.count = count
        self.epoch = 0
        self.results: queue.Queue[Any] = queue.Queue()
        self.tasks: list[queue.Queue[Any]] = [queue.Queue() for _ in range(count)]
        for i in range(count):
            info = WorkerInfo(i, count, seed + i, copy.copy(dataset))
            threading.Thread(target=_work, args=(info, make_fetch, self.tasks[i], self.results, init), daemon=True,
                             name=f"loader-{i}").start()
        # A loader dropped in mid-epoch ends its workers; they hold the queues, not the pool.
        self._end = weakref.finalize(self, _stop, self.tasks)

    def stop(self) -> None:
        """Ends the workers once they have done what they are doing."""
        self._end()

    def batches(self, indices: Iterator[Any], ahead: int, timeout: float) -> Iterator[Any]:
        """The batches of `indices` in order, with at most `ahead` for each worker under way."""
        self.epoch += 1
        epoch = self.epoch
        for tasks in self.tasks:
            tasks.put((epoch, -1, None))
        live = list(range(self.count))
        owner: dict[int, int] = {}
        ready: dict[int, Any] = {}
        sent = 0
        turn = 0
        wanted = 0

        def send() -> None:
            nonlocal sent, turn
            if not live:
                return
            try:
                index = next(indices)
            except StopIteration:
                return
            worker = live[turn % len(live)]
            turn += 1
            self.tasks[worker].put((epoch, sent, index))
            owner[sent] = worker
            sent += 1

        for _ in range(ahead * self.count):
            send()
        while wanted < sent:
            if wanted in ready:
                value = ready.pop(wanted)
                owner.pop(wanted, None)
                wanted += 1
                if value is _END:
                    continue
                if isinstance(value, _Failure):
                    value.throw()
                send()
                yield value
                continue
            try:
                got, number, worker, value = self.results.get(timeout=timeout if timeout > 0 else None)
            except queue.Empty:
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds waiting for batch {wanted} of worker "
                                   f"{owner.get(wanted)}") from None
            if got != epoch:  # left over from an iteration that was given up
                continue
            ready[number] = value
            if value is _END and worker in live:
                # This worker's stream is over; the others take its turns.
                live.remove(worker)
                send()


def _stop(tasks: list[queue.Queue[Any]]) -> None:
    for one in tasks:
        one.put(None)
