"""Writing a file so that a failure leaves the old one as it was."""

from __future__ import annotations

import contextlib
import os
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def replacing(filename: str | os.PathLike[str] | Any) -> Iterator[IO[bytes]]:
    """A stream to a new file beside `filename`, which takes its place when the block ends without an error."""
    import tempfile

    # Through a symbolic link the file it names is replaced, not the link.
    target = os.path.realpath(os.fspath(filename))
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    number, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(number, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        try:
            mode = os.stat(target).st_mode & 0o777
        except FileNotFoundError:
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
