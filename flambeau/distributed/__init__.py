"""Many processes (torch.distributed): groups, collectives, messages, stores, over MPI.

`init_process_group` connects the processes of a job; a process that is not told of others is alone in a group of its own, which needs no MPI, so
that scripts written for many run as they are.  `flambeau run --nproc 4 script.py` starts four on this machine, each with its simulated GPUs where
`--sim-gpus` asks for some.  `pip install 'flambeau[mpi]'` brings mpi4py with an MPI library.
"""

from __future__ import annotations

import os
from typing import Any

from . import stand_ins as _stand_ins
from . import world as _world
from .coalesced import _coalescing_manager, all_gather_coalesced, all_reduce_coalesced
from .collectives import (
    ReduceOp,
    Work,
    _make_nccl_premul_sum,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .device_mesh import DeviceMesh, init_device_mesh
from .groups import ProcessGroup
from .messages import P2POp, batch_isend_irecv, irecv, isend, recv, send
from .objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from .peers import DistBackendError
from .stores import DistError, DistNetworkError, DistStoreError, FileStore, HashStore, PrefixStore, Store, TCPStore
from .world import (
    GroupMember,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_initialized,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
)

reduce_op = ReduceOp
_all_gather_base = all_gather_into_tensor
_reduce_scatter_base = reduce_scatter_tensor


class DistQueueEmptyError(DistStoreError):
    """A store's queue has nothing."""


class Backend(str):
    """A backend's name, in lower case."""

    UNDEFINED, GLOO, NCCL, MPI = "undefined", "gloo", "nccl", "mpi"
    backend_list = [UNDEFINED, GLOO, NCCL, MPI]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL}
    backend_capability = {GLOO: ["cpu", "cuda"], NCCL: ["cuda"], MPI: ["cpu", "cuda"]}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        return super().__new__(cls, name.lower())


def is_available() -> bool:
    """True: processes can be told apart, and one alone works without MPI."""
    return True


def _mpi() -> bool:
    import importlib.util
    return importlib.util.find_spec("mpi4py") is not None


def is_mpi_available() -> bool:
    """Whether mpi4py is installed, which serves groups of several processes."""
    return _mpi()


def is_gloo_available() -> bool:
    """Whether the backend "gloo" can be asked for: MPI serves it."""
    return _mpi()


def is_nccl_available() -> bool:
    """Whether the backend "nccl" can be asked for: MPI serves it, on GPUs and simulated GPUs."""
    from .. import cuda
    return _mpi() and cuda.is_available()


def is_ucc_available() -> bool:
    """False."""
    return False


def is_xccl_available() -> bool:
    """False."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether a backend can be asked for by this name."""
    return backend.lower() in ("gloo", "mpi", "nccl") and _mpi()


def get_default_backend_for_device(device: Any) -> str:
    """"nccl" for GPUs, "gloo" for the CPU."""
    from .._core.runtime.device import device as Device
    return "nccl" if Device(device).type == "cuda" else "gloo"


def is_torchelastic_launched() -> bool:
    """Whether a launcher such as torchrun or `flambeau run --nproc` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def supports_complex(reduceOp: Any) -> bool:
    """Whether complex tensors can be combined so."""
    return ReduceOp(reduceOp.op if isinstance(reduceOp, ReduceOp) else reduceOp).op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.PREMUL_SUM)


_PARTS = ("tensor", "fsdp", "checkpoint", "optim", "pipelining", "nn")


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_get_default_group = _world.default
_stand_ins.install(__name__, globals())

__all__ = [
    "Backend", "DeviceMesh", "DistBackendError", "DistError", "DistNetworkError", "DistQueueEmptyError", "DistStoreError", "FileStore", "GroupMember",
    "HashStore", "P2POp", "PrefixStore", "ProcessGroup", "ReduceOp", "Store", "TCPStore", "Work", "all_gather", "all_gather_coalesced",
    "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "broadcast_object_list", "destroy_process_group", "gather", "gather_object", "get_backend",
    "get_backend_config", "get_default_backend_for_device", "get_global_rank", "get_group_rank",
    "get_node_local_rank", "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_device_mesh", "init_process_group", "irecv",
    "is_available",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available",
    "is_xccl_available", "isend", "monitored_barrier", "new_group", "new_subgroups", "new_subgroups_by_enumeration", "recv", "recv_object_list", "reduce",
    "reduce_op", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list", "split_group", "supports_complex",
    "_coalescing_manager", "_make_nccl_premul_sum",
]
