"""Communication by MPI, through mpi4py.

mpi4py is asked for when the first group of several processes is made.  MPI is begun with several threads allowed, and its errors come back as
exceptions.  Reductions of 16-bit floating types, and the least and greatest of all floating types, are machine code of ours
(`kernels/llvm/handwritten/combining.py`), which MPI calls: its own comparisons lose a NaN on some ranks and keep it on others.  Complex numbers are
MPI's own, bools are bytes.  Messages above 2 GiB go in MPI 4's large counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtypes import bfloat16, bool_, complex64, complex128, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from ...kernels import routines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...dtypes import dtype
    from .interface import Request

_NAMES = {float32: "FLOAT", float64: "DOUBLE", int8: "INT8_T", int16: "INT16_T", int32: "INT32_T", int64: "INT64_T", uint8: "UINT8_T", uint16: "UINT16_T",
          uint32: "UINT32_T", uint64: "UINT64_T", complex64: "C_FLOAT_COMPLEX", complex128: "C_DOUBLE_COMPLEX", bool_: "UINT8_T"}
_OPS = {"sum": "SUM", "product": "PROD", "min": "MIN", "max": "MAX", "band": "BAND", "bor": "BOR", "bxor": "BXOR"}
_PARTS = 1 << 22  # bytes from which ranks combine a part each what MPI does not combine itself: below, one exchange is quicker than two
_own_ops: dict[tuple[str, dtype], Any] = {}


def load() -> Any:
    """mpi4py's MPI, not yet begun.  Raises ImportError where it is not installed."""
    import mpi4py
    mpi4py.rc.initialize = False  # type: ignore[attr-defined,unused-ignore]
    mpi4py.rc.finalize = False  # type: ignore[attr-defined,unused-ignore]
    from mpi4py import MPI
    return MPI


def begin() -> MPICommunicator:
    """Begins MPI, unless the program has done so, and gives all its processes as a group.  It waits for all of them, and lets other Python threads run."""
    MPI = load()
    if not MPI.Is_initialized():
        given = ctypes.c_int()  # mpi4py's own call keeps the interpreter's lock
        if _library(MPI).MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(given)):
            raise RuntimeError("MPI_Init_thread failed")
        MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
        MPI.COMM_SELF.Set_errhandler(MPI.ERRORS_RETURN)
    world = MPI.COMM_WORLD.Dup()
    world.Set_errhandler(MPI.ERRORS_RETURN)
    _unname()
    return MPICommunicator(MPI, world)


def _unname() -> None:
    """Takes away the names of the shared memory that MPICH has mapped, now that all ranks have: ranks that are killed leave nothing behind."""
    for path in _mapped("/dev/shm/mpich_shm_"):
        with contextlib.suppress(OSError):  # another rank did
            os.unlink(path)


