"""Draws digits in a terminal: two characters a pixel, in five shades that need no colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flambeau.demo.digits import SIDE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.text import Text

SHADES, ASCII_SHADES = " ░▒▓█", " .+#@"
WIDTH, GAP = 2 * SIDE, 3


def picture(image: NDArray[np.float32], shades: str = SHADES) -> list[str]:
    """The lines of one image (8, 8) whose pixels are 0 (white) to 1 (black)."""
    levels = (image * (len(shades) - 1)).round().astype(int)
    return ["".join(shades[level] * 2 for level in row) for row in levels]


def gallery(
    images: Sequence[NDArray[np.float32]],
    seen: Sequence[int],
    truth: Sequence[int],
    width: int,
    ascii_only: bool = False,
) -> Text:
    """Images side by side, as many in a row as `width` characters hold, each above what was seen and what it is."""
    from rich.text import Text

    text = Text()
    in_row = max(1, (width + GAP) // (WIDTH + GAP))
    for start in range(0, len(images), in_row):
        row = range(start, min(start + in_row, len(images)))
        pictures = [picture(images[i], ASCII_SHADES if ascii_only else SHADES) for i in row]
        for lines in zip(*pictures, strict=True):
            text.append((" " * GAP).join(lines) + "\n")
        for i in row:
            right = seen[i] == truth[i]
            caption = f"seen {seen[i]}, is {truth[i]}" + ("" if right else "  WRONG")
            text.append(caption.ljust(WIDTH), style="green" if right else "bold red")
            text.append(" " * GAP)
        text.append("\n\n")
    return text
