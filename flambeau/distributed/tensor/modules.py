"""Modules whose parameters are DTensors, and new DTensors by their shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import ops
from ...nn.module import Module
from ...nn.parameter import Parameter
from ..device_mesh import DeviceMesh, current
from .dtensor import DTensor, checked_placements, distribute_tensor, make
from .placement_types import Replicate
from .spec import local_piece

if TYPE_CHECKING:
    from collections.abc import Callable


def _cut(t: Any) -> bool:
    return isinstance(t, DTensor)


def distribute_module(module: Module, device_mesh: DeviceMesh | None = None, partition_fn: Any = None, input_fn: Any = None,
                      output_fn: Any = None) -> Module:
    """Makes a module's parameters and buffers DTensors.

    partition_fn: called with the name of each submodule, the submodule and the mesh, it distributes what it likes; all else is replicated.
    input_fn, output_fn: called with the module, its inputs or its output, and the mesh; what they give is used instead.
    """
    mesh = current() if device_mesh is None else device_mesh
    for name, m in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, m, mesh)
        for key, p in list(m._parameters.items()):
            if p is not None and not _cut(p):
                m._parameters[key] = Parameter(distribute_tensor(p, mesh, [Replicate()] * mesh.ndim), p.requires_grad)
        for key, b in list(m._buffers.items()):
            if b is not None and not _cut(b):
                m._buffers[key] = distribute_tensor(b, mesh, [Replicate()] * mesh.ndim)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, outputs: output_fn(m, outputs, mesh))
    return module


def _sizes(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], tuple | list) else tuple(size)


def _filled(name: str, by: Callable[..., Any], whole: bool) -> Callable[..., Any]:
    def made(*size: Any, requires_grad: bool = False, device_mesh: DeviceMesh | None = None, placements: Any = None, dtype: Any = None,
             layout: Any = None) -> Any:
        mesh = current() if device_mesh is None else device_mesh
        shape = _sizes(size)
        placed = checked_placements(placements, mesh, len(shape), name)
        if any(p.is_partial() for p in placed):
            raise RuntimeError(f"{name}: Partial() is what operations give; make a tensor by Shard and Replicate")
        sizes, starts = local_piece(shape, mesh, placed)
        local = by(shape if whole else sizes, dtype=dtype, device=mesh.device_type)
        if whole:  # random numbers do not depend on the cut
            for d, (n, start) in enumerate(zip(sizes, starts)):
                local = local.narrow(d, start, n)
            local = local.clone()
        return make(local, mesh, placed, shape).requires_grad_(requires_grad)
    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"`torch.{name}` as a DTensor over `device_mesh`, lying by `placements` (replicated without)."
    return made


zeros = _filled("zeros", ops.zeros, False)
ones = _filled("ones", ops.ones, False)
empty = _filled("empty", ops.empty, False)
rand = _filled("rand", ops.rand, True)
randn = _filled("randn", ops.randn, True)


def full(size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, requires_grad: bool = False, device_mesh: DeviceMesh | None = None,
         placements: Any = None) -> Any:
    """`torch.full` as a DTensor."""
    return _filled("full", lambda shape, **how: ops.full(shape, fill_value, **how), False)(
        size, dtype=dtype, requires_grad=requires_grad, device_mesh=device_mesh, placements=placements)
