"""What a console is told: no text is read as markup, and a sign that its encoding lacks ends no program."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_PLAIN = {"→": "->", "×": "x", "µ": "u", "…": "..."}


def fancy(console: Console) -> bool:
    """Whether all signs can be shown."""
    return (console.encoding or "").lower().startswith("utf")


def text(console: Console, value: str, style: str = "") -> Text:
    """A text as it is, brackets included; names of folders and of a program's own things have any signs."""
    from rich.text import Text
    if not fancy(console):
        for sign, plain in _PLAIN.items():
            value = value.replace(sign, plain)
    return Text(value.encode(console.encoding or "ascii", "replace").decode(console.encoding or "ascii"), style=style)
