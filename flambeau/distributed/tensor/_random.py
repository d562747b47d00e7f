"""Random numbers of tensors in parts: they are those of the whole, of which each process keeps its piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._core.runtime import generators

if TYPE_CHECKING:
    from ..device_mesh import DeviceMesh


def manual_seed(seed: int, device_mesh: DeviceMesh | None = None) -> None:
    """Sets the generators' seed; the processes of a mesh must all set the same.  Raises RuntimeError outside of the mesh."""
    if device_mesh is not None and device_mesh.get_coordinate() is None:
        raise RuntimeError("manual_seed requires the current rank to be a part of the device mesh otherwise DTensor RNG state on the rank will not be "
                           "initialized and the behavior of DTensor random ops is undefined.")
    generators.manual_seed(seed)


def is_rng_supported_mesh(device_mesh: DeviceMesh) -> bool:
    """Whether random numbers of tensors on a mesh are those of the whole: on all."""
    return True


__all__ = ["is_rng_supported_mesh", "manual_seed"]
