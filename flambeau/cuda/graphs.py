"""CUDA graphs: work of a stream captured once and queued again as one item (torch.cuda.CUDAGraph)."""

from __future__ import annotations

import itertools
from typing import Any
from weakref import WeakValueDictionary

from .._core.compile import graphs
from .._core.runtime import gpus
from .._core.runtime.streams import Stream
from .._core.tensor import Tensor
from .memory import empty_cache

_numbers = itertools.count(1)
_pools: WeakValueDictionary[tuple[int, ...], graphs.PrivatePool] = WeakValueDictionary()


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory that graphs share: for `CUDAGraph.capture_begin` and `graph`."""
    return 0, next(_numbers)


def is_current_stream_capturing() -> bool:
    """Whether the current stream is being captured into a graph."""
    found = gpus.system()
    if found is None or not found.started:
        return False
    stream = gpus.current_stream()
    return bool(stream._gpu.driver.capturing(stream._handle))


class CUDAGraph:
    """Work captured from a stream: it is not done then, but at each `replay`, on the memory that it had.

    Tensors that were made meanwhile lie in memory of the graph's own, which each replay writes; what goes in is copied into tensors that were there.
    Draws are new at each replay, an optimizer's numbers too (Adam, AdamW, SGD), index checks stay.  What would make the host wait, and copies of memory that
    is not pinned, raise AcceleratorError with the line.  keep_graph is accepted.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph: graphs.Graph | None = None
        self._capturing = False
        self._pool: tuple[int, int] | None = None

    def capture_begin(self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global") -> None:
        """Captures the current stream from now on.  pool: a `graph_pool_handle`, or another graph's `pool()`, whose memory is shared.

        Raises RuntimeError on the default stream, and where something is being captured already.
        """
        if capture_error_mode not in ("global", "thread_local", "relaxed"):
            raise RuntimeError(f'Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}')
        if self._graph is not None:
            raise RuntimeError("This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance.")
        name = graph_pool_handle() if pool is None else pool
        memory = _pools.get(name) or graphs.PrivatePool()
        self._graph = graphs.Graph(memory)
        _pools[name] = memory
        self._pool, self._capturing = name, True

    def capture_end(self) -> None:
        """Ends the capture."""
        if self._graph is None or not self._capturing:
            raise RuntimeError("capture_end: no capture of this graph is under way")
        try:
            self._graph.end()
        except BaseException:
            self._graph = None
            raise
        finally:
            self._capturing = False

    def instantiate(self) -> None:
        """There is nothing to make: a graph can be replayed once its capture has ended."""

    def replay(self) -> None:
        """Queues the work on the current stream."""
        if self._graph is None or self._capturing:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        self._graph.replay()

    def reset(self) -> None:
        """Forgets the work, and gives its memory back once no tensor lies in it."""
        if self._capturing:
            self._abandon()
        self._graph = None

    def _abandon(self) -> None:
        """Ends a capture that failed."""
        found, self._graph, self._capturing = self._graph, None, False
        if found is not None:
            found.close()

    def pool(self) -> tuple[int, int]:
        """The name of the graph's memory."""
        if self._pool is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def enable_debug_mode(self) -> None:
        """Accepted."""

    def debug_dump(self, debug_path: str) -> None:
        """Writes the names of the graph's launches, one a line."""
        if self._graph is None:
            raise RuntimeError("debug_dump: there is no captured graph")
        with open(debug_path, "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in self._graph.names)


class graph:
    """A ``with`` block whose work goes into `cuda_graph`, on a stream of its own (or `stream`)."""

    default_capture_stream: Stream | None = None

    def __init__(self, cuda_graph: CUDAGraph, pool: tuple[int, int] | None = None, stream: Stream | None = None,
                 capture_error_mode: str = "global") -> None:
        if not isinstance(cuda_graph, CUDAGraph):
            raise TypeError(f"graph: expected a CUDAGraph, got {type(cuda_graph).__name__}")
        self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, pool, capture_error_mode
        self.capture_stream = Stream() if stream is None else stream

    def __enter__(self) -> None:
        gpus.synchronize()
        empty_cache()  # memory that is free cannot be had of other streams while this one is captured
        self.capture_stream.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.capture_stream.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            if exc[0] is None:
                self.cuda_graph.capture_end()
            else:
                self.cuda_graph._abandon()
        finally:
            self.capture_stream.__exit__()


def _tensors(x: Any, name: str) -> tuple[Tensor, ...]:
    """The tensors of a tuple or list of them, or one."""
    found = (x,) if isinstance(x, Tensor) else tuple(x)
    for t in found:
        if not isinstance(t, Tensor):
            raise TypeError(f"make_graphed_callables: {name} may hold tensors alone, got {type(t).__name__}")
    return found


def make_graphed_callables(callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False,
                           pool: tuple[int, int] | None = None) -> Any:
    """Functions or Modules whose forward and backward are graphs: a call copies its arguments in, and gives what the graph's memory then holds.

    callables: one, or a tuple of those that run in this order.  sample_args: for each a tuple of tensors, of the layouts and with the `requires_grad` of
    the arguments to come.  A Module comes back itself, with another `forward` for the mode (`training`) it was in.
    Raises TypeError for other arguments, RuntimeError for a Module with hooks or buffers that require grad.
    """
    many = isinstance(callables, tuple)
    those = callables if many else (callables,)
    samples = sample_args if many else (sample_args,)
    if len(those) != len(samples):
        raise TypeError(f"make_graphed_callables: {len(those)} callables and {len(samples)} tuples of arguments")
    pool = graph_pool_handle() if pool is None else pool
    made = [_Graphed(f, _tensors(args, "sample_args"), num_warmup_iters, allow_unused_input) for f, args in zip(those, samples, strict=True)]
    for one in made:
        one.capture_forward(pool)
    for one in reversed(made):
        one.capture_backward(pool)
    found = tuple([one.result() for one in made])
    return found if many else found[0]


class _Graphed:
    """One callable's two graphs."""

    def __init__(self, f: Any, args: tuple[Tensor, ...], warmup: int, allow_unused: bool) -> None:
        from ..nn.module import Module
        self.f, self.args, self.unused = f, args, allow_unused
        self.module = isinstance(f, Module)
        if self.module:
            if f._backward_hooks or f._forward_hooks or f._forward_pre_hooks:
                raise RuntimeError("Modules must not have hooks registered at the time they are passed. However, registering hooks on modules after "
                                   "passing them through make_graphed_callables is allowed.")
            if any(b.requires_grad for b in f.buffers()):
                raise RuntimeError("In any :class:`~torch.nn.Module` passed to :func:`~make_graphed_callables`, only parameters may be trainable. "
                                   "All buffers must have ``requires_grad=False``.")
        self.inputs = (*args, *(f.parameters() if self.module else ()))
        self.needs = [t for t in self.inputs if t.requires_grad]
        gpus.synchronize()
        with Stream():
            for _ in range(warmup):
                self._gradients(_tensors(f(*args), "the result"), None)
        gpus.synchronize()

    def _gradients(self, outputs: tuple[Tensor, ...], given: tuple[Tensor, ...] | None) -> Any:
        from ..autograd import grad
        outs = [t for t in outputs if t.requires_grad]
        if not outs or not self.needs:
            return ()
        seeds = [t.new_ones(t.shape) for t in outs] if given is None else given
        return grad(outs, self.needs, seeds, allow_unused=self.unused, retain_graph=False)

    def capture_forward(self, pool: tuple[int, int]) -> None:
        self.forward, self.backward = CUDAGraph(), CUDAGraph()
        with graph(self.forward, pool):
            result = self.f(*self.args)
        self.kind = None if isinstance(result, Tensor) else type(result)
        self.outputs = _tensors(result, "the result")

    def capture_backward(self, pool: tuple[int, int]) -> None:
        self.seeds = tuple([t.detach().new_zeros(t.shape) for t in self.outputs if t.requires_grad])
        with graph(self.backward, pool):
            found = iter(self._gradients(self.outputs, self.seeds))
        self.gradients = [next(found, None) if t.requires_grad else None for t in self.inputs]
        self.outputs = tuple([t.detach() for t in self.outputs])

    def result(self) -> Any:
        """What is called in the place of the callable."""
        from .._core.autograd.function import Function
        own = self

        class Graphed(Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> Any:
                for mine, given in zip(own.args, inputs, strict=False):
                    if mine.data_ptr() != given.data_ptr():
                        mine.detach().copy_(given.detach())
                own.forward.replay()
                return tuple([t.detach() for t in own.outputs])

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                for mine, given in zip(own.seeds, grads, strict=False):
                    mine.copy_(given)
                own.backward.replay()
                return tuple([None if g is None else g.detach() for g in own.gradients])
        parameters = self.inputs[len(self.args):]

        def call(*args: Any) -> Any:
            found = Graphed.apply(*_tensors(args, "the arguments"), *parameters)
            return found[0] if own.kind is None else found if own.kind is tuple else own.kind(found)
        if not self.module:
            return call
        module, training, before = self.f, self.f.training, self.f.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs) if module.training == training else before(*args, **kwargs)
        module.forward = forward
        return module
