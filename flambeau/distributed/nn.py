"""Collectives that gradients pass through (torch.distributed.nn), in a world of one process."""

from __future__ import annotations

from typing import Any

from .._core import ops
from .._core.tensor import Tensor
from . import ReduceOp, get_rank, get_world_size


def _alone(group: Any) -> None:
    get_rank(group), get_world_size(group)  # raises where there is no group


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The tensor combined over all processes: of one process, a copy of its own."""
    _alone(group)
    copy: Tensor = ops.clone(tensor)
    return copy


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """`all_reduce`, at `dst` alone."""
    return all_reduce(tensor, op, group)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process `src`."""
    return all_reduce(tensor, group=group)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensor of each process."""
    return (all_reduce(tensor, group=group),)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> list[Tensor]:
    """The tensor of each process, at `dst`."""
    return [all_reduce(tensor, group=group)]


def scatter(tensors: list[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This process' part of the list that `src` holds."""
    return all_reduce(tensors[0], group=group)


def reduce_scatter(output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """This process' part of the lists combined."""
    return all_reduce(input_list[0], op, group)


def all_to_all(output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None) -> tuple[Tensor, ...]:
    """From each process the tensor it holds for this one."""
    return (all_reduce(input_tensor_list[0], group=group),)


__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"]
