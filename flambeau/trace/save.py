"""Writing a trace to a file: the page, or trace events."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .record import Trace


def save(trace: Trace, path: str | os.PathLike[str]) -> str:
    """See `Trace.save`."""
    name = os.fspath(path)
    ending = os.path.splitext(name)[1].lower()
    if ending in (".html", ".htm"):
        from .page import page
        content = page(trace)
    elif ending == ".json":
        from .chrome import events
        content = events(trace)
    else:
        raise ValueError(f"save: path {name!r} ends in {ending or 'nothing'!r}; a page ends in '.html', trace events in '.json'")
    write(name, content)
    return name


def write(path: str, content: str) -> None:
    """Writes a text file whole or not at all."""
    folder = os.path.dirname(os.path.abspath(path))
    descriptor, half = tempfile.mkstemp(prefix=os.path.basename(path) + ".", suffix=".part", dir=folder)
    try:
        with open(descriptor, "w", encoding="utf-8") as f:
            f.write(content)
        os.chmod(half, 0o666 & ~_umask())
        os.replace(half, path)
    except BaseException:
        os.unlink(half)
        raise


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now
