"""Tensor parallelism: modules cut over the processes of a mesh by a plan."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from ...._core.errors import warn
from ...device_mesh import DeviceMesh, current
from .loss import loss_parallel
from .style import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

if TYPE_CHECKING:
    from ....nn.module import Module


def _named(module: Module, path: str) -> list[Module]:
    """The submodules that a path with patterns between its dots names."""
    found = [module]
    for part in path.split("."):
        found = [child for m in found for name, child in m.named_children() if fnmatch(name, part)]
    return found


def parallelize_module(module: Module, device_mesh: DeviceMesh | None = None, parallelize_plan: Any = None, *, src_data_rank: int | None = 0) -> Module:
    """Cuts a module over a mesh of one axis.

    parallelize_plan: a `ParallelStyle`, or a dictionary from paths of submodules (``"layers.*.wq"``; ``""`` is the module) to styles.
    Raises ValueError for a mesh of several axes, TypeError for another plan.
    """
    mesh = current() if device_mesh is None else device_mesh
    if mesh.ndim > 1:
        raise ValueError(f"Tensor Parallel only accepts a 1D DeviceMesh, but found {mesh.ndim}D! If you have a 2-D or N-D device_mesh, consider passing in "
                         "device_mesh[\"tp\"]")
    if parallelize_plan is None:
        warn("No parallelize_plan is provided and auto-parallel is not supported at the moment, so this parallelize_module call will do nothing.")
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        targets = _named(module, path) if path else [module]
        if not targets:
            warn(f"Parallelize plan key '{path}' could not be resolved: no submodule matching the path was found.")
        for m in targets:
            if isinstance(style, dict):
                parallelize_module(m, mesh, style, src_data_rank=src_data_rank)
            else:
                style.src_data_rank = src_data_rank
                style._apply(m, mesh)
    return module


__all__ = ["ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel",
           "SequenceParallel", "loss_parallel", "parallelize_module"]

