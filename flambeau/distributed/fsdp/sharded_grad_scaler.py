"""Scaling of losses whose gradients lie in pieces."""

from __future__ import annotations

from typing import Any

from ..._core.dtypes import float32
from ..._core.ops import zeros
from ..._core.runtime.asking import unasked
from ...amp.grad_scaler import GradScaler
from .. import collectives, world


class ShardedGradScaler(GradScaler):
    """`GradScaler`; an infinity that one process finds is known to all."""

    def __init__(self, device: str = "cuda", init_scale: float = 2.0 ** 16, backoff_factor: float = 0.5, growth_factor: float = 2.0,
                 growth_interval: int = 2000, enabled: bool = True, process_group: Any = None) -> None:
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.process_group = process_group

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Any]:
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        if not world.is_initialized():
            return found
        bad = sum((unasked(f.to(float32).sum().cpu)() for f in found.values()), zeros(()))
        where = unasked(bad.cuda)() if world.get_backend(self.process_group) == "nccl" else bad
        collectives.all_reduce(where, collectives.ReduceOp.MAX, self.process_group)
        mine: Any = where > 0
        return {device: f | unasked(mine.to)(f.device) for device, f in found.items()} or {mine.device: mine}
