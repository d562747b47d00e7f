"""Collectives that give a new tensor and leave what they are given as it is (torch.distributed._functional_collectives).

Each is done when it returns, on a GPU in the order of the current stream, so `wait_tensor` has nothing to wait for.
A group is a `ProcessGroup`, a mesh of one axis, a mesh and an axis of it, or a list of global ranks that is all of the default group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import ops
from ..autograd import no_grad
from . import collectives, nn, world
from .collectives import ReduceOp
from .device_mesh import DeviceMesh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._core.tensor import Tensor

_NAMES = {"sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "product": ReduceOp.PRODUCT, "min": ReduceOp.MIN, "max": ReduceOp.MAX, "band": ReduceOp.BAND,
          "bor": ReduceOp.BOR, "bxor": ReduceOp.BXOR}


def _op(name: Any) -> Any:
    if isinstance(name, str):
        if name.lower() not in _NAMES:
            raise ValueError(f"Invalid reduce operation: {name}; expected one of {list(_NAMES)}")
        return _NAMES[name.lower()]
    return name


def _group(group: Any) -> Any:
    """The process group that a group argument means.  Raises ValueError for a mesh of several axes, TypeError for anything else."""
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise ValueError("Only 1D mesh is supported, pass in (DeviceMesh, int) together if mesh > 1D")
        return group.get_group()
    if isinstance(group, list):
        if group != list(range(world.get_world_size())):
            raise ValueError(f"a list of ranks must be all of the default group's, got {group}; pass a ProcessGroup")
        return world.default()
    if isinstance(group, str):
        found = [g for g in world.state.groups if g.group_name == group]
        if not found:
            raise RuntimeError(f"Could not resolve the process group registered under the name {group}")
        return found[0]
    return world.of(group)


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor, which is there already."""
    return tensor


def all_reduce(self: Tensor, reduceOp: Any, group: Any = None, tag: str = "") -> Tensor:  # noqa: N803 (PyTorch's name)
    """The combination of all processes' tensors: "sum", "avg", "max" ..."""
    with no_grad():
        found = self.detach().clone()
        collectives.all_reduce(found, _op(reduceOp), _group(group))
    return found


def broadcast(self: Tensor, src: int, group: Any = None, tag: str = "") -> Tensor:
    """The tensor of process `src` of the group."""
    with no_grad():
        found = self.detach().clone()
        collectives.broadcast(found, group=_group(group), group_src=src)
    return found


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any = None, tag: str = "") -> Tensor:
    """All processes' tensors, which are of one shape, joined along an axis."""
    g = _group(group)
    with no_grad():
        own = self.detach().contiguous()
        found = own.new_empty((g.size() * own.shape[0], *own.shape[1:]))
        collectives.all_gather_into_tensor(found, own, g)
        joined: Tensor = found if gather_dim == 0 else ops.cat(found.chunk(g.size()), gather_dim)
    return joined


def reduce_scatter_tensor(self: Tensor, reduceOp: Any, scatter_dim: int, group: Any = None, tag: str = "") -> Tensor:  # noqa: N803
    """This process's part, along an axis, of the combination of all processes' tensors.  Raises AssertionError where the axis cannot be cut evenly."""
    g = _group(group)
    if self.shape[scatter_dim] % g.size():
        raise AssertionError(f"input dimension {scatter_dim} ({self.shape[scatter_dim]}) must be a multiple of group_size {g.size()}")
    with no_grad():
        own = self.detach()
        own = own.contiguous() if scatter_dim == 0 else ops.cat(own.chunk(g.size(), scatter_dim))
        found = own.new_empty((own.shape[0] // g.size(), *own.shape[1:]))
        collectives.reduce_scatter_tensor(found, own, _op(reduceOp), g)
    return found


def all_to_all_single(self: Tensor, output_split_sizes: Sequence[int] | None, input_split_sizes: Sequence[int] | None, group: Any = None,
                      tag: str = "") -> Tensor:
    """Rows to every process and rows from every process; evenly without sizes."""
    g = _group(group)
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    with no_grad():
        found = self.new_empty((rows, *self.shape[1:]))
        collectives.all_to_all_single(found, self.detach().contiguous(), output_split_sizes, input_split_sizes, g)
    return found


def permute_tensor(self: Tensor, src_dst: Sequence[int], group: Any = None, tag: str = "") -> Tensor:
    """Process r's tensor goes to process ``src_dst[r]`` of the group; every process gets one."""
    g = _group(group)
    rank, n = g.rank(), self.shape[0]
    return all_to_all_single(self, [n if to == rank else 0 for to in src_dst], [n if to == src_dst[rank] else 0 for to in range(g.size())], g)


def all_gather_tensor_autograd(self: Tensor, gather_dim: int, group: Any = None, tag: str = "") -> Tensor:
    """`all_gather_tensor` with a gradient."""
    found: Tensor = ops.cat(list(nn.all_gather(self, _group(group))), gather_dim)
    return found


def reduce_scatter_tensor_autograd(self: Tensor, reduceOp: Any, scatter_dim: int, group: Any = None, tag: str = "") -> Tensor:  # noqa: N803
    """`reduce_scatter_tensor` with a gradient."""
    g = _group(group)
    parts = [p.contiguous() for p in self.chunk(g.size(), scatter_dim)]
    room: Tensor = ops.empty_like(parts[0])
    return nn.reduce_scatter(room, parts, _op(reduceOp), g)


def all_to_all_single_autograd(self: Tensor, output_split_sizes: Sequence[int] | None, input_split_sizes: Sequence[int] | None, group: Any = None,
                               tag: str = "") -> Tensor:
    """`all_to_all_single` with a gradient."""
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    return nn.all_to_all_single(self.new_empty((rows, *self.shape[1:])), self.contiguous(), output_split_sizes, input_split_sizes, _group(group))


# torch.ops._c10d_functional: the same along the first axis, by arguments of another order
def all_gather_rows(self: Tensor, group_size: int, group_name: Any) -> Tensor:
    """`all_gather_tensor` along the first axis."""
    return all_gather_tensor(self, 0, group_name)


def reduce_scatter_rows(self: Tensor, reduce_op: Any, group_size: int, group_name: Any) -> Tensor:
    """`reduce_scatter_tensor` along the first axis."""
    return reduce_scatter_tensor(self, reduce_op, 0, group_name)


__all__ = ["all_gather_tensor", "all_gather_tensor_autograd", "all_reduce", "all_to_all_single", "all_to_all_single_autograd", "broadcast", "permute_tensor",
           "reduce_scatter_tensor", "reduce_scatter_tensor_autograd", "wait_tensor"]
