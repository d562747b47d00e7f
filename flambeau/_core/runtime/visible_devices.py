"""Which GPUs a process sees: the rules of CUDA_VISIBLE_DEVICES, for real and simulated GPUs alike.

Source: the CUDA programming guide, section on environment variables.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE = "CUDA_VISIBLE_DEVICES"


def setting() -> str | None:
    """What the variable says now; None when it is not set."""
    return os.environ.get(VARIABLE)


def visible(uuids: Sequence[str], text: str | None) -> list[int]:
    """The physical numbers of the visible GPUs, in the order in which they are numbered from 0.

    uuids: the identities of all GPUs, without "GPU-".  text: the variable's value.
    Unset: all.  A list of numbers, or of identities ("GPU-" and enough of the start to be unique): those, in that
    order. An entry that names no GPU (-1 among them) ends the list; a GPU named twice makes it empty.
    """
    if text is None:
        return list(range(len(uuids)))
    entries = [e.strip() for e in text.split(",")]
    named = entries[0].startswith("GPU-")
    found: list[int] = []
    for entry in entries:
        index = _by_uuid(entry, uuids) if named else _by_number(entry, len(uuids))
        if index is None:
            break
        if index in found:
            return []
        found.append(index)
    return found


def _by_uuid(entry: str, uuids: Sequence[str]) -> int | None:
    if not entry.startswith("GPU-"):
        return None
    fits = [i for i, u in enumerate(uuids) if u.startswith(entry[4:])]
    return fits[0] if len(fits) == 1 and len(entry) > 4 else None


def _by_number(entry: str, count: int) -> int | None:
    # the number at the start counts, as the C function strtol has it
    digits = re.match(r"[+-]?\d+", entry, re.ASCII)
    index = int(digits.group()) if digits else -1
    return index if 0 <= index < count else None
