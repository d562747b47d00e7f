"""Scaled dot-product attention's choices (torch.nn.attention): `SDPBackend` and `sdpa_kernel`; `flex_attention` and `bias` beside them."""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING, Any

from ..._core.runtime import backend_flags

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """Ways to compute attention by PyTorch's names.

    On a GPU, CUDNN_ATTENTION is cuDNN's, which serves 16-bit floats without mask or dropout and comes first; FLASH_ATTENTION,
    EFFICIENT_ATTENTION and OVERRIDEABLE are kernels of our own; MATH is a softmax between products, and serves where no other does.
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_SWITCHES = {SDPBackend.MATH: "attention.math", SDPBackend.FLASH_ATTENTION: "attention.flash", SDPBackend.EFFICIENT_ATTENTION: "attention.efficient",
             SDPBackend.CUDNN_ATTENTION: "attention.cudnn", SDPBackend.OVERRIDEABLE: "attention.overrideable"}
_OWN = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.OVERRIDEABLE)
_order: list[SDPBackend] = list(_SWITCHES)


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """A block for which some backends are chosen: an `SDPBackend` or several, with `set_priority` the first first.

    What none of them serves is computed all the same.  Raises TypeError for anything else, RuntimeError for none at all.
    """
    global _order
    chosen = [backends] if isinstance(backends, SDPBackend) else list(dict.fromkeys(backends)) if isinstance(backends, (list, tuple)) else None
    if chosen is None or not all(isinstance(b, SDPBackend) for b in chosen):
        raise TypeError(f"sdpa_kernel: backends must be an SDPBackend or a list of them, got {backends!r}")
    if not chosen:
        raise RuntimeError("sdpa_kernel: at least one backend must be given")
    before = {name: backend_flags.values[name] for name in (*_SWITCHES.values(), "attention.own_first")}
    order = _order
    for b, name in _SWITCHES.items():
        backend_flags.put(name, b in chosen)
    if set_priority:
        _order = [*chosen, *[b for b in _order if b not in chosen]]
        backend_flags.put("attention.own_first", next((b in _OWN for b in chosen if b is not SDPBackend.MATH), False))
    try:
        yield
    finally:
        _order = order
        for name, value in before.items():
            backend_flags.put(name, value)


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    return [b for b in (_order if with_priority else _SWITCHES) if backend_flags.values[_SWITCHES[b]]]
