"""`profile`: takes down the operations that a stretch of program calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from .._core.engine import interpreters
from .._core.runtime import gpus
from .._core.tensor import Tensor
from . import device_work, memory_timeline
from .events import EventList, FunctionEvent
from .ranges import Recorder


class _Named:
    """A value with a name, as members of an enumeration have."""

    def __init__(self, kind: str, name: str, value: int) -> None:
        self._kind, self.name, self.value = kind, name, value

    def __repr__(self) -> str:
        return f"<{self._kind}.{self.name}: {self.value}>"


class ProfilerActivity:
    """What can be taken down: the host's calls (CPU) and the work of GPUs (CUDA); the others are accepted."""

    CPU = _Named("ProfilerActivity", "CPU", 0)
    XPU = _Named("ProfilerActivity", "XPU", 1)
    CUDA = _Named("ProfilerActivity", "CUDA", 2)
    MTIA = _Named("ProfilerActivity", "MTIA", 3)
    HPU = _Named("ProfilerActivity", "HPU", 4)
    PrivateUse1 = _Named("ProfilerActivity", "PrivateUse1", 5)


class ProfilerAction:
    """What a profiler does in a step."""

    NONE = _Named("ProfilerAction", "NONE", 0)
    WARMUP = _Named("ProfilerAction", "WARMUP", 1)
    RECORD = _Named("ProfilerAction", "RECORD", 2)
    RECORD_AND_SAVE = _Named("ProfilerAction", "RECORD_AND_SAVE", 3)


