"""Graphs of a GPU: a stream's work captured by its driver, with memory of its own and numbers that are others at each replay."""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..drivers.interface import NOT_PERMITTED
from ..errors import AcceleratorError
from ..runtime import capture, gpus, memory, provenance
from ..runtime.gpu_memory import rounded
from .owners import Living
from .record import Recording, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..drivers.interface import Driver
    from ..runtime.gpus import Gpu
    from ..runtime.streams import Stream


class _Back:
    """Takes blocks of one size back into the memory of graphs."""

    __slots__ = ("pool", "size")

    def __init__(self, pool: PrivatePool, size: int) -> None:
        self.pool, self.size = pool, size

    def append(self, address: int) -> None:
        self.pool.free.setdefault(self.size, []).append(address)


class PrivatePool:
    """Memory of one or more graphs: what is given back while they are captured is given out again to them and to nobody else. It goes back to the GPU
    when no graph and no tensor needs it any more."""

    def __init__(self) -> None:
        self.free: dict[int, list[int]] = {}
        self.blocks: list[tuple[int, Any]] = []
        self.handles: list[Any] = []  # the streams that were captured, whose blocks these are
        self.users: dict[Any, Stream] = {}  # those on which graphs were replayed
        weakref.finalize(self, _given_back, self.blocks, self.handles, self.users).atexit = False

    def taker(self, g: Gpu, handle: Any, otherwise: Callable[[int], tuple[int, Any]]) -> Callable[[int], tuple[int, Any]]:
        """What this thread's requests are served by; those of others are served as before."""
        me = get_ident()

        def take(nbytes: int) -> tuple[int, Any]:
            if get_ident() != me:
                return otherwise(nbytes)
            size = rounded(nbytes)
            free = self.free.get(size)
            if free:
                return free.pop(), _Back(self, size)
            address, back = g.pool.take(handle, size)
            self.blocks.append((address, back))
            return address, _Back(self, size)
        return take


def _given_back(blocks: list[tuple[int, Any]], handles: list[Any], users: dict[Any, Stream]) -> None:
    """The memory of graphs goes back to the streams that it was taken on; whoever takes it next comes after the replays."""
    for handle, stream in users.items():
        driver = stream._gpu.driver
        mark = driver.event_create()
        driver.event_record(mark, handle)
        for own in handles:
            if own is not handle:
                driver.stream_wait_event(own, mark)
    for address, back in blocks:
        back.append(address)


class GpuRecording(Recording):
    """What is noted while a driver captures a graph: the sources of numbers.  Work of the host is done, and is no part of the graph."""

    def __init__(self, driver: Driver, graph: Any) -> None:
        super().__init__()
        self.driver, self.graph, self.names = driver, graph, list[str]()

    def _begin(self) -> None:
        self.before = Living([])

    def refuse(self, why: str) -> None:
        line = provenance.caller()
        raise AcceleratorError(f"{NOT_PERMITTED}: {why}" + (f" (at {line})" if line else ""))

    def read(self, address: int, nbytes: int, check: bool) -> None:
        pass

    def write(self, address: int, data: Any) -> None:
        pass

    def draw(self, generator: Any, count: int) -> tuple[int, int]:
        if generator.device.type == "cpu":
            return self.real(generator, count)
        # nothing is drawn now: the numbers only have to be known again
        return self._source(lambda: generator.take(count), (self.number(), self.number()), False)

    def numbers(self, values: tuple[Any, ...], again: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        first: list[tuple[Any, ...]] = [values]  # nothing runs while it is captured: the first replay is this step
        return self._source(lambda: first.pop() if first else again(), values, True)

    def _launched(self, dev: Any, stream: Any, prepared: Any, args: tuple[Any, ...]) -> Any:
        if get_ident() != self.thread or dev.type != "cuda":
            return None
        self.names.append(prepared.name)
        return lambda: self.driver.graph_launched(self.graph, stream._handle, prepared, args)

    def _copied(self, copy: Any) -> None:
        if get_ident() == self.thread and "cuda" in (copy.source.type, copy.target.type) and (copy.blocking or copy.path in ("staged", "pageable", "host")):
            self.refuse(f"a copy from {copy.source} to {copy.target} for which the host waits, or whose memory is not pinned")


class Graph:
    """A graph being captured from the current stream, and then one to replay: `changing`, the arguments that are others each time."""

    def __init__(self, pool: PrivatePool, recording: type[GpuRecording] = GpuRecording) -> None:
        stream = gpus.current_stream()
        g = self.gpu = stream._gpu
        if stream._handle is g.default_handle:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the "
                               "default stream.)")
        if get_ident() in capture.active:
            raise RuntimeError("a capture of this thread is under way already")
        self.pool, self.sources = pool, list[Source]()
        pool.handles.append(stream._handle)
        self.changing: dict[int, list[tuple[int, Any]]] = {}
        self.arguments: list[tuple[Any, ...]] = []
        self.driver_graph = g.driver.graph_begin(stream._handle)
        self.recording = recording(g.driver, self.driver_graph)
        self.recording.__enter__()
        self._before = memory.takes.get(g.device)
        memory.takes[g.device] = pool.taker(g, stream._handle, self._before or (lambda nbytes: gpus.block(g.device, nbytes)))

    def close(self) -> None:
        """Captures nothing any more."""
        if self._before is None:
            memory.takes.pop(self.gpu.device, None)
        else:
            memory.takes[self.gpu.device] = self._before
        self.recording.close()
        self.gpu.driver.graph_end(self.driver_graph)

    def end(self) -> None:
        """Ends the capture."""
        self.close()
        self.sources, self.names = self.recording.sources, self.recording.names
        self.arguments = self.gpu.driver.graph_arguments(self.driver_graph)
        seen = set()
        for i, args in enumerate(self.arguments):
            slots = [(k, slot) for k, x in enumerate(args) if (slot := self.recording.slot(x)) is not None]
            if slots:
                self.changing[i] = slots
                seen |= {slot.source for _, slot in slots}
        if len(seen) < len(self.sources):
            raise RuntimeError("graph: numbers were drawn or worked out anew that are passed to no launch as they are")
        del self.recording

    def replay(self) -> None:
        """Queues the work on the current stream of the graph's GPU."""
        values = [source.take() for source in self.sources]
        changed = {}
        for i, slots in self.changing.items():
            args = list(self.arguments[i])
            for k, slot in slots:
                args[k] = values[slot.source][slot.part]
            changed[i] = tuple(args)
        stream: Stream = gpus.current_stream(self.gpu.device)
        self.gpu.driver.graph_launch(stream._handle, self.driver_graph, changed)
        self.pool.users[stream._handle] = stream
