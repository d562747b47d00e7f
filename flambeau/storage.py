"""`torch.storage`: the bytes under tensors as objects."""

from __future__ import annotations

from typing import Any

from ._core.ops.storages import UntypedStorage
from ._core.ops.typed_storages import LegacyStorage as _LegacyStorage
from ._core.ops.typed_storages import TypedStorage
from ._core.ops.typed_storages import always_warns as _get_always_warn_typed_storage_removal
from ._core.ops.typed_storages import dtype_to_name as _names
from ._core.ops.typed_storages import forget_warning as _reset_warn_typed_storage_removal
from ._core.ops.typed_storages import set_always_warn as _set_always_warn_typed_storage_removal
from ._core.ops.typed_storages import warn_removal as _warn_typed_storage_removal

__all__ = ["TypedStorage", "UntypedStorage", "_LegacyStorage", "_get_always_warn_typed_storage_removal", "_reset_warn_typed_storage_removal",
           "_set_always_warn_typed_storage_removal", "_warn_typed_storage_removal"]


def _load_from_bytes(b: bytes) -> Any:
    """What `flambeau.save` has written to these bytes, as a pickled storage holds it.  Raises as `load` does, which runs no code of the file's."""
    import io

    from .io import load
    return load(io.BytesIO(b))


def _dtype_to_storage_type_map() -> dict[Any, str]:
    """The names of the legacy storages, by the type of their elements."""
    return dict(_names)


def _storage_type_to_dtype_map() -> dict[str, Any]:
    return {name: d for d, name in _names.items()}
