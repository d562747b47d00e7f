"""What is known of a tensor in parts: its mesh, how it lies along each axis of it, and the whole's shape, strides and type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..device_mesh import DeviceMesh


class TensorMeta(NamedTuple):
    """Shape, strides and type of the whole."""

    shape: Any
    stride: tuple[int, ...]
    dtype: Any


@dataclass(eq=False)
class DTensorSpec:
    """The description of a `DTensor`."""

    mesh: DeviceMesh
    placements: tuple[Any, ...]
    tensor_meta: TensorMeta | None = None

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self.mesh

    @property
    def shape(self) -> Any:
        """The whole's shape.  Raises ValueError where it is not known."""
        return self._known().shape

    @property
    def stride(self) -> tuple[int, ...]:
        """The whole's strides."""
        return self._known().stride

    @property
    def ndim(self) -> int:
        """How many axes the whole has."""
        return len(self.shape)

    def _known(self) -> TensorMeta:
        if self.tensor_meta is None:
            raise ValueError("tensor_meta is not set")
        return self.tensor_meta

    def is_replicated(self) -> bool:
        """Whether every process has all of it."""
        return all(p.is_replicate() for p in self.placements)

    def is_sharded(self) -> bool:
        """Whether some axis of the mesh cuts it."""
        return any(p.is_shard() for p in self.placements)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTensorSpec) and (self.mesh, self.placements, self.tensor_meta) == (other.mesh, other.placements, other.tensor_meta)

    def __hash__(self) -> int:
        return hash((self.mesh, self.placements, None if self.tensor_meta is None else (tuple(self.tensor_meta.shape), self.tensor_meta.dtype)))

    def __repr__(self) -> str:
        return f"Spec({''.join(str(p) for p in self.placements)} on {tuple(self.shape) if self.tensor_meta else '?'})"


def cuts(placements: Sequence[Any], dim: int) -> list[int]:
    """The axes of the mesh that cut axis `dim` of the tensor, in the order in which they do."""
    found = [i for i, p in enumerate(placements) if p.is_shard(dim)]
    return sorted(found, key=lambda i: (getattr(placements[i], "split_factor", None) is not None, i))


def piece(size: int, mesh: DeviceMesh, axes: Sequence[int], place: Sequence[int], placements: Sequence[Any]) -> tuple[int, int]:
    """Size and beginning of the piece at a place of the mesh, of an axis of `size` elements that these axes cut one after the other."""
    start = 0
    for i in axes:
        size, offset = placements[i].local_shard_size_and_offset(size, mesh.shape[i], place[i])
        start += offset
    return size, start


def local_piece(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Any],
                place: Sequence[int] | None = None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of a process's piece and where it begins in the whole; this process's without `place`, nothing outside of the mesh."""
    at = mesh.get_coordinate() if place is None else place
    if at is None:
        return (0,), ()
    found = [piece(n, mesh, cuts(placements, d), at, placements) for d, n in enumerate(shape)]
    return tuple(n for n, _ in found), tuple(start for _, start in found)
