"""The first values of tensors, taken without disturbing the program: nothing waits, and no clock or count changes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from .._core.runtime import gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._core.tensor import Tensor

WHOLE = 64  # tensors of up to so many elements are kept whole
FIRST = 8  # of others, so many
_SPAN = 1 << 16
_BLANK = b"\xa5"


class Sample:
    """Some values of one tensor.  `shape` and `dtype` (a name) are the tensor's; `whole`: whether all its values are kept.

    The values of a tensor on a GPU are there once its stream has come so far; asking for them waits for that.
    """

    __slots__ = ("shape", "dtype", "whole", "_kept", "_waits", "_buffers", "_places", "_wide")

    def __init__(self, t: Tensor, source: Any = None) -> None:
        m = t.meta
        self.shape, self.dtype, self.whole = tuple(m.shape), m.dtype.name, m.numel <= WHOLE
        self._kept: Any = None
        self._wide = m.dtype
        self._waits: list[Callable[[], None]] = []
        self._buffers: list[Any] = []
        self._places: tuple[Sequence[int], int] = (), 0  # where each value is in the one buffer; none: a buffer each
        count = m.numel if self.whole else FIRST
        if count:
            offsets = range(count) if m.contiguous else _offsets(self.shape, m.strides, count)
            self._take(t, offsets, m.dtype.itemsize, source)

    def _take(self, t: Tensor, offsets: Sequence[int], size: int, source: Any) -> None:
        low, high = (offsets[0], offsets[-1]) if type(offsets) is range else (min(offsets), max(offsets))
        if (high - low + 1) * size <= _SPAN:
            blocks = [(low, (high - low + 1) * size)]
            self._places = offsets, low
        else:
            blocks = [(o, size) for o in offsets]
            self._places = (), 0
        # a CPU tensor that a queued copy is going to fill is read on that copy's stream
        stream = source if source is not None else gpus.current_stream(t.meta.device) if t.meta.device.type == "cuda" else None
        for at, nbytes in blocks:
            address = t.ptr + at * size
            buffer = ctypes.create_string_buffer(_BLANK * nbytes, nbytes)
            self._buffers.append(buffer)
            if stream is None:
                ctypes.memmove(buffer, address, nbytes)
            else:
                gpu = stream._gpu
                self._waits.append(gpu.driver.peek(stream._handle, ctypes.addressof(buffer), address, nbytes, (buffer, t.store)))

    @property
    def values(self) -> list[Any] | None:
        """The values as a flat list of Python numbers, in the tensor's order; None when they never arrived (the work
        failed)."""
        if self._kept is None:
            import numpy as np

            from .._core.kernels.interpret import load
            for wait in self._waits:
                wait()
            raw = [b.raw for b in self._buffers]
            lost = bool(self._waits) and all(r == _BLANK * len(r) for r in raw)
            d = self._wide
            kind = np.dtype(np.uint16) if d.np is None else np.dtype(d.np)
            offsets, low = self._places
            size = kind.itemsize
            data = b"".join([raw[0][(o - low) * size:(o - low + 1) * size] for o in offsets] if offsets else raw)
            self._kept = (None if lost else load(np.frombuffer(data, kind), d).tolist(),)
            self._buffers, self._waits = [], []
        found: list[Any] | None = self._kept[0]
        return found

    def nested(self) -> Any:
        """The values of a whole sample as nested lists in the tensor's shape (a number for a zero-dim tensor)."""
        flat = self.values or []
        if not self.shape:
            return flat[0] if flat else None
        for size in reversed(self.shape[1:]):
            flat = [flat[i:i + size] for i in range(0, len(flat), size)] if size else []
        return flat


def _offsets(shape: tuple[int, ...], strides: tuple[int, ...], count: int) -> list[int]:
    """Where the first elements lie, in elements."""
    found = []
    for k in range(count):
        at = 0
        for size, step in zip(reversed(shape), reversed(strides), strict=True):
            k, i = divmod(k, size)
            at += i * step
        found.append(at)
    return found
