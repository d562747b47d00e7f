"""Rules of products, written over letters: each axis of the operands and of the result has one, as in `einsum`.

A letter that is cut in one operand is cut in the other too where it has it, and in the result; where the result does not have it (it is summed over),
the result is a part of a sum.
"""

from __future__ import annotations

from typing import Any

from ..._core.tensor import Tensor
from .dtensor import DTensor, entering, with_dim
from .moving import WHOLE
from .placement_types import Partial, Shard
from .propagation import flat, mesh_of, on_wholes, rule, whole, wrap


def _letter(p: Any, letters: str) -> str:
    return letters[p.dim] if p.is_shard() else ""


def plan(a: Any, b: Any, la: str, lb: str, lo: str, sums: bool = True) -> tuple[list[Any], list[Any], list[Any]]:
    """How the operands shall lie, and the result.  sums: whether parts of sums may go through."""
    pa: list[Any] = []
    pb: list[Any] = []
    out: list[Any] = []
    sizes = {**dict(zip(la, a.meta.shape)), **{k: n for k, n in zip(lb, b.meta.shape) if n != 1 or k not in la}}
    larger = a if a.numel() >= b.numel() else b
    for i in range(a._mesh.ndim):
        p, q = a._placed[i], b._placed[i]
        if sums and (p.is_partial("sum") and q.is_replicate() or q.is_partial("sum") and p.is_replicate()):
            pa.append(p)
            pb.append(q)
            out.append(Partial())
            continue
        letters = [_letter(p, la), _letter(q, lb)]
        if larger is b:
            letters.reverse()
        letter = letters[0] or letters[1]
        # an axis of one element that is broadcast is not cut
        if not letter or (letter in la and letter in lb and a.meta.shape[la.index(letter)] != b.meta.shape[lb.index(letter)]
                          and 1 == (a if letter == _letter(p, la) else b).meta.shape[(la if letter == _letter(p, la) else lb).index(letter)]):
            pa.append(WHOLE)
            pb.append(WHOLE)
            out.append(WHOLE)
            continue
        kind = p if letter == _letter(p, la) else q
        for placed, letters_, t in ((pa, la, a), (pb, lb, b)):
            there = letter in letters_ and t.meta.shape[letters_.index(letter)] == sizes[letter]
            placed.append(with_dim(kind, letters_.index(letter)) if there else WHOLE)
        out.append(with_dim(kind, lo.index(letter)) if letter in lo else Partial())
    return pa, pb, out


def product(func: Any, a: Any, b: Any, la: str, lb: str, lo: str, extra: Any = ()) -> Any:
    """`func(a, b, *extra)` on pieces."""
    pa, pb, out = plan(a, b, la, lb, lo)
    found = func(entering(a, tuple(pa), out), entering(b, tuple(pb), out), *extra)
    sizes = {**dict(zip(la, a.meta.shape)), **{k: n for k, n in zip(lb, b.meta.shape) if n != 1 or k not in la}}
    return wrap(found, a._mesh, out, {p.dim: sizes[lo[p.dim]] for p in out if p.is_shard()})


def _matmul_letters(a: Any, b: Any) -> tuple[str, str, str]:
    batch = "ABCDEFGH"
    na, nb = max(a.ndim - 2, 0), max(b.ndim - 2, 0)
    n = max(na, nb)
    la = batch[n - na:n] + ("ik" if a.ndim > 1 else "k")
    lb = batch[n - nb:n] + ("kj" if b.ndim > 1 else "k")
    return la, lb, batch[:n] + ("i" if a.ndim > 1 else "") + ("j" if b.ndim > 1 else "")


