"""`torch.serialization`: saving and loading, and what files may hold without being trusted."""

from __future__ import annotations

from typing import Any

from .io.archive import MAGIC
from .io.checkpoint import DEFAULT_PROTOCOL, load, save, skip_data
from .io.checkpoint import unsafe_globals as get_unsafe_globals_in_checkpoint
from .io.map_location import default_restore_location, location_tag, register_package
from .io.safe import UnsafeFileError, add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

MAP_LOCATION = Any

__all__ = ["DEFAULT_PROTOCOL", "MAP_LOCATION", "UnsafeFileError", "add_safe_globals", "clear_safe_globals", "default_restore_location",
           "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "location_tag", "register_package", "safe_globals", "save", "skip_data"]


def _is_zipfile(f: Any) -> bool:
    """Whether an archive begins where the stream stands, as files of PyTorch since 1.6 do; it goes on standing there."""
    at = f.tell()
    begins = f.read(len(MAGIC))
    f.seek(at)
    return bool(begins == MAGIC)


def normalize_storage_type(storage_type: type) -> type:
    """The class of storages on the CPU that a class of another device's is of; here one class serves all devices."""
    import flambeau
    kind: type = getattr(flambeau, storage_type.__name__)
    return kind
