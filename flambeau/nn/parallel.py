"""Data parallelism in one process: scatter a batch, replicate a module, run the copies on their devices, gather.

`DataParallel` does the four. Scatter, gather and the copies are steps of the tape, so gradients come back to the one
module: gather's backward scatters, scatter's gathers, and a replicated parameter's sums the gradients of its copies.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeVar

from .._core import errors, ops
from .._core.autograd.function import Function
from .._core.runtime.asking import unasked
from .._core.runtime.device import device as Device
from .._core.tensor import Tensor
from ..autograd import is_grad_enabled, set_grad_enabled
from .distributed import DistributedDataParallel
from .module import Module

M = TypeVar("M", bound=Module)


def _device(where: Any) -> Device:
    """A device from a device, its name, or a GPU's number; -1 is the CPU."""
    if isinstance(where, int) and not isinstance(where, bool):
        return Device("cpu") if where == -1 else Device("cuda", where)
    return Device(where)


# -- the four steps
# ------------------------------------------------------------------------------------------------------


def _pieces(size: int, count: int) -> list[int]:
    """Sizes of at most `count` pieces, as `chunk` cuts them: equal but for the last, and none empty."""
    each = max(-(-size // count), 1)
    return [min(each, size - start) for start in range(0, size, each)] or [0]


class Scatter(Function):
    """Cuts a tensor along a dimension, one piece for each device."""

    @staticmethod
    def forward(ctx: Any, target_gpus: Sequence[Any], chunk_sizes: Any, dim: int, input: Any) -> Any:
        ctx.where, ctx.dim = input.device, dim
        sizes = _pieces(input.shape[dim], len(target_gpus)) if chunk_sizes is None else list(chunk_sizes)
        parts = []
        start = 0
        for where, size in zip(target_gpus, sizes):
            part = input.narrow(dim, start, size)
            moved = unasked(part.to)(_device(where), non_blocking=True)
            parts.append(moved if moved is not part else part.clone())
            start += size
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, None, Gather.apply(ctx.where, ctx.dim, *grads)


class Gather(Function):
    """Joins tensors of several devices along a dimension, on one device; 0-dim ones become a vector."""

    @staticmethod
    def forward(ctx: Any, target_device: Any, dim: int, *inputs: Any) -> Any:
        target = _device(target_device)
        ctx.dim, ctx.where = dim, [i.device for i in inputs]
        ctx.scalars = all(i.dim() == 0 for i in inputs)
        if ctx.scalars:

            errors.warn("Was asked to gather along dimension 0, but all input tensors were scalars; will instead "
                 "unsqueeze and return a vector.")
            inputs = tuple(i.view(1) for i in inputs)
            ctx.dim = 0
        ctx.sizes = [i.shape[ctx.dim] for i in inputs]
        return ops.cat([unasked(i.to)(target) for i in inputs], ctx.dim)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        parts = Scatter.apply(ctx.where, ctx.sizes, ctx.dim, grad)
        if ctx.scalars:
            parts = tuple(p[0] for p in parts)
        return None, None, *parts


class Broadcast(Function):
    """Copies tensors to several devices; backward sums the copies' gradients on the first tensor's device."""

    @staticmethod
    def forward(ctx: Any, target_gpus: Sequence[Any], *inputs: Any) -> Any:
        ctx.where = [i.device for i in inputs]
        ctx.copies = len(target_gpus)
        out = []
        for target in target_gpus:
            where = _device(target)
            for i in inputs:
                moved = unasked(i.to)(where, non_blocking=True)
                out.append(moved if moved is not i else i.view(i.shape))
        ctx.mark_non_differentiable(*(o for n, o in enumerate(out) if not inputs[n % len(inputs)].requires_grad))
        return tuple(out)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        count = len(ctx.where)
        totals: list[Any] = []
        for i, where in enumerate(ctx.where):
            total = None
            # In the order of the devices, so that the sum is the same each time.
            for copy in range(ctx.copies):
                grad = grads[copy * count + i]
                if grad is not None:
                    grad = unasked(grad.to)(where)
                    total = grad if total is None else total + grad
            totals.append(total)
        return None, *totals


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Cuts every tensor in nested tuples, lists and dictionaries, and repeats everything else, once for each device.

    Returns as many structures as the smallest tensor has pieces: a batch too small gives fewer than there are devices.
    """
    def spread(value: Any) -> Any:
        if isinstance(value, Tensor):
            return Scatter.apply([_device(g) for g in target_gpus], None, dim, value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return [type(value)(*args) for args in zip(*map(spread, value))]
        if isinstance(value, tuple) and value:
            return list(zip(*map(spread, value)))
        if isinstance(value, list) and value:
            return [list(i) for i in zip(*map(spread, value))]
        if isinstance(value, dict) and value:
            return [type(value)(i) for i in zip(*map(spread, value.items()))]
        return [value for _ in target_gpus]

    return spread(inputs)


def scatter_kwargs(inputs: Any, kwargs: dict[str, Any] | None, target_gpus: Sequence[Any],
                   dim: int = 0) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """`scatter` of positional and keyword arguments, as many of each."""
    args = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    if len(args) < len(named):
        args = [*args, *(() for _ in range(len(named) - len(args)))]
    elif len(named) < len(args):
        named = [*named, *({} for _ in range(len(args) - len(named)))]
    return tuple(args), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Joins the outputs of several devices on `target_device`: tensors along `dim`, containers entry by entry."""
    first = outputs[0]
    if isinstance(first, Tensor):
        return Gather.apply(target_device, dim, *outputs)
    if first is None:
        return None
    if isinstance(first, dict):
        if not all(len(first) == len(d) for d in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((k, gather([d[k] for d in outputs], target_device, dim)) for k in first)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)._make(gather(list(o), target_device, dim) for o in zip(*outputs))  # type: ignore[attr-defined]
    if isinstance(first, tuple | list):
        return type(first)(gather(list(o), target_device, dim) for o in zip(*outputs))
    raise TypeError(f"gather: outputs must be tensors, None, or tuples, lists and dicts of them, got "
                    f"{type(first).__name__}")


def replicate(network: M, devices: Sequence[Any], detach: bool = False) -> list[M]:
    """Copies of a module, one for each device. Their parameters are steps of the tape behind the module's own, so that
    gradients arrive there; with `detach` they are plain tensors. On the module's own device the copy shares memory."""
    devices = [_device(d) for d in devices]
    parameters = list(network.parameters())
    buffers = list(network.buffers())
    with_grad = is_grad_enabled() and not detach
    copied = Broadcast.apply(devices, *parameters) if parameters and with_grad else None
    modules = list(network.modules())
    index = {id(m): i for i, m in enumerate(modules)}
    made: list[M] = []
    for n, where in enumerate(devices):
        tensors: dict[int, Any] = {}
        for i, p in enumerate(parameters):
            tensors[id(p)] = copied[n * len(parameters) + i] if copied is not None else unasked(p.detach().to)(where)
        for b in buffers:
            tensors[id(b)] = b if b.device == where else unasked(b.detach().to)(where)
        copies: list[Any] = []
        for module in modules:
            copies.append(module._replicate_for_data_parallel())
        for module, copy in zip(modules, copies):
            slots = copy.__dict__
            slots["_modules"] = {k: None if m is None else copies[index[id(m)]] for k, m in module._modules.items()}
            slots["_buffers"] = {k: None if b is None else tensors[id(b)] for k, b in module._buffers.items()}
            # Not Parameters any more, but results: so the copy holds them as plain attributes by the same names.
            for name, own in module._parameters.items():
                value = None if own is None else tensors[id(own)]
                slots[name] = value
                slots["_former_parameters"][name] = value
        made.append(copies[0])
    return made


def parallel_apply(modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Sequence[dict[str, Any]] | None = None,
                   devices: Sequence[Any] | None = None) -> list[Any]:
    """Calls each module on its input, each in a thread of its own with its device current; results in order.

    An exception in one of them is raised here, its message naming the replica and the device.
    """
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    named = list(kwargs_tup) if kwargs_tup is not None else [{}] * len(modules)
    places = [None if d is None else _device(d) for d in devices] if devices is not None else [None] * len(modules)
    if not len(modules) == len(named) == len(places):
        raise AssertionError("The numbers of modules, keyword dictionaries and devices must be the same")
    grad = is_grad_enabled()
    results: list[Any] = [None] * len(modules)
    failed: list[BaseException | None] = [None] * len(modules)

    line = errors.site()

    def run(i: int) -> None:
        errors.thread.site = line
        args = inputs[i] if isinstance(inputs[i], list | tuple) else (inputs[i],)
        where = places[i] if places[i] is not None else _first_device(args)
        try:
            with set_grad_enabled(grad):
                if where is not None and where.type == "cuda":
                    from ..cuda import device as on_device

                    with on_device(where):
                        results[i] = modules[i](*args, **named[i])
                else:
                    results[i] = modules[i](*args, **named[i])
        except Exception as error:
            error.args = (f"Caught {type(error).__name__} in replica {i} on device {where}.\n{error}",)
            failed[i] = error

    if len(modules) == 1:
        run(0)
    else:
        threads = [threading.Thread(target=run, args=(i,), name=f"replica-{i}") for i in range(len(modules))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in failed:
        if error is not None:
            raise error
    return results


def _first_device(value: Any) -> Device | None:
    if isinstance(value, Tensor):
        return value.device
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for item in items:
        found = _first_device(item)
        if found is not None:
            return found
    return None


# -- together
# ------------------------------------------------------------------------------------------------------------


def _all_devices() -> list[Device]:
    from .. import cuda

    return [Device("cuda", i) for i in range(cuda.device_count())]


class DataParallel(Module):
    """Runs `module` on several GPUs, each on its part of the batch.

    Args:
        module: the module, on `device_ids[0]`.
        device_ids: GPUs (numbers or devices); None for all of them.
        output_device: where the outputs are gathered; `device_ids[0]` if None.
        dim: the batch's dimension.

    Without a GPU it calls the module as it is. A batch with fewer samples than devices uses fewer devices. Raises
    RuntimeError if a parameter or buffer is not on `device_ids[0]`.
    """

    def __init__(self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None,
                 dim: int = 0) -> None:
        super().__init__()
        found = _all_devices() if device_ids is None else [_device(d) for d in device_ids]
        self.module = module
        self.dim = dim
        self.device_ids: list[Any] = []
        if not found:
            return
        if output_device is None:
            output_device = found[0]
        self.device_ids = [d.index for d in found]
        self.output_device = _device(output_device).index if _device(output_device).type == "cuda" else output_device
        self.src_device_obj = found[0]
        if len(found) == 1:
            unasked(self.module.to)(self.src_device_obj)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        for name, tensor in [*self.module.named_parameters(), *self.module.named_buffers()]:
            if tensor.device != self.src_device_obj:
                raise RuntimeError(f"module must have its parameters and buffers on device {self.src_device_obj} "
                                   f"(device_ids[0]) but found one of them on device: {tensor.device} ({name})")
        args, named = self.scatter(inputs, kwargs, self.device_ids)
        if not args and not named:
            # no arguments at all: the module is called once
            args, named = ((),), ({},)
        if len(self.device_ids) == 1:
            return self.module(*args[0], **named[0])
        used = self.device_ids[:len(args)]
        replicas = self.replicate(self.module, used)
        outputs = self.parallel_apply(replicas, args, named)
        return self.gather(outputs, self.output_device)

    def replicate(self, module: Module, device_ids: Sequence[Any]) -> list[Module]:
        """`replicate`, without gradients where they are off."""
        return replicate(module, device_ids, not is_grad_enabled())

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Sequence[Any]) -> Any:
        """`scatter_kwargs` along the batch."""
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def parallel_apply(self, replicas: Sequence[Module], inputs: Any, kwargs: Any) -> list[Any]:
        """`parallel_apply` on the devices used."""
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[:len(replicas)])

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """`gather` along the batch."""
        return gather(outputs, output_device, self.dim)


def data_parallel(module: Module, inputs: Any, device_ids: Sequence[Any] | None = None, output_device: Any = None,
                  dim: int = 0, module_kwargs: dict[str, Any] | None = None) -> Any:
    """One call of `module` in parallel, as `DataParallel` does it."""
    args = inputs if isinstance(inputs, tuple) else (inputs,) if inputs is not None else ()
    made = DataParallel(module, device_ids, output_device, dim)
    made.training = module.training
    return made(*args, **(module_kwargs or {}))


__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter", "scatter_kwargs"]
