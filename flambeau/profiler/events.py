"""What a profiler took down, and its tables."""

from __future__ import annotations

import enum
import json
from typing import Any, NamedTuple

from .._core.errors import size

# kinds of devices by PyTorch's numbers
DeviceType = enum.Enum("DeviceType", {"CPU": 0, "CUDA": 1, "MKLDNN": 2, "OPENGL": 3, "OPENCL": 4, "IDEEP": 5, "HIP": 6, "FPGA": 7, "MAIA": 8, "XLA": 9,
                                      "Vulkan": 10, "Metal": 11, "XPU": 12, "MPS": 13, "Meta": 14, "HPU": 15, "VE": 16, "Lazy": 17, "IPU": 18, "MTIA": 19,
                                      "PrivateUse1": 20}, module="flambeau.profiler")

SORT_KEYS = ("cpu_time", "cuda_time", "device_time", "cpu_time_total", "cuda_time_total", "device_time_total", "self_cpu_time_total",
             "self_cuda_time_total", "self_device_time_total", "cpu_memory_usage", "cuda_memory_usage", "device_memory_usage",
             "self_cpu_memory_usage", "self_cuda_memory_usage", "self_device_memory_usage", "count", "flops")
_STACK_METRICS = ("self_cpu_time_total", "self_cuda_time_total", "self_device_time_total")


def text(us: float) -> str:
    """Microseconds for people."""
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def _bytes(n: int) -> str:
    return f"-{size(-n)}" if n < 0 else size(n)


class Interval(NamedTuple):
    """When a call was made, in microseconds from the profiler's beginning."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """How long it took."""
        return self.end - self.start


def _told(name: str) -> property:
    """A time with its unit."""
    return property(lambda self: text(getattr(self, name)), doc=f"`{name}` with its unit.")


class _Figures:
    """The figures of a call, or of several: microseconds and bytes.  Those of devices are of GPUs, under PyTorch's older names too."""

    count = 1
    flops = 0
    cpu_time_total = self_cpu_time_total = device_time_total = self_device_time_total = 0.0
    cpu_memory_usage = self_cpu_memory_usage = device_memory_usage = self_device_memory_usage = 0
    is_async = is_remote = is_legacy = False
    is_user_annotation = False
    node_id = -1
    device_type = DeviceType.CPU  # calls are the host's; what they gave to GPUs is in `kernels`
    overload_name = ""
    cpu_parent: Any = None
    use_device: str | None = None
    cpu_time_str, device_time_str = _told("cpu_time"), _told("device_time")
    cpu_time_total_str, self_cpu_time_total_str = _told("cpu_time_total"), _told("self_cpu_time_total")
    device_time_total_str, self_device_time_total_str = _told("device_time_total"), _told("self_device_time_total")

    @property
    def scope(self) -> int:
        """7 for a range of the program's, 0 for an operation, as PyTorch numbers them."""
        return 7 if self.is_user_annotation else 0

    @property
    def cpu_time(self) -> float:
        """The mean time of a call on the host."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """The mean time of a call on GPUs."""
        return self.device_time_total / self.count if self.count else 0.0

    cuda_time = device_time

    @property
    def cuda_time_total(self) -> float:
        """`device_time_total`."""
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        """`self_device_time_total`."""
        return self.self_device_time_total

    @property
    def cuda_memory_usage(self) -> int:
        """`device_memory_usage`."""
        return self.device_memory_usage

    @property
    def self_cuda_memory_usage(self) -> int:
        """`self_device_memory_usage`."""
        return self.self_device_memory_usage


_STEP = "ProfilerStep#"


class FunctionEvent(_Figures):
    """One call: times in microseconds.  `kernels` is the work it gave to GPUs by itself, `cpu_children` are the calls inside it, and `cpu_parent` the one
    around it.  `time_range` says when it was, `id` which it was.  Steps of a schedule are all called `ProfilerStep*`; `trace_name` has their numbers.
    """

    id = external_id = 0
    base_ns = 0  # when the profiler began
    sequence_nr = -1
    fwd_thread = 0
    is_python_function = False

    def __init__(self, name: str, start: int, end: int, inside: int, thread: int, depth: int, shapes: Any, user: bool) -> None:
        self.trace_name = name
        self.name = self.key = "ProfilerStep*" if name.startswith(_STEP) else name
        self.start_ns, self.end_ns, self.thread, self.depth = start, end, thread, depth
        self.cpu_time_total = (end - start) / 1e3
        self.self_cpu_time_total = (end - start - inside) / 1e3
        self.input_shapes = shapes or []
        self.is_user_annotation = user
        self.kernels: list[Any] = []
        self.cpu_children: list[FunctionEvent] = []
        self.stack: list[str] = []
        self.concrete_inputs: list[Any] = []
        self.kwinputs: dict[str, Any] = {}

    @property
    def time_range(self) -> Interval:
        """When it was."""
        return Interval((self.start_ns - self.base_ns) / 1e3, (self.end_ns - self.base_ns) / 1e3)

    @property
    def activity_type(self) -> str:
        """What it is to PyTorch's profiler."""
        return "user_annotation" if self.is_user_annotation else "cpu_op"

    def settle(self) -> None:
        """Adds up the times of GPUs, those of the calls inside being known."""
        for e in self.cpu_children:
            e.cpu_parent = self
        self.self_device_time_total = sum(k.duration for k in self.kernels)
        self.device_time_total = self.self_device_time_total + sum(e.device_time_total for e in self.cpu_children)

    def __repr__(self) -> str:
        return (f"<FunctionEvent name={self.name} thread={self.thread} cpu_time={text(self.cpu_time_total)} "
                f"self_cpu_time={text(self.self_cpu_time_total)} cuda_time={text(self.device_time_total)} input_shapes={self.input_shapes}>")


