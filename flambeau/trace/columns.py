"""A trace as columns of numbers and a list of words: what the page's scripts draw from.

One list for each property keeps the file small and its reading quick, at a hundred thousand stages too.  Times are microseconds; a word is a
place in `words`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import text
from .answer import extent, peaks

if TYPE_CHECKING:
    from .record import Trace
    from .stages import Group, Stage

SHOWN = 4000  # stages whose values are on the page
_MOST_CURVE = 2000  # points of a memory curve
Lane = tuple[str, int]


class Words:
    """Each text once."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {"": 0}

    def __call__(self, word: str) -> int:
        return self.places.setdefault(word, len(self.places))


def columns(trace: Trace) -> dict[str, Any]:
    """Plain lists and dictionaries, for JSON."""
    word = Words()
    order = _lanes(trace)
    at = {key: i for i, key in enumerate(order)}
    began = min((s.start for s in trace.stages), default=0.0)
    streams: dict[str, int] = {}
    for device, _ in order:
        streams[device] = streams.get(device, 0) + 1
    lanes = [{"device": d, "stream": name, "label": f"{d} {name}".strip(), "note": trace.devices.get(d, ""), "gpu": d != "cpu"}
             for d, n in order for name in (_lane_name(d, n, streams[d]),)]
    stages: dict[str, list[Any]] = {n: [] for n in ("i", "call", "lane", "to", "host", "device", "in", "out", "type", "said", "line", "groups", "flags",
                                                    "start", "end", "micros", "waited", "bytes", "moved", "sources")}
    works: dict[str, list[Any]] = {n: [] for n in ("stage", "name", "lane", "start", "end", "bytes", "flags", "from", "to", "path")}
    waits: dict[str, list[Any]] = {n: [] for n in ("stage", "lane", "start", "end", "device")}
    more: dict[int, Any] = {}

    def micros(seconds: float) -> float:
        return round((seconds - began) * 1e6, 3)

    shapes: dict[tuple[Any, ...], int] = {}  # what is said of the same tensors is worked out once
    places: dict[str | None, int] = {}

    def said_of(those: list[Any]) -> int:
        key = tuple(those)
        found = shapes.get(key)
        if found is None:
            found = shapes[key] = word(text.shapes(those))
        return found

    for k, s in enumerate(trace.stages):
        lane, to = _ways(s, at)
        took = s.seconds
        if s.line not in places:
            places[s.line] = word(text.place(s.line))
        _put(stages, i=s.index, call=word(s.call), lane=lane, to=to, host=at["cpu", s.thread], device=word(s.device), type=word(text.types(s)),
             line=places[s.line], out=said_of(s.outputs or s.inputs), groups=word(" / ".join(s.groups)), start=micros(s.start), end=micros(s.end),
             flags=s.predicted + 2 * bool(s.error), micros=-1 if took is None else round(took * 1e6, 4), waited=round(s.waited * 1e6, 3),
             bytes=s.nbytes, moved=s.moved, sources=[q.index for q in s.sources if q.index], said=word(s.error or s.result),
             **{"in": said_of(s.inputs)})
        if k < SHOWN and s.samples:
            grid = text.matrix(s.samples[0], 4, 34)
            more[k] = grid if grid else text.values(s.samples[0], 8)
        for w in s.works:
            if w.start is None:
                continue
            crosses = w.crosses
            _put(works, stage=k, name=word(w.name), lane=_lane(w.lane, s, at), start=micros(w.start), end=micros(w.start if w.end is None else w.end),
                 bytes=w.nbytes, flags=w.predicted + 4 * w.blocking, to=_end(w.target, w.lane, s, at) if crosses else -1,
                 path=word(f"{w.direction}, {w.path}") if crosses else 0, **{"from": _end(w.source, w.lane, s, at) if crosses else -1})
            if w.waits is not None:
                rank, start, end = w.waits
                _put(waits, stage=k, lane=_lane(w.lane, s, at), start=micros(start), end=micros(end), device=word(f"rank {rank}"))
        for device, start, end in s.waits:
            _put(waits, stage=k, lane=at["cpu", s.thread], start=micros(start), end=micros(end), device=word(device))
    groups = [[word(g.name), at.get(("cpu", g.thread), 0), micros(g.start), micros(g.end), depth] for g, depth in _depths(trace)]
    memory = {p.device: [[micros(t), n] for t, n in _thinned(p.curve)] for p in peaks(trace)}
    return {"lanes": lanes, "stages": stages, "more": more, "works": works, "waits": waits, "groups": groups, "memory": memory,
            "span": round(extent(trace) * 1e6, 3), "words": list(word.places)}


def _put(table: dict[str, list[Any]], **values: Any) -> None:
    for name, value in values.items():
        table[name].append(value)


def _lanes(trace: Trace) -> list[Lane]:
    """The host's threads, and the GPUs' streams."""
    keys = {("cpu", s.thread) for s in trace.stages} | {("cpu", 0)} | {("cpu", g.thread) for g in trace.groups}
    for s in trace.stages:
        for w in s.works:
            if w.lane[0] != "cpu":
                keys.add(w.lane)
    have = {d for d, _ in keys}
    keys |= {(d, 0) for s in trace.stages for w in s.works if w.crosses for d in (w.source, w.target) if d not in have}
    return sorted(keys, key=lambda k: (k[0] != "cpu", k))


def _lane_name(device: str, number: int, beside: int) -> str:
    if device == "cpu":
        return f"thread {number}" if number else ""
    return "" if beside == 1 else f"stream {number}" if number else "default stream"


def _lane(lane: Lane, s: Stage, at: dict[Lane, int]) -> int:
    return at["cpu", s.thread] if lane[0] == "cpu" else at[lane]


def _end(device: str, lane: Lane, s: Stage, at: dict[Lane, int]) -> int:
    """The lane at one end of a copy: its own, or the device's first."""
    if device == lane[0] or device == "cpu":
        return _lane((device, lane[1]), s, at)
    return next(i for (d, _), i in at.items() if d == device)


def _ways(s: Stage, at: dict[Lane, int]) -> tuple[int, int]:
    """The lane that a stage begins in, and the one where its result is."""
    moved = s.transfer
    if moved is None:
        lane = s.lane
        here = _lane(lane, s, at) if lane[0] == "cpu" or lane in at else next((i for (d, _), i in at.items() if d == lane[0]), 0)
        return here, here
    return _end(moved.source, moved.lane, s, at), _end(moved.target, moved.lane, s, at)


def _depths(trace: Trace) -> list[tuple[Group, int]]:
    """How many groups of its thread each one lies in."""
    found = []
    open_: dict[int, list[Any]] = {}
    for g in sorted(trace.groups, key=lambda g: (g.start, -g.end)):
        stack = open_.setdefault(g.thread, [])
        while stack and stack[-1].end <= g.start:
            stack.pop()
        found.append((g, len(stack)))
        stack.append(g)
    return found


def _thinned(curve: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """A curve of few points that keeps its peaks: of each stretch the highest."""
    if len(curve) <= _MOST_CURVE:
        return curve
    step = len(curve) / _MOST_CURVE
    return [max(curve[int(i * step):int((i + 1) * step)], key=lambda p: p[1]) for i in range(_MOST_CURVE)]