def supported_activities() -> set[Any]:
    """The activities that are taken down: the host's calls, and the work of GPUs where there are any."""
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA} if gpus.count() else {ProfilerActivity.CPU}


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0) -> Callable[[int], Any]:
    """From a step's number to what to do in it: `wait` steps nothing, `warmup` steps warming up, `active` steps recording.

    The cycle runs `repeat` times (0: on and on), after `skip_first` steps.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(f"Invalid profiler schedule arguments: wait={wait}, warmup={warmup}, active={active}, repeat={repeat}")

    def act(step: int) -> Any:
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        cycle = wait + warmup + active
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE
    return act


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Callable[[Any], None]:
    """An `on_trace_ready` that writes each trace into a folder."""
    def write(prof: profile) -> None:
        import socket
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        path = os.path.join(dir_name, f"{name}.{time.time_ns()}.pt.trace.json")
        prof.export_chrome_trace(path + (".gz" if use_gzip else ""))
    return write


class profile:
    """Takes down operations and ranges in a ``with`` block (or from `start()` to `stop()`).

    Args:
        activities: of `ProfilerActivity`; by default the host's calls, and the work of GPUs where there are any.  The time of work on a GPU
            is measured by events on a real one, and predicted on a simulated one; tables say which.
        schedule: from the number of a step to a `ProfilerAction`; `step()` goes on to the next.  Without: all is recorded.
        on_trace_ready: called with this object after each recorded stretch.
        record_shapes: keep the shapes of the operations' tensors.
        profile_memory: note the bytes in use where calls begin and end; the CPU's in steps of its allocator's block sizes.
        with_stack: keep the program's lines of each call, for `export_stacks` and `key_averages(group_by_stack_n=...)`.
        with_flops: count the operations on numbers that kernels do.
        The others are accepted.
    """

    def __init__(self, *, activities: Any = None, schedule: Any = None, on_trace_ready: Any = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
                 experimental_config: Any = None, execution_trace_observer: Any = None, acc_events: bool = False, use_cuda: Any = None,
                 custom_trace_id_callback: Any = None, post_processing_timeout_s: float | None = None) -> None:
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        wanted = supported_activities() if activities is None else set(activities)
        if not wanted:
            raise AssertionError("profile: activities is empty; name at least one of ProfilerActivity.CPU and ProfilerActivity.CUDA")
        self.record_shapes, self.profile_memory, self.with_stack, self.with_flops = record_shapes, profile_memory, with_stack, with_flops
        self._timed = ProfilerActivity.CUDA in wanted and gpus.count() > 0
        self._device_work: device_work.DeviceWork | None = None
        self._levels: list[tuple[int, dict[str, int]]] = []
        self.step_num = 0
        self._recorder: Recorder | None = None
        self._hook: interpreters.watch | None = None
        self._events = EventList()
        self._metadata: dict[str, str] = {}

    taking = 0  # how many profilers take calls down now

    def _action(self) -> Any:
        return self.schedule(self.step_num) if self.schedule is not None else ProfilerAction.RECORD

    def _call(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        r = self._recorder
        if r is None:
            return function(*args, **kwargs)
        shapes = [list(a.meta.shape) if isinstance(a, Tensor) else [] for a in args] if r.shapes else None
        r.begin("aten::" + name, shapes)
        try:
            return function(*args, **kwargs)
        finally:
            r.end()

    def _open(self) -> None:
        if self._recorder is None:
            r = self._recorder = Recorder(self.record_shapes, self.profile_memory, self.with_stack)
            r.listen()
            if self._timed or self.with_flops:
                self._device_work = device_work.DeviceWork(r.kernels, r.count if self.with_flops else None, self._timed)
            self._hook = interpreters.watch(self._call)
            profile.taking += 1

    def _close(self, ready: bool) -> None:
        r, hook = self._recorder, self._hook
        if r is None or hook is None:
            return
        hook.close()
        profile.taking -= 1
        r.leave()
        work, self._device_work = self._device_work, None
        self._recorder = self._hook = None
        if work is not None:
            work.close()
        for k in r.outside:  # a call of its own, as nothing else is known of it
            event = FunctionEvent(k.name, k.start_ns, k.start_ns, 0, 0, 0, None, False)
            event.kernels.append(k)
            r.events.append(event)
        for e in sorted(r.events, key=lambda e: -e.depth):  # inner ones first
            e.settle()
        columns = {"device": self._timed, "memory": self.profile_memory, "flops": self.with_flops}
        self._levels = r.levels
        self._events = EventList(sorted(r.events, key=lambda e: e.start_ns), device_work.models() if self._timed else "",
                                 frozenset(name for name, on in columns.items() if on))
        if ready and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def start(self) -> None:
        """Begins."""
        if self._action() in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._open()

    def stop(self) -> None:
        """Ends."""
        self._close(True)

    def step(self) -> None:
        """The next step of the schedule."""
        before = self._action()
        self.step_num += 1
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._close(True)
        if self.schedule is None:
            return
        after = self._action()
        if after in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._open()
        else:
            self._close(before is ProfilerAction.RECORD)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def events(self) -> EventList:
        """The calls of the stretch recorded last, in order."""
        return self._events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, **kwargs: Any) -> EventList:
        """The calls by name (by shapes; by the innermost frames of the program, where `with_stack` kept them)."""
        return self._events.key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: str) -> None:
        """Writes a trace for chrome://tracing or Perfetto (compressed if the name ends in .gz)."""
        if not path.endswith(".gz"):
            self._events.export_chrome_trace(path)
            return
        import gzip
        self._events.export_chrome_trace(path[:-3])
        with open(path[:-3], "rb") as source, gzip.open(path, "wb") as target:
            target.write(source.read())
        os.unlink(path[:-3])

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes the program's stacks with what was spent there: see `EventList.export_stacks`.  They are kept by `with_stack=True`."""
        self._events.export_stacks(path, metric)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Writes the bytes in use by time, which `profile_memory=True` takes down where calls begin and end.

        path: its ending says what is written.  ".html": a page with the curve.  ".json" or ".json.gz": [microseconds, bytes of each of PyTorch's
            kinds of memory].  "raw.json.gz": a list of (microsecond, action, bytes, kind).  Kinds are not told apart: all bytes stand in the
            last column, that of no known kind.
        device: the first GPU by default, else the CPU.

        Raises ValueError where nothing was taken down of the device.
        """
        memory_timeline.write(path, self._levels, device or ("cuda:0" if gpus.count() else "cpu"))

    def add_metadata(self, key: str, value: str) -> None:
        """Keeps a note."""
        self._metadata[key] = value

    add_metadata_json = add_metadata

    def toggle_collection_dynamic(self, enable: bool, activities: Any = None) -> None:
        """Goes on or pauses."""
        if enable:
            self._open()
        else:
            self._close(False)


class ExecutionTraceObserver:
    """Accepted, and takes nothing down."""

    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        """Accepted."""
        return self

    def unregister_callback(self) -> None:
        """Accepted."""

    def start(self) -> None:
        """Accepted."""

    def stop(self) -> None:
        """Accepted."""
