"""Optimizers of many processes."""

from __future__ import annotations

from ...interop import stand_ins
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer

globals().update(stand_ins.names(__name__, "DistributedOptimizer PostLocalSGDOptimizer", "this optimizer is not here; ZeroRedundancyOptimizer is"))

__all__ = ["ZeroRedundancyOptimizer"]
