"""Where a file's storages go: `map_location`, and what happens to those of devices that are not here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.errors import FileFormatError, warn
from .._core.ops.storages import UntypedStorage
from .._core.ops.typed_storages import TypedStorage
from .._core.runtime.asking import unasked
from .._core.runtime.device import device as Device
from .._core.runtime.device import resolve
from .._core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    Placer = Callable[[UntypedStorage, str], UntypedStorage]

_noted = False
# Registered by programs, tried in the order of their priority: (priority, tag, restore).
_packages: list[tuple[int, Any, Any]] = []


def placer(map_location: Any) -> Placer:
    """A function of (storage on the CPU, name of the device it was saved from) that gives the storage in its place.

    Raises TypeError for a `map_location` of another kind.
    """
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        def by_name(s: UntypedStorage, location: str) -> UntypedStorage:
            for key in (location, _known(location)):
                if key is not None and key in map_location:
                    return _to(s, map_location[key])
            return default_restore_location(s, location)
        return by_name
    if isinstance(map_location, Device | str | int):
        target = Device(map_location)
        return lambda s, location: _to(s, target)
    if callable(map_location):
        def by_function(s: UntypedStorage, location: str) -> UntypedStorage:
            moved = map_location(s, location)
            if moved is None:
                return default_restore_location(s, location)
            if isinstance(moved, TypedStorage | Tensor):
                moved = UntypedStorage(moved) if isinstance(moved, Tensor) else moved._untyped_storage
            if not isinstance(moved, UntypedStorage) or moved.nbytes() < s.nbytes():
                raise TypeError(f"load: the function map_location must give the storage, moved, or None, got {type(moved).__name__}")
            return moved
        return by_function
    raise TypeError(f"load: map_location must be a device, its name, a dict or a function, got {type(map_location).__name__}")


def _known(location: str) -> Device | None:
    try:
        return Device(location)
    except (RuntimeError, TypeError):
        return None


def _to(s: UntypedStorage, target: Any) -> UntypedStorage:
    place = Device(target)
    if place.type == "cuda":
        from .. import cuda
        count = cuda.device_count()
        if count <= (place.index or 0):
            raise RuntimeError(f"Attempting to deserialize object on CUDA device {place.index or 0} but torch.cuda.device_count() is {count}. "
                               "map_location='cpu' maps it to the CPU")
    return unasked(s.to)(resolve(place))


def default_restore_location(storage: UntypedStorage, location: str) -> UntypedStorage:
    """The storage where it was saved from, or on the CPU, with one note in a process, where there is no such device."""
    for _, _, restore in _packages:
        found = restore(storage, location)
        if found is not None:
            return found  # type: ignore[no-any-return]
    if location == "cpu":
        return storage
    kind = location.partition(":")[0]
    known = _known(location)
    if known is None and (kind not in ("mps", "xpu", "hpu", "xla", "mtia", "privateuseone", "cuda") or not location.replace(":", "").isalnum()):
        raise FileFormatError(f"load: the file is corrupt: {location[:60]!r} is no place of a storage")
    if known is None or known.type != "cuda":
        _note(location, f"there is no {kind} device here")
        return storage
    from .. import cuda
    count = cuda.device_count()
    if (known.index or 0) >= count:
        _note(location, f"this machine has {count} GPUs")
        return storage
    return unasked(storage.to)(resolve(known))


def _note(location: str, why: str) -> None:
    global _noted
    if not _noted:

        warn(f"load: tensors saved from {location} are loaded on the CPU, as {why}; map_location chooses a place")
        _noted = True


def register_package(priority: int, tagger: Any, deserializer: Any) -> None:
    """Lets `deserializer(storage, location)` place storages, before Flambeau's own rules; lower priorities go first."""
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda row: row[0])


def location_tag(storage: Any) -> str:
    """The name under which a storage's device is written: "cpu", "cuda:0"."""
    for _, tagger, _ in _packages:
        tag = tagger(storage)
        if tag is not None:
            return tag  # type: ignore[no-any-return]
    dev = storage.device
    return "cpu" if dev.type == "cpu" else f"{dev.type}:{dev.index or 0}"
