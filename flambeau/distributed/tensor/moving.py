"""From one placement to another, on the local pieces, with gradients.

The gradient of a whole value has a placement too: of pieces pieces, of a replicated value the same on all, of a part of a sum that of the sum.  So the
way back of each move is a move: an all_gather's is to keep one's piece, a reduction's to keep the gradient, a reduce_scatter's an all_gather.  Where a
replicated value meets others that are not, each process has a part of its gradient only: `vary` marks that place, and sums there on the way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._core import ops
from ..._core.autograd.function import Function
from ..._core.tensor import Tensor
from ...autograd import no_grad
from .. import collectives
from .placement_types import REDUCTIONS, Partial, Placement, Replicate, Shard
from .spec import cuts, piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..device_mesh import DeviceMesh
    from ..groups import ProcessGroup

    Placements = tuple[Placement, ...]

WHOLE: Any = Replicate()


def dual(placements: Placements) -> Placements:
    """How the gradient of a value lies that lies so."""
    return tuple(WHOLE if p.is_partial() else p for p in placements)


def _padded(t: Tensor, dim: int, size: int) -> Tensor:
    """Zeros behind it along an axis, up to `size`."""
    short = size - t.shape[dim]
    if not short:
        return t
    shape = list(t.shape)
    shape[dim] = short
    found: Tensor = ops.cat([t, t.new_zeros(shape)], dim)
    return found


def gather(t: Tensor, dim: int, size: int, g: ProcessGroup) -> Tensor:
    """The whole of pieces along an axis, which has `size` elements in all."""
    n = g.size()
    if n == 1:
        return t
    each = -(-size // n)
    own = _padded(t, dim, each).movedim(dim, 0).contiguous()
    whole = own.new_empty((n * each, *own.shape[1:]))
    collectives.all_gather_into_tensor(whole, own, g)
    return whole.narrow(0, 0, size).movedim(0, dim).contiguous()


def scatter(t: Tensor, dim: int, g: ProcessGroup, op: Any) -> Tensor:
    """The own piece, along an axis, of what all processes have, combined."""
    n, size = g.size(), t.shape[dim]
    each = -(-size // n)
    parts = _padded(t, dim, n * each).movedim(dim, 0).contiguous()
    own = parts.new_empty((each, *parts.shape[1:]))
    collectives.reduce_scatter_tensor(own, parts, op, g)
    return own.narrow(0, 0, Shard.local_shard_size_and_offset(size, n, g.rank())[0]).movedim(0, dim).contiguous()


def exchange(t: Tensor, dim: int, to: int, size: int, g: ProcessGroup) -> Tensor:
    """Pieces along axis `to` of what lies in pieces along `dim`, which has `size` elements in all."""
    n = g.size()
    sizes = [Shard.local_shard_size_and_offset(t.shape[to], n, r) for r in range(n)]
    sent = [t.narrow(to, start, k).contiguous() for k, start in sizes]
    mine = sent[g.rank()].shape
    received = []
    for r in range(n):
        shape = list(mine)
        shape[dim] = Shard.local_shard_size_and_offset(size, n, r)[0]
        received.append(t.new_empty(shape))
    collectives.all_to_all(received, sent, g)
    found: Tensor = ops.cat(received, dim)
    return found


def _own(t: Tensor, dim: int, n: int, rank: int) -> Tensor:
    size, start = Shard.local_shard_size_and_offset(t.shape[dim], n, rank)
    return t.narrow(dim, start, size).contiguous()


def _as_part(t: Tensor, p: Any, n: int, first: bool) -> Tensor:
    """One of n values that `p` combines to `t`."""
    if p.reduce_op in ("avg", "max", "min"):
        return t
    if p.reduce_op == "sum" and (t.is_floating_point() or t.is_complex()):
        return t / n
    if p.reduce_op == "sum":
        return t if first else ops.zeros_like(t)
    raise RuntimeError(f"a replicated tensor cannot be made {p!r}")


def moved(t: Tensor, mesh: DeviceMesh, before: Placements, after: Placements, shape: Sequence[int]) -> Tensor:
    """This process's piece when the placements have changed, outside of the tape.  shape: the whole's."""
    now: list[Any] = list(before)
    place = mesh.get_coordinate()
    if place is None or tuple(before) == tuple(after):
        return t
    dims = range(len(shape))
    chains = [cuts(before, d) for d in dims]
    wanted = [cuts(after, d) for d in dims]
    with no_grad():
        for d in dims:
            kept = 0
            while kept < min(len(chains[d]), len(wanted[d])) and chains[d][kept] == wanted[d][kept]:
                kept += 1
            while len(chains[d]) > kept:
                i = chains[d].pop()
                size = piece(shape[d], mesh, chains[d], place, before)[0]
                to: Any = after[i]
                e = to.dim if to.is_shard() else d
                if e != d and [*chains[e], i] == wanted[e][:len(chains[e]) + 1]:
                    t = exchange(t, d, e, size, mesh.get_group(i))
                    chains[e].append(i)
                    now[i] = to
                else:
                    t = gather(t, d, size, mesh.get_group(i))
                    now[i] = WHOLE
        for i, p in enumerate(now):
            if p.is_partial() and p != after[i] and not after[i].is_shard():
                t = t.contiguous().clone()
                collectives.all_reduce(t, REDUCTIONS[p.reduce_op], mesh.get_group(i))
                now[i] = WHOLE
            if now[i].is_replicate() and after[i].is_partial():
                t = _as_part(t, after[i], mesh.shape[i], place[i] == 0)
        for d in dims:
            for i in wanted[d][len(chains[d]):]:
                if now[i].is_partial():
                    t = scatter(t, d, mesh.get_group(i), REDUCTIONS[now[i].reduce_op])
                else:
                    t = _own(t, d, mesh.shape[i], place[i])
    return t


def _averaged(mesh: DeviceMesh, before: Placements, after: Placements) -> float:
    """What the gradient is multiplied by where a mean becomes a whole."""
    scale = 1.0
    for i, (p, q) in enumerate(zip(before, after)):
        if p.is_partial("avg") and p != q:
            scale /= mesh.shape[i]
    return scale


class _Move(Function):
    """`moved`; `back` is how the gradient comes."""

    @staticmethod
    def forward(ctx: Any, mesh: Any, before: Any, after: Any, back: Any, shape: Any, t: Any) -> Any:
        ctx.of = mesh, before, after, back, shape
        found = moved(t.detach(), mesh, before, after, shape)
        return found.view_as(found) if found.data_ptr() == t.data_ptr() else found

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        mesh, before, after, back, shape = ctx.of
        to = dual(before)
        g = _Move.apply(mesh, back, to, dual(to), shape, g)
        scale = _averaged(mesh, before, after)
        return None, None, None, None, None, g if scale == 1.0 else g * scale


class _Extreme(Function):
    """An all_reduce by max or min: the gradient goes to those who have the value, in equal shares."""

    @staticmethod
    def forward(ctx: Any, op: str, g: Any, t: Any) -> Any:
        found = t.detach().contiguous().clone()
        collectives.all_reduce(found, REDUCTIONS[op], g)
        ctx.g = g
        ctx.save_for_backward(t.detach(), found)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        t, found = ctx.saved_tensors
        here = (t == found).to(grad.dtype)
        count = here.clone()
        collectives.all_reduce(count, group=ctx.g)
        return None, None, grad * here / count


def redistribute(t: Tensor, mesh: DeviceMesh, before: Placements, after: Placements, shape: Sequence[int]) -> Tensor:
    """`moved`, with the way back on the tape."""
    if tuple(before) == tuple(after):
        return t
    for i, (p, q) in enumerate(zip(before, after)):
        if isinstance(p, Partial) and p != q and p.reduce_op in ("max", "min"):
            t = _Extreme.apply(p.reduce_op, mesh.get_group(i), t)
            before = (*before[:i], WHOLE, *before[i + 1:])
    if tuple(before) == tuple(after):
        return t
    if not t.requires_grad:
        return moved(t, mesh, before, after, shape)
    found: Tensor = _Move.apply(mesh, before, after, dual(after), tuple(shape), t)
    return found


class _Vary(Function):
    @staticmethod
    def forward(ctx: Any, groups: Any, t: Any) -> Any:
        ctx.groups = groups
        return t.detach().view_as(t)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return None, _Sum.apply(ctx.groups, g)


class _Sum(Function):
    """The sum over groups; each process goes on with it alone, so that its own gradient is a sum again."""

    @staticmethod
    def forward(ctx: Any, groups: Any, t: Any) -> Any:
        ctx.groups = groups
        found = t.detach().contiguous().clone()
        for g in groups:
            collectives.all_reduce(found, group=g)
        return found

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return None, _Vary.apply(ctx.groups, g)


class _Gathered(Function):
    """A value that was gathered before, whose gradient comes as parts of a sum along some axes: one reduce_scatter brings it back."""

    @staticmethod
    def forward(ctx: Any, mesh: Any, before: Any, back: Any, shape: Any, value: Any, t: Any) -> Any:
        ctx.of = mesh, before, back, shape
        return value.detach().view_as(value)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        mesh, before, back, shape = ctx.of
        to = dual(before)
        return None, None, None, None, None, _Move.apply(mesh, back, to, dual(to), shape, g)


def vary(t: Tensor, mesh: DeviceMesh, axes: Sequence[int]) -> Tensor:
    """The same value, of whose gradient each process along these axes of the mesh has a part."""
    groups = [mesh.get_group(i) for i in axes if mesh.shape[i] > 1]
    found: Tensor = _Vary.apply(groups, t) if groups else t
    return found


def gathered(t: Tensor, source: Tensor, mesh: DeviceMesh, before: Placements, axes: Sequence[int], after: Placements, shape: Sequence[int]) -> Tensor:
    """`vary` of a value that `redistribute` made of `source`."""
    back = tuple(Partial() if i in axes else p for i, p in enumerate(dual(after)))
    found: Tensor = _Gathered.apply(mesh, before, back, tuple(shape), t, source)
    return found
