"""Graphs of simulated GPUs: work that a stream was given while it was captured, not done then, and queued again as one item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .queues import Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .clock import Engine
    from .queues import Queue


class Graph:
    """What was captured: `items`, in the host's order, which is one in which they may run; `cost`, its predicted seconds. open: it is being captured,
    on `streams`: the first, and those that waited for an event of one of them.  seen: for each of these streams how many items of each come before what it
    is given next."""

    __slots__ = ("items", "cost", "busy", "open", "streams", "seen", "joined")

    def __init__(self, stream: Queue) -> None:
        self.items: list[Any] = []
        self.cost = self.busy = 0.0
        self.open = True
        self.streams = [stream]
        self.seen: dict[Queue, dict[Queue, int]] = {stream: {}}
        self.joined = True

    def add(self, stream: Queue, item: Any, cost: float, busy: float, engines: tuple[Engine, ...]) -> None:
        self.items.append(item)
        own = self.seen[stream]
        own[stream] = own.get(stream, 0) + 1
        self.cost += cost
        self.busy += busy

    def join(self, stream: Queue, seen: Mapping[Queue, int]) -> None:
        """What this stream is given comes after these items from now on; another stream's work is captured too."""
        if stream.graph is not self:
            stream.graph = self
            self.streams.append(stream)
        own = self.seen.setdefault(stream, {})
        for q, count in seen.items():
            own[q] = max(own.get(q, 0), count)

    def end(self) -> None:
        """Nothing is captured any more.  joined: whether the first stream waited for all work of the others."""
        self.open = False
        first = self.seen[self.streams[0]]
        self.joined = all(own.get(q, 0) <= first.get(q, 0) for q, own in self.seen.items())
        self.seen.clear()
        for q in self.streams:
            q.graph = None
        self.streams.clear()


class Replay:
    """A queued graph.  changed: arguments of launches, by their places among the items, that are others this time."""

    __slots__ = ("graph", "changed", "check", "name", "site")
    queue: Queue | None = None

    def __init__(self, graph: Graph, changed: Mapping[int, tuple[Any, ...]], check: Callable[[Launch], None]) -> None:
        self.graph, self.changed, self.check, self.name = graph, changed, check, "graph"
        self.site: tuple[str, int] | None = None

    def run(self) -> None:
        for i, item in enumerate(self.graph.items):
            if i in self.changed:
                item = Launch(item.prepared, self.changed[i], item.site)
            self.name = item.name  # of what fails
            if type(item) is Launch:
                self.site = item.site
                self.check(item)
            item.run()
        self.name = "graph"
