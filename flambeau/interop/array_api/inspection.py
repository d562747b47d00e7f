"""What the namespace offers: the standard's inspection interface."""

from __future__ import annotations

from typing import Any

from ..._core import dtypes
from ..._core.runtime.device import device as device_class
from .creation import KINDS

_ALL = [d for d in dtypes.ALL if d.name not in ("float16", "bfloat16", "complex32")]


class Info:
    """What `__array_namespace_info__()` gives."""

    def capabilities(self) -> dict[str, Any]:
        """What may depend on values is there; an array has at most 64 axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """Where arrays are made."""
        from ..._core.runtime.device import resolve
        return resolve(None)

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The types of arrays made from Python numbers."""
        return {"real floating": dtypes.get_default_dtype(), "complex floating": dtypes.default_complex(), "integral": dtypes.int64,
                "indexing": dtypes.int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The standard's types of a kind, by name."""
        if kind is None:
            return {d.name: d for d in _ALL}
        found: dict[str, Any] = {}
        for k in kind if isinstance(kind, tuple) else (kind,):
            if k not in KINDS:
                raise ValueError(f"dtypes: kind {k!r} is unknown: {', '.join(map(repr, KINDS))}")
            found |= {d.name: d for d in _ALL if d.kind in KINDS[k]}
        return found

    def devices(self) -> list[Any]:
        """The CPU and the GPUs there are."""
        from ..._core.runtime import gpus
        count = gpus.count() if gpus.system() is not None else 0
        return [device_class("cpu"), *[device_class("cuda", i) for i in range(count)]]
