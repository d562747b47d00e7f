"""`save` and `load`: PyTorch's files, both ways, and safetensors files read by the same `load`.

A file is a zip archive: `data.pkl` is a pickle in which each storage stands as a number, `data/<number>` holds the bytes of
one.  Storages that tensors share are stored once and shared again.  `load` reads the pickle with an interpreter of its own
that can make tensors and containers and nothing else, unless it is told that the file is trusted.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .._core import dtypes
from .._core.errors import FileFormatError
from .._core.ops.storages import UntypedStorage, host_bytes
from .._core.ops.typed_storages import TypedStorage
from .._core.runtime.device import device as Device
from .._core.tensor import meta, wrap
from . import archive, names, options, pickler, safe
from .files import replacing
from .map_location import placer
from .rebuild import brief
from .unpickler import Survey, Unpickler

if TYPE_CHECKING:
    from collections.abc import Callable

    from . import legacy
    from .map_location import Placer

DEFAULT_PROTOCOL = 2


def _is_path(f: Any) -> bool:
    return isinstance(f, str | bytes | os.PathLike)


def save(obj: Any, f: str | os.PathLike[str] | IO[bytes], pickle_module: Any = None, pickle_protocol: int = DEFAULT_PROTOCOL,
         _use_new_zipfile_serialization: bool = True) -> None:
    """Saves an object in PyTorch's format.

    Args:
        obj: what to save; best the `state_dict` of a model or an optimizer, or a dictionary of several, which `load` reads
            without trusting the file.
        f: a path, whose old file stays whole until the new one is complete, or an object with `write`.
        pickle_module: `pickle`, or a module whose Pickler is written in Python (dill).
        pickle_protocol: 2, which PyTorch reads everywhere, to 5.

    Tensors that share a storage share it in the file and after `load`. The archive is always a zip file. Raises what pickle
    raises for objects that cannot be pickled, before anything is written.
    """
    if type(pickle_protocol) is not int or not 2 <= pickle_protocol <= pickle.HIGHEST_PROTOCOL:
        raise ValueError(f"save: pickle_protocol must be 2 to {pickle.HIGHEST_PROTOCOL}, got {pickle_protocol!r:.50}")
    if not _is_path(f) and not hasattr(f, "write"):
        raise AttributeError(f"save: expected 'f' to be a string, path, or a file-like object with a 'write' "
                             f"attribute, got {type(f).__name__}")
    data, storages = pickler.dumps(obj, pickle_module, pickle_protocol)
    if _is_path(f):
        with replacing(f) as stream:
            _write(stream.write, data, storages)
        return
    _write(f.write, data, storages)  # type: ignore[union-attr]
    if hasattr(f, "flush"):
        f.flush()


_skipping: ContextVar[bool] = ContextVar("skipping", default=False)


class skip_data:
    """`with serialization.skip_data():` saves files that have room for the numbers of tensors, all zero, and leaves the tensors that it loads
    unfilled.  materialize_fake_tensors: accepted; tensors without memory have none to save."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._before = _skipping.set(True)

    def __exit__(self, *exc: object) -> None:
        _skipping.reset(self._before)


def _write(write: Callable[[Any], Any], data: bytes, storages: list[Any]) -> None:
    out = archive.Writer(write)
    checks = [out.add("data.pkl", data)]
    out.add(".format_version", b"1")
    out.add(".storage_alignment", str(archive.ALIGNMENT).encode())
    out.add("byteorder", sys.byteorder.encode())
    for number, storage in enumerate(storages):
        content = np.zeros(storage.meta.nbytes, np.uint8) if _skipping.get() else host_bytes(storage, "save")
        checks.append(out.add(f"data/{number}", content))
    out.add("version", b"3\n")
    out.add(".data/serialization_id", _identity(checks))
    out.close()


def _identity(checks: list[int]) -> bytes:
    """Forty digits that differ for files of different content."""
    import hashlib
    digest = hashlib.blake2b(b"".join(c.to_bytes(4, "little") for c in checks), digest_size=16, usedforsecurity=False).digest()
    return f"{int.from_bytes(digest, 'little'):040d}".encode()


