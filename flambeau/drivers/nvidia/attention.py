"""Attention on NVIDIA GPUs, by our own kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.cuda_c.attention import Attention

if TYPE_CHECKING:
    from ...dtypes import dtype
    from ...kernels.programs import Prepared
    from .launches import Launches


def forward(launches: Launches, device: int, d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: tuple[int, ...], scale: float,
            steps: dict[str, tuple[int, ...]]) -> Prepared | None:
    """``entry(O, LSE, Q, K, V, [mask,] [seed, offset, p])``, LSE of float32: see `kernels.routines.attention`."""
    try:
        kernel = Attention(d, mask, causal, drop, sizes, scale, steps, _room(launches, device)).forward()
    except NotImplementedError:
        return None
    return launches.kernel("attention", kernel)


def backward(launches: Launches, device: int, d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: tuple[int, ...], scale: float,
             steps: dict[str, tuple[int, ...]]) -> Prepared | None:
    """``entry(DQ, DK, DV, DO, O, LSE, Q, K, V, [mask,] workspace, [seed, offset, p])``; DK and DV are of the key heads."""
    try:
        kernel = Attention(d, mask, causal, drop, sizes, scale, steps, _room(launches, device)).backward()
    except NotImplementedError:
        return None
    return launches.kernel("attention_backward", kernel)


def _room(launches: Launches, device: int) -> int:
    """Bytes of shared memory that a block may have."""
    room: int = getattr(launches.driver.properties(device), "shared_memory_per_block_optin", 0)
    return room or 48 << 10
