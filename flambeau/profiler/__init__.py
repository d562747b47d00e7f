"""A profiler in PyTorch's words (torch.profiler): what operations a stretch of program called, and how long each took.

Times are the host's: of the calls of operations, and of ranges that `record_function` marks.  On a GPU an operation is over
for the host when it is queued; what ran there and when is in `flambeau.trace`.
"""

from __future__ import annotations

from .events import EventList, FunctionEvent, FunctionEventAvg
from .profiler import ExecutionTraceObserver, ProfilerAction, ProfilerActivity, profile, schedule, supported_activities, tensorboard_trace_handler
from .ranges import itt_stub as itt
from .ranges import record_function


def kineto_available() -> bool:
    """False: there is no Kineto here; `profile` times calls on the host."""
    return False


__all__ = ["kineto_available", "EventList", "ExecutionTraceObserver", "FunctionEvent", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity", "itt",
           "profile",
           "record_function", "schedule", "supported_activities", "tensorboard_trace_handler"]
