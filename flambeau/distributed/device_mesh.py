"""Meshes of processes: the ranks as an array of named axes, and a group for each line along each axis (torch.distributed.device_mesh)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .._core.ops.creation import from_numpy
from .._core.runtime.asking import unasked
from .._core.tensor import Tensor
from . import world
from .groups import ProcessGroup

Array = Any  # of ranks
Axis = tuple[tuple[int, int], ...]  # how one axis runs through the root's ranks: sizes and steps, outermost first; several where axes were joined


def _joined(axis: Axis) -> Axis:
    """The same ranks in the same order by as few pairs as can be; none for an axis of one rank."""
    found: list[tuple[int, int]] = []
    for size, step in axis:
        if size == 1:
            continue
        if found and found[-1][1] == size * step:
            found[-1] = found[-1][0] * size, step
        else:
            found.append((size, step))
    return tuple(found)


def _rows(shape: Sequence[int]) -> tuple[Axis, ...]:
    """The axes of an array whose elements lie one after the other."""
    return tuple(((n, prod(shape[k + 1:])),) for k, n in enumerate(shape))


def _places(axes: Sequence[Axis]) -> Array:
    """Where the ranks lie from the first on, an array of these axes."""
    found = np.zeros((), np.int64)
    for axis in axes:
        along = np.zeros(1, np.int64)
        for size, step in axis:
            along = (along[:, None] + np.arange(size) * step).reshape(-1)
        found = found[..., None] + along
    return found


def _begins(axes: Sequence[Axis], place: Array) -> Array:
    """Where the lines along these axes begin on which the places lie."""
    found = place
    for axis in axes:
        for size, step in axis:
            found = found - (place // step) % size * step
    return found


def _checked_type(device_type: Any) -> str:
    if not isinstance(device_type, str) or not device_type or not device_type.isalpha():
        raise RuntimeError(f"Device type with index is not supported but got {device_type}. If you maintained a 'torch.device' object, it's recommended to "
                           "pass in 'device.type'.")
    return device_type


def _use_own_gpu() -> None:
    """Of several GPUs that the ranks of a host share, each uses the one of its number, unless the program has chosen."""
    from .. import cuda
    local = os.environ.get("LOCAL_RANK", "")
    if local.isdigit() and 1 < cuda.device_count() > int(local) and cuda.current_device() == 0:
        cuda.set_device(int(local))


class DeviceMesh:
    """Processes as an array.

    device_type: "cpu" or "cuda".  mesh: the ranks, an array of any number of axes.  mesh_dim_names: a name for each axis, by which the mesh is sliced:
    ``mesh["tp"]`` is the line along that axis on which this process lies, ``mesh["dp", "tp"]`` the plane.
    All processes of the default group make the same mesh, also those that are not in it.

    Raises RuntimeError for a mesh larger than the world, or for names of another number than the axes.
    """

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None, backend_override: Any = None,
                 _init_backend: bool = True, _groups: Any = None, _root: Any = None, _layout: tuple[Axis, ...] | None = None) -> None:
        self.device_type = _checked_type(device_type)
        array: Array = unasked(mesh.cpu)().numpy() if isinstance(mesh, Tensor) else np.asarray(mesh)
        self._array = np.array(array, np.int64)
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if names is not None and len(names) != self._array.ndim:
            raise RuntimeError(f"mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): {len(names)} and "
                               f"len(mesh_shape): {self._array.ndim}.")
        if names is not None and len(set(names)) != len(names):
            raise RuntimeError(f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names {names}")
        self.mesh_dim_names = names
        self._root: DeviceMesh = self if _root is None else _root
        self._layout = _rows(self._array.shape) if _layout is None else _layout  # each axis's way through the root's ranks
        self._flat: dict[str, DeviceMesh] = {}
        self._made: dict[Axis, Any] = {}  # of a root: this process's group of each way through its ranks
        if _groups is None and _init_backend and _root is None:
            if not world.is_initialized():
                world.init_process_group()
            size = world.get_world_size()
            if self._array.size > size:
                raise RuntimeError(f"Mesh should not be bigger than default world size {size}, but found {self._array.size} ranks!")
            if len(set(self._array.ravel().tolist())) != self._array.size:
                raise RuntimeError(f"DeviceMesh: a rank is in the mesh twice: {self._array.tolist()}")
            if self.device_type == "cuda":
                _use_own_gpu()
            _groups = [self._line(axis) for axis in self._layout]
        self._groups: list[Any] = _groups or []
        if _root is None and self._groups:
            self._made.update((_joined(axis), group) for axis, group in zip(self._layout, self._groups))
        where = np.argwhere(self._array == (world.get_rank() if world.is_initialized() else 0))
        self._place: tuple[int, ...] | None = tuple(int(k) for k in where[0]) if len(where) == 1 else None

    # ------------------------------------------------------------------------------------------------ questions
    @property
    def mesh(self) -> Tensor:
        """The ranks, a tensor on the CPU."""
        return from_numpy(self._array.copy())

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return int(self._array.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many processes lie along each axis."""
        return tuple(int(k) for k in self._array.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many processes there are, or along one axis."""
        return int(self._array.size) if mesh_dim is None else int(self._array.shape[mesh_dim])

    def get_rank(self) -> int:
        """This process's global rank."""
        return world.get_rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """This process's place along each axis; None outside of the mesh."""
        return self._place

    def _axis(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be specified when "
                                   "device_mesh.ndim > 1. If you want to get the list of all the ProcessGroups in the DeviceMesh, please use "
                                   "`get_all_groups()` instead.")
            return 0
        if isinstance(mesh_dim, str):
            return self._get_mesh_dim_by_name(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"mesh_dim {mesh_dim} is out of range for a DeviceMesh of {self.ndim} dimensions")
        return mesh_dim % self.ndim

    def _get_mesh_dim_by_name(self, name: str) -> int:
        if self.mesh_dim_names is None or name not in self.mesh_dim_names:
            raise KeyError(f"Mesh dimension '{name}' does not exist. Available mesh dimensions are: {self.mesh_dim_names}")
        return self.mesh_dim_names.index(name)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's place along an axis, which must be named where there are several."""
        axis = self._axis(mesh_dim)
        if self._place is None:
            raise RuntimeError(f"get_local_rank: rank {world.get_rank()} is not in {self!r}")
        return self._place[axis]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group along an axis.  Raises RuntimeError where the axis is not named and there are several."""
        axis = self._axis(mesh_dim)
        if not self._groups:
            raise RuntimeError("DeviceMesh process groups not initialized!")
        found: ProcessGroup = self._groups[axis]
        return found

    def get_all_groups(self) -> list[ProcessGroup]:
        """The group along each axis."""
        return [self.get_group(k) for k in range(self.ndim)]

    def _is_current_rank_part_of_mesh(self) -> bool:
        return self._place is not None

    def _get_root_mesh(self) -> DeviceMesh:
        return self._root

    # ------------------------------------------------------------------------------------------------ parts
    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """The part along the axes named, which this process lies in.  Raises RuntimeError without names, KeyError for a name that is not there."""
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        wanted = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if wanted == self.mesh_dim_names:
            return self
        if len(wanted) == 1 and wanted[0] in self._root._flat:
            return self._root._flat[wanted[0]]
        unknown = [n for n in wanted if n not in self.mesh_dim_names]
        if not wanted or unknown:
            raise KeyError(f"Invalid mesh_dim_names {wanted} specified. Valid mesh_dim_names are {[*self.mesh_dim_names, *self._root._flat]}.")
        axes = [self.mesh_dim_names.index(n) for n in wanted]
        if axes != sorted(set(axes)):
            raise KeyError(f"Invalid mesh_dim_names {wanted} specified. Mesh dim indices should be in ascending order.")
        return self._part(axes, wanted)

    def _part(self, axes: Sequence[int], names: tuple[str, ...] | None) -> DeviceMesh:
        index: list[Any] = [slice(None) if k in axes else 0 if self._place is None else self._place[k] for k in range(self.ndim)]
        return DeviceMesh(self.device_type, self._array[tuple(index)], mesh_dim_names=names, _groups=[self._groups[k] for k in axes] if self._groups else [],
                          _root=self._root, _layout=tuple(self._layout[k] for k in axes))

    def _line(self, axis: Axis) -> Any:
        """This process's group along a way through the root's ranks, None outside of them.  All ranks of the world call it the first time."""
        root, way = self._root, _joined(axis)
        if way not in root._made:
            ranks = root._array.reshape(-1)
            places = np.arange(len(ranks))
            begins = places[_begins([way], places) == places]
            root._made[way] = _lines(ranks[begins[:, None] + _places([way])])
        return root._made[way]

    def _through(self, layout: tuple[Axis, ...], names: tuple[str, ...]) -> DeviceMesh:
        """The mesh of other axes through the root's ranks on which this process lies; the first process's outside of them."""
        root = self._root
        ranks = root._array.reshape(-1)
        here = np.flatnonzero(ranks == (world.get_rank() if world.is_initialized() else 0))
        begin = _begins(layout, here[0] if len(here) else 0)
        return DeviceMesh(self.device_type, ranks[begin + _places(layout)], mesh_dim_names=names, _groups=[self._line(axis) for axis in layout],
                          _root=root, _layout=layout)

    def _unflatten(self, dim: int | str, mesh_sizes: Sequence[int], mesh_dim_names: Sequence[str], backend_override: Any = None) -> DeviceMesh:
        """The mesh with one of its axes cut into several, named; all ranks of the root call it.

        backend_override: accepted; every axis has a group of its own, where PyTorch may be told to fake one.
        Raises ValueError where the sizes do not make up the axis, or are not as many as the names.
        """
        axis, sizes, names = self._axis(dim), tuple(mesh_sizes), tuple(mesh_dim_names)
        if len(sizes) != len(names):
            raise ValueError(f"_unflatten: mesh_sizes and mesh_dim_names must have the same length, got {sizes} and {names}")
        if prod(sizes) != self.shape[axis]:
            raise ValueError(f"_unflatten: sizes {sizes} do not make up the {self.shape[axis]} processes of dimension {dim}")
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot unflatten a DeviceMesh without mesh_dim_names!")
        way = _joined(self._layout[axis])
        if len(way) > 1:
            raise ValueError(f"_unflatten: dimension {dim} joins dimensions that do not lie one after the other")
        step = way[0][1] if way else 1
        cut = tuple(((n, step * prod(sizes[k + 1:])),) for k, n in enumerate(sizes))
        return self._through((*self._layout[:axis], *cut, *self._layout[axis + 1:]), (*self.mesh_dim_names[:axis], *names, *self.mesh_dim_names[axis + 1:]))

    @staticmethod
    def _concatenate(device_mesh_list: Sequence[DeviceMesh]) -> DeviceMesh:
        """The mesh that has the axes of several, all of which are parts of one mesh; all ranks of that call it.
        Raises RuntimeError for meshes of different roots, without names, or that share processes beside this one."""
        meshes = list(device_mesh_list)
        root = meshes[0]._root
        if any(m._root is not root or m.mesh_dim_names is None for m in meshes):
            raise RuntimeError(f"Cannot concatenate DeviceMeshes that are not slices of one mesh, with names: {meshes}")
        layout = tuple(axis for m in meshes for axis in m._layout)
        places = _places(layout)
        if len(np.unique(places)) != places.size:
            raise RuntimeError(f"Cannot concatenate overlapping meshes: {meshes}")
        return root._through(layout, tuple(n for m in meshes for n in m.mesh_dim_names or ()))

    def _flatten(self, mesh_dim_name: str | None = None, backend_override: Any = None) -> DeviceMesh:
        """The mesh as one axis, named `mesh_dim_name` or by the names of its axes; ``root[name]`` gives it again.  All ranks of the root call it."""
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot flatten a DeviceMesh without mesh_dim_names!")
        name = mesh_dim_name or "_".join(self.mesh_dim_names)
        if self.ndim == 1 and name in self.mesh_dim_names:
            return self
        root = self._root
        if root.mesh_dim_names is not None and name in root.mesh_dim_names:
            raise ValueError(f"{name} already exists for submesh of the {root!r}. The mesh_dim_names of submesh and flattened mesh are not allowed to be "
                             "the same.")
        known = root._flat.get(name)
        way: Axis = tuple(pair for axis in self._layout for pair in axis)
        if known is not None:
            if _joined(known._layout[0]) != _joined(way):
                raise ValueError(f"Flatten mesh with mesh_dim_name {name} has been created before, Please specify another valid mesh_dim_name.")
            return known
        root._flat[name] = made = self._through((way,), (name,))
        return made

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Any = None) -> DeviceMesh:
        """A mesh on groups that are there: one group, or for several axes a list with the array of ranks."""
        if isinstance(group, ProcessGroup):
            ranks = list(group._ranks)
            if mesh is not None and np.asarray(unasked(mesh.cpu)().numpy() if isinstance(mesh, Tensor) else mesh).ravel().tolist() != ranks:
                raise ValueError(f"Invalid mesh {mesh} for ProcessGroup with ranks {ranks}")
            return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, _groups=[group])
        groups = list(group)
        if not groups:
            raise ValueError("Expects at least one ProcessGroup to be passed")
        if mesh is None:
            raise ValueError("Must pass mesh if passing multiple ProcessGroups")
        made = DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=groups)
        if made.ndim != len(groups):
            raise ValueError(f"Expects mesh with ndim equal to number of ProcessGroups but got mesh {made._array.tolist()} and {len(groups)} ProcessGroups")
        return made

    # ------------------------------------------------------------------------------------------------ as a value
    def _key(self) -> tuple[Any, ...]:
        return self.device_type, self.shape, self._array.tobytes(), self.mesh_dim_names

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        if self.mesh_dim_names is None:
            return f"DeviceMesh({self.shape}, '{self.device_type}')"
        return f"DeviceMesh(({', '.join(f'{n}={k}' for n, k in zip(self.mesh_dim_names, self.shape))}), '{self.device_type}')"

    def __enter__(self) -> DeviceMesh:
        _current.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _current.pop()

    def __deepcopy__(self, memo: Any) -> DeviceMesh:
        return self

    def __reduce__(self) -> Any:
        return again, (self.device_type, self._array.tolist(), self.mesh_dim_names)


_current: list[DeviceMesh] = []


def current() -> DeviceMesh:
    """The mesh of the ``with`` block.  Raises RuntimeError outside of one."""
    if not _current:
        raise RuntimeError("No device mesh is currently active!")
    return _current[-1]


def _lines(array: Array) -> Any:
    """Makes a group of each line along the last axis; all ranks call it.  This process's own group, None outside."""
    default, own = world.default(), None
    for line in array.reshape(-1, array.shape[-1]).tolist():
        made: Any = default if line == list(range(default.size())) else world.new_group(line, sort_ranks=False)
        if isinstance(made, ProcessGroup) and default.rank() in line:
            own = made
    return own


def again(device_type: str, ranks: Any, names: Any) -> DeviceMesh:
    """An unpickled mesh: it says who was there, and has no groups."""
    return DeviceMesh(device_type, ranks, mesh_dim_names=names, _groups=[], _init_backend=False)


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...] | None = None,
                     backend_override: Any = None) -> DeviceMesh:
    """The ranks 0, 1, ... in an array of this shape; `DeviceMesh` says the rest.  Begins the default group where there is none."""
    _checked_type(device_type)
    shape = tuple(mesh_shape)
    if mesh_dim_names is not None and len(set(mesh_dim_names)) != len(mesh_dim_names):
        raise RuntimeError(f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names {tuple(mesh_dim_names)}")
    if mesh_dim_names is not None and len(mesh_dim_names) != len(shape):
        raise RuntimeError(f"mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): {len(mesh_dim_names)} and "
                           f"len(mesh_shape): {len(shape)}.")
    return DeviceMesh(device_type, np.arange(prod(shape)).reshape(shape), mesh_dim_names=mesh_dim_names)


__all__ = ["DeviceMesh", "init_device_mesh"]
