"""Messages between a loader and one worker: bytes, and open files, over a socket of their own.

Each worker has its own pair of sockets, so there is no lock that a dying process could take with it, and the death of
either side is an end of file for the other, after everything it had said.
"""

from __future__ import annotations

import array
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADER = struct.Struct("<Q")
MOST_FILES = 200  # in one message; Linux allows 253
_ROOM = socket.CMSG_SPACE(MOST_FILES * 4)


class Channel:
    """One end. `send` and `receive` may be called by two different threads, each by one at a time."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, data: bytes, files: Sequence[int] = ()) -> None:
        """Sends one message; raises OSError (BrokenPipeError, mostly) when the other side is gone."""
        whole = memoryview(_HEADER.pack(len(data)) + data)
        if files:
            sent = self.socket.sendmsg([whole], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
            whole = whole[sent:]
        self.socket.sendall(whole)

    def receive(self) -> tuple[bytes, list[int]] | None:
        """The next message and the open files that came with it; None when the other side is gone."""
        try:
            head, extra, _, _ = self.socket.recvmsg(_HEADER.size, _ROOM)
            files = array.array("i")
            for level, kind, content in extra:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    files.frombytes(content[:len(content) - len(content) % files.itemsize])
            if 0 < len(head) < _HEADER.size:
                head += self._exactly(_HEADER.size - len(head)) or b""
            if len(head) < _HEADER.size:
                return None
            data = self._exactly(_HEADER.unpack(head)[0])
        except ConnectionError:
            return None
        return None if data is None else (data, files.tolist())

    def _exactly(self, count: int) -> bytes | None:
        data = self.socket.recv(count) if count else b""
        if len(data) == count:
            return data
        parts = bytearray(data)
        while data and len(parts) < count:
            data = self.socket.recv(count - len(parts))
            parts += data
        return bytes(parts) if len(parts) == count else None

    def close(self) -> None:
        self.socket.close()


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
