"""Scaled dot-product attention's choices (torch.nn.attention): `SDPBackend` and `sdpa_kernel`; `flex_attention` and `bias` beside them."""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING, Any

from ...runtime import switches

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """Ways to compute attention by PyTorch's names.  Where only MATH is allowed, a GPU's is a softmax between products; else the one
    kernel that fits is taken."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_allowed: list[SDPBackend] = [b for b in SDPBackend if b is not SDPBackend.ERROR]


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """A block for which some backends are chosen: an `SDPBackend` or several.  The results are the same with each.

    Raises TypeError for anything else, RuntimeError for none at all.
    """
    global _allowed
    chosen = [backends] if isinstance(backends, SDPBackend) else list(dict.fromkeys(backends)) if isinstance(backends, (list, tuple)) else None
    if chosen is None or not all(isinstance(b, SDPBackend) for b in chosen):
        raise TypeError(f"sdpa_kernel: backends must be an SDPBackend or a list of them, got {backends!r}")
    if not chosen:
        raise RuntimeError("sdpa_kernel: at least one backend must be given")
    before, _allowed = _allowed, chosen
    fused = switches.values["attention.fused"]
    switches.put("attention.fused", any(b is not SDPBackend.MATH for b in chosen))
    try:
        yield
    finally:
        _allowed = before
        switches.put("attention.fused", fused)


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    return list(_allowed)
