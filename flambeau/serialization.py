"""`torch.serialization`: saving and loading, and what files may hold without being trusted."""

from __future__ import annotations

from typing import Any

from ._core.errors import warn
from ._core.ops import typed_storages
from ._core.ops.storages import UntypedStorage
from .io.archive import MAGIC
from .io.checkpoint import DEFAULT_PROTOCOL, load, save, skip_data
from .io.checkpoint import unsafe_globals as get_unsafe_globals_in_checkpoint
from .io.map_location import default_restore_location, location_tag, register_package
from .io.names import STORAGES
from .io.options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
)
from .io.safe import UnsafeFileError, add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

MAP_LOCATION = Any

__all__ = ["DEFAULT_PROTOCOL", "MAP_LOCATION", "UnsafeFileError", "add_safe_globals", "clear_safe_globals", "default_restore_location",
           "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "location_tag", "register_package", "safe_globals", "save", "skip_data",
           "LoadEndianness", "SourceChangeWarning", "StorageType", "check_module_version_greater_or_equal", "get_crc32_options",
           "get_default_load_endianness", "get_default_mmap_options", "normalize_storage_type", "set_crc32_options", "set_default_load_endianness",
           "set_default_mmap_options"]


class SourceChangeWarning(Warning):
    """What PyTorch warned of where a module's source was another when it was saved: source is not looked at here."""


class StorageType:
    """The class of a storage by its name in a file, "FloatStorage" and its like, of which the file means the type of the elements, `dtype`."""

    def __init__(self, name: str) -> None:
        self._dtype = STORAGES[name]

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self._dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def check_module_version_greater_or_equal(module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True) -> bool:
    """Whether a module's `__version__` is at least this one, compared part by part.

    A version that does not fit the tuple raises RuntimeError; with error_if_malformed=False it gives a warning, and True.
    """
    try:
        parts = tuple(type(wanted)(part) for wanted, part in zip(req_version_tuple, module.__version__.split(".")))
        return bool(parts >= req_version_tuple)
    except Exception as error:
        told = f"'{module.__name__}' module version string is malformed '{module.__version__}' and cannot be compared with tuple {req_version_tuple}"
        if error_if_malformed:
            raise RuntimeError(told) from error
        warn(told + ", but continuing assuming that requirement is met")
        return True


def _is_zipfile(f: Any) -> bool:
    """Whether an archive begins where the stream stands, as files of PyTorch since 1.6 do; it goes on standing there."""
    at = f.tell()
    begins = f.read(len(MAGIC))
    f.seek(at)
    return bool(begins == MAGIC)


def normalize_storage_type(storage_type: type) -> type:
    """The class of storages on the CPU that a class of another device's is of; here one class serves all devices."""
    kind: type = UntypedStorage if storage_type.__name__ == "UntypedStorage" else getattr(typed_storages, storage_type.__name__)
    return kind
