"""What `iter(DataLoader)` gives: batches made here, or by workers.

An iterator asks its loader for attributes by PyTorch's names and for nothing else, since libraries give it loaders of their own (fastai).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from .._core import dtypes, ops
from .._core.errors import warn
from . import pinning
from .fetch import fetcher
from .pool import DEAD, Event, Pool, context_of
from .workers import END, ERROR

if TYPE_CHECKING:
    from .loader import DataLoader


def _fetching(loader: DataLoader[Any]) -> Callable[..., Callable[[Any], Any]]:
    """From a data set to its fetching function. It holds on to no loader: workers must not keep theirs alive."""
    return functools.partial(fetcher, kind=loader._dataset_kind, collate=loader.collate_fn, batched=loader._auto_collation, whole=loader.drop_last)


def _snapshot(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The loader's settings, without the loader: its workers end when it is dropped, so they must not keep it."""
    settings = object.__new__(type(loader))
    settings.__dict__.update(loader.__dict__)
    settings.__dict__["_iterator"] = None
    return settings


class Batches(Iterator[Any]):
    """The order of the samples, and the warning of a stream that is longer than it said.

    Libraries derive iterators of their own from it (torchdata's StatefulDataLoader): attributes and steps have PyTorch's names.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = _snapshot(loader)
        self._dataset, self._dataset_kind = loader.dataset, loader._dataset_kind
        self._auto_collation, self._drop_last, self._collate_fn = loader._auto_collation, loader.drop_last, loader.collate_fn
        self._num_workers, self._timeout, self._persistent_workers = loader.num_workers, loader.timeout, loader.persistent_workers
        self._pin_memory, self._pin_memory_device = loader.pin_memory and pinning.useful(), ""
        self._shared_seed, self._world_size, self._rank = None, 1, 0
        self._restart(loader)
        # Drawn once, with workers or without, so that what the generator gives next does not depend on their number.
        empty = ops.empty((), dtype=dtypes.int64, device="cpu" if loader.generator is None else loader.generator.device)
        self._base_seed = int(empty.random_(generator=loader.generator))

    def _restart(self, loader: DataLoader[Any]) -> None:
        self._index_sampler = loader._index_sampler
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """The sampler from its beginning, for another epoch."""
        self._loader = _snapshot(loader)
        self._restart(loader)

    def __iter__(self) -> Batches:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __next__(self) -> Any:
        batch = self._next_data()
        self._num_yielded += 1
        said = self._IterableDataset_len_called
        if said is not None and self._num_yielded > said:
            text = (f"Length of IterableDataset {self._dataset} was reported to be {said} (when accessing len(dataloader)), but "
                    f"{self._num_yielded} samples have been fetched. ")
            if self._num_workers:
                text += ("For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica "
                         "at each worker.")
            warn(text)
        return batch

    def _next_index(self) -> Any:
        """The sampler's next entry.  Raises StopIteration."""
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        """The next batch.  Raises StopIteration."""
        raise NotImplementedError


class SingleProcessIter(Batches):
    """An iterator whose batches the calling process makes, when they are asked for."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._fetch = _fetching(loader)(loader.dataset)

    def _next_data(self) -> Any:
        batch = self._fetch(self._next_index())
        return pinning.pin(batch) if self._pin_memory else batch


class MultiProcessIter(Batches):
    """An iterator whose batches worker processes make ahead of time.

    Each batch has a number; `_owner` knows who makes those under way, `_ready` those that came before their turn.
    """

    _pool: Pool

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._epoch = 0
        context = loader.multiprocessing_context
        context = context_of(None if isinstance(context, ModuleType) else context)  # a loader of a library's own may name `torch.multiprocessing`
        self._pool = Pool(context, loader.dataset, _fetching(loader), loader.num_workers, self._base_seed, loader.worker_init_fn)
        self._close = weakref.finalize(self, self._pool.close)
        self._source: Any = pinning.Pinner(self._pool) if self._pin_memory else self._pool
        self._start()

    def usable(self) -> bool:
        """Whether its workers can serve another epoch in this process."""
        return not self._pool.closed

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Another epoch by the same workers, with the seeds they have; what they still make of the last one is thrown away."""
        super()._reset(loader, first_iter)
        self._start()

    def _start(self) -> None:
        self._epoch += 1
        self._owner: dict[int, int] = {}
        self._ready: dict[int, Event] = {}
        self._load = [0] * self._loader.num_workers
        self._over: set[int] = set()  # workers whose stream has ended
        self._sent = self._turn = self._wanted = 0
        self._died: str | None = None
        for worker in range(self._loader.num_workers):
            self._pool.put(worker, self._epoch, None, None)
        for _ in range(max(self._loader.prefetch_factor or 1, 1) * self._loader.num_workers):
            self._send()

    def _send(self) -> None:
        """Gives the next entry of the sampler to a worker: to each in turn, or to the least busy when order does not matter."""
        count = self._loader.num_workers
        if len(self._over) == count:
            return
        try:
            entry = self._next_index()
        except StopIteration:
            return
        turns = [(self._turn + k) % count for k in range(count)]
        free = [w for w in turns if w not in self._over]
        worker = free[0] if self._loader.in_order else min(free, key=self._load.__getitem__)
        self._turn = worker + 1
        self._load[worker] += 1
        self._owner[self._sent] = worker
        self._sent += 1
        self._pool.put(worker, self._epoch, self._sent - 1, entry)

    def _next_data(self) -> Any:
        if self._died is not None:
            raise RuntimeError(self._died)
        if self._pool.closed:
            raise StopIteration
        while self._owner:
            event = self._take() if self._ready else None
            if event is None:
                event = self._receive()
                if event.epoch != self._epoch:
                    continue
                self._load[event.worker] -= 1
                if event.kind == END and event.worker not in self._over:
                    self._over.add(event.worker)
                    self._send()  # to another, in its place
                self._ready[event.number] = event
                continue
            if event.kind == END:
                continue
            self._send()
            if event.kind == ERROR:
                event.content.throw()
            return event.content
        if not self._loader.persistent_workers:
            self._close()
        raise StopIteration

    def _take(self) -> Event | None:
        """A batch whose turn it is."""
        number = self._wanted if self._loader.in_order else next(iter(self._ready))
        event = self._ready.pop(number, None)
        if event is not None:
            self._wanted += 1
            del self._owner[number]
        return event

    def _receive(self) -> Event:
        timeout = self._loader.timeout
        try:
            event: Event | None = self._source.receive(timeout if timeout > 0 else None)
        except TimeoutError:
            self._fail(f"DataLoader timed out after {timeout} seconds")
        except RuntimeError as error:
            self._fail(str(error))
        if event is None:
            self._fail("DataLoader was closed while a batch was waited for")
        if event.kind == DEAD:
            self._fail(event.content)
        return event

    def _fail(self, text: str) -> NoReturn:
        """Nothing can go on: ends everything and says why, also to those who ask again."""
        self._died = text
        self._close()
        raise RuntimeError(text)
