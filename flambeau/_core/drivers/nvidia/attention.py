"""Attention on NVIDIA GPUs: by cuDNN where it may and can, else by our own kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.cuda_c.handwritten import attention
from . import cudnn_attention

if TYPE_CHECKING:
    from ...dtypes import dtype
    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Attention, AttentionGradient
    from .launches import Launches


def forward(launches: Launches, device: int, spec: Attention) -> PreparedLaunch | None:
    """The sums are of float32."""
    return _either(launches, device, spec, False)


def backward(launches: Launches, device: int, spec: AttentionGradient) -> PreparedLaunch | None:
    """Either way may have gone forward.  cuDNN adds the gradients of the queries up in an order that differs from run to run unless
    `ways` asks for one; ours always has one."""
    return _either(launches, device, spec, True)


def _either(launches: Launches, device: int, spec: Attention | AttentionGradient, back: bool) -> PreparedLaunch | None:
    if not any(spec.ways[:2]):
        return None
    what = (spec.dtype, spec.mask, spec.causal, spec.drop, spec.sizes, spec.scale, dict(spec.steps))
    own = _own(launches, device, *what, back)
    found = cudnn_attention.prepare(launches, device, *what, spec.ways, own, back)
    made = own if found is None else found
    if made is not None:
        made.aligned = 15
    return made


def _own(launches: Launches, device: int, d: dtype, mask: dtype | None, causal: bool, drop: bool, sizes: tuple[int, ...], scale: float,
         steps: dict[str, tuple[int, ...]], back: bool) -> PreparedLaunch | None:
    """By a kernel of ours; None where there is none."""
    room: int = getattr(launches.driver.properties(device), "shared_memory_per_block_optin", 0)
    try:
        made = attention.Attention(d, mask, causal, drop, sizes, scale, steps, room or 48 << 10)
        kernel = made.backward() if back else made.forward()
    except NotImplementedError:
        return None
    return launches.kernel("attention_backward" if back else "attention", kernel)
