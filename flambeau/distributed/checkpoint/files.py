"""How a checkpoint lies on disk, and is written and read.

A folder holds for each process a file with its pieces, one behind the other, and `.metadata` (JSON), which says of each tensor which piece lies where.
Files get new names with each save, and the metadata takes its place by a rename when all of them are there; so a save that is cut off at any byte
leaves the former checkpoint whole.  What no metadata names any more is removed.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._core import dtypes, ops
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor
from ...autograd import no_grad
from ..tensor.dtensor import DTensor
from ..tensor.spec import local_piece

if TYPE_CHECKING:
    from collections.abc import Sequence

METADATA = ".metadata"


@dataclass
class Chunk:
    """A piece of a tensor: its beginning and size in the whole, and where its bytes are."""

    offsets: list[int]
    sizes: list[int]
    file: str
    at: int
    nbytes: int


@dataclass
class TensorStorageMetadata:
    """A tensor: type, size, pieces."""

    dtype: str
    size: list[int]
    chunks: list[Chunk] = field(default_factory=list)


@dataclass
class BytesStorageMetadata:
    """Any other object, pickled."""

    file: str
    at: int
    nbytes: int


@dataclass
class Metadata:
    """What a checkpoint holds: by the names of its entries, and the path in the nested dictionaries that each name stands for."""

    state_dict_metadata: dict[str, Any] = field(default_factory=dict)
    planner_data: dict[str, list[Any]] = field(default_factory=dict)

    def text(self) -> str:
        """As it is written."""
        entries = {k: {"kind": "tensor" if isinstance(m, TensorStorageMetadata) else "bytes", **asdict(m)} for k, m in self.state_dict_metadata.items()}
        return json.dumps({"version": 1, "entries": entries, "paths": self.planner_data})

    @staticmethod
    def read(folder: Path) -> Metadata:
        """That of a folder.  Raises FileNotFoundError, ValueError for another file."""
        told = json.loads((folder / METADATA).read_text(encoding="utf-8"))
        if told.get("version") != 1:
            raise ValueError(f"{folder / METADATA}: not a checkpoint that is known here")
        found = Metadata(planner_data=told["paths"])
        for k, entry in told["entries"].items():
            if entry.pop("kind") == "tensor":
                found.state_dict_metadata[k] = TensorStorageMetadata(entry["dtype"], entry["size"], [Chunk(**c) for c in entry["chunks"]])
            else:
                found.state_dict_metadata[k] = BytesStorageMetadata(**entry)
        return found

    def files(self) -> set[str]:
        """The files that it names."""
        found = set()
        for m in self.state_dict_metadata.values():
            found.update([c.file for c in m.chunks] if isinstance(m, TensorStorageMetadata) else [m.file])
        return found


def flattened(state: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """The leaves of nested dictionaries and lists, by their paths; lists of numbers are leaves."""
    if hasattr(state, "state_dict") and not isinstance(state, dict):
        state = state.state_dict()
    items: Any = None
    if isinstance(state, dict):
        items = state.items()
    elif isinstance(state, list) and any(isinstance(x, Tensor | dict | list) for x in state):
        items = enumerate(state)
    if items is None or (path and not state):
        return {path: state}
    found: dict[tuple[Any, ...], Any] = {}
    for k, v in items:
        found.update(flattened(v, (*path, k)))
    return found


def name_of(path: Sequence[Any]) -> str:
    """The name of an entry."""
    return ".".join(map(str, path))


def bytes_of(t: Tensor) -> bytes:
    """A tensor's elements as they lie in memory, contiguous."""
    flat = unasked(t.detach().cpu)().contiguous().reshape(-1)
    return bytes(flat.view(dtypes.uint8).numpy()) if flat.numel() else b""


def own_pieces(t: Tensor, owned: bool) -> list[tuple[tuple[int, ...], Tensor]]:
    """The pieces of a tensor that this process writes: of what several have, one of them.  owned: it writes what is no DTensor."""
    if not isinstance(t, DTensor):
        return [((0,) * t.ndim, t)] if owned else []
    mesh, placed = t.device_mesh, t.placements
    place = mesh.get_coordinate()
    if any(p.is_partial() for p in placed):
        raise ValueError("a tensor that is a part of a sum cannot be saved; redistribute it first")
    if place is None or any(k and not p.is_shard() for k, p in zip(place, placed)):
        return []
    _, starts = local_piece(tuple(t.shape), mesh, placed)
    local = t.to_local()
    return [(starts, local)] if local.numel() or t.numel() == 0 else []


