"""torch._inductor: its settings, remembered and without effect."""

from __future__ import annotations

from typing import Any

from ._dynamo import Settings

config: Any = Settings(f"{__name__}.config")

__all__ = ["config"]
