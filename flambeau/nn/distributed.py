"""`DistributedDataParallel`: one module, trained by several processes on parts of the data."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .._core import ops
from .._core.runtime.asking import unasked
from .._core.runtime.device import device as Device
from .._core.tensor import Tensor
from ..autograd import is_grad_enabled, no_grad
from .module import Module


@dataclass
class _MixedPrecision:
    """`DistributedDataParallel`'s types.  param_dtype: in which parameters are used, and floating inputs are given.  reduce_dtype: in which gradients are
    reduced, param_dtype without.  buffer_dtype: of floating buffers, from the beginning on."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None


class DistributedDataParallel(Module):
    """Runs a module as it is, and averages its gradients over all processes of a group while the backward pass runs.

    module: all its parameters on one device, or each where it is used.  Rank 0's parameters and buffers are given to all at the beginning, its buffers
    before every forward pass too, unless `broadcast_buffers` is False.
    device_ids: the one GPU to which inputs are moved.  process_group: the default one without.  bucket_cap_mb: how much is reduced at once.
    find_unused_parameters: parameters that the loss does not depend on are expected; their gradient is then the mean of the other ranks', or stays as
    it is where no rank used them.  gradient_as_bucket_view: accepted; gradients always are views of buckets.
    mixed_precision: a `_MixedPrecision`: parameters and their gradients stay in their own type, and are used and reduced in others.

    Raises ValueError when `distributed.init_process_group` was not called first, RuntimeError for a module none of whose parameters requires
    grad, or that differs between ranks.  State-dict names begin with "module.".
    """

    module: Module

    def __init__(self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0, broadcast_buffers: bool = True,
                 init_sync: bool = True, process_group: Any = None, bucket_cap_mb: float | None = None, find_unused_parameters: bool = False,
                 check_reduction: bool = False, gradient_as_bucket_view: bool = False, static_graph: bool = False,
                 delay_all_reduce_named_params: Any = None, param_to_hook_all_reduce: Any = None, mixed_precision: Any = None, device_mesh: Any = None,
                 skip_all_reduce_unused_params: bool = False) -> None:
        super().__init__()
        from .. import distributed
        from ..distributed.reducer import Reducer
        from ..distributed.world import of
        for name in ("param_dtype", "reduce_dtype", "buffer_dtype") if mixed_precision is not None else ():
            if not hasattr(mixed_precision, name):
                raise AttributeError(f"DistributedDataParallel: mixed_precision must have param_dtype, reduce_dtype and buffer_dtype, as _MixedPrecision has; "
                                     f"'{type(mixed_precision).__name__}' object has no attribute '{name}'")
            d = getattr(mixed_precision, name)
            if d is not None and not getattr(d, "is_floating_point", False):
                raise TypeError(f"DistributedDataParallel: mixed_precision.{name} must be a floating dtype or None, got {d!r}")
        group = of(process_group)
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        self.module = module
        self.device_ids = None if device_ids is None else [_device(d) for d in device_ids]
        self.output_device = output_device
        self.process_group, self.broadcast_buffers, self.static_graph = group, broadcast_buffers, static_graph
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self.require_backward_grad_sync = True
        self._joined: Any = None
        self.mixed_precision = mixed_precision
        self._param_dtype = getattr(mixed_precision, "param_dtype", None)
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
        self._buffers_sent = [b for n, b in module.named_buffers() if n not in ignored]
        if group.size() > 1 and init_sync:
            self._compare(named)
            self._send([p for _, p in named] + self._buffers_sent)
        trained = [(n, p) for n, p in named if p.requires_grad]
        cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * (1 << 20))
        reduced = getattr(mixed_precision, "reduce_dtype", None) or self._param_dtype
        self._make_reducer: Callable[[], Any] = partial(Reducer, trained, group, max(cap, 1), find_unused_parameters, static_graph)
        # alone, there is something to do only where gradients are rounded, or by a hook
        self.reducer: Any = None
        if group.size() > 1 or reduced is not None:
            self.reducer = self._make_reducer()
        self._distributed = distributed
        self._cast = [(n, p) for n, p in named if self._param_dtype is not None and p.is_floating_point() and p.dtype != self._param_dtype]
        for b in self._buffers_sent:
            if getattr(mixed_precision, "buffer_dtype", None) is not None and b.is_floating_point():
                b.data = b.data.to(mixed_precision.buffer_dtype)
        if reduced is not None:
            from ..distributed.algorithms.ddp_comm_hooks.default_hooks import narrowed
            self.reducer.hook = partial(narrowed, group, d=reduced)

    def _compare(self, named: Sequence[tuple[str, Tensor]]) -> None:
        """Raises RuntimeError on every rank when the modules differ."""
        from ..distributed.objects import every
        mine = [f"{n} {tuple(p.shape)} {p.dtype}{'' if p.requires_grad else ' frozen'}" for n, p in named]
        theirs = every(self.process_group, (zlib.crc32("; ".join(mine).encode()), mine))
        for r, (number, text) in enumerate(theirs):
            if number != theirs[0][0]:
                first = theirs[0][1]
                k = next((i for i, (x, y) in enumerate(zip(first, text)) if x != y), min(len(first), len(text)))
                a, b = (" ".join(names[k:k + 1]) or "not there" for names in (first, text))
                raise RuntimeError(f"DistributedDataParallel: the module differs between ranks: parameter {k} is {a} on rank 0, {b} on rank {r}")

    def _send(self, tensors: Sequence[Tensor], source: int = 0) -> None:
        """Rank `source`'s values on all ranks; tensors of one type and device travel together."""
        from ..distributed import broadcast
        groups: dict[Any, list[Tensor]] = {}
        for t in tensors:
            groups.setdefault((t.dtype, t.device), []).append(t.detach())
        with no_grad():
            for some in groups.values():
                flat = ops.cat([t.reshape(-1) for t in some]) if len(some) > 1 else some[0]
                broadcast(flat, group=self.process_group, group_src=source)
                if len(some) > 1 and self.process_group.rank() != source:
                    for t, part in zip(some, flat.split([t.numel() for t in some])):
                        t.copy_(part.view(t.shape))

    def _begin(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """What goes before a forward pass; gives its arguments, on the module's GPU."""
        if self.device_ids is not None and self.device_ids[0].type != "cpu":
            where = self.device_ids[0]
            inputs, kwargs = of_tensors(inputs, lambda t: unasked(t.to)(where)), of_tensors(kwargs, lambda t: unasked(t.to)(where))
        if self.reducer is not None:
            if self._joined is not None:
                self._joined.another()
            if self.require_backward_grad_sync and self.broadcast_buffers and self._buffers_sent:
                self._send(self._buffers_sent, 0 if self._joined is None else self._joined.source)
            if is_grad_enabled():
                self.reducer.arm(self.require_backward_grad_sync)
        return inputs, kwargs

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._begin(inputs, kwargs)
        if self._param_dtype is None:
            return self.module(*inputs, **kwargs)
        from .utils.stateless import _functional_call
        narrow = partial(cast, d=self._param_dtype)
        # the cast is on the tape: gradients come back in the parameters' own type
        used = {n: p.to(self._param_dtype) for n, p in self._cast}
        return _functional_call(self.module, used, of_tensors(inputs, narrow), of_tensors(kwargs, narrow))

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block in which gradients are added up on each rank alone; the next backward pass outside of it reduces the sums."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Callable[[object, Any], Any]) -> None:
        """Has `hook(state, bucket)` reduce each bucket (`GradBucket`); it gives a future of the reduced flat tensor, and divides by the number of
        processes itself.  Raises TypeError for what cannot be called, RuntimeError the second time."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer is None:
            self.reducer = self._make_reducer()
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        self.reducer.hook = lambda bucket: hook(state, bucket)

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False) -> Any:
        """A block for ranks with different numbers of inputs: those that end first take part in the others' reductions, with nothing of their own.

        throw_on_early_termination: raise RuntimeError on all ranks instead, as soon as one has no input left.
        """
        if not enable or self.reducer is None:
            return contextlib.nullcontext()
        if not divide_by_initial_world_size:
            raise NotImplementedError("DistributedDataParallel.join: divide_by_initial_world_size=False is not there; gradients are divided by all ranks")
        return _Join(self, throw_on_early_termination)

    def _set_static_graph(self) -> None:
        self.static_graph = True
        if self.reducer is not None:
            self.reducer.static = self.reducer.unused = True


class _Join:
    """The block of `DistributedDataParallel.join`."""

    def __init__(self, model: DistributedDataParallel, throw: bool) -> None:
        self.model, self.throw, self.source = model, throw, 0

    def _count(self, active: int) -> list[int]:
        """Which ranks have input; asked before every step by all."""
        from ..distributed.objects import every
        return every(self.model.process_group, active)

    def another(self) -> None:
        """A rank has another input."""
        if self.model.require_backward_grad_sync:
            there = self._count(1)
            self.source = there.index(1)
            if self.throw and 0 in there:
                raise RuntimeError(f"Detected at least one rank that exhausted inputs. Throwing across all ranks. (rank {there.index(0)})")

    def __enter__(self) -> _Join:
        self.model._joined = self
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        model = self.model
        model._joined = None
        if kind is not None:
            return
        last = self.source
        while 1 in (there := self._count(0)):
            last = there.index(1)
            if self.throw:
                raise RuntimeError(f"Detected at least one rank that exhausted inputs. Throwing across all ranks. (rank {model.process_group.rank()})")
            if model.broadcast_buffers and model._buffers_sent:
                model._send(model._buffers_sent, last)
            model.reducer.shadow()
        from ..distributed.objects import every
        model._send(list(model.module.parameters()) + model._buffers_sent, max(every(model.process_group, last)))


def _device(where: Any) -> Device:
    return Device("cuda", where) if isinstance(where, int) else Device(where)


def of_tensors(value: Any, call: Callable[[Tensor], Any]) -> Any:
    """What `call` gives for each tensor inside of tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return call(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[of_tensors(v, call) for v in value])
    if isinstance(value, list | tuple):
        return type(value)(of_tensors(v, call) for v in value)
    if isinstance(value, dict):
        return type(value)((k, of_tensors(v, call)) for k, v in value.items())
    return value


def cast(t: Tensor, d: Any) -> Tensor:
    """A floating tensor in another type."""
    return t.to(d) if t.is_floating_point() and t.dtype != d else t


__all__ = ["DistributedDataParallel"]
