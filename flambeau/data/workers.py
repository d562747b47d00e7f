"""What runs in a loader's worker process."""

from __future__ import annotations

import gc
import os
import queue
import select
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

BATCH, END, ERROR = 0, 1, 2
_worker_info: WorkerInfo | None = None  # by PyTorch's name: workers of libraries' own loaders set it


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
    """Which worker of a loader this process is; None outside workers."""
    return _worker_info


class Job(NamedTuple):
    """What a worker is started with."""

    id: int
    workers: int
    base_seed: int
    dataset: Any
    make_fetch: Callable[..., Callable[[Any], Any]]
    init: Callable[[int], Any] | None
    parent: int


class _Inbox:
    """Reads the loader's messages in a thread of its own, so that the loader never waits for this worker to read, and that its
    death is noticed while a sample is being made."""

    def __init__(self, channel: Any, parent: int) -> None:
        self.channel = channel
        self.tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.epoch = 0
        self.stopped = False
        self._watched = [channel.fileno()]
        if hasattr(os, "pidfd_open"):
            try:
                self._watched.append(os.pidfd_open(parent))
            except OSError:  # no such call in this kernel, or the loader's process is gone: its socket tells
                pass
        threading.Thread(target=self._read, name="flambeau-loader-inbox", daemon=True).start()

    def _read(self) -> None:
        import pickle

        poll = select.poll()
        for descriptor in self._watched:
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._watched[0] not in ready:
                break
            received = self.channel.receive()
            if received is None:
                break
            message = pickle.loads(received[0])
            if message is None:
                self.stopped = True
            elif message[1] is None:
                self.epoch = message[0]
            self.tasks.put(message)
        # The loader's process died, or dropped this worker without a word: nobody is left to finish anything for.
        if not self.stopped:
            os._exit(1)

    def check(self) -> None:
        """Raises `Stopped` when the loader has closed."""
        if self.stopped:
            from .fetch import Stopped

            raise Stopped


# -- what workers of libraries' own loaders are made of, by PyTorch's names

@dataclass(frozen=True)
class _IterableDatasetStopIteration:
    """Sent in a batch's place: the stream of this worker has ended."""

    worker_id: int


@dataclass(frozen=True)
class _ResumeIteration:
    """Sent to a worker: another epoch begins, with this seed."""

    seed: int | None = None


class ManagerWatchdog:
    """Tells a worker whether the process that started it is still there."""

    def __init__(self) -> None:
        self.manager_pid, self.manager_dead = os.getppid(), False

    def is_alive(self) -> bool:
        """Whether it is."""
        self.manager_dead = self.manager_dead or os.getppid() != self.manager_pid
        return not self.manager_dead


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words that seed a worker's own generators: of NumPy's SeedSequence."""
    import numpy as np
    return [int(x) for x in np.random.SeedSequence([worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]).generate_state(4)]


def _seed(seed: int, worker: int, base: int) -> None:
    import random

    import numpy as np

    from ..random import manual_seed

    random.seed(seed)
    manual_seed(seed)
    np.random.seed(np.random.SeedSequence([base & 0xFFFFFFFF, base >> 32 & 0xFFFFFFFF, worker]).generate_state(4))


def main(end: socket.socket, job: Job) -> None:
    """A worker's whole life: batches for tasks until the loader says stop or is gone."""
    gc.freeze()  # what was there at the fork stays shared: the collector need not touch it
    try:
        _serve(end, job)
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        pass  # the loader's process gets the interrupt too; or it is gone


def _serve(end: socket.socket, job: Job) -> None:
    global _worker_info
    from .._core.kernels.native import set_num_threads
    from .._core.runtime.device import set_default
    from . import collate
    from .batch_transport import Packer
    from .channel import Channel
    from .failure import Failure
    from .fetch import Stopped

    channel = Channel(end)
    inbox = _Inbox(channel, job.parent)
    packer = Packer(channel)
    set_num_threads(1)  # the workers are the parallelism
    set_default(None)  # a GPU that is the default of the loader's process cannot be used in a fork of it
    seed = job.base_seed + job.id
    _seed(seed, job.id, job.base_seed)
    _worker_info = WorkerInfo(job.id, job.workers, seed, job.dataset)
    where = f"in DataLoader worker process {job.id}"
    failure: Any = None
    fetch: Any = None
    try:
        if job.init is not None:
            job.init(job.id)
    except Exception as error:
        failure = Failure(error, where)
    collate.use(packer.shared_empty)
    while (message := inbox.tasks.get()) is not None:
        epoch, number, entry, returned = message
        packer.store.returned(returned)
        if number is None:
            fetch = None
            continue
        if epoch != inbox.epoch:
            continue
        kind, content = BATCH, None
        try:
            if failure is not None:
                kind, content = ERROR, failure
            else:
                if fetch is None:
                    fetch = job.make_fetch(job.dataset, check=inbox.check)
                content = fetch(entry)
        except Stopped:
            break
        except StopIteration:
            kind = END
        except Exception as error:
            kind, content = ERROR, Failure(error, where)
        try:
            packer.send((kind, epoch, number), content)
        except (BrokenPipeError, ConnectionResetError):
            break
        except Exception as error:
            packer.send((ERROR, epoch, number), Failure(error, f"sending a batch from DataLoader worker process {job.id}"))
        del message, entry, content
    collate.use(None)
