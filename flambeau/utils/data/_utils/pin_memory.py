"""Batches in page-locked memory (torch.utils.data._utils.pin_memory)."""

from __future__ import annotations

import queue
from typing import Any

from ...._faces._utils import ExceptionWrapper
from ....data.pinning import pin as pin_memory


def _pin_memory_loop(in_queue: Any, out_queue: Any, device_id: int, done_event: Any, device: Any = None) -> None:
    """Takes (number, batch) from one queue and puts it, pinned, into the other, until `done_event` is set: what a thread of a loader runs. A batch
    that cannot be pinned becomes the exception. device: accepted."""
    from .... import cuda
    if cuda.is_available():
        cuda.set_device(device_id)
    while not done_event.is_set():
        try:
            number, batch = in_queue.get(timeout=5.0)
        except queue.Empty:
            continue
        if not isinstance(batch, ExceptionWrapper):
            try:
                batch = pin_memory(batch, device)
            except Exception:
                batch = ExceptionWrapper(where=f"in pin memory thread for device {device_id}")
        while not done_event.is_set():
            try:
                out_queue.put((number, batch), timeout=5.0)
                break
            except queue.Full:
                continue


__all__ = ["_pin_memory_loop", "pin_memory"]
