"""Indexing: `x[...]`, and the operations that take positions or masks.

`basic` makes views, `positions` reads and writes where tensors say, `items` is `x[...]`, made of both; the other modules are the families.
"""

from __future__ import annotations

from . import along_axis, basic, embedding, flat, items, masks, nonzero, positions, reducing, repeats, rows

__all__ = ["along_axis", "basic", "embedding", "flat", "items", "masks", "nonzero", "positions", "reducing", "repeats", "rows"]
