"""A group of GPUs, one for each rank, by NCCL.

Nothing waits for the work itself: a call queues it on a stream, and is asked for its end only as far as NCCL is still queueing it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any

from .library import BYTES, IN_PROGRESS, SUCCESS, NCCLError, UniqueId, as_numbers, not_blocking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....dtypes import dtype


def unique_id(lib: Any) -> bytes:
    """What one rank gives all others of a new communicator.  Raises NCCLError."""
    made = UniqueId()
    code = lib.ncclGetUniqueId(ctypes.byref(made))
    if code:
        raise NCCLError(f"ncclGetUniqueId: {lib.ncclGetErrorString(code).decode()}")
    return bytes(made.internal)


class NCCLCommunicator:
    """Rank `rank` of `size`, on the GPU that is current where it is made.  It is under way until `state` says otherwise.

    Calls of one communicator come from one thread at a time; `abort` may come from any.  Raises NCCLError.
    """

    def __init__(self, lib: Any, identity: bytes, rank: int, size: int) -> None:
        self.lib, self.rank, self.size = lib, rank, size
        self._handle = ctypes.c_void_p()
        self._lock = threading.Lock()  # held while a handle that may go is used
        self._code = ctypes.c_int()
        given = UniqueId((ctypes.c_byte * 128).from_buffer_copy(identity))
        self.call("ncclCommInitRankConfig", ctypes.byref(self._handle), size, given, rank, ctypes.byref(not_blocking()))

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function.  Raises NCCLError for what it refuses."""
        code = getattr(self.lib, name)(*arguments)
        if code not in (SUCCESS, IN_PROGRESS):
            raise self._error(name, code)

    def _error(self, what: str, code: int) -> NCCLError:
        told = (self.lib.ncclGetLastError(self._handle) or b"").decode(errors="replace").strip() if self._handle else ""
        return NCCLError(f"{what}: {self.lib.ncclGetErrorString(code).decode()}{': ' + told if told else ''}")

    def ready(self) -> bool:
        """Whether what was called is queued.  Raises NCCLError for what went wrong there, or since."""
        with self._lock:
            if not self._handle:
                raise NCCLError("the communicator was ended")
            code = self.lib.ncclCommGetAsyncError(self._handle, ctypes.byref(self._code))
            code = code or self._code.value
            if code in (SUCCESS, IN_PROGRESS):
                return bool(code == SUCCESS)
            raise self._error("communication failed", code)

    def abort(self) -> None:
        """Ends the communicator and what it has queued, without the others."""
        with self._lock:
            handle, self._handle = self._handle, ctypes.c_void_p()
            if handle:
                self.lib.ncclCommAbort(handle)

    def close(self) -> None:
        """Ends the communicator, whose work is done on all ranks."""
        with self._lock:
            handle, self._handle = self._handle, ctypes.c_void_p()
            if handle:
                self.lib.ncclCommFinalize(handle)
                while not self.lib.ncclCommGetAsyncError(handle, ctypes.byref(self._code)) and self._code.value == IN_PROGRESS:
                    time.sleep(1e-4)
                self.lib.ncclCommDestroy(handle)

    def on(self, stream: int) -> OnStream:
        """What queues on a stream, by its number."""
        return OnStream(self, stream)


class Queued:
    """A request that is done when NCCL has queued it."""

    source: int | None = None

    def __init__(self, comm: NCCLCommunicator) -> None:
        self.test = comm.ready


class OnStream:
    """See `interface.Communicator`: what is begun is queued on one stream.  Messages go by `together`."""

    def __init__(self, comm: NCCLCommunicator, stream: int) -> None:
        self.comm, self.stream, self.rank, self.size = comm, stream, comm.rank, comm.size

    def _queue(self, name: str, *arguments: Any) -> Queued:
        comm = self.comm
        comm.call(name, *arguments, comm._handle, self.stream)
        return Queued(comm)

    def together(self, calls: Sequence[tuple[str, int, int, int]]) -> Queued:
        """Messages that wait for one another: each a function's name, an address, bytes and a rank."""
        comm = self.comm
        comm.call("ncclGroupStart")
        try:
            for name, address, nbytes, peer in calls:
                comm.call(name, address, nbytes, BYTES, peer, comm._handle, self.stream)
        finally:
            comm.call("ncclGroupEnd")
        return Queued(comm)

    def all_reduce(self, address: int, count: int, d: dtype, op: str) -> Queued:
        return self._queue("ncclAllReduce", address, address, *as_numbers(count, d, op))

    def reduce(self, address: int, count: int, d: dtype, op: str, root: int) -> Queued:
        return self._queue("ncclReduce", address, address, *as_numbers(count, d, op), root)

    def broadcast(self, address: int, nbytes: int, root: int) -> Queued:
        return self._queue("ncclBroadcast", address, address, nbytes, BYTES, root)

    def all_gather(self, source: int, nbytes: int, target: int) -> Queued:
        return self._queue("ncclAllGather", source, target, nbytes, BYTES)

    def reduce_scatter(self, source: int, target: int, count: int, d: dtype, op: str) -> Queued:
        return self._queue("ncclReduceScatter", source, target, *as_numbers(count, d, op))

    def gather(self, source: int, nbytes: int, target: int, root: int) -> Queued:
        calls: list[tuple[str, int, int, int]] = [("ncclSend", source, nbytes, root)]
        if self.rank == root:
            calls += [("ncclRecv", target + r * nbytes, nbytes, r) for r in range(self.size)]
        return self.together(calls)

    def scatter(self, source: int, target: int, nbytes: int, root: int) -> Queued:
        calls: list[tuple[str, int, int, int]] = [("ncclRecv", target, nbytes, root)]
        if self.rank == root:
            calls += [("ncclSend", source + r * nbytes, nbytes, r) for r in range(self.size)]
        return self.together(calls)

    def all_to_all(self, source: int, sent: Sequence[int], target: int, received: Sequence[int]) -> Queued:
        calls: list[tuple[str, int, int, int]] = []
        for r, (out, into) in enumerate(zip(sent, received, strict=True)):
            if out:
                calls.append(("ncclSend", source, out, r))
            if into:
                calls.append(("ncclRecv", target, into, r))
            source, target = source + out, target + into
        return self.together(calls)
