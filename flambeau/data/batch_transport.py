"""How a worker sends a batch: its structure is pickled, its numbers lie in shared memory.

`Packer` (in a worker) turns an object into a short message and bytes in segments: tensors that were made there by
`shared_empty` are already in place, others, and the buffers of NumPy arrays, are copied once. `Unpacker` makes the
object again, its tensors and arrays lying in that same memory. Small buffers ride in the message.
"""

from __future__ import annotations

import ctypes
import io
import os
import pickle
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import dtypes, layout
from .._core.kernels.interpret import memory
from .._core.runtime.device import device
from .._core.runtime.shared_memory import Mapping
from .._core.tensor import Tensor, meta, new, wrap
from .channel import MOST_FILES
from .segments import Loan, Store, aligned

if TYPE_CHECKING:
    from .channel import Channel

SMALL = 4096  # bytes; smaller buffers are not worth a place in shared memory


def _bytes_at(address: int, nbytes: int, owner: Any) -> Any:
    return memory(address, (nbytes,), (1,), dtypes.uint8, owner)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _reduce(t: Tensor) -> tuple[Any, ...]:
    m = t.meta
    if m.device.type != "cpu":
        raise RuntimeError(f"a DataLoader worker cannot send a tensor on {m.device}: return CPU tensors, and move the batch to the "
                           "device in the main process (pin_memory=True and non_blocking=True, or flambeau.data.prefetch)")
    grad = bool(t.requires_grad)
    if grad and not t.is_leaf:
        raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
                           "crossing process boundaries. If you just want to transfer the data, call detach() on the tensor before "
                           "serializing (e.g., putting it on the queue).")
    if layout.dense_like(tuple(m.shape), m.strides) != m.strides:
        t = t.detach().contiguous()
        m = t.meta
    content = pickle.PickleBuffer(_bytes_at(t.ptr, m.numel * m.dtype.itemsize, t))
    return _rebuild, (content, tuple(m.shape), m.strides, m.dtype.name, grad)


def _rebuild(content: Any, shape: tuple[int, ...], strides: tuple[int, ...], name: str, grad: bool) -> Tensor:
    m = meta(shape, strides, dtypes.BY_NAME[name], device("cpu"))
    if isinstance(content, np.ndarray) and content.size:
        t = wrap(_address(content), m, content)
    else:  # the content was small and came with the message
        t = new(m)
        if len(content):
            ctypes.memmove(t.ptr, bytes(content), len(content))
    return t.requires_grad_() if grad else t


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return _reduce(obj) if type(obj) is Tensor else NotImplemented


class Packer:
    """The sending side; its `store` holds the memory."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.store = Store()

    def shared_empty(self, m: Any) -> Tensor:
        """An uninitialised CPU tensor that will not have to be copied."""
        if m.nbytes < SMALL:
            return new(m)
        lease = self.store.take(m.nbytes)
        return wrap(lease.segment.mapping.address, m, lease)

    def send(self, label: Any, content: Any) -> None:
        """Sends `content` under `label` (both plain or picklable).

        Raises what pickling raises, before anything went out, and OSError when the reader is gone.
        """
        buffers: list[Any] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            try:
                raw = buffer.raw()
            except BufferError:  # not one run of bytes
                return True
            if raw.nbytes < SMALL:
                return True
            buffers.append(raw)
            return False

        out = io.BytesIO()
        _Pickler(out, 5, buffer_callback=keep).dump(content)
        stream: Any = out.getbuffer()
        if len(stream) >= SMALL:  # messages stay short, so that neither side ever waits for the other to read
            buffers.append(stream)
            stream = None
        lent: dict[int, Any] = {}
        places: list[tuple[int, int, int]] = []
        loose: list[tuple[int, int, int]] = []  # place, address, bytes: not in shared memory yet
        arrays = []
        total = 0
        for raw in buffers:
            array = np.frombuffer(raw, np.uint8)
            arrays.append(array)
            address, nbytes = _address(array), array.size
            segment = self.store.find(address, nbytes)
            if segment is None:
                loose.append((len(places), address, nbytes))
                places.append((-1, total, nbytes))
                total += aligned(nbytes)
            else:
                lent[segment.mapping.number] = segment
                places.append((segment.mapping.number, address - segment.mapping.address, nbytes))
        lease = None
        if loose:
            lease = self.store.take(total)
            target = lease.segment.mapping
            lent[target.number] = lease.segment
            for at, address, nbytes in loose:
                start = places[at][1]
                ctypes.memmove(target.address + start, address, nbytes)
                places[at] = (target.number, start, nbytes)
        for segment in lent.values():
            self.store.lend(segment)
        self._post((label, places, None if stream is None else bytes(stream)))

    def _post(self, message: tuple[Any, ...]) -> None:
        store = self.store
        while len(store.fresh) > MOST_FILES:
            self._post_files(None, store.fresh[:MOST_FILES])
        self._post_files(message, store.fresh[:])

    def _post_files(self, message: Any, fresh: list[tuple[int, int, int]]) -> None:
        store = self.store
        dropped, store.dropped = store.dropped, []
        data = pickle.dumps((message, [entry[:2] for entry in fresh], dropped), 5)
        self.channel.send(data, [entry[2] for entry in fresh])
        del store.fresh[:len(fresh)]
        for _, _, descriptor in fresh:
            os.close(descriptor)


class Unpacker:
    """The receiving side. `returned` fills with numbers of segments that nothing here uses any more; they are to be told to
    the sender."""

    def __init__(self) -> None:
        self._known: dict[int, Mapping] = {}
        self.returned: deque[int] = deque()

    def open(self, data: bytes, files: list[int]) -> tuple[Any, Any] | None:
        """(label, function that makes the content) of a message; None for one that only brings memory."""
        message, fresh, dropped = pickle.loads(data)
        try:
            for (number, size), descriptor in zip(fresh, files, strict=True):
                self._known[number] = Mapping(descriptor, size, number)
        finally:
            for descriptor in files:
                os.close(descriptor)
        for number in dropped:
            self._known.pop(number, None)
        if message is None:
            return None
        label, places, stream = message
        loans = {number: Loan(self._known[number], self.returned) for number in {place[0] for place in places}}
        buffers = [_bytes_at(loans[number].mapping.address + start, nbytes, loans[number])
                   for number, start, nbytes in places]
        if stream is None:
            stream = buffers.pop()
        return label, (lambda: pickle.loads(stream, buffers=buffers))

    def close(self) -> None:
        """Forgets all memory; what tensors still use goes with them."""
        self._known.clear()
