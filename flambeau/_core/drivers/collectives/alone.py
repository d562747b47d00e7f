"""A group of one process: what it sends to all it sends to itself."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype


class Done:
    """A request that is done."""

    source: int | None = None

    def test(self) -> bool:
        return True


DONE = Done()


class Alone:
    """See `interface.Communicator`."""

    rank, size = 0, 1

    def split(self, ranks: Sequence[int], tag: int) -> Alone | None:
        return self

    def barrier(self) -> Done:
        return DONE

    def all_reduce(self, address: int, count: int, d: dtype, op: str) -> Done:
        return DONE

    def reduce(self, address: int, count: int, d: dtype, op: str, root: int) -> Done:
        return DONE

    def broadcast(self, address: int, nbytes: int, root: int) -> Done:
        return DONE

    def _move(self, source: int, target: int, nbytes: int) -> Done:
        if source != target:
            ctypes.memmove(target, source, nbytes)
        return DONE

    def all_gather(self, source: int, nbytes: int, target: int) -> Done:
        return self._move(source, target, nbytes)

    def gather(self, source: int, nbytes: int, target: int, root: int) -> Done:
        return self._move(source, target, nbytes)

    def scatter(self, source: int, target: int, nbytes: int, root: int) -> Done:
        return self._move(source, target, nbytes)

    def reduce_scatter(self, source: int, target: int, count: int, d: dtype, op: str) -> Done:
        return self._move(source, target, count * d.itemsize)

    def all_to_all(self, source: int, sent: Sequence[int], target: int, received: Sequence[int]) -> Done:
        return self._move(source, target, sent[0])

    def send(self, address: int, nbytes: int, to: int, tag: int) -> Done:
        raise RuntimeError("send: this process is alone in its group; there is no other to talk to")

    def receive(self, address: int, nbytes: int, source: int | None, tag: int) -> Done:
        raise RuntimeError("recv: this process is alone in its group; there is no other to talk to")
