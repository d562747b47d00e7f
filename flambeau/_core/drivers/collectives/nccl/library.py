"""NCCL's functions by ctypes: prototypes, numbers and structs as `nccl.h` has them.

ctypes lets the interpreter's other threads run while a function does.  Communicators are made that do not block (`Config.blocking` 0): a call that is
not done at once gives IN_PROGRESS, and `ncclCommGetAsyncError` says when it is.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import TYPE_CHECKING, Any

from ....dtypes import bfloat16, bool_, complex64, complex128, float16, float32, float64, int8, int32, int64, uint8, uint32, uint64
from ...nvidia import libraries

if TYPE_CHECKING:
    from ....dtypes import dtype

SUCCESS, IN_PROGRESS = 0, 7
BYTES = 0  # ncclInt8: what is moved, not combined
TYPES: dict[dtype, int] = {int8: 0, uint8: 1, int32: 2, uint32: 3, int64: 4, uint64: 5, float16: 6, float32: 7, float64: 8, bfloat16: 9}
OPS = {"sum": 0, "product": 1, "max": 2, "min": 3}
_PARTS = {complex64: float32, complex128: float64}
_OF_BOOLS = {"sum": "max", "product": "min"}
_MAGIC, _VERSION, _UNSET = 0xCAFEBEEF, 21800, -(1 << 31)  # the first version with these fields: later ones give the others their defaults


class UniqueId(ctypes.Structure):
    """What the ranks of a communicator know it by."""

    _fields_ = [("internal", ctypes.c_byte * 128)]


class Config(ctypes.Structure):
    """How a communicator is made; what is not set is NCCL's to choose."""

    _fields_ = [("size", c_size_t), ("magic", c_uint), ("version", c_uint), ("blocking", c_int), ("cgaClusterSize", c_int), ("minCTAs", c_int),
                ("maxCTAs", c_int), ("netName", c_char_p), ("splitShare", c_int)]


def not_blocking() -> Config:
    """For communicators whose calls return at once."""
    return Config(ctypes.sizeof(Config), _MAGIC, _VERSION, 0, _UNSET, _UNSET, _UNSET, None, _UNSET)


# every function's parameters; all but those of RESULTS give a code
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (POINTER(c_int),),
    "ncclGetErrorString": (c_int,),
    "ncclGetLastError": (c_void_p,),
    "ncclGetUniqueId": (POINTER(UniqueId),),
    "ncclCommInitRankConfig": (POINTER(c_void_p), c_int, UniqueId, c_int, POINTER(Config)),
    "ncclCommGetAsyncError": (c_void_p, POINTER(c_int)),
    "ncclCommAbort": (c_void_p,),
    "ncclCommFinalize": (c_void_p,),
    "ncclCommDestroy": (c_void_p,),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclAllReduce": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclReduce": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p, c_void_p),
    "ncclBroadcast": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclAllGather": (c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_void_p),
    "ncclReduceScatter": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclSend": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclRecv": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
}
RESULTS = {"ncclGetErrorString": c_char_p, "ncclGetLastError": c_char_p}


class NCCLError(RuntimeError):
    """A call that NCCL refused, or what became of one later."""


_loaded: Any = None


def load() -> Any:
    """The library, its functions typed; None where it is not installed, which is said once."""
    global _loaded
    if _loaded is None:
        found: Any = libraries.optional("nccl")
        if found is None:
            return None
        for name, parameters in PROTOTYPES.items():
            function = getattr(found, name)
            function.argtypes, function.restype = parameters, RESULTS.get(name, c_int)
        _loaded = found
    return _loaded


def combines(d: dtype, op: str) -> bool:
    """Whether NCCL combines elements of this type so.  It has no 16-bit integers, no bits, and of complex numbers only sums."""
    return op in OPS and (d in TYPES or d is bool_ or (d in _PARTS and op == "sum"))


def as_numbers(count: int, d: dtype, op: str) -> tuple[int, int, int]:
    """The count, type and operation in NCCL's numbers."""
    if d is bool_:
        return count, TYPES[uint8], OPS[_OF_BOOLS.get(op, op)]
    return (2 * count, TYPES[_PARTS[d]], OPS[op]) if d in _PARTS else (count, TYPES[d], OPS[op])
