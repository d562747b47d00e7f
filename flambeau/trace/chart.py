"""A curve in characters: dots of Braille patterns where the terminal has them, else stars."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a Braille character, by row and column


def lines(values: Sequence[float], width: int, height: int, name: str, fancy: bool = True) -> list[str]:
    """The lines of a chart of `values` against their number, `width` characters by `height`; empty without two finite
    values."""
    points = [(i, v) for i, v in enumerate(values) if math.isfinite(v)]
    if len(points) < 2:
        return []
    low, high = min(v for _, v in points), max(v for _, v in points)
    span = high - low or 1.0
    labels = [label(high), label(low)]
    room = max(len(t) for t in labels)
    across, down = (2, 4) if fancy else (1, 1)
    columns, rows = max(4, width - room - 3) * across, height * down
    grid = [[0] * (columns // across) for _ in range(height)]
    last, before = len(values) - 1, -1
    for x in range(columns):
        at = x / (columns - 1) * last
        y = _between(points, at)
        row = min(rows - 1, int((high - y) / span * (rows - 1) + 0.5))
        # a steep part is drawn through: its rows are filled from the point before
        first, end = row, row + 1
        if 0 <= before < row:
            first = before + 1
        elif before > row:
            end = before
        for r in range(first, end):
            grid[r // down][x // across] |= _DOTS[r % down][x % across] if fancy else 1
        before = row
    bar = "│" if fancy else "|"
    made = []
    for r, cells in enumerate(grid):
        side = labels[0] if r == 0 else labels[1] if r == height - 1 else ""
        drawn = "".join(chr(0x2800 + c) if fancy else "*" if c else " " for c in cells)
        made.append(f"{side:>{room}} {bar}{drawn}".rstrip())
    made.append(f"{'':>{room}}  {name} by epoch, 1 to {len(values)}")
    return made


def _between(points: Sequence[tuple[int, float]], at: float) -> float:
    """The value at a place, on the straight line between its neighbours."""
    before = max((p for p in points if p[0] <= at), default=points[0])
    after = min((p for p in points if p[0] >= at), default=points[-1])
    if before[0] == after[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (at - before[0]) / (after[0] - before[0])


def label(value: float) -> str:
    """A number at the side of a chart."""
    return f"{value:.3g}"
