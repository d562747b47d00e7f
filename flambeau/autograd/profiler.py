"""The profiler under its older name (torch.autograd.profiler); everything is in `flambeau.profiler`."""

from __future__ import annotations

import contextlib
from typing import Any

from ..profiler import EventList, FunctionEvent, FunctionEventAvg, record_function
from ..profiler import profile as _profile


class emit_nvtx(contextlib.nullcontext[None]):
    """A block whose operations would be ranges for NVIDIA's profilers.  Raises NotImplementedError: `flambeau.cuda.nvtx` marks ranges by hand."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        super().__init__()
        if enabled:
            raise NotImplementedError("emit_nvtx: operations are not ranges for NVIDIA's profilers here; mark your own with cuda.nvtx.range_push")


__all__ = ["emit_nvtx", "EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


def profile(enabled: bool = True, *, use_cuda: bool = False, use_device: Any = None, record_shapes: bool = False, with_flops: bool = False,
            profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True,
            experimental_config: Any = None, acc_events: bool = False, custom_trace_id_callback: Any = None,
            post_processing_timeout_s: float | None = None, activity_filters: Any = None) -> Any:
    """A profiler by its older arguments, most of them accepted only; one that does nothing unless `enabled`."""
    return _profile(record_shapes=record_shapes) if enabled else contextlib.nullcontext()
