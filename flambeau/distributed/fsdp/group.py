"""The parameters of one sharded module: pieces on the processes of a mesh, gathered before they are used and dropped after.

Gathering is an operation of the tape whose inputs are the pieces and whose outputs are the whole parameters; its backward reduces the gradients and
scatters them, so they arrive at the pieces as any gradient does.  What operations save of the whole parameters is kept as a place in the group
(`packed`), and gathered anew when the backward pass asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..._core import ops
from ..._core.autograd import tape
from ..._core.autograd.function import Function
from ..._core.runtime.asking import unasked
from ..._core.tensor import Tensor, alias
from ...autograd import is_grad_enabled, no_grad
from ...nn.parameter import Parameter
from .. import collectives
from ..device_mesh import DeviceMesh
from ..tensor.dtensor import DTensor, make
from ..tensor.placement_types import Replicate, Shard, _StridedShard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...nn.module import Module
    from .policies import MixedPrecisionPolicy


@dataclass
class Whole:
    """One parameter: where its modules have it, its shape on this process when it is whole, and along which axis it is cut."""

    places: list[tuple[Module, str]]
    shape: tuple[int, ...]
    dim: int
    piece: Any  # the DTensor that optimizers see
    outer: Any = None  # of a tensor-parallel parameter: (mesh, placements, shape)
    linked: Any = field(default=None, repr=False)

    def rows(self, n: int) -> int:
        """How many rows each process has, with those that fill up the last."""
        return -(-self.shape[self.dim] // n)

    def count(self, n: int) -> int:
        """Elements of a process's filled-up piece."""
        found = self.rows(n)
        for d, k in enumerate(self.shape):
            found *= k if d != self.dim else 1
        return found


def _spec(p: Tensor, mesh: DeviceMesh, dim: int) -> tuple[DeviceMesh, tuple[Any, ...], Any]:
    """The mesh and the placements of a parameter's pieces, and what it is without them, where it is tensor-parallel."""
    own: list[Any] = [*([Replicate()] * (mesh.ndim - 1)), Shard(dim)]
    if not isinstance(p, DTensor):
        return mesh, tuple(own), None
    inner = p.device_mesh
    if inner._root is not mesh._root or mesh.mesh_dim_names is None or inner.mesh_dim_names is None:
        raise ValueError("fully_shard: the mesh and that of the tensor-parallel parameters must be slices of one mesh, with names; "
                         f"they are {mesh!r} and {inner!r}")
    if any(q.is_shard(dim) for q in p.placements):
        cut = 1
        for k, q in enumerate(p.placements):
            cut *= inner.shape[k] if q.is_shard(dim) else 1
        own[-1] = _StridedShard(dim, split_factor=cut)
    together = DeviceMesh._concatenate([mesh, inner])
    return together, (*own, *p.placements), (inner, p.placements, tuple(p.shape))


def _is_parameter(t: Any) -> bool:
    return isinstance(t, Parameter)


