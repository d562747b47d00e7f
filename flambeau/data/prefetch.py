"""Batches on the GPU before they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from .._core.runtime.asking import unasked
from .._core.runtime.device import device as device_class
from .._core.tensor import Tensor
from .collate import each


class prefetch:
    """The loader's batches on `device`, the next `depth` of them already on their way.

    Copies run on a stream of their own, beside the kernels that use the batches before; a batch's first use waits for its copy on the
    GPU, not on the host. With ``pin_memory=True`` in the loader the host does not wait for the copies either. Tensors may lie anywhere
    in lists, tuples, dictionaries and objects with a `to` method. On the CPU batches are passed through, moved if they lie elsewhere.

    Args:
        loader: anything to iterate over; each iteration of this object is one of the loader's.
        device: where to, a device, string or index.
        depth: how many batches are kept ahead, at least 1.

    The loader's exceptions come in their place, after the batches before them.
    """

    def __init__(self, loader: Iterable[Any], device: Any, depth: int = 2) -> None:
        if not isinstance(depth, int) or isinstance(depth, bool) or depth < 1:
            raise ValueError(f"prefetch: depth is how many batches are kept ahead, an integer of at least 1, but got {depth!r}")
        self.loader = loader
        self.device = device if isinstance(device, device_class) else device_class(device)
        self.depth = depth

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        if self.device.type != "cuda":
            return (move(batch, self.device) for batch in self.loader)
        return _on_gpu(iter(self.loader), self.device, self.depth)


def move(data: Any, device: device_class) -> Any:
    """The same structure with its tensors on `device`, copied without the host's waiting where that is possible."""
    return each(data, lambda x: unasked(x.to)(device, non_blocking=True), "to")


def _on_gpu(batches: Iterator[Any], device: device_class, depth: int) -> Iterator[Any]:
    from .. import cuda

    copies: Any = cuda.Stream(device)
    waiting: deque[tuple[Any, Any, Any]] = deque()  # on the GPU, its event, on the host: there until the copy has been waited for
    failure: Exception | None = None
    more = True
    while True:
        while more and len(waiting) < depth:
            try:
                here = next(batches)
                with cuda.stream(copies):
                    there = move(here, device)
                waiting.append((there, copies.record_event(), here))
            except StopIteration:
                more = False
            except Exception as error:
                more, failure = False, error
        if not waiting:
            if failure is not None:
                raise failure
            return
        there, event, here = waiting.popleft()
        using = cuda.current_stream(device)
        using.wait_event(event)
        _record(there, using, set())
        del here
        yield there
        del there


def _record(data: Any, stream: Any, seen: set[int]) -> None:
    """Tells the allocator that `stream` uses the tensors in a structure, which another stream made."""
    if isinstance(data, Tensor):
        if data.device.type == "cuda":
            data.record_stream(stream)
        return
    if isinstance(data, str | bytes | int | float | type(None)) or id(data) in seen:
        return
    seen.add(id(data))
    inside = data.values() if isinstance(data, dict) else data if isinstance(data, list | tuple) else vars(data).values() if hasattr(
        data, "__dict__") else ()
    for part in inside:
        _record(part, stream, seen)
