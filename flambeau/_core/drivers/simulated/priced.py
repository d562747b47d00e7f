"""A simulated GPU that carries nothing out: what a program asks of it is priced, and its memory stays as it is.

A program's predicted time needs none of its values, so a large one is priced on a small machine.  What it reads back are zeros.  Products, convolutions
and attention are taken as a GPU's libraries do them, whatever the CPU has for their types.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...kernels.programs import PreparedLaunch
from ...kernels.specs import Attention, AttentionGradient, Convolution, Product
from . import clock
from .driver import SimulatedDriver

if TYPE_CHECKING:
    from ...kernels.specs import Spec


class PricedDriver(SimulatedDriver):
    """`models`: a name or model file for each GPU."""

    def __init__(self, models: list[str]) -> None:
        super().__init__(models, queue="lazy")

    def prepare(self, device: int, spec: Spec) -> PreparedLaunch | None:
        made = _library(spec)
        if made is None:
            return super().prepare(device, spec)
        made.spec = spec
        return made

    def _carry_out(self, device: int, item: Any) -> None:
        pass


def _nothing(*args: Any) -> None:
    pass


def _library(spec: Spec) -> PreparedLaunch | None:
    """What a GPU's library is asked for; None for other work."""
    if type(spec) is Product:
        if spec.dtype.kind not in "fc" or not spec.k or spec.epilogue not in ("", "bias", "row sums"):
            return None
        nbytes = (spec.m * spec.k + spec.k * spec.n + spec.m * spec.n) * spec.batch * spec.dtype.itemsize
        return PreparedLaunch(f"matmul_{spec.dtype.name}", _nothing, nbytes=nbytes,
                              flops=(8 if spec.dtype.kind == "c" else 2) * spec.batch * spec.m * spec.n * spec.k)
    if type(spec) is Convolution:
        if spec.dtype.kind != "f":
            return None
        batch, m, n, k = clock.product_sizes(spec) or (0, 0, 0, 0)
        return PreparedLaunch(f"convolution_{spec.dtype.name}", _nothing, nbytes=sum(prod(o[0]) for o in (spec.x, spec.w, spec.y)) * spec.dtype.itemsize,
                              flops=2 * batch * m * n * k)
    if isinstance(spec, (Attention, AttentionGradient)):
        if spec.dtype.kind != "f":
            return None
        images, heads, shared, queries, keys, depth, values = spec.sizes
        back = type(spec) is AttentionGradient
        touched = images * heads * (queries * (depth + values) + keys * (depth + values) // shared) * spec.dtype.itemsize
        pairs = images * heads * queries * keys // (2 if spec.causal else 1)
        return PreparedLaunch(f"attention{'_backward' if back else ''}_{spec.dtype.name}", _nothing, outputs=3 if back else 2,
                              nbytes=touched * (2 if back else 1), flops=(5 if back else 2) * pairs * (depth + values))
    return None
