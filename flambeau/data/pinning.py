"""Batches into page-locked memory, from which copies to a GPU are asynchronous."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from .._core import errors
from .collate import each
from .failure import Failure
from .pool import Event
from .workers import BATCH, ERROR

if TYPE_CHECKING:
    from .pool import Pool

WHERE = "in pin memory thread"
_LOOK = 1.0  # seconds between looks whether the thread lives


def useful() -> bool:
    """Whether there is a GPU to pin memory for; warns when there is none."""
    from .. import cuda

    if cuda.is_available():
        return True
    errors.warn("'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.")
    return False


def pin(data: Any, device: Any = None) -> Any:
    """The same structure with its tensors in pinned memory; objects with a `pin_memory` method of their own use it."""
    return each(data, lambda x: x.pin_memory(), "pin_memory")


class Pinner:
    """A thread between the workers and the reader."""

    def __init__(self, pool: Pool) -> None:
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.thread = threading.Thread(target=_run, args=(pool, self._out, errors.site()), daemon=True, name="flambeau-pin")
        pool.helper = self.thread
        self.thread.start()

    def receive(self, timeout: float | None) -> Event | None:
        """As `Pool.receive`, with batches pinned.

        Raises RuntimeError when the thread is gone.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK if end is None else min(_LOOK, max(end - time.monotonic(), 0.0))
            try:
                event = self._out.get(timeout=left)
            except queue.Empty:
                if not self.thread.is_alive() and self._out.empty():
                    event = None
                elif end is not None and time.monotonic() >= end:
                    raise TimeoutError from None
                else:
                    continue
            if event is None:
                raise RuntimeError("Pin memory thread exited unexpectedly")
            return event  # type: ignore[no-any-return]


def _run(pool: Pool, out: queue.SimpleQueue[Any], line: tuple[str, int] | None) -> None:
    errors.thread.site = line  # of the loop that the batches are for
    event: Any = None
    try:
        while True:
            event = pool.receive()
            if event is None:
                return
            if event.kind == BATCH:
                try:
                    event = event._replace(content=pin(event.content))
                except Exception as error:
                    event = event._replace(kind=ERROR, content=Failure(error, WHERE))
            out.put(event)
            del event
    finally:
        out.put(None)
