"""Sizes as programs give them."""

from __future__ import annotations

from typing import Any

from ..unknowns import Unknown


def sizes_of(name: str, sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence.  Raises TypeError for anything that is no integer."""
    if not sizes and name in ("permute", "expand"):
        raise TypeError(f"{name}() missing 1 required positional arguments: \"{'dims' if name == 'permute' else 'size'}\"")
    if len(sizes) == 1 and not isinstance(sizes[0], int) and not hasattr(sizes[0], "__index__"):
        if not hasattr(sizes[0], "__iter__"):
            raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not {type(sizes[0]).__name__}")
        sizes = tuple(sizes[0])
    elif len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    out = []
    for i, s in enumerate(sizes):
        if type(s) is not int and type(s) is not Unknown:
            if isinstance(s, float) or not hasattr(s, "__index__"):
                raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, but found element of type "
                                f"{type(s).__name__} at pos {i}")
            s = s.__index__()
        out.append(s)
    return tuple(out)
