"""Sorting, selecting, searching, counting and compaction on NVIDIA GPUs, by kernels of our own (`kernels/cuda_c`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernels.cuda_c.handwritten import nonzero, searching, sorting, topk
from ...layout import numel
from .device_asserts import Complaints

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...kernels import specs
    from ...kernels.cuda_c import Kernel
    from ...kernels.programs import PreparedLaunch
    from .launches import Launches

_LONG = 1 << 18  # elements of a row from which few rows had better be sorted to find one element
_NEAR = 32  # elements of rows that a block reads many of at once, wherever they lie
_APART = 1 << 16  # elements from which a row's must lie together to be read at memory's speed
_NONE_SPARED = -(1 << 63)


def _made(launches: Launches, name: str, build: Callable[..., Kernel], *what: Any) -> PreparedLaunch | None:
    try:
        return launches.kernel(name, build(*what))
    except NotImplementedError:
        return None


def _scattered(spec: specs.Sort | specs.Element) -> bool:
    """Whether rows lie so that a copy of them, which goes by tiles, is worth its while."""
    return spec.strides[2][-1] != 1 and spec.domain[-1] > _NEAR and numel(spec.domain) >= _APART


def sort(launches: Launches, device: int, spec: specs.Sort) -> PreparedLaunch | None:
    """See `sorting.sort` and, for few of many, `topk.first`."""
    if _scattered(spec):
        return None
    selected = spec.width <= topk.MOST and spec.domain[-1] > sorting.longest(spec.dtype)
    return _made(launches, "sort", topk.first if selected else sorting.sort, spec.dtype, spec.domain, spec.strides, spec.descending, spec.width)


def element(launches: Launches, device: int, spec: specs.Element) -> PreparedLaunch | None:
    """See `topk.one`.  None for the most frequent one, and for rows so long and few that they had better be sorted."""
    n = spec.domain[-1]
    if spec.which == "mode" or _scattered(spec) or n > _LONG and numel(spec.domain) < 16 * n:
        return None
    return _made(launches, "select", topk.one, spec.dtype, spec.domain, spec.strides, spec.k, spec.which)


def nonzero_count(launches: Launches, device: int, spec: specs.NonzeroCount) -> PreparedLaunch | None:
    """See `nonzero.count`."""
    return _made(launches, "nonzero", nonzero.count, *spec)


def nonzero_write(launches: Launches, device: int, spec: specs.NonzeroWrite) -> PreparedLaunch | None:
    """See `nonzero.write`."""
    return _made(launches, "nonzero", nonzero.write, *spec)


def spread(launches: Launches, device: int, spec: specs.Spread) -> PreparedLaunch | None:
    """See `nonzero.spread`."""
    return _made(launches, "spread", nonzero.spread, spec.n)


def put(launches: Launches, device: int, spec: specs.Put) -> PreparedLaunch | None:
    """See `nonzero.put`."""
    return _made(launches, "put", nonzero.put, *spec)


def search(launches: Launches, device: int, spec: specs.Search) -> PreparedLaunch | None:
    """See `searching.search`.  None for values of another type than the sequence's."""
    if spec.values not in (None, spec.dtype):
        return None
    return _made(launches, "searchsorted", searching.search, *spec[:4], *spec.strides, spec.right)


def occurrences(launches: Launches, device: int, spec: specs.Occurrences) -> PreparedLaunch | None:
    """See `searching.occurrences`.  None for other types than int64, and for weights."""
    if spec.dtype is not None or spec.weights is not None:
        return None
    return _made(launches, "bincount", searching.occurrences, spec.n, spec.bins)


def check(launches: Launches, device: int, spec: specs.Check) -> PreparedLaunch | None:
    """The text is raised, with the first number found, when the host next waits for the device."""
    driver = launches.driver
    if driver.complaints is None:
        driver.complaints = Complaints(driver)
    spared = _NONE_SPARED if spec.spared is None else spec.spared
    number = driver.complaints.number(spec.text.replace("{high}", str(spec.high)))
    made = _made(launches, "index check", searching.check, spec.shape, spec.strides, spec.low, spec.high, spared, driver.complaints.slot(device), number)
    if made is not None:
        made.note = driver.complaints.noting(number)
    return made
