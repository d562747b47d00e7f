"""The profiler under its older name (torch.autograd.profiler); everything is in `flambeau.profiler`."""

from __future__ import annotations

import contextlib
from typing import Any

from ..profiler import EventList, FunctionEvent, FunctionEventAvg, ProfilerActivity, record_function
from ..profiler import profile as _profile


class emit_nvtx(contextlib.nullcontext[None]):
    """A block whose operations would be ranges for NVIDIA's profilers.  Raises NotImplementedError: `flambeau.cuda.nvtx` marks ranges by hand."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        super().__init__()
        if enabled:
            raise NotImplementedError("emit_nvtx: operations are not ranges for NVIDIA's profilers here; mark your own with cuda.nvtx.range_push")


class emit_itt(contextlib.nullcontext[None]):
    """A block whose operations would be ranges for Intel's VTune.  Raises NotImplementedError unless it is not `enabled`."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        super().__init__()
        if enabled:
            raise NotImplementedError("emit_itt: there is no library of Intel's ITT here; torch.profiler and flambeau.trace look on")


def load_nvprof(path: Any) -> Any:
    """Raises NotImplementedError: files of nvprof are not read."""
    raise NotImplementedError("load_nvprof: files of nvprof are not read here; torch.profiler and flambeau.trace take calls down themselves")


class EnforceUnique:
    """Keys that may come once."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()

    def see(self, *key: Any) -> None:
        """Raises RuntimeError for a key that has come before."""
        if key in self._seen:
            raise RuntimeError("duplicate key: " + str(key))
        self._seen.add(key)


class KinetoStepTracker:
    """How many steps the program has done, of those who count them: the most that one has counted, by which a step counts once."""

    _current_step = 0
    _steps: dict[str, int] = {}

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Begins a count from the steps there are."""
        cls._steps[requester] = cls._current_step

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Ends a count; whether there was one."""
        return cls._steps.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """One more step of one count.  Gives the steps there are."""
        cls._steps[requester] = cls._steps.get(requester, cls._current_step) + 1
        cls._current_step = max(cls._current_step, *cls._steps.values())
        return cls._current_step

    @classmethod
    def current_step(cls) -> int:
        """The steps there are."""
        return cls._current_step


__all__ = ["EnforceUnique", "KinetoStepTracker", "emit_itt", "load_nvprof", "emit_nvtx",
           "EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


class profile(_profile):
    """A profiler by its older arguments: one that does nothing unless `enabled`.  `use_cuda` or `use_device="cuda"` has it watch GPUs."""

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device: Any = None, record_shapes: bool = False, with_flops: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True,
                 experimental_config: Any = None, acc_events: bool = False, custom_trace_id_callback: Any = None,
                 post_processing_timeout_s: float | None = None, activity_filters: Any = None) -> None:
        self.enabled = enabled
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if use_cuda or use_device == "cuda" else [])
        super().__init__(activities=activities, record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops)

    def start(self) -> None:
        if self.enabled:
            super().start()
        else:
            self._events = EventList()

    @property
    def function_events(self) -> EventList:
        """The calls, in order."""
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all calls in microseconds, each moment counted once."""
        return self.events().self_cpu_time_total

    def total_average(self) -> FunctionEventAvg:
        """All calls in one."""
        return self.events().total_average()

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False) -> str:
        """The calls as text: see `EventList.table`."""
        return self.events().table(sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width, header, top_level_events_only)

    def __str__(self) -> str:
        return self.table()


def _profiler_enabled() -> bool:
    """Whether a profiler takes calls down."""
    return _profile.taking > 0
