"""A curve by epoch as SVG, with its values at the pointer."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from .chart import label

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 440, 200
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 26, 26


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Round numbers from `low` to `high`, a few."""
    span = high - low
    if not span > 0:
        return [low]
    rough = span / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def chart(name: str, values: Sequence[float]) -> str:
    """The SVG of one metric; nothing for one without finite values."""
    points = [(i + 1, v) for i, v in enumerate(values) if math.isfinite(v)]
    if not points:
        return ""
    low, high = min(v for _, v in points), max(v for _, v in points)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = low - room, high + room
    share = 0.0 <= points[0][1] <= 1.0 and "accuracy" in name

    def x(epoch: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((epoch - 1) / (len(values) - 1) if len(values) > 1 else 0.5)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    def said(value: float) -> str:
        return f"{value:.2%}" if share else f"{value:.4g}"
    parts = [f'<text class="name" x="{LEFT}" y="16">{escape(name)}</text>']
    for t in ticks(low, high):
        text = f"{t:.3g}" if not share else f"{t:.1%}" if high - low < 0.05 else f"{t:.0%}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(t):.1f}" y2="{y(t):.1f}"/>'
                     f'<text class="tick" x="{LEFT - 6}" y="{y(t) + 4:.1f}" text-anchor="end">{escape(text if share else label(t))}</text>')
    for epoch in sorted({1, len(values), *(int(t) for t in ticks(1, len(values), 6) if t >= 1)}):
        if epoch in (1, len(values)) or x(len(values)) - x(epoch) > 24:
            parts.append(f'<text class="tick" x="{x(epoch):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{epoch}</text>')
    path = " ".join(f"{'M' if i == 0 else 'L'}{x(e):.1f} {y(v):.1f}" for i, (e, v) in enumerate(points))
    parts.append(f'<path class="curve" d="{path}"/>')
    parts += [f'<circle class="dot" cx="{x(e):.1f}" cy="{y(v):.1f}" r="3"><title>epoch {e}: {escape(name)} {said(v)}</title></circle>'
              for e, v in points]
    last = points[-1]
    parts.append(f'<text class="last" x="{WIDTH - RIGHT}" y="16" text-anchor="end">{said(last[1])} at epoch {last[0]}</text>')
    return (f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(name)} by epoch">{"".join(parts)}</svg>')
