"""torch.cuda.nccl: which NCCL there is.  Its collectives are `distributed`'s."""

from __future__ import annotations

from ctypes import byref, c_int
from typing import TYPE_CHECKING, Any

from .._core.drivers.collectives.nccl import library
from . import is_available as _gpus_available
from . import is_simulated

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERFACE = (2, 18, 0)  # the oldest whose functions are called


def version() -> tuple[int, int, int]:
    """The installed library's version; on simulated GPUs the interface's, which the collectives there follow.  Raises RuntimeError without either."""
    if _gpus_available() and is_simulated():
        return _INTERFACE
    found = library.load() if _gpus_available() else None
    if found is None:
        raise RuntimeError("cuda.nccl.version: NCCL is not here: there are no GPUs, or the package of NVIDIA's collectives is not installed")
    number = c_int()
    found.ncclGetVersion(byref(number))
    return number.value // 10000, number.value // 100 % 100, number.value % 100


def is_available(tensors: Sequence[Any]) -> bool:
    """Whether NCCL could combine these: contiguous dense tensors on GPUs, each on another."""
    devices = [t.device for t in tensors]
    return all(t.is_cuda and not t.is_sparse and t.is_contiguous() for t in tensors) and len(set(devices)) == len(devices)
