"""How a tensor would lie over a mesh of devices (torch.distributed.tensor.placement_types): plain values that programs write down in plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Placement:
    """What all of them are."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each device holds a piece (along axis `dim`)."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether each device holds all."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether each device holds a part of a sum (or of what `reduce_op` names)."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Pieces along axis `dim`."""

    dim: int

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """The size and the beginning of piece `rank`, of pieces cut as `chunk` cuts them."""
        each = -(-curr_local_size // num_chunks)
        start = min(each * rank, curr_local_size)
        return min(each, curr_local_size - start), start

    _local_shard_size_and_offset = local_shard_size_and_offset


@dataclass(frozen=True)
class _StridedShard(Shard):
    split_factor: Any = None


@dataclass(frozen=True)
class Replicate(Placement):
    """All of it on each device."""


@dataclass(frozen=True)
class Partial(Placement):
    """A part of a sum on each device."""

    reduce_op: str = "sum"
