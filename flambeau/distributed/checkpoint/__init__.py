"""Checkpoints that all processes write and read together, and that other numbers of processes can read (torch.distributed.checkpoint)."""

from __future__ import annotations

import os
import threading
import time
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ..._core.tensor import Tensor
from .. import objects, world
from .files import (
    METADATA,
    BytesStorageMetadata,
    Metadata,
    TensorStorageMetadata,
    flattened,
    name_of,
    plan,
    put,
    read_into,
    read_object,
    sweep,
    together,
    whole_state,
)
from .staging import AsyncCheckpointerType, AsyncSaveResponse, answered
from .stateful import Stateful


class CheckpointException(BaseException):
    """Something went wrong on some processes: `failures` has what, by rank."""

    def __init__(self, msg: str, failures: dict[int, Any]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, Any]:
        """What went wrong, by rank."""
        return self._failures

    def __str__(self) -> str:
        return f"CheckpointException ranks:{self._failures.keys()}\n" + "\n".join(f"{self.args[0]}: rank {r}: {e!r}" for r, e in self._failures.items())


class DefaultSavePlanner:
    """Accepted: every entry is saved, what several processes have once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


class DefaultLoadPlanner:
    """allow_partial_load: entries that the checkpoint does not have stay as they are."""

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False) -> None:
        self.allow_partial_load = allow_partial_load


class FileSystemWriter:
    """Saves into a folder."""

    def __init__(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        self.path = Path(path)


class FileSystemReader:
    """Loads from a folder."""

    def __init__(self, path: str | os.PathLike[str], _extension_registry: Any = None) -> None:
        self.path = Path(path)

    def read_metadata(self) -> Metadata:
        """What the checkpoint holds."""
        return Metadata.read(self.path)


def _folder(checkpoint_id: Any, storage: Any, name: str) -> Path:
    found = checkpoint_id if checkpoint_id is not None else getattr(storage, "path", None)
    if found is None:
        raise RuntimeError(f"{name}: `checkpoint_id` must be specified if no storage is given")
    return Path(found)


class _Ranks:
    """The processes that save or load together."""

    def __init__(self, group: Any, no_dist: bool) -> None:
        self.group = None if no_dist or not world.is_initialized() else world.of(group)
        self.rank = 0 if self.group is None else self.group.rank()
        self.size = 1 if self.group is None else self.group.size()

    def every(self, value: Any) -> list[Any]:
        """The objects of all."""
        return [value] if self.group is None else objects.every(self.group, value, "checkpoint")

    def together(self, step: str, value: Any, error: BaseException | None) -> list[Any]:
        """The objects of all; raises CheckpointException on all where one had an error."""
        found = self.every((value, None if error is None else _told(error)))
        failures = {r: e for r, (_, e) in enumerate(found) if e is not None}
        if failures:
            raise CheckpointException(step, failures) from error
        return [v for v, _ in found]


def _told(error: BaseException) -> BaseException:
    import pickle
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _planned(ranks: _Ranks, folder: Path, state_dict: dict[str, Any]) -> tuple[list[bytes], Metadata]:
    error: BaseException | None = None
    flat: dict[tuple[Any, ...], Any] = {}
    parts: list[bytes] = []
    told = Metadata()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        flat = flattened(state_dict)
    except Exception as e:
        error = e
    # a process may have leaves that process 0 has not: a stage's parameters, its own place in the data
    found = ranks.every((uuid.uuid4().hex[:8], [name_of(path) for path in flat]))
    try:
        parts, told = plan(flat, ranks.rank, found[0][0], {n for _, names in found[:ranks.rank] for n in names})
    except Exception as e:
        error = e
    return parts, together(ranks.together("local_step", told, error))


def _own_file(told: Metadata, rank: int) -> str:
    return next((f for f in told.files() if f.startswith(f"__{rank}_0.")), "")


def save(state_dict: dict[str, Any], *, checkpoint_id: Any = None, storage_writer: Any = None, planner: Any = None, process_group: Any = None,
         no_dist: bool = False, use_collectives: bool = True) -> Metadata:
    """Writes a state into a folder; all processes call it.

    state_dict: nested dictionaries of tensors, DTensors, objects with `state_dict()`, and what pickles.  Of DTensors each process writes its pieces, all
    else the first process that has it.  checkpoint_id: the folder.  no_dist: this process saves alone.
    Raises CheckpointException on all processes when one cannot write.
    """
    ranks = _Ranks(process_group, no_dist)
    folder = _folder(checkpoint_id, storage_writer, "save")
    parts, told = _planned(ranks, folder, state_dict)
    error: BaseException | None = None
    try:
        if own := _own_file(told, ranks.rank):
            put(folder / own, parts)
    except Exception as e:
        error = e
    ranks.together("write", None, error)
    try:
        if ranks.rank == 0:
            put(folder / METADATA, [told.text().encode()])
            sweep(folder, told.files())
    except Exception as e:
        error = e
    ranks.together("metadata", None, error)
    return told


def async_save(state_dict: dict[str, Any], *, checkpoint_id: Any = None, storage_writer: Any = None, planner: Any = None, process_group: Any = None,
               async_checkpointer_type: Any = None, async_stager: Any = None, no_dist: bool = False, use_collectives: bool = True) -> Any:
    """`save` whose files are written by a thread while the program goes on; what is saved is copied first.  Gives a future, which is done when the
    checkpoint is whole, and with a `DefaultStager` that stages beside an `AsyncSaveResponse`."""
    ranks = _Ranks(process_group, no_dist)
    folder = _folder(checkpoint_id, storage_writer, "async_save")
    parts, told = _planned(ranks, folder, state_dict)
    done: Future[Metadata] = Future()
    limit = 1800.0 if ranks.group is None else ranks.group._timeout.total_seconds()

    def write() -> None:
        try:
            if own := _own_file(told, ranks.rank):
                put(folder / own, parts)
            wanted = [folder / f for f in told.files()]
            end = time.monotonic() + limit
            if ranks.rank == 0:  # processes meet in the folder: their groups belong to the program meanwhile
                while not all(p.exists() for p in wanted):
                    if time.monotonic() > end:
                        raise TimeoutError(f"async_save: {[p.name for p in wanted if not p.exists()]} did not come within {limit:.0f} s")
                    time.sleep(0.005)
                put(folder / METADATA, [told.text().encode()])
                sweep(folder, told.files())
            else:
                text = told.text()
                while not (folder / METADATA).exists() or (folder / METADATA).read_text(encoding="utf-8") != text:
                    if time.monotonic() > end:
                        raise TimeoutError(f"async_save: process 0 did not finish {folder} within {limit:.0f} s")
                    time.sleep(0.01)
            done.set_result(told)
        except BaseException as e:
            done.set_exception(e)
    threading.Thread(target=write, name="checkpoint", daemon=False).start()
    return answered(async_stager, done)


def load(state_dict: dict[str, Any], *, checkpoint_id: Any = None, storage_reader: Any = None, planner: Any = None, process_group: Any = None,
         no_dist: bool = False) -> None:
    """Fills the tensors of a state from a folder, in place, and puts other objects into it; objects with `load_state_dict` get theirs.

    DTensors may lie otherwise, over another number of processes, than those that were saved.
    Raises CheckpointException on all processes for what is missing, or has another size.
    """
    ranks = _Ranks(process_group, no_dist)
    folder = _folder(checkpoint_id, storage_reader, "load")
    error: BaseException | None = None
    try:
        told = Metadata.read(folder)
        partial = getattr(planner, "allow_partial_load", False)
        if not state_dict and hasattr(planner, "keys"):  # `format_utils._EmptyStateDictLoadPlanner`
            state_dict.update(whole_state(folder, told, planner.keys))
        for key, value in list(state_dict.items()):
            own = value.state_dict() if hasattr(value, "state_dict") and not isinstance(value, Tensor | dict) else value
            filled = _filled(folder, told, own, (key,), partial)
            if own is not value:
                value.load_state_dict(filled)
            else:
                state_dict[key] = filled
    except Exception as e:
        error = e
    ranks.together("load", None, error)


def _filled(folder: Path, told: Metadata, value: Any, path: tuple[Any, ...], partial: bool) -> Any:
    if isinstance(value, dict) and (value or not path):
        for k, v in list(value.items()):
            value[k] = _filled(folder, told, v, (*path, k), partial)
        return value
    if isinstance(value, list) and any(isinstance(x, Tensor | dict | list) for x in value):
        return [_filled(folder, told, v, (*path, k), partial) for k, v in enumerate(value)]
    name = name_of(path)
    entry = told.state_dict_metadata.get(name)
    if entry is None:
        if partial:
            return value
        raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
    if isinstance(entry, BytesStorageMetadata):
        return read_object(folder, entry)
    if not isinstance(value, Tensor):
        raise RuntimeError(f"{name}: the checkpoint has a tensor, the state a {type(value).__name__}")
    read_into(folder, name, entry, value)
    return value


def _load_state_dict_from_keys(keys: Any = None, *, checkpoint_id: Any = None, storage_reader: Any = None, process_group: Any = None) -> dict[str, Any]:
    """What a checkpoint holds, whole; `keys`: a name or a set of names, with what is below them."""
    from .format_utils import _EmptyStateDictLoadPlanner
    found: dict[str, Any] = {}
    wanted = None if keys is None else {keys} if isinstance(keys, str) else set(keys)
    load(found, checkpoint_id=checkpoint_id, storage_reader=storage_reader, planner=_EmptyStateDictLoadPlanner(wanted), process_group=process_group)
    return found


load_state_dict, save_state_dict = load, save
__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "BytesStorageMetadata", "CheckpointException", "DefaultLoadPlanner", "DefaultSavePlanner",
           "FileSystemReader", "FileSystemWriter", "Metadata", "Stateful", "TensorStorageMetadata", "async_save", "flattened", "load", "load_state_dict",
           "save", "save_state_dict"]
