"""Where values go in rows, by Python's bisect: the oracle of searches, beside NaN and in rows out of order too."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np


class _NotReached:
    """An element that lies before every value that it does not reach: NaN reaches none."""

    def __init__(self, element: Any) -> None:
        self.element = element

    def __lt__(self, value: Any) -> bool:
        return not self.element >= value


def places(row: Any, wanted: Any, right: bool) -> np.ndarray:
    """For each element of `wanted` its place in a row, before equal elements or, with `right`, after them."""
    elements = np.asarray(row).tolist()
    found = {v: bisect_right(elements, v) if right else bisect_left(elements, v, key=_NotReached) for v in np.unique(wanted).tolist() if v == v}
    nan = bisect_right(elements, float("nan"))
    return np.array([found.get(v, nan) for v in np.ravel(wanted).tolist()], np.int64).reshape(np.shape(wanted))
