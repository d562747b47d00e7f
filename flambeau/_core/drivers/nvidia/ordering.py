"""Sorting, selecting, searching, counting and compaction on NVIDIA GPUs, by kernels of our own (`kernels/cuda_c`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernels.cuda_c import compacting, searching, selecting, sorting
from .complaints import Complaints

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


def nonzero_count(launches: Launches, device: int, d: dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> Prepared | None:
    """``entry(counts, source)``; see `compacting.count`."""
    return _made(launches, "nonzero", compacting.count, d, shape, strides)


def nonzero_write(launches: Launches, device: int, d: dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> Prepared | None:
    """``entry(out, source, counts, most, step, apart)``; see `compacting.write`."""
    return _made(launches, "nonzero", compacting.write, d, shape, strides)


def spread(launches: Launches, device: int, n: int) -> Prepared | None:
    """``entry(out, places, values)``; see `compacting.spread`."""
    return _made(launches, "spread", compacting.spread, n)


def put(launches: Launches, device: int, d: dtype, domain: tuple[int, ...], length: int, strides: Strides) -> Prepared | None:
    """``entry(out, places, values)``; see `compacting.put`."""
    return _made(launches, "put", compacting.put, d, domain, length, strides)


def search(launches: Launches, device: int, *what: Any) -> Prepared | None:
    """``entry(out, sequence, values)``; see `searching.search`."""
    return _made(launches, "searchsorted", searching.search, *what)


def occurrences(launches: Launches, device: int, n: int, bins: int) -> Prepared | None:
    """``entry(counts, source)``; see `searching.occurrences`."""
    return _made(launches, "bincount", searching.occurrences, n, bins)


def check(launches: Launches, device: int, shape: tuple[int, ...], strides: tuple[int, ...], low: int, high: int, spared: int,
          text: str) -> Prepared | None:
    """``entry(source)``: `text` is raised, with the first number that is found outside [low, high) and is not `spared` in the place of
    its "{}", when the host next waits for the device."""
    driver = launches.driver
    if driver.complaints is None:
        driver.complaints = Complaints(driver)
    return _made(launches, "index check", searching.check, shape, strides, low, high, spared, driver.complaints.slot(device),
                 driver.complaints.number(text))
