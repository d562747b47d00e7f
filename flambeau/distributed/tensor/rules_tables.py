"""Rules of looking up: embeddings, whose table may be cut by rows or by columns; and the cross-entropy of logits in pieces."""

from __future__ import annotations

from typing import Any

from ..._core import ops
from .dtensor import DTensor, entering, moved, with_dim
from .moving import WHOLE
from .placement_types import Partial, Shard
from .propagation import mesh_of, on_wholes, rule, without_parts, wrap
from .spec import cuts, piece


@rule("embedding")
def _embedding(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Rows that lie elsewhere give zeros here: a part of a sum.  Columns in pieces give a result in pieces."""
    named = {**dict(zip(("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"), args)), **kwargs}
    where, table = named.pop("input"), named.pop("weight")
    if not (isinstance(where, DTensor) and isinstance(table, DTensor)) or any(v for v in named.values() if v is not None and v != 2.0):
        return on_wholes(name, func, args, kwargs)
    mesh = mesh_of(name, [where, table])
    of_where: list[Any] = []
    of_table: list[Any] = []
    out: list[Any] = []
    for p, q in zip(where._placed, table._placed):
        if q == Shard(0):
            of_where.append(WHOLE)
            of_table.append(q)
            out.append(Partial())
        elif q == Shard(1):
            of_where.append(WHOLE)
            of_table.append(q)
            out.append(Shard(where.ndim))
        else:
            of_table.append(WHOLE)
            kept = p if p.is_shard() else WHOLE
            of_where.append(kept)
            out.append(kept)
    rows = entering(table, tuple(of_table), out)
    index = moved(where, tuple(of_where))._local_tensor
    axes = cuts(of_table, 0)
    sizes = {p.dim: (*where.meta.shape, table.meta.shape[1])[p.dim] for p in out if p.is_shard()}
    if not axes:
        return wrap(func(index, rows), mesh, out, sizes)
    place = mesh.get_coordinate()
    assert place is not None
    size, start = piece(table.meta.shape[0], mesh, axes, place, of_table)
    here = ((index >= start) & (index < start + size)).unsqueeze(-1)
    if not size:
        return wrap(rows.new_zeros((*index.shape, rows.shape[1])) + rows.sum() * 0, mesh, out, sizes)
    found = func((index - start).clamp(0, size - 1), rows)
    return wrap(ops.where(here, found, ops.zeros((), dtype=found.dtype, device=found.device)), mesh, out, sizes)


@rule("cross_entropy", "nll_loss")
def _cross_entropy(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from .parallel.loss import loss
    names = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
    named = {**dict(zip(names, args)), **kwargs}
    found = loss(name, named, func)
    return on_wholes(name, func, (), named) if found is None else found


@rule("gather", "take_along_dim", "index_select")
def _rows(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A replicated index of a tensor that is cut along other axes."""
    if name != "index_select" or kwargs or not isinstance(args[0], DTensor) or not isinstance(args[2], DTensor):
        return on_wholes(name, func, args, kwargs)
    t, dim, index = args
    dim %= t.ndim
    t = without_parts(t, lambda p: p.dim != dim)
    index = without_parts(index, lambda p: False)
    found = func(t._local_tensor, dim, index._local_tensor)
    placed = [with_dim(p, p.dim) if p.is_shard() else p for p in t._placed]
    return wrap(found, t._mesh, placed, {p.dim: t.meta.shape[p.dim] for p in placed if p.is_shard()})
