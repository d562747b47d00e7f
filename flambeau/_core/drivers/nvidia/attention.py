"""Attention on NVIDIA GPUs: by cuDNN where it may and can, else by our own kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.cuda_c.attention import Attention
from . import cudnn_attention

if TYPE_CHECKING:
    from ...dtypes import dtype
    from ...kernels.programs import Prepared
    from .launches import Launches

    Ways = tuple[bool, bool, bool]


def forward(launches: Launches, device: int, d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: tuple[int, ...], scale: float,
            steps: dict[str, tuple[int, ...]], ways: Ways = (True, True, False)) -> Prepared | None:
    """``entry(O, LSE, Q, K, V, [mask,] [workspace,] [seed, offset, p])``, LSE of float32: see `kernels.routines.attention`.

    ways: whether cuDNN may do it, whether our own kernels may, and whether sums are to be added up in the same order each time.
    """
    what = (d, mask, causal, drop, sizes, scale, steps)
    return _either(launches, device, *what, ways, _own(launches, device, *what, False), False)


def backward(launches: Launches, device: int, d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: tuple[int, ...], scale: float,
             steps: dict[str, tuple[int, ...]], ways: Ways = (True, True, False)) -> Prepared | None:
    """``entry(DQ, DK, DV, DO, O, LSE, Q, K, V, [mask,] workspace, [seed, offset, p])``; DK and DV are of the key heads.

    Either way may have gone forward.  cuDNN adds the gradients of the queries up in an order that differs from run to run unless
    `ways` asks for one; ours always has one.
    """
    what = (d, mask, causal, drop, sizes, scale, steps)
    return _either(launches, device, *what, ways, _own(launches, device, *what, True), True)


def _either(launches: Launches, device: int, d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: tuple[int, ...], scale: float,
            steps: dict[str, tuple[int, ...]], ways: Ways, own: Prepared | None, back: bool) -> Prepared | None:
    found = cudnn_attention.prepare(launches, device, d, mask, causal, drop, sizes, scale, steps, ways, own, back)
    return own if found is None else found


def _own(launches: Launches, device: int, d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: tuple[int, ...], scale: float,
         steps: dict[str, tuple[int, ...]], back: bool) -> Prepared | None:
    """By a kernel of ours; None where there is none."""
    room: int = getattr(launches.driver.properties(device), "shared_memory_per_block_optin", 0)
    try:
        made = Attention(d, mask, causal, drop, sizes, scale, steps, room or 48 << 10)
        kernel = made.backward() if back else made.forward()
    except NotImplementedError:
        return None
    return launches.kernel("attention_backward" if back else "attention", kernel)
