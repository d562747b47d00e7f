"""A trace as trace events, the format that Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process for the host and for each GPU, a thread for each of the program's threads and for each stream.  On a thread of
the host, groups hold stages; stages hold CPU kernels and the host's waits.  A counter for each device says how much memory is in use.
Arrows (flows) go from a stage to its work on a GPU, from a stage to those that read what it wrote, and from work on a GPU to the wait that it
ended.  Times are microseconds.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from . import text
from .answer import peaks

if TYPE_CHECKING:
    from .record import Trace
    from .stages import Stage, Work


_GROUP, _STAGE, _WORK, _FLOW = range(4)  # a reader binds an arrow to the innermost slice that was opened before: the order of a moment's events
Moment = tuple[int, int, float]  # process, thread, seconds


class _Flows:
    """Arrows, each a pair of events with a number of its own."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int, dict[str, Any]]] = []

    def add(self, name: str, category: str, start: Moment, end: Moment, first: tuple[int, int], last: tuple[int, int]) -> None:
        """An arrow from the slice that is open at `start` to the one that is open at `end`; `first` and `last` are the events' order there."""
        common = {"name": name, "cat": category, "id": len(self.made) // 2 + 1}
        for ph, more, (pid, tid, seconds), order in (("s", {}, start, first), ("f", {"bp": "e"}, end, last)):
            self.made.append((*order, {**common, "ph": ph, **more, "pid": pid, "tid": tid, "ts": _micros(seconds)}))


def _ends(trace: Trace) -> dict[str, list[tuple[float, int, Work]]]:
    """The work of each GPU, and of all under "", by when it ended."""
    found: dict[str, list[tuple[float, int, Work]]] = {"": []}
    for s in trace.stages:
        for w in s.works:
            if w.end is not None and w.lane[0] != "cpu":
                for device in ("", w.lane[0]):
                    found.setdefault(device, []).append((w.end, len(found[""]), w))
    for those in found.values():
        those.sort()
    return found


def _ended_last(ended: dict[str, list[tuple[float, int, Work]]], device: str, moment: float) -> Work | None:
    """The work of a device that ended last before `moment`: a wait that is over then was for it."""
    those = ended.get(device, [])
    at = bisect_right(those, moment + 1e-9, key=lambda e: e[0])
    return those[at - 1][2] if at else None


def events(trace: Trace) -> str:
    """The JSON text."""
    w = _Writer(trace)
    for part in (w.groups, w.stages, w.waits, w.memory):
        part()
    whole = {"traceEvents": w.names() + w.in_order(), "displayTimeUnit": "ms",
             "otherData": {"title": trace.title or "Flambeau trace", "times": _said(trace),
                           "findings": [_finding(f) for f in trace.findings]}}
    return json.dumps(whole, allow_nan=False, separators=(",", ":"))


_HOST = 1


class _Writer:
    """The events of one trace, each with its order among those of the same moment."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.flows = trace, _Flows()
        self.made: list[tuple[int, int, dict[str, Any]]] = []
        self.lanes: dict[tuple[str, int], tuple[int, int]] = {}
        self.gpus = {name: 2 + i for i, name in enumerate(sorted(d for d in trace.devices if d != "cpu"))}
        self.used: set[int] = set()

    def process(self, device: str) -> int:
        """The process that stands for a device."""
        found = _HOST if device == "cpu" else self.gpus.setdefault(device, 2 + len(self.gpus))
        self.used.add(found)
        return found

    def lane(self, work: Work) -> tuple[int, int]:
        """The process and the thread of work on a GPU."""
        found = self.lanes.get(work.lane)
        if found is None:
            found = self.lanes[work.lane] = self.process(work.lane[0]), work.lane[1] + 1
        return found

    def groups(self) -> None:
        for g in self.trace.groups:
            self.made.append((_GROUP, 0, _span(g.name, "group", _HOST, g.thread + 1, g.start, g.end, {})))

    def stages(self) -> None:
        for s in self.trace.stages:
            self.made.append((_STAGE, s.index, _span(s.name, "stage", _HOST, s.thread + 1, s.start, s.end, _details(s))))
            for source in s.sources:
                if source.index and source.start <= s.start:
                    self.flows.add("data", "data", (_HOST, source.thread + 1, source.start), (_HOST, s.thread + 1, s.start),
                                   (_STAGE, source.index), (_STAGE, s.index))
            for w in s.works:
                if w.start is not None and w.end is not None:
                    self.work(s, w, w.start, w.end)

    def work(self, s: Stage, w: Work, start: float, end: float) -> None:
        details: dict[str, Any] = {"bytes": w.nbytes, "stage": s.index, "time": "predicted" if w.predicted else "measured"}
        if w.kind == "copy":
            details |= {"direction": w.direction, "path": w.path, "from": w.source, "to": w.target, "blocking": w.blocking}
        elif w.flops:
            details["operations"] = w.flops
        on_host = w.lane[0] == "cpu"
        pid, tid = (_HOST, s.thread + 1) if on_host else self.lane(w)
        self.made.append((_WORK, 0, _span(w.name, w.kind, pid, tid, start, end, details)))
        if w.waits is not None:
            rank, since, until = w.waits
            self.made.append((_WORK, 1, _span(f"wait for rank {rank}", "wait", pid, tid, since, until, {"line": s.line or "", "stage": s.index})))
        if not on_host and s.start <= start:
            name, category = (f"{w.source} to {w.target}", "transfer") if w.crosses else ("launch", "launch")
            self.flows.add(name, category, (_HOST, s.thread + 1, s.start), (pid, tid, start), (_STAGE, s.index), (_FLOW, 1))

    def waits(self) -> None:
        ended = _ends(self.trace)
        for s in self.trace.stages:
            for device, start, end in s.waits:
                here = _HOST, s.thread + 1
                self.made.append((_WORK, 1, _span(f"wait for {device or 'GPUs'}", "wait", *here, start, end, {"line": s.line or ""})))
                work = _ended_last(ended, device, end)
                if work is not None and work.start is not None and work.start < end:
                    self.flows.add("waited for", "wait", (*self.lane(work), work.start), (*here, max(start, work.start)), (_FLOW, 0), (_FLOW, 1))

    def memory(self) -> None:
        for p in peaks(self.trace):
            pid = self.process(p.device)
            self.made += [(_GROUP, 1, {"name": "memory in use", "cat": "memory", "ph": "C", "pid": pid, "tid": 0, "ts": _micros(t),
                                       "args": {"bytes": n}}) for t, n in p.curve]

    def in_order(self) -> list[dict[str, Any]]:
        """All events: of one moment first what others are bound to."""
        made = sorted(self.made + self.flows.made, key=lambda m: (m[2]["ts"], m[0], m[1], -m[2].get("dur", 0.0)))
        return [m[2] for m in made]

    def names(self) -> list[dict[str, Any]]:
        """What the processes and threads are called."""
        devices = self.trace.devices
        threads = {s.thread for s in self.trace.stages} | {g.thread for g in self.trace.groups}
        found = [_name("process_name", _HOST, 0, f"host ({devices['cpu']})")]
        found += [_name("thread_name", _HOST, t + 1, "program" if t == 0 else f"thread {t}") for t in sorted(threads)]
        for device, pid in self.gpus.items():
            kind = devices.get(device, "")
            mark = "; predicted times" if kind.endswith(", simulated") else ""
            if pid in self.used:
                found.append(_name("process_name", pid, 0, f"{device} ({kind}{mark})"))
        return found + [_name("thread_name", pid, tid, "default stream" if tid == 1 else f"stream {tid - 1}") for pid, tid in self.lanes.values()]


def _micros(seconds: float) -> float:
    return round(seconds * 1e6, 4)


def _span(name: str, category: str, pid: int, tid: int, start: float, end: float, args: dict[str, Any]) -> dict[str, Any]:
    # both ends are rounded, not the length: what ends together still does
    ts = _micros(start)
    return {"name": name, "cat": category, "ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": round(max(_micros(end) - ts, 0.0), 4),
            "args": args}


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _details(s: Stage) -> dict[str, Any]:
    found: dict[str, Any] = {"stage": s.index, "call": s.call, "device": s.device, "in": text.shapes(s.inputs), "out": text.shapes(s.outputs),
                             "dtype": text.types(s), "bytes": s.nbytes, "time": text.seconds(s.seconds, s.predicted), "line": s.line or ""}
    if s.samples:
        found["values"] = text.values(s.samples[0], 8)
    if s.error:
        found["error"] = s.error
    return found


def _said(trace: Trace) -> str:
    from .show import remarks
    return " ".join(remarks(trace)[1:])


def _finding(finding: Any) -> dict[str, str]:
    from .show import finding_parts
    return finding_parts(finding)
