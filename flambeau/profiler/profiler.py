"""`profile`: takes down the operations that a stretch of program calls."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

from .._core.engine import interpreters
from .._core.runtime import gpus
from .._core.tensor import Tensor
from . import device_work, memory_timeline
from .events import EventList, FunctionEvent
from .ranges import Recorder, record_function


class ProfilerActivity(enum.IntEnum):
    """What can be taken down: the host's calls (CPU) and the work of GPUs (CUDA); the others are accepted."""

    CPU = 0
    XPU = 1
    CUDA = 2
    MTIA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What a profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4


def supported_activities() -> set[ProfilerActivity]:
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


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False,
                              use_python_export: bool = False) -> Callable[[Any], None]:
    """An `on_trace_ready` that writes each trace into a folder."""
    def write(prof: profile) -> None:
        import socket
        os.makedirs(dir_name, exist_ok=True)
        name = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        path = os.path.join(dir_name, f"{name}.{time.time_ns()}.pt.trace.json")
        prof.export_chrome_trace(path + (".gz" if use_gzip else ""))
    return write


_RECORDED = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile:
    """Takes down operations and ranges in a ``with`` block (or from `start()` to `stop()`).

    With a schedule each recorded step is a range too, `ProfilerStep*`.  What is asked of a profiler that has not begun raises AssertionError.

    Args:
        activities: of `ProfilerActivity`; by default the host's calls, and the work of GPUs where there are any.  The time of work on a GPU
            is measured by events on a real one, and predicted on a simulated one; tables say which.
        schedule: from the number of a step to a `ProfilerAction`; `step()` goes on to the next.  Without: all is recorded.
        on_trace_ready: called with this object after each recorded stretch.
        record_shapes: keep the shapes of the operations' tensors.
        profile_memory: note the bytes in use where calls begin and end; the CPU's in steps of its allocator's block sizes.
        with_stack: keep the program's lines of each call, for `export_stacks` and `key_averages(group_by_stack_n=...)`.
        with_flops: count the operations on numbers that kernels do.
        acc_events: keep the calls of all stretches; else those of the last one.
        custom_trace_id_callback: gives the text that `get_trace_id` gives.
        The others are accepted.

    Raises AssertionError where `activities` names none that there is.
    """

    def __init__(self, *, activities: Any = None, schedule: Any = None, on_trace_ready: Any = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
                 experimental_config: Any = None, execution_trace_observer: Any = None, acc_events: bool = False, use_cuda: Any = None,
                 custom_trace_id_callback: Any = None, post_processing_timeout_s: float | None = None) -> None:
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        wanted: set[Any] = set(supported_activities())
        if activities is not None:  # one may stand as a dict's key, with filters
            wanted = {a for one in activities for a in (one if isinstance(one, dict) else (one,)) if isinstance(a, ProfilerActivity)}
        if not wanted:
            raise AssertionError(f"No valid profiler activities found: activities is {list(activities or ()) or 'empty'}; name at least one of "
                                 "ProfilerActivity.CPU and ProfilerActivity.CUDA")
        self.record_shapes, self.profile_memory, self.with_stack, self.with_flops = record_shapes, profile_memory, with_stack, with_flops
        self._timed = ProfilerActivity.CUDA in wanted and gpus.count() > 0
        self._device_work: device_work.DeviceWork | None = None
        self._levels: list[tuple[int, dict[str, int]]] = []
        self.step_num = 0
        self._recorder: Recorder | None = None
        self._hook: interpreters.watch | None = None
        self._events: EventList | None = None
        self._metadata: dict[str, Any] = {}
        self._acc_events, self._named, self._trace_id = acc_events, custom_trace_id_callback, ""
        self._step = contextlib.ExitStack()  # the range of the present step

    taking = 0  # how many profilers take calls down now

    def _action(self) -> Any:
        return self.schedule(self.step_num) if self.schedule is not None else ProfilerAction.RECORD

    def _call(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        r = self._recorder
        if r is None:
            return function(*args, **kwargs)
        shapes = [list(a.meta.shape) if isinstance(a, Tensor) else [] for a in args] if r.shapes else None
        call = r.begin("aten::" + name, shapes)
        try:
            return function(*args, **kwargs)
        finally:
            r.end(call)

    def _open(self) -> None:
        if self._recorder is None:
            self._trace_id = self._named() if self._named is not None else uuid.uuid4().hex.upper()
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
        before = self._events if self._acc_events and self._events is not None else []
        self._levels = [*(self._levels if before else []), *r.levels]
        self._events = EventList([*before, *sorted(r.events, key=lambda e: (e.start_ns, e.depth))], device_work.models() if self._timed else "",
                                 frozenset(name for name, on in columns.items() if on))
        for i, e in enumerate(self._events, 1):
            e.id = e.external_id = i
            e.use_device = "cuda" if self._timed else None
        if ready and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def start(self) -> None:
        """Begins."""
        self._events = EventList() if self._events is None else self._events
        self._go()

    def stop(self) -> None:
        """Ends."""
        self._step.close()
        self._close(True)

    def step(self) -> None:
        """The next step of the schedule."""
        before = self._action()
        self._step.close()
        self.step_num += 1
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._close(True)
        if self.schedule is not None and self._events is not None:
            if self._action() not in _RECORDED:
                self._close(before is ProfilerAction.RECORD)
            self._go()

    def _go(self) -> None:
        """Records, if this step is to be."""
        if self._action() in _RECORDED:
            self._open()
            if self.schedule is not None:
                self._step.enter_context(record_function(f"ProfilerStep#{self.step_num}"))

    start_trace, stop_trace = start, stop

    def prepare_trace(self) -> None:
        """Accepted: nothing has to be prepared."""

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _found(self, what: str) -> EventList:
        if self._events is None:
            raise AssertionError(f"Profiler must be initialized before {what}")
        return self._events

    def events(self) -> EventList:
        """The calls of the stretch recorded last, in order."""
        return self._found("accessing events")

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """The calls by name (by shapes; by the innermost frames of the program, where `with_stack` kept them)."""
        return self._found("getting key averages").key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Writes a trace for chrome://tracing or Perfetto (compressed if the name ends in .gz)."""
        events, metadata = self._found("exporting chrome trace"), {"trace_id": self._trace_id, **self._metadata}
        if not path.endswith(".gz"):
            events.export_chrome_trace(path, metadata)
            return
        import gzip
        events.export_chrome_trace(path[:-3], metadata)
        with open(path[:-3], "rb") as source, gzip.open(path, "wb") as target:
            target.write(source.read())
        os.unlink(path[:-3])

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes the program's stacks with what was spent there: see `EventList.export_stacks`.  They are kept by `with_stack=True`."""
        self._found("exporting stacks").export_stacks(path, metric)

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
        """Puts a text into the file that `export_chrome_trace` writes."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Puts what a text of JSON says into that file."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def get_trace_id(self) -> str:
        """The text that names the stretch recorded last, in that file too."""
        return self._trace_id

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """What gives that text from now on."""
        self._named = callback

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
