"""Traces of all ranks of a job as one: lanes for each rank, who waited for whom, bytes by source line, the time of a step.

Each rank writes a part, numbers and words only; who has all parts of a host joins them.  Virtual clocks begin together; where nothing is simulated the hosts'
clocks put the ranks beside one another.
"""

from __future__ import annotations

import json
import os
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any

from . import chrome, text
from .columns import columns
from .page import document, lanes, line_link, pretty, stages, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .record import Trace

Part = dict[str, Any]
_MOST = 12  # rows of a table
_PROCESSES = 1000  # numbers of processes in trace events, for each rank


def part(trace: Trace, rank: int) -> Part:
    """What one rank has to tell, for JSON.  Moments are in seconds of a clock that all ranks have."""
    zero = -trace._base if trace.predicted else trace._wall - trace._base
    met, told = [], []
    for s in trace.stages:
        line = text.place(s.line)
        met += [{"rank": rank, "for": whom, "where": "host" if lane[0] == "cpu" else lane[0], "what": s.name, "line": line, "start": zero + start,
                 "seconds": end - start} for lane, whom, start, end in s.met]
        told += [{"rank": rank, "what": w.name, "line": line, "bytes": w.nbytes, "seconds": w.seconds or 0.0} for w in s.works if w.collective]
    return {"rank": rank, "title": trace.title, "predicted": trace.predicted, "devices": {**trace.devices}, "zero": zero,
            "began": zero + min((s.start for s in trace.stages), default=0.0), "waited": met, "collectives": told,
            "steps": [zero + t for t in _steps(trace)], "columns": columns(trace), "events": json.loads(chrome.events(trace))["traceEvents"]}


def _steps(trace: Trace) -> list[float]:
    """When the work of each step of an optimizer was done."""
    groups = [g for g in trace.groups if g.name.endswith(".step")]
    found = []
    for g in sorted(groups, key=lambda g: g.start):
        ends = [max([s.end, *[w.end for w in s.works if w.end is not None]])
                for s in trace.stages if s.thread == g.thread and g.name in s.groups and g.start <= s.start <= g.end]
        found.append(max(ends, default=g.end))
    return found


def step_seconds(parts: Iterable[Part]) -> float | None:
    """From the end of one step to that of the next, on the rank where it is longest; None where no rank took two."""
    times = [median(b - a for a, b in zip(p["steps"], p["steps"][1:])) for p in parts if len(p["steps"]) > 1]
    return max(times, default=None)


