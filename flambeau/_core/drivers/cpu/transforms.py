"""Fourier transforms on the CPU by NumPy's pocketfft, in the precision of the elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.programs import Prepared
from ...layout import contiguous_strides, numel

if TYPE_CHECKING:
    from ...kernels.specs import Fft


def transform(spec: Fft) -> Prepared:
    """Over any axes.  Transforms of real numbers are made of complex ones."""
    import numpy as np

    from ...kernels.interpret import memory
    shape, axes, d, scale, inverse = spec.shape, spec.axes, spec.dtype, spec.scale, spec.inverse
    strides = contiguous_strides(shape)

    def entry(to: int, source: int) -> None:
        values = memory(source, shape, strides, d)
        # "forward" norm leaves the inverse unscaled, "backward" the forward one
        made = np.fft.ifftn(values, axes=axes, norm="forward") if inverse else np.fft.fftn(values, axes=axes, norm="backward")
        memory(to, shape, strides, d)[...] = made * scale if scale != 1.0 else made
    size, n = numel(shape), numel([shape[a] for a in axes])
    return Prepared("fft", entry, nbytes=2 * size * d.itemsize, flops=5 * size * max(n.bit_length() - 1, 1))
