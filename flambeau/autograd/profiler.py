"""The profiler under its older name (torch.autograd.profiler); everything is in `flambeau.profiler`."""

from __future__ import annotations

from typing import Any

from ..profiler import EventList, FunctionEvent, FunctionEventAvg, record_function
from ..profiler import profile as _profile

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


def profile(enabled: bool = True, *, use_cuda: bool = False, use_device: Any = None, record_shapes: bool = False, **others: Any) -> Any:
    """A profiler by its older arguments; one that does nothing unless `enabled`."""
    import contextlib
    return _profile(record_shapes=record_shapes) if enabled else contextlib.nullcontext()