class Group:
    """Parameters that are gathered together."""

    def __init__(self, named: Sequence[tuple[Tensor, list[tuple[Module, str]]]], mesh: DeviceMesh, policy: MixedPrecisionPolicy, place_of: Any,
                 offload: bool) -> None:
        self.mesh, self.policy, self.offload = mesh, policy, offload
        self.shards = mesh.get_group(mesh.ndim - 1)
        self.copies = mesh.get_group(0) if mesh.ndim > 1 else None
        self.n = self.shards.size()
        self.sync = self.all_reduce = self.reshard_after_backward = True
        self.factor: float | None = None
        self.members: list[Whole] = []
        self.wholes: list[Tensor] | None = None
        self.pending: Any = None
        self.kept: dict[int, Tensor] = {}  # gradients that wait for a pass that is reduced
        self.partial: dict[int, Tensor] = {}  # those reduced among the shards only
        for p, places in named:
            chosen = place_of(p) if place_of is not None else None
            dim = 0 if chosen is None else chosen.dim % max(p.ndim, 1)
            if p.ndim == 0:
                raise ValueError("fully_shard doesn't support scalar parameters. Change it to a 1D tensor with numel equal to 1.")
            whole_mesh, placed, outer = _spec(p, mesh, dim)
            local = p._local_tensor if isinstance(p, DTensor) else p
            size, start = Shard.local_shard_size_and_offset(local.shape[dim], self.n, self.shards.rank())
            with no_grad():
                own = local.detach().narrow(dim, start, size).clone()
                own = unasked(own.cpu)() if offload else unasked(own.to)(mesh.device_type) if own.device.type not in ("meta", mesh.device_type) else own
            piece = Parameter(make(own.contiguous(), whole_mesh, placed, tuple(p.shape)), p.requires_grad)
            self.members.append(Whole(places, tuple(local.shape), dim, piece, outer))
        self._show([w.piece for w in self.members])

    # ------------------------------------------------------------------------------------------------ what modules have
    def _show(self, tensors: Sequence[Any]) -> None:
        for w, t in zip(self.members, tensors):
            for module, name in w.places:
                module._parameters[name] = t

    def _pieces(self) -> list[Any]:
        """The pieces, as the modules have them now: a program may have put others there."""
        for w in self.members:
            module, name = w.places[0]
            now: Any = module._parameters[name]
            if now is not w.piece and now is not w.linked and isinstance(now, DTensor):
                w.piece = now if _is_parameter(now) else Parameter(now, w.piece.requires_grad)
        return [w.piece for w in self.members]

    # ------------------------------------------------------------------------------------------------ gathering
    def begin(self) -> None:
        """Begins to gather, unless that has been done."""
        if self.wholes is not None or self.pending is not None:
            return
        rooms = []
        with no_grad():
            kinds: dict[Any, list[int]] = {}
            pieces = self._pieces()
            for i, p in enumerate(pieces):
                kinds.setdefault(self.policy.param_dtype if p.dtype.is_floating_point and self.policy.param_dtype else p.dtype, []).append(i)
            for d, members in kinds.items():
                flat = ops.cat([self._row(self.members[i], unasked(pieces[i]._local_tensor.detach().to)(self.mesh.device_type, d)) for i in members])
                buffer = flat.new_empty((self.n, flat.numel()))
                rooms.append((members, buffer, collectives.all_gather_into_tensor(buffer.view(-1), flat, self.shards, async_op=True)))
        self.pending = rooms

    def _row(self, w: Whole, local: Tensor) -> Tensor:
        """A piece, filled up, in a row."""
        short = w.count(self.n) - local.numel()
        flat = local.movedim(w.dim, 0).reshape(-1)
        return ops.cat([flat, flat.new_zeros(short)]) if short else flat

    def gather(self) -> list[Tensor]:
        """The whole parameters, off the tape."""
        if self.wholes is None:
            self.begin()
            found: list[Any] = [None] * len(self.members)
            with no_grad():
                for members, buffer, work in self.pending:
                    work.wait()
                    at = 0
                    for i in members:
                        w = self.members[i]
                        count = w.count(self.n)
                        moved = [k for d, k in enumerate(w.shape) if d != w.dim]
                        rows = buffer[:, at:at + count].reshape(self.n * w.rows(self.n), *moved)[:w.shape[w.dim]]
                        whole = rows.movedim(0, w.dim).contiguous()
                        found[i] = whole.clone() if whole.store is buffer.store else whole
                        at += count
            self.pending = None
            self.wholes = found
            for i, t in enumerate(found):
                _owners[id(t.store)] = self, i
        return self.wholes

    def use(self) -> None:
        """Gives the modules the whole parameters, with a way back to the pieces."""
        pieces = self._pieces()
        wholes = self.gather()
        if is_grad_enabled() and any(p.requires_grad for p in pieces):
            wholes = list(_Gather.apply(self, *[p._local_tensor for p in pieces]))
        shown = []
        for w, t in zip(self.members, wholes):
            w.linked = t if w.outer is None else make(t, w.outer[0], w.outer[1], w.outer[2])
            shown.append(w.linked)
        self._show(shown)

    def drop(self) -> None:
        """Gives the modules their pieces again, and the memory back."""
        if self.wholes is None and self.pending is None:
            return
        if self.pending is not None:
            self.gather()
        for t in self.wholes or ():
            _owners.pop(id(t.store), None)
        self.wholes = None
        pieces = self._pieces()
        for w in self.members:
            w.linked = None
        self._show(pieces)

    # ------------------------------------------------------------------------------------------------ gradients
    def reduce(self, grads: Sequence[Any]) -> list[Any]:
        """This process's pieces of the mean of all processes' gradients; None where they are kept for later."""
        there = {i: g for i, g in enumerate(grads) if g is not None}
        for i, before in self.kept.items():
            there[i] = before + there[i] if i in there else before
        self.kept = {}
        if not self.sync:
            self.kept = {i: g.to(self.policy.reduce_dtype) if self.policy.reduce_dtype else g.clone() for i, g in there.items()}
            return [None] * len(self.members)
        found: list[Any] = [None] * len(self.members)
        kinds: dict[Any, list[int]] = {}
        for i, g in sorted(there.items()):
            kinds.setdefault(self.policy.reduce_dtype or g.dtype, []).append(i)
        world = self.n * (1 if self.copies is None else self.copies.size())
        scale = 1.0 / (world if self.factor is None else self.factor)
        for d, members in kinds.items():
            rows = []
            for i in members:
                w, g = self.members[i], there[i].to(d).movedim(self.members[i].dim, 0)
                short = self.n * w.rows(self.n) - g.shape[0]
                rows.append((ops.cat([g, g.new_zeros((short, *g.shape[1:]))]) if short else g).reshape(self.n, -1))
            flat = ops.cat(rows, 1) * scale
            own = flat.new_empty((flat.shape[1],))
            collectives.reduce_scatter_tensor(own, flat.view(-1), group=self.shards)
            at = 0
            for i in members:
                w = self.members[i]
                count = w.count(self.n)
                local = w.piece._local_tensor
                moved = [local.shape[w.dim], *[k for k_d, k in enumerate(w.shape) if k_d != w.dim]]
                part = own[at:at + count][:local.numel()].view(moved).movedim(0, w.dim)
                at += count
                if i in self.partial:
                    part = part + self.partial.pop(i)
                found[i] = part
        if self.copies is not None:
            for i, part in enumerate(found):
                if part is not None:
                    part = part.contiguous()
                    if self.all_reduce:
                        collectives.all_reduce(part, group=self.copies)
                        found[i] = part
                    else:
                        self.partial[i], found[i] = part, None
        return [None if g is None else unasked(g.to)(w.piece._local_tensor.device, w.piece.dtype).contiguous() for g, w in zip(found, self.members)]


class _Gather(Function):
    """The whole parameters of the pieces."""

    @staticmethod
    def forward(ctx: Any, group: Group, *pieces: Any) -> Any:
        ctx.group = group
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in group.gather())

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        group = ctx.group
        with no_grad():
            found = group.reduce(grads)
        if group.reshard_after_backward:
            group.drop()
            tape.at_end(group.drop)  # what is gathered again in this pass
        return None, *found


# ------------------------------------------------------------------------------------------------------------ what is saved
_owners: dict[int, tuple[Group, int]] = {}  # by the storage of a whole parameter


@dataclass
class Saved:
    """A whole parameter, or a view of it, that an operation saved."""

    group: Group
    index: int
    meta: Any
    offset: int


def packed(t: Tensor) -> Any:
    """What is kept of a saved tensor."""
    owner = _owners.get(id(t.store))
    if owner is None:
        return t
    group, index = owner
    assert group.wholes is not None
    return Saved(group, index, t.meta, t.ptr - group.wholes[index].ptr)


def unpacked(kept: Any) -> Any:
    """The saved tensor."""
    if not isinstance(kept, Saved):
        return kept
    whole = kept.group.gather()[kept.index]
    return alias(whole, kept.meta, whole.ptr + kept.offset)
