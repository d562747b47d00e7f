"""oneDNN (torch.backends.mkldnn), which serves 16-bit products on the CPU where it is installed."""

from __future__ import annotations

enabled = True


def is_available() -> bool:
    from .._core.drivers.cpu import onednn
    return onednn.library() is not None


__all__ = ["enabled", "is_available"]
