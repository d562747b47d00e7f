"""Collectives of Python objects, which travel pickled: between the processes of one job, which trust one another."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from . import messages, world
from .groups import ProcessGroup


def _bytes(obj: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(bytearray(pickle.dumps(obj)), np.uint8)


def _sizes(g: ProcessGroup, n: int, name: str) -> list[int]:
    """How many bytes each process has."""
    own, all_ = np.array([n], np.int64), np.zeros(g.size(), np.int64)
    g.host.run(f"{name}: sizes", lambda comm: comm.all_gather(own.ctypes.data, 8, all_.ctypes.data))
    return [int(k) for k in all_]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """`object_list[i]` becomes the object of the group's process i."""
    g = world.inside(group)
    if g is None:
        return
    if len(object_list) < g.size():
        raise ValueError(f"all_gather_object: object_list must hold {g.size()} places, got {len(object_list)}")
    for i, found in enumerate(every(g, obj)):
        object_list[i] = found


def every(g: ProcessGroup, obj: Any, name: str = "all_gather_object") -> list[Any]:
    """The objects of all processes, in the group's order."""
    data = _bytes(obj)
    sizes = _sizes(g, data.size, name)
    most = max(sizes)
    own, all_ = np.zeros(most, np.uint8), np.zeros((g.size(), most), np.uint8)
    own[:data.size] = data
    g.host.run(f"{name}({most} bytes)", lambda comm: comm.all_gather(own.ctypes.data, most, all_.ctypes.data))
    return [pickle.loads(row[:n].tobytes()) for row, n in zip(all_, sizes)]


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None, group_dst: int | None = None) -> None:
    """Process `dst` (0 by default) gets the objects of all."""
    g = world.inside(group)
    if g is None:
        return
    root = world.member(g, 0 if dst is None and group_dst is None else dst, "dst", group_dst)
    if g._rank == root and (object_gather_list is None or len(object_gather_list) < g.size()):
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if g._rank != root and object_gather_list is not None:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    data = _bytes(obj)
    sizes = _sizes(g, data.size, "gather_object")
    most = max(sizes)
    own, all_ = np.zeros(most, np.uint8), np.zeros((g.size() if g._rank == root else 1, most), np.uint8)
    own[:data.size] = data
    g.host.run(f"gather_object({most} bytes, to {g._ranks[root]})", lambda comm: comm.gather(own.ctypes.data, most, all_.ctypes.data, root))
    if object_gather_list is not None:
        object_gather_list[:] = [pickle.loads(row[:n].tobytes()) for row, n in zip(all_, sizes)]


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None) -> None:
    """The list's objects become those that process `src` (0 by default) has in its list of the same length."""
    if not isinstance(object_list, list):
        raise TypeError(f"Expected type of object_list to be <class 'list'>, but got {type(object_list)}.")
    g = world.inside(group)
    if g is None:
        return
    root = world.member(g, 0 if src is None and group_src is None else src, "src", group_src)
    data = _bytes(object_list) if g._rank == root else np.zeros(0, np.uint8)
    size = np.array([data.size, len(object_list)], np.int64)
    g.host.run(f"broadcast_object_list({len(object_list)} objects, from {g._ranks[root]})", lambda comm: comm.broadcast(size.ctypes.data, 16, root))
    if g._rank != root:
        data = np.zeros(int(size[0]), np.uint8)
    g.host.run("broadcast_object_list: objects", lambda comm: comm.broadcast(data.ctypes.data, data.size, root))
    if g._rank != root:
        object_list[:] = pickle.loads(data.tobytes())


def scatter_object_list(scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int | None = None, group: Any = None,
                        group_src: int | None = None) -> None:
    """`scatter_object_output_list[0]` becomes this process's object of the list that process `src` (0 by default) has."""
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    g = world.inside(group)
    if g is None:
        return
    root = world.member(g, 0 if src is None and group_src is None else src, "src", group_src)
    parts = list(scatter_object_input_list or []) if g._rank == root else [None] * g.size()
    if len(parts) != g.size():
        raise ValueError(f"scatter_object_list: the list must hold one object a process, {g.size()} here, got {len(parts)}")
    broadcast_object_list(parts, group=group, group_src=root)
    scatter_object_output_list[0] = parts[g._rank]


def send_object_list(object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None, group_dst: int | None = None,
                     use_batch: bool = False) -> None:
    """Sends a list of objects to process `dst`."""
    from .._core.ops.creation import from_numpy
    data = _bytes(object_list)
    messages.send(from_numpy(np.array([data.size], np.int64)), dst, group, 0, group_dst)
    messages.send(from_numpy(data), dst, group, 0, group_dst)


def recv_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None,
                     use_batch: bool = False) -> int:
    """Receives a list of objects from process `src`, or from any; gives the rank that it came from."""
    from .._core.ops.creation import from_numpy
    size = np.zeros(1, np.int64)
    source = messages.recv(from_numpy(size), src, group, 0, group_src)
    data = np.zeros(int(size[0]), np.uint8)
    messages.recv(from_numpy(data), source if source >= 0 else src, group)
    object_list[:] = pickle.loads(data.tobytes())
    return source
