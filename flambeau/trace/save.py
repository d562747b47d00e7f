"""Writing a trace to a file: the page, or trace events."""

from __future__ import annotations

import os
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
    half = f"{path}.{os.urandom(6).hex()}.part"
    # the system takes the umask off: to ask for it a process must set another one, which a file of another thread would get
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with open(descriptor, "w", encoding="utf-8") as f:
            f.write(content)
        os.replace(half, path)
    except BaseException:
        os.unlink(half)
        raise
