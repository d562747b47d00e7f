"""One process as a group of its own (torch.distributed): rank 0 of 1, so that scripts written for many run alone.

`init_process_group` with a world of more than one raises NotImplementedError: several processes have a version of
their own to come.  In a world of one each collective gives a tensor back as it came, on any device.
"""

from __future__ import annotations

import enum
import os
from typing import Any

from .._core.ops import copies
from .._core.tensor import Tensor
from . import stand_ins as _stand_ins


class ReduceOp:
    """How tensors of several processes are combined."""

    class RedOpType(enum.IntEnum):
        """The kinds; each is found on `ReduceOp` too."""

        SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = RedOpType


class _World:
    """The one group."""

    backend: str | None = None

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 1


class Work:
    """A collective already done."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True


ProcessGroup = _World
_world = _World()


class group:
    """`group.WORLD` is the one group."""

    WORLD = _world


GroupMember = group
reduce_op = ReduceOp


class Backend(str):
    """A backend's name."""

    GLOO, NCCL, MPI = "gloo", "nccl", "mpi"


def is_available() -> bool:
    """True: the forms for a single process are here."""
    return True


def is_initialized() -> bool:
    """Whether `init_process_group` was called."""
    return _world.backend is not None


def is_nccl_available() -> bool:
    """False: there is no NCCL here."""
    return False


def is_gloo_available() -> bool:
    """False: there is no Gloo here."""
    return False


def is_mpi_available() -> bool:
    """False: there is no MPI here."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher such as torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: Any = None, world_size: int = -1,
                       rank: int = -1, store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Any = None,
                       _ranks: Any = None) -> None:
    """Makes this process a group of one.  The size comes from `world_size`, else from WORLD_SIZE, else it is 1.

    Raises NotImplementedError for a larger world, ValueError for a rank other than 0 or when called twice.
    """
    if _world.backend is not None:
        raise ValueError("trying to initialize the default process group twice!")
    size = world_size if world_size != -1 else int(os.environ.get("WORLD_SIZE", "1"))
    me = rank if rank != -1 else int(os.environ.get("RANK", "0"))
    if size != 1:
        raise NotImplementedError(f"init_process_group: a world of {size} processes was asked for; this version runs in a world of one. "
                                  "For several GPUs in one process use nn.DataParallel or place modules by hand")
    if me != 0:
        raise ValueError(f"init_process_group: rank {me} is not in a world of one process")
    _world.backend = (backend or "gloo").lower()


def destroy_process_group(group: Any = None) -> None:
    """Ends the group."""
    _world.backend = None


def _group(what: str) -> None:
    if _world.backend is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


def get_rank(group: Any = None) -> int:
    """0."""
    _group("get_rank")
    return 0


def get_world_size(group: Any = None) -> int:
    """1."""
    _group("get_world_size")
    return 1


def get_backend(group: Any = None) -> str:
    """The name `init_process_group` was given."""
    _group("get_backend")
    return str(_world.backend)


def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None, use_local_synchronization: bool = False,
              group_desc: str | None = None, device_id: Any = None, sort_ranks: bool = True) -> _World:
    """The one group."""
    _group("new_group")
    return _world


def get_process_group_ranks(group: Any = None) -> list[int]:
    """[0]."""
    return [0]


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank itself."""
    return group_rank


def _done(async_op: bool) -> Work | None:
    return Work() if async_op else None


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None) -> Work | None:
    """There is nobody to wait for."""
    _group("barrier")
    return _done(async_op)


def _checked(name: str, tensor: Any) -> None:
    _group(name)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `tensor` of type torch.Tensor but got {type(tensor)} instead.")


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The tensor stays as it is: sum, product, extremes and mean over one process."""
    _checked("all_reduce", tensor)
    return _done(async_op)


def reduce(tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    """The tensor stays as it is."""
    _checked("reduce", tensor)
    return _done(async_op)


def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None) -> Work | None:
    """The tensor stays as it is."""
    _checked("broadcast", tensor)
    return _done(async_op)


def _copy(out: Any, tensor: Tensor) -> None:
    from ..autograd import no_grad
    with no_grad():
        copies.copy_(out, tensor)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """tensor_list[0] becomes the tensor."""
    _checked("all_gather", tensor)
    if len(tensor_list) != 1:
        raise ValueError(f"all_gather: tensor_list must hold one tensor a process, 1 here, got {len(tensor_list)}")
    _copy(tensor_list[0], tensor)
    return _done(async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """output_tensor becomes the input."""
    _checked("all_gather_into_tensor", input_tensor)
    _copy(output_tensor, input_tensor.reshape(output_tensor.shape))
    return _done(async_op)


def gather(tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int = 0, group: Any = None, async_op: bool = False,
           **options: Any) -> Work | None:
    """gather_list[0] becomes the tensor."""
    _checked("gather", tensor)
    return all_gather(gather_list or [], tensor, group, async_op)


def scatter(tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int = 0, group: Any = None, async_op: bool = False,
            **options: Any) -> Work | None:
    """The tensor becomes scatter_list[0]."""
    _checked("scatter", tensor)
    if scatter_list is None or len(scatter_list) != 1:
        raise ValueError("scatter: scatter_list must hold one tensor a process, 1 here")
    _copy(tensor, scatter_list[0])
    return _done(async_op)


def reduce_scatter(output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """output becomes input_list[0]."""
    return scatter(output, input_list, 0, group, async_op)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """output becomes the input."""
    _checked("reduce_scatter_tensor", input)
    _copy(output, input.reshape(output.shape))
    return _done(async_op)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None,
                      async_op: bool = False) -> Work | None:
    """output becomes the input."""
    _checked("all_to_all_single", input)
    _copy(output, input)
    return _done(async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """object_list[0] becomes the object."""
    _group("all_gather_object")
    object_list[0] = obj


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0, group: Any = None, **options: Any) -> None:
    """object_gather_list[0] becomes the object."""
    _group("gather_object")
    if object_gather_list is not None:
        object_gather_list[0] = obj


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None) -> None:
    """The list stays as it is."""
    _group("broadcast_object_list")


def _alone(name: str) -> Any:
    raise RuntimeError(f"{name}: this process is alone in its group; there is no other to talk to")


def send(tensor: Tensor, dst: int = 0, group: Any = None, tag: int = 0, **options: Any) -> None:
    """Raises RuntimeError: there is nobody else."""
    _alone("send")


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, **options: Any) -> int:
    """Raises RuntimeError: there is nobody else."""
    found: int = _alone("recv")
    return found


_get_default_group = new_group
_stand_ins.install(__name__, globals())

__all__ = [name for name in list(globals()) if not name.startswith("_") and name not in ("annotations", "enum", "os", "Any", "Tensor", "copies", "stand_ins")]
