"""Models cut by hand into stages on several processes (torch.distributed.pipelining): microbatches go through them one behind the other."""

from __future__ import annotations

from ...interop import stand_ins
from .schedules import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleLoopedBFS
from .stage import PipelineStage

globals().update(stand_ins.names(__name__, "SplitPoint[BEGINNING,END] Pipe pipeline() pipe_split()",
                                 "models are not cut by tracing here; cut them by hand and give each part to a PipelineStage"))

__all__ = ["PipelineStage", "Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS"]