def plan(flat: dict[tuple[Any, ...], Any], rank: int, stamp: str, others: set[str]) -> tuple[list[bytes], Metadata]:
    """What this process writes of its leaves, and what is to be said of it.  others: names of leaves that a process before it has and writes."""
    from ...io.checkpoint import save
    file, at = f"__{rank}_0.{stamp}.distcp", 0
    parts: list[bytes] = []
    told = Metadata()
    for path, value in flat.items():
        name = name_of(path)
        if name in told.planner_data:
            raise ValueError(f"two entries of the state are named {name!r}")
        told.planner_data[name] = [k if isinstance(k, str | int) else str(k) for k in path]
        if isinstance(value, Tensor):
            entry = TensorStorageMetadata(value.dtype.name, list(value.shape))
            for starts, piece in own_pieces(value, name not in others):
                data = bytes_of(piece)
                entry.chunks.append(Chunk(list(starts), list(piece.shape), file, at, len(data)))
                parts.append(data)
                at += len(data)
            told.state_dict_metadata[name] = entry
        elif name not in others:
            room = io.BytesIO()
            save(value, room)
            told.state_dict_metadata[name] = BytesStorageMetadata(file, at, len(room.getvalue()))
            parts.append(room.getvalue())
            at += len(room.getvalue())
    return parts, told


def together(all_: Sequence[Metadata]) -> Metadata:
    """What all processes say."""
    found = Metadata()
    for m in all_:
        found.planner_data.update(m.planner_data)
        for name, entry in m.state_dict_metadata.items():
            known = found.state_dict_metadata.get(name)
            if known is None:
                found.state_dict_metadata[name] = entry
            elif isinstance(entry, TensorStorageMetadata):
                known.chunks.extend(entry.chunks)
    return found


def put(path: Path, parts: Sequence[bytes]) -> None:
    """Writes a file, which appears when it is whole and on the disk."""
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "wb") as f:
        for data in parts:
            f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.replace(beside, path)


def sweep(folder: Path, kept: set[str]) -> None:
    """Removes files of checkpoints that were."""
    for path in folder.glob("__*.distcp*"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def read_bytes(folder: Path, file: str, at: int, nbytes: int) -> bytes:
    """A part of a file.  Raises ValueError where it is cut off."""
    with open(folder / file, "rb") as f:
        f.seek(at)
        data = f.read(nbytes)
    if len(data) != nbytes:
        raise ValueError(f"{folder / file} is cut off: {nbytes} bytes at {at} are wanted, {len(data)} are there")
    return data


def read_object(folder: Path, m: BytesStorageMetadata) -> Any:
    """An object that was saved."""
    from ...io.checkpoint import load
    return load(io.BytesIO(read_bytes(folder, m.file, m.at, m.nbytes)), weights_only=False)


def whole_state(folder: Path, told: Metadata, keys: Any = None) -> dict[Any, Any]:
    """What a folder holds, whole and nested as it was saved; by `keys`, a set of names, the entries of these names and those below them."""
    state: dict[Any, Any] = {}
    for name, entry in told.state_dict_metadata.items():
        path = told.planner_data[name]
        if keys is not None and not any(name_of(path[:n]) in keys for n in range(1, len(path) + 1)):
            continue
        value: Any
        if isinstance(entry, BytesStorageMetadata):
            value = read_object(folder, entry)
        else:
            value = ops.empty(tuple(entry.size), dtype=getattr(dtypes, entry.dtype if entry.dtype != "bool" else "bool_"))
            read_into(folder, name, entry, value)
        *outer, last = path
        at = state
        for k in outer:
            at = at.setdefault(k, {})
        at[last] = value
    return state


def read_into(folder: Path, name: str, m: TensorStorageMetadata, t: Any) -> None:
    """Fills a tensor, or this process's piece of one, from the pieces that overlap it.  Raises ValueError where the sizes differ, or something is
    missing."""
    if list(t.shape) != list(m.size):
        raise ValueError(f"Size mismatch between saved {m.size} and current: {list(t.shape)} for {name}")
    local, starts = t, (0,) * t.ndim
    if isinstance(t, DTensor):
        local = t.to_local()
        _, starts = local_piece(tuple(t.shape), t.device_mesh, t.placements)
        if t.device_mesh.get_coordinate() is None:
            return
    filled = 0
    with no_grad():
        for c in m.chunks:
            low = [max(a, b) for a, b in zip(c.offsets, starts)]
            high = [min(a + n, b + k) for a, n, b, k in zip(c.offsets, c.sizes, starts, local.shape)]
            if any(a >= b for a, b in zip(low, high)):
                continue
            data = bytearray(read_bytes(folder, c.file, c.at, c.nbytes))
            source = ops.frombuffer(data, dtype=getattr(dtypes, m.dtype if m.dtype != "bool" else "bool_")).view(tuple(c.sizes))
            target = local.detach()
            for d, (a, b) in enumerate(zip(low, high)):
                source = source.narrow(d, a - c.offsets[d], b - a)
                target = target.narrow(d, a - starts[d], b - a)
            unasked(target.copy_)(unasked(source.to)(target.device))
            filled += source.numel()
    if filled < local.numel():
        raise ValueError(f"{name}: {local.numel() - filled} of {local.numel()} elements of this process are in no file")
