"""The profiler under its older name (torch.autograd.profiler); everything is in `flambeau.profiler`."""

from __future__ import annotations

from typing import Any

from ..profiler import EventList, FunctionEvent, FunctionEventAvg, record_function
from ..profiler import profile as _profile

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


def profile(enabled: bool = True, *, use_cuda: bool = False, use_device: Any = None, record_shapes: bool = False, with_flops: bool = False,
            profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True,
            experimental_config: Any = None, acc_events: bool = False, custom_trace_id_callback: Any = None,
            post_processing_timeout_s: float | None = None, activity_filters: Any = None) -> Any:
    """A profiler by its older arguments, most of them accepted only; one that does nothing unless `enabled`."""
    import contextlib
    return _profile(record_shapes=record_shapes) if enabled else contextlib.nullcontext()
