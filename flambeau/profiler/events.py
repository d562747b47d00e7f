"""What a profiler took down, and its tables."""

from __future__ import annotations

import json
from typing import Any


def _text(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


class FunctionEvent:
    """One call: times in microseconds."""

    device_time = cuda_time = self_device_time_total = device_time_total = 0.0
    is_async = is_remote = False
    count = 1

    def __init__(self, name: str, start: int, end: int, inside: int, thread: int, depth: int, shapes: Any, user: bool) -> None:
        self.name = self.key = name
        self.start_ns, self.end_ns, self.thread, self.depth = start, end, thread, depth
        self.cpu_time_total = self.cpu_time = (end - start) / 1e3
        self.self_cpu_time_total = (end - start - inside) / 1e3
        self.input_shapes = shapes or []
        self.is_user_annotation = user

    def __repr__(self) -> str:
        return (f"<FunctionEvent name={self.name} thread={self.thread} cpu_time={_text(self.cpu_time_total)} "
                f"self_cpu_time={_text(self.self_cpu_time_total)} input_shapes={self.input_shapes}>")


class FunctionEventAvg:
    """All calls of one name (and shapes): `count`, total and own times in microseconds."""

    device_time_total = self_device_time_total = cuda_time_total = self_cuda_time_total = device_time = cuda_time = 0.0

    def __init__(self, key: str, shapes: Any, user: bool) -> None:
        self.key, self.input_shapes, self.is_user_annotation = key, shapes, user
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0

    @property
    def cpu_time(self) -> float:
        """The mean time of a call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    def add(self, e: FunctionEvent) -> None:
        """Counts one more call in."""
        self.count += 1
        self.cpu_time_total += e.cpu_time_total
        self.self_cpu_time_total += e.self_cpu_time_total

    def __repr__(self) -> str:
        return (f"<FunctionEventAvg key={self.key} self_cpu_time={_text(self.self_cpu_time_total)} cpu_time={_text(self.cpu_time)} "
                f"count={self.count} input_shapes={self.input_shapes}>")


class EventList(list[Any]):
    """Events or averages, with tables and traces of them."""

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all, each moment counted once."""
        return float(sum(e.self_cpu_time_total for e in self))

    def total_average(self) -> FunctionEventAvg:
        """All in one."""
        total = FunctionEventAvg("Total", [], False)
        for e in self:
            total.count += e.count
            total.cpu_time_total += e.cpu_time_total
            total.self_cpu_time_total += e.self_cpu_time_total
        return total

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, **kwargs: Any) -> EventList:
        """The averages by name, and by shapes if asked."""
        found: dict[Any, FunctionEventAvg] = {}
        for e in self:
            key = e.name, str(e.input_shapes) if group_by_input_shapes else ""
            if key not in found:
                found[key] = FunctionEventAvg(e.name, e.input_shapes if group_by_input_shapes else [], e.is_user_annotation)
            found[key].add(e)
        return EventList(found.values())

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False, **kwargs: Any) -> str:
        """The rows as text, sorted by an attribute ("cpu_time_total", "self_cpu_time_total", "count", ...), the largest first."""
        rows = list(self)
        if sort_by is not None:
            name = sort_by.replace("cuda_", "device_")
            rows.sort(key=lambda e: getattr(e, name), reverse=True)
        whole = sum(e.self_cpu_time_total for e in rows) or 1.0
        shapes = any(e.input_shapes for e in rows)
        heads = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls"] + (["Input Shapes"] if shapes else [])
        lines = []
        for e in rows[:row_limit if row_limit >= 0 else None]:
            key = e.key if len(e.key) <= max_name_column_width else e.key[:max_name_column_width - 3] + "..."
            lines.append([key, f"{100 * e.self_cpu_time_total / whole:.2f}%", _text(e.self_cpu_time_total), f"{100 * e.cpu_time_total / whole:.2f}%",
                          _text(e.cpu_time_total), _text(e.cpu_time), str(e.count)] + ([str(e.input_shapes)[:max_shapes_column_width]] if shapes else []))
        widths = [max([len(h), *(len(line[i]) for line in lines)]) for i, h in enumerate(heads)]
        rule = "  ".join("-" * w for w in widths)

        def row(cells: list[str]) -> str:
            return "  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True))
        out = [header] if header else []
        out += [rule, row(heads), rule, *map(row, lines), rule, f"Self CPU time total: {_text(sum(e.self_cpu_time_total for e in self))}", ""]
        return "\n".join(out)

    def export_chrome_trace(self, path: str) -> None:
        """Writes the events in the format of chrome://tracing and Perfetto."""
        first = min((e.start_ns for e in self), default=0)
        events = [{"name": e.name, "ph": "X", "ts": (e.start_ns - first) / 1e3, "dur": e.cpu_time_total, "pid": 0, "tid": e.thread,
                   "cat": "user_annotation" if e.is_user_annotation else "cpu_op", "args": {"Input Dims": e.input_shapes}} for e in self]
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, f)

    def __str__(self) -> str:
        return self.table() if self and isinstance(self[0], FunctionEventAvg) else list.__repr__(self)
