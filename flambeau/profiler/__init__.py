"""A profiler in PyTorch's words (torch.profiler): what operations a stretch of program called, and how long each took.

The host's times are those of the calls of operations, and of ranges that `record_function` marks.  On a GPU an operation is over for the host when
it is queued; the columns CUDA say how long its work took there: measured on a real GPU, predicted on a simulated one.
"""

from __future__ import annotations

from .events import DeviceType, EventList, FunctionEvent, FunctionEventAvg, text
from .profiler import ExecutionTraceObserver, ProfilerAction, ProfilerActivity, profile, schedule, supported_activities, tensorboard_trace_handler
from .ranges import itt_stub as itt
from .ranges import record_function

_format_time = text  # by the name of torch.autograd.profiler_util


def kineto_available() -> bool:
    """False: there is no Kineto here; `profile` times calls on the host."""
    return False


__all__ = ["DeviceType", "kineto_available", "EventList", "ExecutionTraceObserver", "FunctionEvent", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity",
           "itt", "profile", "record_function", "schedule", "supported_activities", "tensorboard_trace_handler"]
