"""Communication by MPI, through mpi4py.

mpi4py is asked for when the first group of several processes is made.  MPI is begun with several threads allowed, and its errors come back as
exceptions.  Reductions of 16-bit floating types are machine code of ours (`kernels/llvm/handwritten/combining.py`), which MPI calls; complex numbers are
MPI's own, bools are bytes.  Messages above 2 GiB go in MPI 4's large counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Any

from ...dtypes import bfloat16, bool_, complex64, complex128, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from ...kernels import routines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype

_NAMES = {float32: "FLOAT", float64: "DOUBLE", int8: "INT8_T", int16: "INT16_T", int32: "INT32_T", int64: "INT64_T", uint8: "UINT8_T", uint16: "UINT16_T",
          uint32: "UINT32_T", uint64: "UINT64_T", complex64: "C_FLOAT_COMPLEX", complex128: "C_DOUBLE_COMPLEX", bool_: "UINT8_T"}
_OPS = {"sum": "SUM", "product": "PROD", "min": "MIN", "max": "MAX", "band": "BAND", "bor": "BOR", "bxor": "BXOR"}
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


def _op(MPI: Any, op: str, d: dtype) -> Any:
    if d not in (bfloat16, float16):
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

    def all_reduce(self, address: int, count: int, d: dtype, op: str) -> MPIRequest:
        memory = self._typed(address, count, d)
        return MPIRequest(self._comm.Iallreduce(self._here, memory, _op(self._MPI, op, d)), memory)

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

    def all_to_all(self, source: int, sent: Sequence[int], target: int, received: Sequence[int]) -> MPIRequest:
        out = [self._at(source, sum(sent)), (list(sent), _starts(sent)), self._bytes]
        into = [self._at(target, sum(received)), (list(received), _starts(received)), self._bytes]
        return MPIRequest(self._comm.Ialltoallv(out, into), (out, into))

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
