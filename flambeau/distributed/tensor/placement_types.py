"""How a tensor lies along one axis of a mesh (torch.distributed.tensor.placement_types)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..collectives import ReduceOp
from .spec import DTensorSpec, TensorMeta


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
    """Pieces along axis `dim`, cut as `chunk` cuts: all of the same size but the last ones, which may be smaller or empty."""

    dim: int

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """The size and the beginning of piece `rank`, of pieces cut as `chunk` cuts them."""
        each = -(-curr_local_size // num_chunks)
        start = min(each * rank, curr_local_size)
        return min(each, curr_local_size - start), start

    _local_shard_size_and_offset = local_shard_size_and_offset

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Shard):
    """Pieces of what later axes of the mesh have cut already, as where a tensor-parallel parameter is sharded once more."""

    split_factor: Any = None

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """All of it on each device."""

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


# what a Partial may be combined by
REDUCTIONS = {"sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "max": ReduceOp.MAX, "min": ReduceOp.MIN, "product": ReduceOp.PRODUCT}


@dataclass(frozen=True)
class Partial(Placement):
    """A part of a sum on each device, or of what `reduce_op` names: "sum", "avg", "max", "min", "product"."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


_MaskPartial = Partial

__all__ = ["DTensorSpec", "Partial", "Placement", "Replicate", "Shard", "TensorMeta"]
