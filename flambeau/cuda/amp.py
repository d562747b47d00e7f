"""Mixed precision on GPUs under its older names (torch.cuda.amp)."""

from __future__ import annotations

import functools
from typing import Any

from .._core import dtypes
from .._core.dtypes import dtype as _dtype
from ..amp import GradScaler as _GradScaler
from ..amp import autocast as _autocast
from ..amp import custom_bwd as _custom_bwd
from ..amp import custom_fwd as _custom_fwd


class autocast(_autocast):
    """`amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: _dtype = dtypes.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """`amp.GradScaler("cuda", ...)`."""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


custom_fwd: Any = functools.partial(_custom_fwd, device_type="cuda")
custom_bwd: Any = functools.partial(_custom_bwd, device_type="cuda")
autocast_mode = autocast


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU for mixed precision (torch.cuda.amp.common)."""
    from . import is_available
    return not is_available()


__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]
