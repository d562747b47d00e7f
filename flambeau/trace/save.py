"""Writing a trace to a file: the page, or trace events."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .record import Trace

_PAGES, _EVENTS = (".html", ".htm"), ".json"


def save(trace: Trace, path: str | os.PathLike[str]) -> str:
    """See `Trace.save`."""
    name = os.fspath(path)
    wrong = ending(name)
    if wrong:
        raise ValueError(f"save: {wrong}")
    if name.lower().endswith(_EVENTS):
        from .chrome import events
        content = events(trace)
    else:
        from .page import page
        content = page(trace)
    write(name, content)
    return name


def ending(path: str) -> str:
    """What is wrong with the ending of a file's name; "" where it says what to write."""
    found = os.path.splitext(path)[1]
    if found.lower() in (*_PAGES, _EVENTS):
        return ""
    return f"path {path!r} ends in {found or 'nothing'!r}; a page ends in '.html', trace events in '.json'"


def why_not(path: str) -> str:
    """Why nothing can be written to a path later, as it seems now; "" where it can."""
    folder = os.path.dirname(os.path.abspath(path))
    if ending(path) or not os.path.isdir(folder):
        return ending(path) or f"there is no folder {folder!r}"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"the folder {folder!r} may not be written to"


def write(path: str, content: str) -> None:
    """Writes a text file whole or not at all.  Raises OSError, which names that file."""
    half = f"{path}.{os.urandom(6).hex()}.part"
    # the system takes the umask off: to ask for it a process must set another one, which a file of another thread would get
    try:
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    try:
        with open(descriptor, "w", encoding="utf-8") as f:
            f.write(content)
        os.replace(half, path)
    except BaseException:
        os.unlink(half)
        raise