def waited(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Who waited for whom, at which line, the longest first: rank, for, where, what, line, count, seconds."""
    return _summed((m for p in parts for m in p["waited"]), ("rank", "for", "where", "what", "line"), ("seconds",))


def carried(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """What each line gave to other processes or got from them, on all ranks, the most bytes first: line, what, count, seconds, bytes."""
    rows = _summed((c for p in parts for c in p["collectives"]), ("line", "what"), ("seconds", "bytes"))
    return sorted(rows, key=lambda r: -r["bytes"])


def _summed(those: Iterable[dict[str, Any]], keys: tuple[str, ...], values: tuple[str, ...]) -> list[dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in those:
        row = found.setdefault(tuple(one[k] for k in keys), {**{k: one[k] for k in keys}, "count": 0, **dict.fromkeys(values, 0)})
        row["count"] += 1
        for v in values:
            row[v] += one[v]
    return sorted(found.values(), key=lambda r: -r["seconds"])


# ------------------------------------------------------------------------------------------------------------ one page
def page(parts: list[Part]) -> str:
    """The HTML text of all ranks' page."""
    predicted = any(p["predicted"] for p in parts)
    title = parts[0]["title"] or "Flambeau trace"
    step = step_seconds(parts)
    said = [f"{len(parts)} ranks, each with its lanes.", "Times with ~ are predicted: no such GPUs were used." if predicted else
            "Times are measured; the ranks lie beside one another as their hosts' clocks say."]
    if step is not None:
        said.insert(0, f"A step takes {text.seconds(step, predicted)}.")
    head = "".join(f"<p>{escape(pretty(s))}</p>" for s in said)
    body = [f'<header><h1>{escape(title)}: all ranks</h1><button id="look" type="button" aria-label="dark or light">dark / light</button>{head}</header>',
            _waits(waited(parts), predicted), _lines(carried(parts), predicted), lanes(predicted), stages()]
    return document(f"{title}: all ranks", body, joined([p["columns"] for p in parts], [p["rank"] for p in parts], [p["began"] for p in parts]))


def _waits(rows: list[dict[str, Any]], predicted: bool) -> str:
    if not rows:
        return '<section id="waits"><h2>Who waited for whom</h2><p>No rank waited for another in a collective.</p></section>'
    whole = sum(r["seconds"] for r in rows)
    cells = [([f"rank {r['rank']}", f"rank {r['for']}", escape(r["where"]), escape(pretty(text.seconds(r["seconds"], predicted))),
               f"{100 * r['seconds'] / whole:.0f} %", str(r["count"]), escape(r["what"]), line_link(r["line"])], "") for r in rows[:_MOST]]
    heads = ["who", "waited for", "where", "time", "share", "times", "in", "line"]
    return f'<section id="waits"><h2>Who waited for whom</h2>{table(heads, cells, frozenset(("time", "share", "times")))}{_rest(rows)}</section>'


def _lines(rows: list[dict[str, Any]], predicted: bool) -> str:
    if not rows:
        return ""
    cells = [([line_link(r["line"]), escape(r["what"]), str(r["count"]), text.size(r["bytes"]), escape(pretty(text.seconds(r["seconds"], predicted)))], "")
             for r in rows[:_MOST]]
    heads = ["line", "collective", "times", "bytes", "time"]
    return f'<section id="carried"><h2>Bytes by line, of all ranks</h2>{table(heads, cells, frozenset(heads[2:]))}{_rest(rows)}</section>'


def _rest(rows: list[dict[str, Any]]) -> str:
    return f"<p>{len(rows) - _MOST} more</p>" if len(rows) > _MOST else ""


def joined(those: list[dict[str, Any]], ranks: list[int], began: list[float]) -> dict[str, Any]:
    """The columns of several traces as one's.  began: the moments of their zeros, in seconds."""
    first = min(began)
    words: dict[str, int] = {"": 0}
    made: dict[str, Any] = {"lanes": [], "stages": {}, "more": {}, "works": {}, "waits": {}, "groups": [], "memory": {}, "span": 0.0}
    stages_before = numbers_before = 0
    for c, rank, zero in zip(those, ranks, began, strict=True):
        _append(made, words, c, f"rank {rank} ", (zero - first) * 1e6, stages_before, numbers_before)
        stages_before += len(c["stages"].get("i", ()))
        numbers_before += max(c["stages"].get("i", ()), default=0)
    return {**made, "words": list(words)}


def _append(made: dict[str, Any], words: dict[str, int], c: dict[str, Any], name: str, shift: float, stages_before: int, numbers_before: int) -> None:
    """Adds a trace's columns.  name: put before its devices'.  shift: microseconds that it begins later."""
    at, told = len(made["lanes"]), c["words"]

    def word(k: int) -> int:
        return words.setdefault(told[k], len(words))

    def lane(k: int) -> int:
        return k + at if k >= 0 else k

    def move(t: float) -> float:
        return round(t + shift, 3)

    def after(k: int) -> int:
        return k + stages_before

    def number(i: int) -> int:
        return i + numbers_before

    def numbers(those: list[int]) -> list[int]:
        return [number(i) for i in those]
    places = {"lane": lane, "to": lane, "host": lane, "from": lane, "start": move, "end": move}
    texts = dict.fromkeys(("call", "device", "in", "out", "type", "said", "line", "groups", "name", "path"), word)
    changes: dict[str, dict[str, Any]] = {"stages": {**places, **texts, "i": number, "sources": numbers}, "works": {**places, **texts, "stage": after},
                                          "waits": {**places, **texts, "stage": after}}
    for table_, change in changes.items():
        for column, values in c[table_].items():
            made[table_].setdefault(column, []).extend(map(change[column], values) if column in change else values)
    made["lanes"] += [{**one, "device": name + one["device"], "label": name + one["label"]} for one in c["lanes"]]
    made["groups"] += [[word(g), lane(k), move(start), move(end), depth] for g, k, start, end, depth in c["groups"]]
    made["more"].update({after(int(k)): v for k, v in c["more"].items()})
    made["memory"].update({name + d: [[move(t), n] for t, n in curve] for d, curve in c["memory"].items()})
    made["span"] = max(made["span"], shift + c["span"])


# -------------------------------------------------------------------------------------------------------- trace events
def events(parts: list[Part]) -> str:
    """The JSON text of all ranks' trace events; `otherData` says who waited for whom, bytes by line and the time of a step."""
    first = min(p["began"] for p in parts)
    found: list[dict[str, Any]] = []
    flows = 0
    for p in parts:
        shift, most = (p["zero"] - first) * 1e6, 0
        for e in p["events"]:
            e = {**e, "pid": p["rank"] * _PROCESSES + e["pid"]}
            if "ts" in e:
                e["ts"] = round(e["ts"] + shift, 4)
            if "id" in e:
                most = max(most, e["id"])
                e["id"] += flows
            if e["name"] == "process_name":
                e["args"] = {"name": f"rank {p['rank']}: {e['args']['name']}"}
            found.append(e)
        flows += most
    found.sort(key=lambda e: e.get("ts", -1.0))
    whole = {"traceEvents": found, "displayTimeUnit": "ms",
             "otherData": {"title": parts[0]["title"] or "Flambeau trace", "ranks": len(parts), "predicted": any(p["predicted"] for p in parts),
                           "step": step_seconds(parts), "waited": waited(parts), "carried": carried(parts)}}
    return json.dumps(whole, allow_nan=False, separators=(",", ":"))


# --------------------------------------------------------------------------------------------------------------- files
def rank_path(path: str, rank: int) -> str:
    """Where a rank writes its own page."""
    stem, ending = os.path.splitext(path)
    return f"{stem}-rank{rank}{ending}"


def part_path(path: str, rank: int) -> str:
    """Where a rank writes its part of all ranks' page."""
    return f"{rank_path(path, rank)}.part"


def write_part(trace: Trace, path: str, rank: int) -> None:
    """Writes a rank's part of the page `path`."""
    from .save import write
    write(part_path(path, rank), json.dumps(part(trace, rank), allow_nan=False, separators=(",", ":")))


def node_path(path: str, node: int) -> str:
    """Where the agent of one of several hosts writes the page of its ranks."""
    stem, ending = os.path.splitext(path)
    return f"{stem}-node{node}{ending}"


def join(path: str, ranks: Iterable[int], to: str) -> list[int]:
    """Makes the page, or trace events, `to` of the parts of `path` that there are, which go; gives the ranks that wrote none.  Raises OSError."""
    from .save import write
    parts, missing = [], []
    for rank in ranks:
        try:
            with open(part_path(path, rank), encoding="utf-8") as f:
                parts.append(json.load(f))
        except FileNotFoundError:
            missing.append(rank)
    if parts:
        write(to, events(parts) if path.lower().endswith(".json") else page(parts))
    for p in parts:
        os.unlink(part_path(path, p["rank"]))
    return missing
