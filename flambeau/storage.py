"""`torch.storage`: the bytes under tensors as objects."""

from __future__ import annotations

from ._core.ops.storages import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