def load(f: str | os.PathLike[str] | IO[bytes], map_location: Any = None, pickle_module: Any = None, *,
         weights_only: bool | None = None, mmap: bool | None = None, **pickle_load_args: Any) -> Any:
    """What `save`, or PyTorch 0.4 or later, saved; of a safetensors file, a dictionary of its tensors.

    Args:
        f: a path, or an object with `read`, `seek` and `tell`, whose rest is the file.
        map_location: where storages go: None for where they were (or the CPU, with one note, if there is no such device
            here), a device or its name for all, a dictionary from names to names, or a function of (storage on the CPU,
            name of the place) that gives the storage, moved, or None.
        weights_only: True, the default, makes tensors, containers, numbers, and what `add_safe_globals` allowed, and runs
            nothing of the file. False lets the file run any code: for files whose source is trusted.
        mmap: True maps the file instead of reading it: bytes come as they are used, writes stay in this process. The file must stay as it
            is while its tensors are in use: what another program writes into it may show, and where it is made shorter (not where another
            file takes its place, as `save` does it), using what is cut off ends the process.

    Raises FileFormatError, a RuntimeError, for a file that is cut off, corrupt, of another format or asks for what is not
    allowed (then also a pickle.UnpicklingError); FileNotFoundError for none.
    """
    safely = weights_only is None or bool(weights_only)
    if safely and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified: pass weights_only=False for a file whose "
                           "source is trusted")
    place = placer(map_location)
    if _is_path(f):
        where = os.fsdecode(f)  # type: ignore[arg-type]
        with open(f, "rb") as stream:  # type: ignore[arg-type]
            return _load(stream, where, place, safely, pickle_module, f if mmap else None, pickle_load_args)
    if mmap:
        raise ValueError("f must be a file path in order to use the mmap argument")
    if not hasattr(f, "read"):
        raise AttributeError(f"load: expected 'f' to be a string, path, or a file-like object with a 'read' "
                             f"attribute, got {type(f).__name__}")
    if not (hasattr(f, "seek") and hasattr(f, "tell") and getattr(f, "seekable", lambda: True)()):
        raise AttributeError("load: the object must have 'seek' and 'tell', as the directory of the file is at its end. You can only torch.load from a "
                             "file that is seekable. Please pre-load the data into a buffer like io.BytesIO and try to load from it instead.")
    return _load(f, "the stream", place, safely, pickle_module, None, pickle_load_args)  # type: ignore[arg-type]


def _load(stream: IO[bytes], where: str, place: Placer, safely: bool, pickle_module: Any, path: Any, options: dict[str, Any]) -> Any:
    base = stream.tell()
    start = stream.read(512)
    stream.seek(base)
    if start[:4] != archive.MAGIC:
        from . import legacy, safetensors
        if start.startswith(legacy.START):
            data = stream.read()
            old = legacy.Records(stream, base, where, data)
            return _object(data, old.begin, Shelf(old, place, None), safely, pickle_module, options)
        if safetensors.looks_like(start):
            size = stream.seek(0, io.SEEK_END) - base
            stream.seek(base)
            loaded = safetensors.read(stream, size, where)
            return {name: safetensors.placed(t, place) for name, t in loaded.items()}
        raise _foreign(start, where)
    records = archive.Reader(stream, base, where)
    if "data.pkl" not in records.records:
        kind = "a TorchScript archive, which holds a program" if "constants.pkl" in records.records else "a zip archive, but not one of PyTorch's"
        raise FileFormatError(f"load: {where} is {kind}: it has no record data.pkl")
    return _object(records.read("data.pkl"), 0, Shelf(records, place, path), safely, pickle_module, options)


def _object(data: bytes, start: int, shelf: Shelf, safely: bool, pickle_module: Any, options: dict[str, Any]) -> Any:
    if safely:
        return Unpickler(data, shelf.storage, safe.allowed_now(), start).load()
    return _trusted(data[start:], shelf, pickle_module, options)


def _foreign(start: bytes, where: str) -> FileFormatError:
    """For a file that is something else."""
    if not start:
        return FileFormatError(f"load: {where} is empty")
    if start[257:262] == b"ustar":
        return FileFormatError(f"load: {where} is a tar archive of PyTorch before 0.1.10, whose loader ran any code; it is not read")
    if start[:1] == b"\x80":
        return FileFormatError(f"load: {where} is a plain pickle, which is no file of PyTorch's; it is not read")
    return FileFormatError(f"load: {where} is neither a file of PyTorch's nor a safetensors file, or it is cut off")


