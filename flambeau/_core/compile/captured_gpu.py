"""`capture` on a GPU: the work of a function as a graph of the GPU's driver, on arguments of the graph's own, which each call fills."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

from .. import layout
from ..autograd import mode
from ..runtime import dispatch, gpus
from ..runtime.streams import Stream
from ..tensor import Storage, Tensor, alias, empty, storage
from . import trees
from .graphs import Graph, PrivatePool
from .owners import Living
from .record import LEAST

if TYPE_CHECKING:
    from ..runtime.device import device


class _Own:
    """Which storages are the graph's own, by whether their memory is of its pool; copies of those are what a call gives."""

    def __init__(self, pool: PrivatePool) -> None:
        self.starts = {address for address, _ in pool.blocks}

    def holds(self, s: Storage) -> bool:
        return s.ptr in self.starts


class GpuCaptured:
    """A function captured for arguments of one layout: ``f(*tensors)``, tensors of that layout on the GPU.

    work: calls the function with tensors in the places of those given.  dev: the GPU.
    """

    def __init__(self, work: Callable[[list[Tensor]], Any], given: list[Tensor], dev: device) -> None:
        self.lock = Lock()
        self.device = dev
        self.inputs = [self._room(t) for t in given]
        self._fill(given)
        pool = PrivatePool()
        before = Living()
        versions = [(s, s.version) for s in before]
        gpus.synchronize(self.device)
        self.last = Stream(self.device)
        shown: list[Tensor] = []
        with self.last:
            self.graph = graph = Graph(pool)
            try:
                self.tree = trees.taken(work(self.inputs), shown)
            except BaseException:
                graph.close()
                raise
            graph.end()
        for t in shown:
            if not t.meta.plain:
                raise RuntimeError(f"capture: a result of class {type(t).__name__}, which is not a plain tensor")
        mine = {id(t.store): i for i, t in enumerate(self.inputs)}
        # whose memory it touches lives as long as the graph
        self.kept = {id(s): s for args in graph.arguments for x in args if type(x) is int and x >= LEAST and (s := before.find(x)) is not None}
        self.written = [(s, s.version - v) for s, v in versions if s.version != v and id(s) not in mine]
        self.back = [mine[id(s)] for s, v in versions if s.version != v and id(s) in mine]
        own = _Own(pool)
        self.stores = {id(t.store): t.store for t in shown if own.holds(t.store)}
        self.shown = [(t.meta, t.store, t.ptr, mine.get(id(t.store))) for t in shown]

    def _room(self, t: Tensor) -> Tensor:
        """Memory of the graph's own for an argument of this layout."""
        m = t.meta
        if layout.overlaps_itself(m.shape, m.strides):
            raise RuntimeError("capture: an argument on a GPU whose elements share memory; pass it contiguous")
        low, high = layout.extent(m.shape, m.strides)
        flat = empty((high - low + 1,), m.dtype, m.device)
        return alias(flat, m, flat.ptr)

    def _fill(self, given: Any) -> None:
        with mode.no_grad():
            for own, t in zip(self.inputs, given, strict=True):
                if t.store is not own.store:
                    own.copy_(t)

    def __call__(self, *given: Tensor) -> Any:
        with self.lock, mode.no_grad():
            now: Any = gpus.current_stream(self.device)
            if now._handle is not self.last._handle:  # the graph's memory is one replay's at a time
                now.wait_stream(self.last)
                self.last = now
            self._fill(given)
            self.graph.replay()
            made: dict[int, Storage] = {}
            for n, s in self.stores.items():
                made[n] = fresh = storage(s.meta)
                if s.meta.nbytes:
                    dispatch.copy(self.device, fresh.ptr, self.device, s.ptr, s.meta.nbytes, blocking=False)
            for i in self.back:
                given[i].copy_(self.inputs[i])
            for s, count in self.written:
                s.version += count

            def leaf(i: int) -> Tensor:
                m, s, ptr, number = self.shown[i]
                if number is not None:  # an argument, or a view of one
                    t = given[number]
                    return alias(t, m, t.ptr + ptr - self.inputs[number].ptr)
                t = object.__new__(Tensor)
                found = made.get(id(s))
                t.meta, t.store, t.ptr, t.node, t.base = m, s if found is None else found, ptr if found is None else found.ptr + ptr - s.ptr, None, None
                return t
            return trees.put(self.tree, leaf)
