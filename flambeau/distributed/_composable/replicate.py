"""`replicate`: DistributedDataParallel without a module around the module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...nn.module import Module


def replicate(module: Module, ignored_modules: Iterable[Module] | None = None, **kwargs: Any) -> Module:
    """Has a module's gradients averaged over all processes while backward passes run; gives the module, whose names stay.
    Rank 0's parameters and buffers are given to all before the first forward pass.

    ignored_modules: below it, whose parameters each process keeps for itself.  device_mesh: of one axis, instead of `process_group`.
    Other arguments are those of `DistributedDataParallel`.  The module gets a method `set_requires_gradient_sync(bool)`.
    Raises RuntimeError for a module that is replicated or sharded already, ValueError for a mesh of several axes.
    """
    from ...nn.distributed import DistributedDataParallel
    from ..fsdp.fully_shard import FSDPModule
    if isinstance(module, FSDPModule) or "_replicated" in vars(module):
        raise RuntimeError(f"replicate: {type(module).__name__} is {'sharded' if isinstance(module, FSDPModule) else 'replicated'} already")
    mesh = kwargs.pop("device_mesh", None)
    if mesh is not None:
        if mesh.ndim != 1:
            raise ValueError(f"replicate: the mesh must have one dimension, got {mesh}")
        kwargs["process_group"] = mesh.get_group()
    if kwargs.get("mixed_precision") is not None:
        raise NotImplementedError("replicate: mixed_precision is DistributedDataParallel's alone, which runs the module on parameters of another type")
    device = kwargs.pop("device_id", None)
    if device is not None:
        kwargs["device_ids"] = [device]
    ignored = {id(p) for m in ignored_modules or () for p in m.parameters()}
    if ignored:
        own = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        object.__setattr__(module, "_ddp_params_and_buffers_to_ignore", [*own, *(n for n, p in module.named_parameters() if id(p) in ignored)])
    made: list[Any] = []
    wanted = [True]

    def before(m: Module, args: Any, named: Any) -> Any:
        if not made:  # a module that was replicated on the meta device has memory by now
            made.append(DistributedDataParallel(m, **kwargs))
        made[0].require_backward_grad_sync = wanted[0]
        return made[0]._begin(args, named)

    def set_requires_gradient_sync(requires_gradient_sync: bool) -> None:
        wanted[0] = requires_gradient_sync
    module.register_forward_pre_hook(before, with_kwargs=True)
    object.__setattr__(module, "_replicated", made)
    object.__setattr__(module, "set_requires_gradient_sync", set_requires_gradient_sync)
    return module


__all__ = ["replicate"]