@rule("matmul", "mm", "bmm", "mv", "dot", "__matmul__", "__rmatmul__")
def _matmul(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    a, b = args[:2] if name != "__rmatmul__" else args[1::-1]
    if kwargs or not (isinstance(a, DTensor) and isinstance(b, DTensor)):
        return on_wholes(name, func, args, kwargs)
    mesh_of(name, [a, b])
    return product(Tensor.matmul if name == "__rmatmul__" else func, a, b, *_matmul_letters(a, b))


@rule("linear")
def _linear(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    named = {**dict(zip(("input", "weight", "bias"), args)), **kwargs}
    x, w, bias = named["input"], named["weight"], named.get("bias")
    if not (isinstance(x, DTensor) and isinstance(w, DTensor)):
        return on_wholes(name, func, args, kwargs)
    mesh = mesh_of(name, [x, w, bias])
    free = "ABCDEFGH"[:x.ndim - 1]
    pa, pb, out = plan(x, w, free + "k", "jk", free + "j")
    local: Any = None
    if isinstance(bias, DTensor):
        last = x.ndim - 1
        # of a part of a sum the bias is a part too
        wanted = tuple(with_dim(p, 0) if p.is_shard(last) else p if p.is_partial() else WHOLE for p in out)
        local = entering(bias, wanted, out)
    found = func(entering(x, tuple(pa), out), entering(w, tuple(pb), out), local)
    shape = (*x.meta.shape[:-1], w.meta.shape[0])
    return wrap(found, mesh, out, {p.dim: shape[p.dim] for p in out if p.is_shard()})


@rule("addmm", "baddbmm", "addbmm", "addmv")
def _added(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    t, a, b = args[:3]
    if name == "addbmm" or kwargs.get("out") is not None or len(args) > 3:
        return on_wholes(name, func, args, kwargs)
    made = (a @ b) * kwargs["alpha"] if kwargs.get("alpha", 1) != 1 else a @ b
    return made + (t * kwargs["beta"] if kwargs.get("beta", 1) != 1 else t)


@rule("einsum")
def _einsum(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    text = args[0].replace(" ", "") if isinstance(args[0], str) else ""
    tensors = list(flat(args[1:]))
    left, arrow, out = text.partition("->")
    parts = left.split(",")
    if not arrow or len(tensors) != 2 or "." in text or any(len(set(p)) != len(p) for p in parts) or any(not isinstance(t, DTensor) for t in tensors):
        return on_wholes(name, func, args, kwargs)
    mesh_of(name, tensors)
    return product(lambda a, b: func(text, a, b), tensors[0], tensors[1], parts[0], parts[1], out)


@rule("scaled_dot_product_attention")
def _attention(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Batches and heads may be in pieces, each with all its positions."""
    named = {**dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"), args)), **kwargs}
    q, k, v = named["query"], named["key"], named["value"]
    if named.get("dropout_p", 0.0) or not all(isinstance(t, DTensor) for t in (q, k, v)):
        return on_wholes(name, func, args, kwargs)
    mesh = mesh_of(name, [x for x in named.values() if isinstance(x, Tensor)])
    placed = tuple(p if p.is_shard() and p.dim < q.ndim - 2 and all(t.meta.shape[p.dim] % mesh.shape[i] == 0 for t in (q, k, v)) else WHOLE
                   for i, p in enumerate(q._placed))
    for key in ("query", "key", "value"):
        named[key] = entering(named[key], placed, placed)
    mask = named.get("attn_mask")
    if isinstance(mask, DTensor):
        fits = tuple(with_dim(p, p.dim - q.ndim + mask.ndim) if p.is_shard() and p.dim - q.ndim + mask.ndim >= 0
                     and mask.meta.shape[p.dim - q.ndim + mask.ndim] != 1 else WHOLE for p in placed)
        named["attn_mask"] = entering(mask, fits, placed)
    return wrap(func(**named), mesh, placed, {p.dim: q.meta.shape[p.dim] for p in placed if p.is_shard()})


@rule("conv1d", "conv2d", "conv3d")
def _convolution(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Batches may be in pieces."""
    x = args[0]
    rest = [a for a in args[1:3] if isinstance(a, Tensor)]
    if not isinstance(x, DTensor) or kwargs.get("weight") is not None or any(not isinstance(a, DTensor) for a in rest) or x.ndim != int(name[-2]) + 2:
        return on_wholes(name, func, args, kwargs)
    mesh = mesh_of(name, [x, *rest])
    placed = tuple(p if p == Shard(0) else WHOLE for p in x._placed)

    def weight(w: Any) -> Any:
        return entering(whole(w), (WHOLE,) * mesh.ndim, placed) if isinstance(w, DTensor) else w
    found = func(entering(x, placed, placed), *[weight(a) for a in args[1:]], **{k: weight(v) for k, v in kwargs.items()})
    return wrap(found, mesh, placed, {0: x.meta.shape[0]} if any(p.is_shard() for p in placed) else {})


