"""`DistributedDataParallel` in a world of one process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .module import Module


class DistributedDataParallel(Module):
    """Wraps a module for training by several processes; in a world of one it runs it as it is.

    Raises ValueError when `distributed.init_process_group` was not called first, RuntimeError for a module none of
    whose parameters requires grad.  State-dict names begin with "module.".
    """

    module: Module

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0, broadcast_buffers: bool = True,
                 **options: Any) -> None:
        super().__init__()
        from .. import distributed
        distributed.get_world_size()
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        self.module = module
        self.device_ids = device_ids
        self.output_device = output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block in which gradients are not exchanged; there is nobody to exchange them with."""
        yield

    def join(self, *args: Any, **options: Any) -> Any:
        """A block for uneven inputs; with one process they are even."""
        return contextlib.nullcontext()


__all__ = ["DistributedDataParallel"]
