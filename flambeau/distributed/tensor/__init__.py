"""Tensors in parts over a mesh of processes (torch.distributed.tensor): `DTensor`, its placements, and modules made of them."""

from __future__ import annotations

from ..device_mesh import DeviceMesh, init_device_mesh
from . import propagation as _propagation
from .dtensor import DTensor, distribute_tensor
from .modules import distribute_module, empty, full, ones, rand, randn, zeros
from .placement_types import Partial, Placement, Replicate, Shard

_propagation._fill()

__all__ = ["DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
           "init_device_mesh", "ones", "rand", "randn", "zeros"]
