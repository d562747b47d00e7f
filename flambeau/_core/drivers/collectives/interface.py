"""What carries tensors between processes: memory by address, count and element type; everything begins at once and is asked for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype


class Request(Protocol):
    """Communication under way."""

    def test(self) -> bool:
        """Whether it is done; this is also what carries it on."""
        ...


class Communicator(Protocol):
    """The processes of a group, this one being number `rank` of `size`.

    Every rank calls the same collectives in the same order.  Memory is contiguous, `count` elements long where nothing else is said, and must stay
    until the request is done.  op: "sum", "product", "min", "max", "band", "bor" or "bxor".
    """

    rank: int
    size: int

    def split(self, ranks: Sequence[int], tag: int) -> Communicator | None:
        """A group of some of the ranks, in that order; only they call it, with one tag; None where this rank is not among them."""
        ...

    def barrier(self) -> Request: ...

    def all_reduce(self, address: int, count: int, d: dtype, op: str) -> Request: ...

    def reduce(self, address: int, count: int, d: dtype, op: str, root: int) -> Request: ...

    def broadcast(self, address: int, nbytes: int, root: int) -> Request: ...

    def all_gather(self, source: int, nbytes: int, target: int) -> Request:
        """`size` times `nbytes` at `target`."""
        ...

    def gather(self, source: int, nbytes: int, target: int, root: int) -> Request: ...

    def scatter(self, source: int, target: int, nbytes: int, root: int) -> Request: ...

    def reduce_scatter(self, source: int, target: int, count: int, d: dtype, op: str) -> Request:
        """`count` elements at `target`, `size` times that at `source`."""
        ...

    def all_to_all(self, source: int, sent: Sequence[int], target: int, received: Sequence[int]) -> Request:
        """Bytes for and from each rank, one behind the other."""
        ...

    def send(self, address: int, nbytes: int, to: int, tag: int) -> Request: ...

    def receive(self, address: int, nbytes: int, source: int | None, tag: int) -> Request:
        """From any rank where `source` is None; then the request's `source` says who it was."""
        ...
