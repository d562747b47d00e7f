"""What a trace says in short: for each device how long it worked, moved bytes and stood still; the costliest lines and operations; the most memory,
and what held it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .record import Trace
    from .stages import Stage, Work

Span = tuple[float, float]


class Busy(NamedTuple):
    """One device's time, in seconds of the trace's clock: `working` kernels (on the CPU: what operations took, waiting left out), `moving` copies
    beside which it did nothing else, `waiting` for another device, and the rest, `idle`; `waits` are (seconds, line, device) of the lines for which
    it waited longest.  predicted: whether a clock's model gave them."""

    device: str
    working: float
    moving: float
    waiting: float
    idle: float
    waits: list[tuple[float, str, str]]
    predicted: bool


class Cost(NamedTuple):
    """What a line or an operation cost: `calls`, `seconds` of devices at work, its `share` of all such seconds, seconds for which the host `waited`,
    bytes `moved` between devices, its costliest `stage`, and whether any of its seconds are `predicted`."""

    name: str
    calls: int
    seconds: float
    share: float
    waited: float
    moved: int
    stage: Stage
    predicted: bool


class Peak(NamedTuple):
    """The most bytes in use on a device: when, how many, what held them as (bytes, count, line or ""), most first, and the `curve` of all moments."""

    device: str
    moment: float
    nbytes: int
    holders: list[tuple[int, int, str]]
    curve: list[tuple[float, int]]


def busy(trace: Trace) -> list[Busy]:
    """One row for each device at work, the CPU first."""
    span = extent(trace)
    works: dict[str, list[Work]] = {}
    for s in trace.stages:
        for w in s.works:
            if w.start is not None and w.end is not None:
                works.setdefault(w.lane[0], []).append(w)
    waits = [(start, end, s, d) for s in trace.stages for d, start, end in s.waits]
    waited = _union((start, end) for start, end, _, _ in waits)
    host = _union((s.start, s.end) for s in trace.stages)
    worst: dict[tuple[str, str], float] = {}
    for start, end, s, d in waits:
        worst[s.line or "", d] = worst.get((s.line or "", d), 0.0) + end - start
    lines = sorted(((t, line, d) for (line, d), t in worst.items()), reverse=True)[:3]
    active = _length(_union([*host, *waited]))
    rows = [Busy("cpu", active - _length(waited), 0.0, _length(waited), max(span - active, 0.0), lines, trace.predicted)]
    for device in sorted((set(works) | {d for d, _, _ in trace.sources.storages}) - {"cpu", "meta"}):
        those = works.get(device, [])
        kernels = _union((w.start or 0.0, w.end or 0.0) for w in those if w.kind == "kernel")
        either = _length(_union((w.start or 0.0, w.end or 0.0) for w in those))
        working = _length(kernels)
        rows.append(Busy(device, working, either - working, 0.0, max(span - either, 0.0), [], trace.devices.get(device, "").endswith(", simulated")))
    return rows


def extent(trace: Trace) -> float:
    """Seconds from the first stage's beginning to the end of all work."""
    ends = [max([s.end, *[w.end for w in s.works if w.end is not None]]) for s in trace.stages]
    return max(ends) - min(s.start for s in trace.stages) if ends else 0.0


def costs(trace: Trace, key: Callable[[Stage], str]) -> list[Cost]:
    """Stages put together by what `key` says of them, the costliest first."""
    found: dict[str, list[tuple[float, Stage]]] = {}
    for s in trace.stages:
        found.setdefault(key(s), []).append((s.seconds or 0.0, s))
    whole = sum(t for those in found.values() for t, _ in those) or 1.0
    rows = []
    for name, those in found.items():
        took = sum(t for t, _ in those)
        rows.append(Cost(name, len(those), took, took / whole, sum(s.waited for _, s in those), sum(s.moved for _, s in those),
                         max(those, key=lambda pair: pair[0])[1], any(s.predicted for _, s in those)))
    return sorted(rows, key=lambda c: (-c.seconds, -c.waited, c.name))


def peaks(trace: Trace) -> list[Peak]:
    """One row for each device on which tensors were made.  A GPU's figures are its allocator's; the CPU's are the tensors that were seen."""
    sources = trace.sources
    rows = []
    for device in sorted(({d for d, _, _ in sources.storages} | set(sources.levels)) - {"meta"}, key=lambda d: (d != "cpu", d)):
        curve = sources.levels.get(device) or sources.living(device)
        moment, most, events = max(curve, key=lambda p: p[1], default=(0.0, 0, 0))
        if not most:
            continue
        held: dict[str, list[int]] = {}
        for i in sources.alive(device, events):
            _, nbytes, stage = sources.storages[i]
            entry = held.setdefault(stage.line or "" if stage is not None else "", [0, 0])
            entry[0] += nbytes
            entry[1] += 1
        holders = sorted(((n, count, line) for line, (n, count) in held.items()), key=lambda h: -h[0])
        rows.append(Peak(device, moment, most, holders[:5], [(t, n) for t, n, _ in curve]))
    return rows


def _union(spans: Iterable[Span]) -> list[Span]:
    """The same moments as spans that do not meet."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _length(spans: list[Span]) -> float:
    return sum(end - start for start, end in spans)