class Shelf:
    """The storages of one file, each made when it is first asked for."""

    def __init__(self, records: archive.Reader | legacy.Records, place: Placer, path: Any) -> None:
        self.records, self.place = records, place
        self.made: dict[str, UntypedStorage] = {}
        order = records.read("byteorder") if "byteorder" in records.records and records.records["byteorder"][1] <= 8 else options.byte_order(sys.byteorder)
        if order not in (b"little", b"big"):
            raise records.fail("its byte order is neither little nor big")
        self.swapped = order.decode() != sys.byteorder
        self.mapped: Any = None
        if path is not None:
            from .._core.drivers.files import mapped
            self.mapped = mapped(path, options.is_shared())

    def storage(self, pid: Any) -> Any:
        """The storage of ('storage', type, number, place, number of elements).  Raises FileFormatError for any other id."""
        if type(pid) is not tuple or len(pid) not in (5, 6) or type(pid[0]) is not str or pid[0] != "storage":
            raise self.records.fail("a persistent id means no storage")
        _, kind, key, location, count = pid[:5]
        if type(key) is not str or type(location) is not str or type(count) is not int or count < 0:
            raise self.records.fail(f"a storage is described by {brief(key)}, {brief(location)}, {brief(count)}")
        if kind is UntypedStorage:
            d = None
        elif type(kind) is names.Named and kind.name in names.STORAGES:
            d = names.STORAGES[kind.name]
        else:
            raise self.records.fail(f"a storage is of the type {brief(kind)}")
        found = self.made.get(key)
        size = count * (1 if d is None else d.itemsize)
        if found is None:
            found = self.made[key] = self.place(self._bytes(f"data/{key}", size, d), location)
        elif found.nbytes() < size:
            raise self.records.fail(f"storage {key[:60]!r} has {found.nbytes()} bytes, where {brief(size)} are wanted")
        return found if d is None else TypedStorage._of(found, d)

    def _bytes(self, name: str, size: int, d: Any) -> UntypedStorage:
        start, there = self.records.records.get(name, (0, -1))
        if there < size:
            raise self.records.fail(f"storage {name[:60]!r} wants {brief(size)} bytes, and " + ("it is not there" if there < 0 else f"{there} are there"))
        unit = 1 if d is None else d.itemsize
        step = unit // 2 if d is not None and d.is_complex else unit
        if self.mapped is not None and not (self.swapped and step > 1) and size:
            address = int(self.mapped.__array_interface__["data"][0]) + start
            if start + size > len(self.mapped):
                raise self.records.fail("it became shorter while it was read")
            if address % 16 == 0:
                return UntypedStorage._of(wrap(address, meta((size,), None, dtypes.uint8, Device("cpu")), self.mapped).store)
        made = UntypedStorage(size, device="cpu")
        if _skipping.get():
            return made
        space = host_bytes(made._storage, "load")
        if size:
            self.records.read_into(name, memoryview(space))
        if self.swapped and step > 1:
            space.reshape(-1, step)[:] = space.reshape(-1, step)[:, ::-1].copy()
        return made


def _trusted(data: bytes, shelf: Shelf, pickle_module: Any, options: dict[str, Any]) -> Any:
    """The object of a pickle that may run any code."""
    base = getattr(pickle_module, "Unpickler", pickle.Unpickler)

    class Trusted(base):  # type: ignore[misc, valid-type]
        def find_class(self, module: str, name: str) -> Any:
            if module == "torch" or module.startswith("torch."):
                return names.find(module, name)
            return super().find_class(module, name)

        def persistent_load(self, pid: Any) -> Any:
            return shelf.storage(pid)

    options.setdefault("encoding", "utf-8")
    try:
        return Trusted(io.BytesIO(data), **options).load()
    except FileFormatError:
        raise
    except (pickle.UnpicklingError, EOFError) as error:
        raise FileFormatError(f"load: the file is corrupt: its pickle cannot be read ({str(error):.200})") from error


def unsafe_globals(f: Any) -> list[str]:
    """The classes and functions in a file that `load` would refuse, found without loading it."""
    stream = open(f, "rb") if _is_path(f) else f  # noqa: SIM115 (closed below when it is ours)
    try:
        data = archive.Reader(stream, stream.tell(), "the file").read("data.pkl")
    finally:
        if stream is not f:
            stream.close()
    survey = Survey(data, safe.allowed_now())
    survey.load()
    return survey.refused
