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

    def _unscale(self, optimizer: Any, refuse_half: bool) -> list[Any]:
        found = super()._unscale(optimizer, refuse_half)
        if not world.is_initialized():
            return found
        bad = sum((unasked(f.to(float32).sum().cpu)() for f in found), zeros(()))
        where = unasked(bad.cuda)() if world.get_backend(self.process_group) == "nccl" else bad
        collectives.all_reduce(where, collectives.ReduceOp.MAX, self.process_group)
        return [f | unasked((where > 0).to)(f.device) for f in found] or [where > 0]  # type: ignore[arg-type]  # of several signatures, mypy takes the first
