"""Writing a file so that a failure leaves the old one as it was."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def replacing(filename: str | os.PathLike[str] | Any) -> Iterator[IO[bytes]]:
    """A stream to a new file beside `filename`, which takes its place when the block ends without an error.

    The bytes are on the disk before the old file goes.  The mode of the old file is kept; a link stays a link, to the file that is
    replaced; what is no file (a pipe, a device) is written to as it is.  A process that is killed may leave the new file, named
    ``.<name>.<random>.tmp``, and never harms the old one.
    """
    given = os.fsdecode(os.fspath(filename))
    target = os.path.realpath(given)
    folder, name = os.path.split(target)
    try:
        old = os.stat(given)  # a pipe's real path is no path
    except FileNotFoundError:
        old = None
    if old is not None and stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(21, "Is a directory", target)
    if old is not None and not stat.S_ISREG(old.st_mode):
        with open(given, "wb") as stream:
            yield stream
        return
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    # a name may have 255 bytes
    temporary = os.path.join(os.fsencode(folder), b".%s.%s.tmp" % (os.fsencode(name)[:200], os.urandom(6).hex().encode()))
    number = -1
    try:
        number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
        if old is not None:
            os.fchmod(number, stat.S_IMODE(old.st_mode))
        stream = os.fdopen(number, "wb")
        number = -1  # the stream's to close now
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        if number >= 0:
            os.close(number)
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _keep_name(folder)


def _keep_name(folder: str) -> None:
    """Lets a new name in a folder survive a loss of power, where the system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
