"""Where pieces lie in the whole (torch.distributed.tensor._utils)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .spec import local_piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..device_mesh import DeviceMesh


def compute_local_shape_and_global_offset(global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this process's piece of a tensor, and where it begins."""
    return local_piece(tuple(global_shape), mesh, placements)


def compute_local_shape(global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Any]) -> tuple[int, ...]:
    """The shape of this process's piece of a tensor."""
    return local_piece(tuple(global_shape), mesh, placements)[0]


def compute_global_tensor_info(tensor: Any, mesh: DeviceMesh, placements: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Shape and strides of the whole, of which this is one of even pieces."""
    shape, stride = list(tensor.shape), list(tensor.stride())
    for i, p in enumerate(placements):
        if p.is_shard():
            step = stride[p.dim]
            shape[p.dim] *= mesh.shape[i]
            stride = [s * mesh.shape[i] if d != p.dim and s >= step and s > 0 and tensor.stride(d) > tensor.stride(p.dim) else s for d, s in enumerate(stride)]
    return shape, stride
