"""A trace as trace events, the format that Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process for the host and for each GPU, a thread for each of the program's threads and for each stream.  On a thread of
the host, groups hold stages and stages hold CPU kernels, each within the other.  A transfer has an arrow (flow) from
the stage that asked for it to its copy.  Times are microseconds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import text

if TYPE_CHECKING:
    from .record import Trace
    from .stages import Stage, Work


def events(trace: Trace) -> str:
    """The JSON text."""
    host = 1
    made: list[dict[str, Any]] = []
    lanes: dict[tuple[str, int], tuple[int, int]] = {}
    gpus = {name: 2 + i for i, name in enumerate(sorted(d for d in trace.devices if d != "cpu"))}
    threads = {s.thread for s in trace.stages} | {g.thread for g in trace.groups}

    def lane(work: Work) -> tuple[int, int]:
        found = lanes.get(work.lane)
        if found is None:
            found = lanes[work.lane] = gpus.setdefault(work.lane[0], 2 + len(gpus)), work.lane[1] + 1
        return found

    for g in trace.groups:
        made.append(_span(g.name, "group", host, g.thread + 1, g.start, g.end, {}))
    flow = 0
    for s in trace.stages:
        made.append(_span(s.name, "stage", host, s.thread + 1, s.start, s.end, _details(s)))
        for w in s.works:
            if w.start is None or w.end is None:
                continue
            details: dict[str, Any] = {"bytes": w.nbytes, "stage": s.index, "time": "predicted" if w.predicted else "measured"}
            if w.kind == "copy":
                details |= {"direction": w.direction, "path": w.path, "from": w.source, "to": w.target, "blocking": w.blocking}
            elif w.flops:
                details["operations"] = w.flops
            on_host = w.lane[0] == "cpu"
            pid, tid = (host, s.thread + 1) if on_host else lane(w)
            made.append(_span(w.name, w.kind, pid, tid, w.start, w.end, details))
            if w.crosses and not on_host:
                flow += 1
                common = {"name": f"{w.source} to {w.target}", "cat": "transfer", "id": flow}
                made.append({**common, "ph": "s", "pid": host, "tid": s.thread + 1, "ts": _micros(s.start)})
                made.append({**common, "ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": _micros(w.start)})
    names: list[dict[str, Any]] = [_name("process_name", host, 0, f"host ({trace.devices['cpu']})")]
    names += [_name("thread_name", host, t + 1, "program" if t == 0 else f"thread {t}") for t in sorted(threads)]
    for device, pid in gpus.items():
        kind = trace.devices.get(device, "")
        mark = "; predicted times" if kind.endswith(", simulated") else ""
        if any(p == pid for p, _ in lanes.values()):
            names.append(_name("process_name", pid, 0, f"{device} ({kind}{mark})"))
    names += [_name("thread_name", pid, tid, "default stream" if tid == 1 else f"stream {tid - 1}") for pid, tid in lanes.values()]
    made.sort(key=lambda e: (e["ts"], -e.get("dur", 0.0)))
    whole = {"traceEvents": names + made, "displayTimeUnit": "ms",
             "otherData": {"title": trace.title or "Flambeau trace", "times": _said(trace),
                           "findings": [_finding(f) for f in trace.findings]}}
    return json.dumps(whole, allow_nan=False, separators=(",", ":"))


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
