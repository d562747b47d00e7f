"""`capture` on a GPU: the work of a function as a graph of the GPU's driver, on arguments of the graph's own, which each call fills."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

from .. import layout
from ..autograd import mode
from ..errors import AcceleratorError
from ..runtime import dispatch, gpus
from ..runtime.device import CPU
from ..runtime.streams import Stream
from ..tensor import Storage, Tensor, alias, empty, storage
from . import trees
from .graphs import GpuRecording, Graph, PrivatePool
from .owners import Living
from .record import LEAST, Launch

if TYPE_CHECKING:
    from ..runtime.device import device


class _Whole(GpuRecording):
    """A recording of all that a function does: what it learns on the host would be the same at each replay.  elsewhere: where it wrote on other devices."""

    def __init__(self, driver: Any, graph: Any) -> None:
        super().__init__(driver, graph)
        self.gpu, self.elsewhere = gpus.current_stream().device, list[tuple[Any, int]]()

    def _launched(self, dev: Any, stream: Any, prepared: Any, args: tuple[Any, ...]) -> Any:
        if get_ident() == self.thread and dev != self.gpu:
            self.elsewhere += [(dev, x) for x in Launch(dev, stream, prepared, args, None).writes]
        return super()._launched(dev, stream, prepared, args)

    def write(self, address: int, data: Any) -> None:
        self.elsewhere.append((CPU, address))

    def read(self, address: int, nbytes: int, check: bool) -> None:
        if not check:
            self.refuse("Python looks at a tensor's values, which a replay would not do")


def _meet(a: Storage, b: Storage) -> bool:
    """Whether two storages of one GPU have memory in common."""
    return a is b or (a.ptr < b.ptr + b.meta.nbytes and b.ptr < a.ptr + a.meta.nbytes)


class GpuCaptured:
    """A function captured for arguments of one layout: ``f(*tensors)``, tensors of that layout on the GPU.

    work: calls the function with tensors in the places of those given.  dev: the GPU.
    """

    def __init__(self, work: Callable[[list[Tensor]], Any], given: list[Tensor], dev: device) -> None:
        self.lock = Lock()
        self.device = dev
        self.inputs = [self._room(t) for t in given]
        self._fill(given)
        filled = [t.store.version for t in self.inputs]
        pool = PrivatePool()
        before = Living()
        versions = [(s, s.version) for s in before]
        gpus.synchronize(self.device)
        self.last = Stream(self.device)
        shown: list[Tensor] = []
        with self.last:
            self.graph = graph = Graph(pool, _Whole)
            try:
                self.tree = trees.taken(work(self.inputs), shown)
            except BaseException as error:
                if isinstance(error, AcceleratorError) or not isinstance(error, Exception):  # what may not be captured
                    graph.close()
                else:
                    self._failed(given, filled)
                raise
            recording: Any = graph.recording
            elsewhere = recording.elsewhere
            graph.end()
        for t in shown:
            if not t.meta.plain:
                raise RuntimeError(f"capture: a result of class {type(t).__name__}, which is not a plain tensor")
        lived = {id(s) for s in before}
        wrong = [f"a result is made on {t.meta.device}" for t in shown if t.meta.device != dev and id(t.store) not in lived]
        wrong += [f"a tensor is written on {other}" for other, address in elsewhere if before.find(address) is not None]
        if wrong:
            raise RuntimeError(f"capture: {wrong[0]} by a function that works on {dev}, which a graph would not do again")
        mine = {id(t.store): i for i, t in enumerate(self.inputs)}
        # whose memory it touches lives as long as the graph
        self.kept = {id(s): s for args in graph.arguments for x in args if type(x) is int and x >= LEAST and (s := before.find(x)) is not None}
        self.written = [(s, s.version - v) for s, v in versions if s.version != v and id(s) not in mine]
        self.back = [mine[id(s)] for s, v in versions if s.version != v and id(s) in mine]
        for s, count in self.written:
            s.version -= count  # nothing is written yet
        own = {address for address, _ in pool.blocks}  # the graph's memory; copies of what lies there are what a call gives
        changed = {id(s) for s, _ in self.written}
        # memory that an argument may not have: it would be read from the graph's copy, or written there, while the graph works on the memory itself
        self.apart = [Living([s for s in self.kept.values() if id(s) not in mine and (i in self.back or id(s) in changed)]) for i in range(len(given))]
        self.stores = {id(t.store): t.store for t in shown if t.store.ptr in own}
        self.shown = [(t.meta, t.store, t.ptr, mine.get(id(t.store))) for t in shown]

    def _failed(self, given: list[Tensor], filled: list[int]) -> None:
        """Does what the function asked for before it raised.  filled: the versions of the graph's arguments before that."""
        self.graph.end()
        self.graph.replay()
        with mode.no_grad():
            for t, own, version in zip(given, self.inputs, filled, strict=True):
                if own.store.version != version:
                    t.copy_(own)
        gpus.synchronize(self.device)

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

    def _check(self, given: tuple[Tensor, ...]) -> None:
        """Raises RuntimeError where the graph's copies of arguments are not what the function would see."""
        for i, t in enumerate(given):
            if self.apart[i].meets(t.store):
                raise RuntimeError(f"capture: tensor {i} among the arguments shares memory with a tensor that the function uses, and one is written")
        if self.back and any(_meet(given[i].store, t.store) for i in self.back for k, t in enumerate(given) if k != i):
            raise RuntimeError("capture: two of the arguments share memory")

    def __call__(self, *given: Tensor) -> Any:
        self._check(given)
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
