"""Bytes in use by time, as a profiler saw them: files of `profile.export_memory_timeline`."""

from __future__ import annotations

import gzip
import json
from html import escape
from typing import Any

from .._core.errors import size

_CATEGORIES = 8  # PyTorch tells eight kinds of memory apart; the last is memory of no known kind, which all of it is here
_CREATE, _DESTROY = 1, 3


def timeline(levels: list[tuple[int, dict[str, int]]], device: str) -> tuple[list[int], list[int]]:
    """Microseconds, and the bytes in use on `device` then."""
    known = [(t // 1000, there[device]) for t, there in levels if device in there]
    return [t for t, _ in known], [n for _, n in known]


def write(path: str, levels: list[tuple[int, dict[str, int]]], device: str) -> None:
    """Writes a page (.html), plot points (.json, .json.gz) or changes (.raw.json.gz): see `profile.export_memory_timeline`.  Raises ValueError
    where nothing is known of the device."""
    times, sizes = timeline(levels, device)
    if not times:
        known = sorted({d for _, there in levels for d in there})
        raise ValueError(f"export_memory_timeline: nothing was taken down of {device!r}; it was of {', '.join(known) or 'no device'}. "
                         "The profiler must be made with profile_memory=True")
    if path.endswith(".html"):
        with open(path, "w", encoding="utf-8") as f:
            f.write(_page(times, sizes, device))
        return
    whole: Any = [times, [[0] * _CATEGORIES + [n] for n in sizes]]
    if path.endswith("raw.json.gz"):
        changes = [(t, after - before) for t, before, after in zip(times, [0, *sizes], sizes, strict=False) if after != before]
        whole = [(t, _CREATE if n > 0 else _DESTROY, abs(n), None) for t, n in changes]
    if path.endswith(".gz"):
        with gzip.open(path, "wt", encoding="utf-8") as f:
            json.dump(whole, f)
    else:
        with open(path, "w", encoding="utf-8") as f:
            json.dump(whole, f)


def _page(times: list[int], sizes: list[int], device: str) -> str:
    width, height, most, span = 960, 320, max(sizes) or 1, max(times[-1] - times[0], 1)
    points = []
    for t, before, after in zip(times, [sizes[0], *sizes], sizes, strict=False):
        x = 10 + (width - 20) * (t - times[0]) / span
        points += [f"{x:.1f},{height - 30 - (height - 60) * n / most:.1f}" for n in (before, after)]
    first, last = points[0].split(",")[0], points[-1].split(",")[0]
    area = " ".join([f"{first},{height - 30}", *points, f"{last},{height - 30}"])
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>memory of {escape(device)}</title>'
            f'<h1>Memory in use on {escape(device)}</h1><p>At most {size(most)}, over {span / 1e3:.3f} ms.</p>'
            f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="bytes in use by time"><polygon points="{area}" fill="#6a8fd8"/>'
            f'<text x="10" y="20">{size(most)}</text><text x="{width - 10}" y="{height - 8}" text-anchor="end">{span / 1e3:.3f} ms</text></svg></html>')