def _mapped(begins: str) -> list[str]:
    """The files mapped into this process whose path begins so."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = {"/" + line.rstrip().partition("/")[2] for line in maps}
    return sorted(path for path in found if path.startswith(begins))


def finish() -> None:
    """Ends MPI, which waits for all processes, and lets other Python threads run."""
    MPI = load()
    if MPI.Is_initialized() and not MPI.Is_finalized():
        _library(MPI).MPI_Finalize()


def _library(MPI: Any) -> Any:
    """The MPI library that mpi4py has loaded."""
    for path in _mapped("/"):
        if "/libmpi" in path and ".so" in path:
            found = ctypes.CDLL(path)
            if hasattr(found, "MPI_Op_create"):
                return found
    raise RuntimeError("the MPI library that mpi4py uses was not found in this process")


def _ours(op: str, d: dtype) -> bool:
    """Whether elements are combined by machine code of ours."""
    return d in (bfloat16, float16) or d in (float32, float64) and op in ("min", "max") and routines.generated()


def _op(MPI: Any, op: str, d: dtype) -> Any:
    if not _ours(op, d):
        return getattr(MPI, "MAX" if d is bool_ and op == "sum" else "MIN" if d is bool_ and op == "product" else _OPS[op])
    made = _own_ops.get((op, d))
    if made is None:
        if not routines.generated():
            raise RuntimeError(f"all ranks' {d.name} cannot be combined by {op!r} where no machine code is generated; use float32")
        from ...kernels.llvm.handwritten import combining
        size = MPI._sizeof(MPI.Op)
        handle: Any = (ctypes.c_void_p if size == 8 else ctypes.c_int)()
        _library(MPI).MPI_Op_create(ctypes.c_void_p(combining.combine(op, d)), 1, ctypes.byref(handle))
        made = _own_ops[op, d] = MPI.Op.fromhandle(handle.value if size == 8 else handle.value & 0xFFFFFFFF)
    return made


class _Exchange:
    """Messages under way at once, with what must live until they are gone."""

    __slots__ = ("_MPI", "_requests", "_keep")

    def __init__(self, MPI: Any, requests: list[Any], keep: Any) -> None:
        self._MPI, self._requests, self._keep = MPI, requests, keep

    def test(self) -> bool:
        if not self._MPI.Request.Testall(self._requests):
            return False
        self._requests, self._keep = [], None
        return True


class _Stages:
    """A collective in two stages, of which `second` begins the second.  Nothing else may go through the communicator in between."""

    __slots__ = ("_request", "_second")

    def __init__(self, first: Request, second: Callable[[], Request]) -> None:
        self._request = first
        self._second: Callable[[], Request] | None = second

    def test(self) -> bool:
        if not self._request.test():
            return False
        if self._second is None:
            return True
        self._request, self._second = self._second(), None
        return self._request.test()


class MPIRequest:
    """A request of MPI, with what must live until it is done."""

    __slots__ = ("_request", "_keep", "_status", "source")

    def __init__(self, request: Any, keep: Any = None, status: Any = None) -> None:
        self._request, self._keep, self._status = request, keep, status
        self.source: int | None = None

    def test(self) -> bool:
        done: bool = self._request.Test(self._status) if self._status is not None else self._request.Test()
        if done:
            self._keep = None
            if self._status is not None:
                self.source = self._status.Get_source()
        return done


class MPICommunicator:
    """A group of processes by MPI: see `interface.Communicator`."""

    def __init__(self, MPI: Any, comm: Any) -> None:
        self._MPI, self._comm = MPI, comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._own_tag = comm.Get_attr(MPI.TAG_UB)  # of messages within collectives: programs number theirs from 0
        self._bytes, self._at, self._here = MPI.BYTE, MPI.buffer.fromaddress, MPI.IN_PLACE
        self._types: dict[dtype, Any] = {d: getattr(MPI, name) for d, name in _NAMES.items()}
        self._types[bfloat16] = self._types[float16] = MPI.UINT16_T

    def split(self, ranks: Sequence[int], tag: int) -> MPICommunicator | None:
        if self.rank not in ranks:
            return None
        group = self._comm.Get_group().Incl(list(ranks))
        made = self._comm.Create_group(group, tag)
        made.Set_errhandler(self._MPI.ERRORS_RETURN)
        return MPICommunicator(self._MPI, made)

    def _typed(self, address: int, count: int, d: dtype) -> list[Any]:
        return [self._at(address, count * d.itemsize), count, self._types[d]]

    def _raw(self, address: int, nbytes: int, parts: int = 1) -> list[Any]:
        """Bytes, in `parts` of which each has `nbytes`."""
        return [self._at(address, nbytes * parts), nbytes, self._bytes]

    def barrier(self) -> MPIRequest:
        return MPIRequest(self._comm.Ibarrier())

    def all_reduce(self, address: int, count: int, d: dtype, op: str) -> Request:
        if count * d.itemsize >= _PARTS and self.size > 1 and _ours(op, d):
            return self._all_reduce_in_parts(address, count, d, op)
        memory = self._typed(address, count, d)
        return MPIRequest(self._comm.Iallreduce(self._here, memory, _op(self._MPI, op, d)), memory)

    def _all_reduce_in_parts(self, address: int, count: int, d: dtype, op: str) -> _Stages:
        """Each rank combines one part of all ranks' elements, and gets the others' parts: of operations that it does not know MPICH sends all of them
        to half of the ranks, again and again."""
        from ...kernels.llvm.handwritten import combining
        share = -(-count // self.size)
        parts = [max(min(share, count - r * share), 0) for r in range(self.size)]
        sizes, mine = [n * d.itemsize for n in parts], ctypes.c_int(parts[self.rank])
        everywhere = [(address + start, n) for start, n in zip(_starts(sizes), sizes, strict=True)]
        own = everywhere[self.rank]
        room = np.empty((self.size - 1) * own[1], np.uint8)
        others = [(room.ctypes.data + k * own[1], own[1]) for k in range(self.size - 1)]
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(combining.combine(op, d))

        def second() -> _Exchange:
            for at, _ in others:
                function(at, own[0], ctypes.addressof(mine), None)
            return self._exchange([own] * self.size, everywhere, room)  # room lives until all is combined
        return _Stages(self._exchange(everywhere, [*others[:self.rank], own, *others[self.rank:]], room), second)

    def _exchange(self, out: Sequence[tuple[int, int]], into: Sequence[tuple[int, int]], keep: Any = None) -> _Exchange:
        """Memory, by address and bytes, for each rank and from each.  What is this rank's own is copied: MPICH's `Ialltoallv` sends that too, in pieces,
        and took three times as long for 16 MB between two ranks."""
        requests = []
        for k in range(1, self.size):
            source, target = (self.rank - k) % self.size, (self.rank + k) % self.size
            if into[source][1]:
                requests.append(self._comm.Irecv(self._raw(*into[source]), source, self._own_tag))
            if out[target][1]:
                requests.append(self._comm.Isend(self._raw(*out[target]), target, self._own_tag))
        if into[self.rank][0] != out[self.rank][0]:
            ctypes.memmove(into[self.rank][0], out[self.rank][0], out[self.rank][1])
        return _Exchange(self._MPI, requests, keep)

    def reduce(self, address: int, count: int, d: dtype, op: str, root: int) -> MPIRequest:
        memory = self._typed(address, count, d)
        given = (self._here, memory) if self.rank == root else (memory, None)
        return MPIRequest(self._comm.Ireduce(*given, _op(self._MPI, op, d), root), memory)

    def broadcast(self, address: int, nbytes: int, root: int) -> MPIRequest:
        memory = self._raw(address, nbytes)
        return MPIRequest(self._comm.Ibcast(memory, root), memory)

    def all_gather(self, source: int, nbytes: int, target: int) -> MPIRequest:
        own, all_ = self._raw(source, nbytes), self._raw(target, nbytes, self.size)
        return MPIRequest(self._comm.Iallgather(own, all_), (own, all_))

    def gather(self, source: int, nbytes: int, target: int, root: int) -> MPIRequest:
        own, all_ = self._raw(source, nbytes), self._raw(target, nbytes, self.size) if self.rank == root else None
        return MPIRequest(self._comm.Igather(own, all_, root), (own, all_))

    def scatter(self, source: int, target: int, nbytes: int, root: int) -> MPIRequest:
        all_, own = self._raw(source, nbytes, self.size) if self.rank == root else None, self._raw(target, nbytes)
        return MPIRequest(self._comm.Iscatter(all_, own, root), (own, all_))

    def reduce_scatter(self, source: int, target: int, count: int, d: dtype, op: str) -> MPIRequest:
        all_, own = [self._at(source, count * self.size * d.itemsize), count, self._types[d]], self._typed(target, count, d)
        return MPIRequest(self._comm.Ireduce_scatter_block(all_, own, _op(self._MPI, op, d)), (own, all_))

    def all_to_all(self, source: int, sent: Sequence[int], target: int, received: Sequence[int]) -> _Exchange:
        return self._exchange([(source + at, n) for at, n in zip(_starts(sent), sent, strict=True)],
                              [(target + at, n) for at, n in zip(_starts(received), received, strict=True)])

    def send(self, address: int, nbytes: int, to: int, tag: int) -> MPIRequest:
        memory = self._raw(address, nbytes)
        return MPIRequest(self._comm.Isend(memory, to, tag), memory)

    def receive(self, address: int, nbytes: int, source: int | None, tag: int) -> MPIRequest:
        memory = self._raw(address, nbytes)
        return MPIRequest(self._comm.Irecv(memory, self._MPI.ANY_SOURCE if source is None else source, tag), memory, self._MPI.Status())


def _starts(sizes: Sequence[int]) -> list[int]:
    found, at = [], 0
    for size in sizes:
        found.append(at)
        at += size
    return found
