"""Mixed precision: `autocast` regions and the `GradScaler` (torch.amp)."""

from __future__ import annotations

from .autocast import (
    autocast,
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    custom_bwd,
    custom_fwd,
    get_autocast_cpu_dtype,
    get_autocast_dtype,
    get_autocast_gpu_dtype,
    get_autocast_xla_dtype,
    is_autocast_available,
    is_autocast_cache_enabled,
    is_autocast_cpu_enabled,
    is_autocast_enabled,
    is_autocast_xla_enabled,
    set_autocast_cache_enabled,
    set_autocast_cpu_dtype,
    set_autocast_cpu_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
    set_autocast_gpu_dtype,
    set_autocast_xla_dtype,
    set_autocast_xla_enabled,
)
from .grad_scaler import GradScaler, OptState

autocast_mode = autocast
__all__ = ["GradScaler", "OptState", "autocast", "autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache",
           "custom_bwd", "custom_fwd", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_available",
           "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled", "set_autocast_cache_enabled",
           "set_autocast_cpu_dtype", "set_autocast_dtype", "set_autocast_enabled", "set_autocast_gpu_dtype",
           "get_autocast_xla_dtype", "is_autocast_xla_enabled", "set_autocast_cpu_enabled", "set_autocast_xla_dtype", "set_autocast_xla_enabled"]
