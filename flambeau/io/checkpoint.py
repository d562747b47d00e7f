"""`save` and `load`: tensors, and nested containers of them, in one file that can run no code.

The file is a safetensors file: tensors under the dotted names of their places, and how the containers nest as JSON in
the header's metadata. Any reader of safetensors finds the tensors; `load` also reads files others wrote.
"""

from __future__ import annotations

import io
import json
import os
from typing import IO, TYPE_CHECKING, Any

from ..runtime.device import device as Device
from ..tensor import Tensor
from . import safetensors
from .files import replacing
from .structure import Builder, Describer

if TYPE_CHECKING:
    from collections.abc import Callable

_KEY = "flambeau"
_noted = False


def _is_path(f: Any) -> bool:
    return isinstance(f, str | bytes | os.PathLike)


def save(obj: Any, f: str | os.PathLike[str] | IO[bytes], pickle_module: Any = None, pickle_protocol: int = 2,
         _use_new_zipfile_serialization: bool = True) -> None:
    """Saves tensors and nested dicts, lists, tuples, sets, numbers, strings, dtypes and devices.

    Args:
        obj: what to save: the `state_dict` of a model or an optimizer, or a dictionary of several.
        f: a path, whose old file stays whole until the new one is complete, or an object with `write`.

    Two places with the very same tensor share memory after `load` too. The pickle arguments are accepted for the sake
    of PyTorch's programs. Raises TypeError for a type that cannot be saved, before anything is written.
    """
    describer = Describer()
    described = describer.describe(obj, "")
    metadata = {_KEY: json.dumps({"version": 1, "object": described}, separators=(",", ":"))}
    if _is_path(f):
        with replacing(f) as stream:
            safetensors.write(stream, describer.tensors, metadata)
        return
    if not hasattr(f, "write"):
        raise AttributeError(f"save: expected 'f' to be a string, path, or a file-like object with a 'write' "
                             f"attribute, got {type(f).__name__}")
    safetensors.write(f, describer.tensors, metadata)  # type: ignore[arg-type]
    if hasattr(f, "flush"):
        f.flush()


def load(f: str | os.PathLike[str] | IO[bytes], map_location: Any = None, pickle_module: Any = None, *,
         weights_only: bool | None = None, mmap: bool | None = None, **pickle_load_args: Any) -> Any:
    """What `save` saved, or a dictionary of the tensors of any other safetensors file.

    Args:
        f: a path, or an object with `read`; of one with `seek`, what follows the object stays unread.
        map_location: where tensors go: None for where they were (or the CPU, with one note, if there is no such device
            here), a device or its name for all, a dictionary from names to names, or a function of (tensor on the CPU,
            name of the place) that gives the tensor, moved, or None.
        weights_only, mmap: accepted; nothing in a file is ever run, and it is read, not mapped.

    Raises RuntimeError for a file that is cut off, corrupt or of another format, FileNotFoundError for none.
    """
    if _is_path(f):
        where = os.fsdecode(f)  # type: ignore[arg-type]
        with open(f, "rb") as stream:  # type: ignore[arg-type]
            return _load(stream, os.fstat(stream.fileno()).st_size, where, map_location, True)
    if not hasattr(f, "read"):
        raise AttributeError(f"load: expected 'f' to be a string, path, or a file-like object with a 'read' "
                             f"attribute, got {type(f).__name__}")
    available = None
    if getattr(f, "seekable", lambda: False)():
        here = f.tell()  # type: ignore[union-attr]
        available = f.seek(0, io.SEEK_END) - here  # type: ignore[union-attr]
        f.seek(here)  # type: ignore[union-attr]
    return _load(f, available, "the stream", map_location, False)  # type: ignore[arg-type]


def _load(stream: IO[bytes], available: int | None, where: str, map_location: Any, alone: bool) -> Any:
    entries, metadata = safetensors.read_header(stream, available, where)
    described = None
    if _KEY in metadata:
        described = safetensors.parse_json(metadata[_KEY], "the description of its objects", where)
        if not isinstance(described, dict) or described.get("version") != 1 or "object" not in described:
            raise RuntimeError(f"load: {where} is corrupt, or of a later version than this one: its objects' "
                               "description must be of version 1")
    tensors = dict(safetensors.read_tensors(stream, entries, where))
    if alone and stream.read(1):
        raise RuntimeError(f"load: {where} is corrupt: bytes follow the last tensor")
    place = _placer(map_location)
    if described is None:
        return {e.name: place(tensors[e.name], "cpu") for e in entries}
    placed: dict[tuple[str, str], Tensor] = {}

    def tensor(name: str, j: dict[str, Any]) -> Any:
        if name not in tensors:
            raise RuntimeError(f"load: {where} is corrupt: tensor {name!r} is not in it")
        location = j.get("device", "cpu")
        if not isinstance(location, str):
            raise RuntimeError(f"load: {where} is corrupt: {location!r:.50} is no device")
        key = (name, location)
        found = placed.get(key)
        if found is None:
            found = placed[key] = place(tensors[name], location)
        else:
            found = found.detach()
        if j.get("parameter") is True:
            from ..nn.parameter import Parameter

            return Parameter(found, requires_grad=j.get("grad") is True)
        return found.requires_grad_() if j.get("grad") is True else found

    return Builder(tensor, where).build(described["object"])


def _placer(map_location: Any) -> Callable[[Any, str], Any]:
    """A function of (tensor on the CPU, name of the device it was saved from) that moves the tensor."""
    if map_location is None:
        return _to_old_place
    if isinstance(map_location, dict):
        def by_name(t: Any, location: str) -> Any:
            target = map_location.get(location, map_location.get(Device(location)))
            return _to_old_place(t, location) if target is None else t.to(Device(target))
        return by_name
    if callable(map_location) and not isinstance(map_location, Device):
        def by_function(t: Any, location: str) -> Any:
            moved = map_location(t, location)
            return _to_old_place(t, location) if moved is None else moved
        return by_function
    if not isinstance(map_location, Device | str | int):
        raise TypeError(f"load: map_location must be a device, its name, a dict or a function, got "
                        f"{type(map_location).__name__}")
    target = Device(map_location)
    return lambda t, location: t.to(target)


def _to_old_place(t: Any, location: str) -> Any:
    global _noted
    if location == "cpu":
        return t
    device = Device(location)
    if device.type == "cuda":
        from .. import cuda

        count = cuda.device_count()
        if (device.index or 0) >= count:
            if not _noted:
                import warnings

                warnings.warn(f"load: tensors saved from {location} are loaded on the CPU, as this machine has "
                              f"{count} GPUs; map_location chooses a place", stacklevel=2)
                _noted = True
            return t
    return t.to(device)
