"""Sorting, selecting, searching, counting and compaction on NVIDIA GPUs, by kernels of our own (`kernels/cuda_c`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernels.cuda_c import selecting, sorting

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype
    from ...kernels.cuda_c import Kernel
    from ...kernels.programs import Prepared
    from .launches import Launches

    Strides = tuple[tuple[int, ...], ...]


def _made(launches: Launches, name: str, build: Callable[..., Kernel], *what: Any) -> Prepared | None:
    try:
        return launches.kernel(name, build(*what))
    except NotImplementedError:
        return None


def sort(launches: Launches, device: int, d: dtype, domain: tuple[int, ...], strides: Strides, descending: bool, width: int) -> Prepared | None:
    """``entry(values, places, source)``: the first `width` elements in order of each row of the last axis; see `sorting.sort`."""
    selected = width <= selecting.MOST and domain[-1] > sorting.longest(d)
    return _made(launches, "sort", *((selecting.first if selected else sorting.sort), d, domain, strides, descending, width))


def element(launches: Launches, device: int, d: dtype, domain: tuple[int, ...], strides: Strides, k: int, middle: str) -> Prepared | None:
    """``entry(values, places, source)``: one element of each row of the last axis; see `selecting.one`."""
    return _made(launches, "select", selecting.one, d, domain, strides, k, middle)
