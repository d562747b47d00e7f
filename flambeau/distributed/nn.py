"""Collectives that gradients pass through (torch.distributed.nn).

Each has its adjoint, which runs in the backward pass on all ranks: all_reduce's is all_reduce, broadcast's a reduce to the source, gather's a scatter,
all_gather's a reduce_scatter, all_to_all's the all_to_all back (the transposes of these linear maps).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import ops
from .._core.autograd.function import Function
from .._core.tensor import Tensor
from . import collectives, world
from .collectives import ReduceOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .groups import ProcessGroup


def _sum(t: Tensor, g: ProcessGroup, op: Any = ReduceOp.SUM) -> Tensor:
    found: Tensor = t.detach().contiguous().clone()
    collectives.all_reduce(found, op, g)
    return found


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, g: Any, tensor: Any) -> Any:
        ctx.op, ctx.g = op, g
        return _sum(tensor, g, op)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.g, grad)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, g: Any, tensor: Any) -> Any:
        ctx.src, ctx.g = src, g
        found = tensor.detach().contiguous().clone()
        collectives.broadcast(found, group=g, group_src=src)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.g, grad)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: Any, g: Any, tensor: Any) -> Any:
        ctx.dst, ctx.g = dst, g
        found = tensor.detach().contiguous().clone()
        collectives.reduce(found, op=op, group=g, group_dst=dst)
        return found if g.rank() == dst else found.zero_()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.g, grad)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, g: Any, tensor: Any) -> Any:
        ctx.g = g
        found = tensor.new_empty((g.size(), *tensor.shape))
        collectives.all_gather_into_tensor(found, tensor.detach().contiguous(), g)
        return tuple(found.unbind(0))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.g, *grads)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, g: Any, *tensors: Any) -> Any:
        ctx.g = g
        found = tensors[g.rank()].detach().contiguous().clone()
        collectives.reduce_scatter(found, [t.detach().contiguous() for t in tensors], op, g)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, *_AllGather.apply(ctx.g, grad)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, g: Any, tensor: Any) -> Any:
        ctx.dst, ctx.g = dst, g
        parts = [tensor.detach().new_zeros(tensor.shape) for _ in range(g.size())]
        collectives.gather(tensor.detach().contiguous(), parts if g.rank() == dst else None, group=g, group_dst=dst)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, _Scatter.apply(ctx.dst, ctx.g, *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: int, g: Any, *tensors: Any) -> Any:
        ctx.src, ctx.g = src, g
        found = tensors[0].detach().contiguous().clone()
        collectives.scatter(found, [t.detach().contiguous() for t in tensors] if g.rank() == src else None, group=g, group_src=src)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, *_Gather.apply(ctx.src, ctx.g, grad)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, g: Any, shapes: Any, *tensors: Any) -> Any:
        ctx.g, ctx.shapes = g, [t.shape for t in tensors]
        outs = [tensors[0].detach().new_empty(s) for s in shapes]
        collectives.all_to_all(outs, [t.detach().contiguous() for t in tensors], g)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *_AllToAll.apply(ctx.g, ctx.shapes, *grads)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The tensors of all processes combined, as a new tensor."""
    found: Tensor = _AllReduce.apply(op, world.of(group), tensor)
    return found


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """`all_reduce` whose result process `dst` alone has; zeros elsewhere."""
    g = world.of(group)
    found: Tensor = _Reduce.apply(world.member(g, dst, "dst"), op, g, tensor)
    return found


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process `src`."""
    g = world.of(group)
    found: Tensor = _Broadcast.apply(world.member(g, src, "src"), g, tensor)
    return found


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensor of each process."""
    found: tuple[Tensor, ...] = _AllGather.apply(world.of(group), tensor)
    return found


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensor of each process, at `dst`; zeros elsewhere."""
    g = world.of(group)
    found: tuple[Tensor, ...] = _Gather.apply(world.member(g, dst, "dst"), g, tensor)
    return found


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This process's part of the list that `src` holds; the others give a list of tensors of the same shapes."""
    g = world.of(group)
    found: Tensor = _Scatter.apply(world.member(g, src, "src"), g, *tensors)
    return found


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """This process's part of the lists combined."""
    found: Tensor = _ReduceScatter.apply(op, world.of(group), *input_list)
    return found


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None) -> tuple[Tensor, ...]:
    """From each process the tensor it holds for this one, in the shapes of `output_tensor_list`."""
    found: tuple[Tensor, ...] = _AllToAll.apply(world.of(group), [t.shape for t in output_tensor_list], *input_tensor_list)
    return found


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None) -> Tensor:
    """`all_to_all` of the parts of one tensor, cut along its first dimension."""
    g = world.of(group)
    sent = list(input_split_sizes) if input_split_sizes else [input.shape[0] // g.size()] * g.size()
    received = list(output_split_sizes) if output_split_sizes else [output.shape[0] // g.size()] * g.size()
    parts = _AllToAll.apply(g, [(n, *input.shape[1:]) for n in received], *input.split(sent))
    found: Tensor = ops.cat(parts)
    return found


__all__ = ["all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"]