_SUMMED = ("count", "flops", "cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total", "cpu_memory_usage",
           "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage")


class FunctionEventAvg(_Figures):
    """All calls of one name (and shapes, and stack): `count`, and the sums of their figures."""

    count = 0

    def __init__(self, key: str, shapes: Any, user: bool, stack: list[str] | None = None) -> None:
        self.key, self.input_shapes, self.is_user_annotation, self.stack = key, shapes, user, stack or []
        self.cpu_children: list[FunctionEvent] = []

    def add(self, e: Any) -> None:
        """Counts one more call, or several, in."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(e, name))
        self.cpu_children += e.cpu_children
        self.use_device = self.use_device or e.use_device

    def __repr__(self) -> str:
        return (f"<FunctionEventAvg key={self.key} self_cpu_time={text(self.self_cpu_time_total)} cpu_time={text(self.cpu_time)} "
                f"self_cuda_time={text(self.self_device_time_total)} count={self.count} input_shapes={self.input_shapes}>")


class EventList(list[Any]):
    """Events or averages, with tables and traces of them.  `times` says what the times of GPUs are ("" where they are measured); `columns` is what
    was asked for besides the host's times: of "device", "memory", "flops", "stack"."""

    def __init__(self, events: Any = (), times: str = "", columns: frozenset[str] = frozenset()) -> None:
        super().__init__(events)
        self.times, self.columns = times, columns

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all, each moment counted once."""
        return float(sum(e.self_cpu_time_total for e in self))

    def total_average(self) -> FunctionEventAvg:
        """All in one: totals, and times of their own, each moment counted once."""
        total = FunctionEventAvg("Total", [], False)
        for e in self:
            total.add(e)
        return total

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """The averages by name, by shapes if asked, and by the innermost `group_by_stack_n` frames of the program.  Overloads have no names here."""
        found: dict[Any, FunctionEventAvg] = {}
        for e in self:
            stack = e.stack[:group_by_stack_n] if group_by_stack_n > 0 else []
            key = e.name, str(e.input_shapes) if group_by_input_shapes else "", tuple(stack)
            if key not in found:
                found[key] = FunctionEventAvg(e.name, e.input_shapes if group_by_input_shapes else [], e.is_user_annotation, stack)
            found[key].add(e)
        return EventList(found.values(), self.times, self.columns)

    def _sorted(self, sort_by: str | None) -> list[Any]:
        if sort_by is None:
            return list(self)
        if sort_by not in SORT_KEYS:
            raise AttributeError(f"table: sort_by is {sort_by!r}; accepted are {', '.join(map(repr, SORT_KEYS))} and None (as they were called)")
        return sorted(self, key=lambda e: getattr(e, sort_by), reverse=True)

    def _heads(self, rows: list[Any]) -> list[tuple[str, Any]]:
        """The columns: what each is called, and what it says of an event."""
        host = sum(e.self_cpu_time_total for e in rows) or 1.0
        there = sum(e.self_device_time_total for e in rows) or 1.0
        found: list[tuple[str, Any]] = [
            ("Self CPU %", lambda e: f"{100 * e.self_cpu_time_total / host:.2f}%"), ("Self CPU", lambda e: text(e.self_cpu_time_total)),
            ("CPU total %", lambda e: f"{100 * e.cpu_time_total / host:.2f}%"), ("CPU total", lambda e: text(e.cpu_time_total)),
            ("CPU time avg", lambda e: text(e.cpu_time))]
        device = "device" in self.columns
        if device:
            found += [("Self CUDA", lambda e: text(e.self_device_time_total)),
                      ("Self CUDA %", lambda e: f"{100 * e.self_device_time_total / there:.2f}%"),
                      ("CUDA total", lambda e: text(e.device_time_total)), ("CUDA time avg", lambda e: text(e.device_time))]
        if "memory" in self.columns:
            found += [("CPU Mem", lambda e: _bytes(e.cpu_memory_usage)), ("Self CPU Mem", lambda e: _bytes(e.self_cpu_memory_usage))]
            if device:
                found += [("CUDA Mem", lambda e: _bytes(e.device_memory_usage)), ("Self CUDA Mem", lambda e: _bytes(e.self_device_memory_usage))]
        found.append(("# of Calls", lambda e: str(e.count)))
        if "flops" in self.columns:
            found.append(("Total KFLOPs", lambda e: f"{e.flops / 1e3:.3f}" if e.flops else "--"))
        return found

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False) -> str:
        """The rows as text, the largest of `sort_by` first: see `SORT_KEYS`.  Raises AttributeError for another name.

        The columns CUDA are there where the profiler watched GPUs; the last line says whether their times are measured or predicted.
        """
        rows = self._sorted(sort_by)
        if top_level_events_only:
            rows = [e for e in rows if getattr(e, "depth", 0) == 0]
        columns = self._heads(rows)
        if any(e.input_shapes for e in rows):
            columns.append(("Input Shapes", lambda e: str(e.input_shapes)[:max_shapes_column_width]))
        if any(e.stack for e in rows):
            columns.append(("Source Location", lambda e: e.stack[0][-max_src_column_width:] if e.stack else ""))
        shown = rows[:row_limit if row_limit >= 0 else None]
        names = [e.key if len(e.key) <= max_name_column_width else e.key[:max_name_column_width - 3] + "..." for e in shown]
        lines = [[n, *(say(e) for _, say in columns)] for n, e in zip(names, shown, strict=True)]
        heads = ["Name", *(head for head, _ in columns)]
        widths = [max([len(h), *(len(line[i]) for line in lines)]) for i, h in enumerate(heads)]
        rule = "  ".join("-" * w for w in widths)

        def row(cells: list[str]) -> str:
            return "  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True))
        out = [header] if header else []
        out += [rule, row(heads), rule, *map(row, lines), rule, f"Self CPU time total: {text(sum(e.self_cpu_time_total for e in self))}"]
        if "device" in self.columns:
            out.append(f"Self CUDA time total: {text(sum(e.self_device_time_total for e in self))} ({self.times or 'measured'})")
        return "\n".join([*out, ""])

    def export_chrome_trace(self, path: str, metadata: dict[str, Any] | None = None) -> None:
        """Writes the events in the format of chrome://tracing and Perfetto: the host's threads, and each GPU's streams.  `metadata` are further entries
        of the file."""
        first = min((e.start_ns for e in self), default=0)
        events = [{"name": e.trace_name, "ph": "X", "ts": (e.start_ns - first) / 1e3, "dur": e.cpu_time_total, "pid": 0, "tid": e.thread,
                   "cat": "user_annotation" if e.is_user_annotation else "cpu_op", "args": {"Input Dims": e.input_shapes}} for e in self]
        for e in self:
            events += [{"name": k.name, "ph": "X", "ts": (k.start_ns - first) / 1e3, "dur": k.duration, "pid": 1 + k.device, "tid": k.stream,
                        "cat": "kernel", "args": {"call": e.name, "time": self.times or "measured"}} for k in e.kernels]
        for pid in sorted({e["pid"] for e in events}):
            name = f"cuda:{pid - 1}" + (f" ({self.times})" if self.times else "") if pid else "host"
            events.append({"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": name}})
        with open(path, "w", encoding="utf-8") as f:
            json.dump({**(metadata or {}), "traceEvents": events, "displayTimeUnit": "ms"}, f)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes a line `outer;...;inner microseconds` for each call whose stack was kept, as flame graphs are drawn from.

        Raises ValueError for a metric that is none of self_cpu_time_total, self_cuda_time_total and self_device_time_total.
        """
        if metric not in _STACK_METRICS:
            raise ValueError(f"export_stacks: metric is {metric!r}; accepted are {', '.join(map(repr, _STACK_METRICS))}")
        plain = str.maketrans(" ;\t\n", "____")
        with open(path, "w", encoding="utf-8") as f:
            for e in self:
                spent = int(getattr(e, metric))
                if e.stack and spent > 0:
                    f.write(";".join(s.translate(plain) for s in reversed(e.stack)) + f" {spent}\n")

    def __str__(self) -> str:
        return self.table() if self and isinstance(self[0], FunctionEventAvg) else list.__repr__(self)
