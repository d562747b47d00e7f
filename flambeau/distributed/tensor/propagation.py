"""How operations work on tensors in parts: one table, from the kind of an operation to its rule.

The kinds are those that the op table knows already (`engine/fields.py`: "batch", what an operation is for a batch of examples, and "tangent", whether it
is linear, "sums"), and families by name where the sizes in a call are those of the whole: views, products, indexing by tables.  A rule says how the operands
shall lie and how the result lies, has them moved there, and calls the operation on the pieces; the tape sees what happens to the pieces.  What no
rule knows is done on the whole by every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..._core import layout, ops
from ..._core.engine import fields
from ..._core.tensor import Tensor
from ...autograd import is_grad_enabled, no_grad
from ...interop.overriding import DisableTorchFunctionSubclass
from .dtensor import DTensor, entering, make, moved
from .moving import WHOLE, dual
from .spec import local_piece

if TYPE_CHECKING:
    from ..device_mesh import DeviceMesh

    Rule = Callable[[str, Any, tuple[Any, ...], dict[str, Any]], Any]

RULES: dict[str, Rule] = {}
# set while plain tensors among operands count as replicated ones
implicit: list[bool] = [False]


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for operations of these names."""
    def register(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, f))
        return f
    return register


# ------------------------------------------------------------------------------------------------------------ operands
def flat(values: Iterable[Any]) -> Iterable[Any]:
    """The values in tuples, lists and dicts."""
    for x in values:
        if isinstance(x, tuple | list):
            yield from flat(x)
        elif isinstance(x, dict):
            yield from flat(x.values())
        else:
            yield x


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """A structure with its DTensors changed."""
    if isinstance(value, DTensor):
        return change(value)
    if isinstance(value, tuple | list):
        parts = [replaced(v, change) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else list(parts) if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {k: replaced(v, change) for k, v in value.items()}
    return value


def mesh_of(name: str, values: Sequence[Any]) -> DeviceMesh:
    """The one mesh of the operands.  Raises RuntimeError for several, and for plain tensors with axes among them."""
    mesh: DeviceMesh | None = None
    for x in values:
        if isinstance(x, DTensor):
            if mesh is not None and x._mesh is not mesh and x._mesh != mesh:
                raise RuntimeError(f"{name}: operands lie on two meshes, {mesh!r} and {x._mesh!r}")
            mesh = x._mesh
        elif isinstance(x, Tensor) and x.ndim and x.numel() > 1 and not implicit[0]:
            raise RuntimeError(f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!")
    assert mesh is not None
    return mesh


def adopted(value: Any, mesh: DeviceMesh) -> Any:
    """A plain tensor as a replicated one."""
    if isinstance(value, Tensor) and not isinstance(value, DTensor):
        return make(value, mesh, (WHOLE,) * mesh.ndim, tuple(value.shape))
    return value


def wrap(found: Any, mesh: DeviceMesh, placements: Sequence[Any], sizes: dict[int, int]) -> Any:
    """Results that lie so; of axes in pieces `sizes` has the whole's size."""
    if isinstance(found, tuple | list):
        parts = [wrap(x, mesh, placements, sizes) for x in found]
        return type(found)(*parts) if hasattr(found, "_fields") else type(found)(parts)
    if not isinstance(found, Tensor):
        return found
    shape = list(found.shape)
    for d, n in sizes.items():
        shape[d] = n
    return make(found, mesh, placements, shape)


def whole(t: Any) -> Any:
    """Its replicated form."""
    return moved(t, (WHOLE,) * t._mesh.ndim)


def without_parts(t: Any, keep: Callable[[Any], bool] | None = None) -> Any:
    """Parts of sums put together; shards that `keep` refuses too."""
    wanted = tuple(WHOLE if p.is_partial() or (p.is_shard() and keep is not None and not keep(p)) else p for p in t._placed)
    return moved(t, wanted)


# ------------------------------------------------------------------------------------------------------------ carrying out
def carry_out(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of an operation, a method or an attribute with a DTensor among its arguments."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    if name in _ASKS:
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    if (kind := RULES.get(name)) is not None:
        return kind(name, func, args, kwargs)
    inner = name if name.startswith("__") else name.rstrip("_")
    if name != inner and isinstance(args[0] if args else None, DTensor):
        if RULES.get(inner) is pointwise or name in RULES:
            return in_place(name, func, args, kwargs)
        return _whole_in_place(name, func, args, kwargs)
    return on_wholes(name, func, args, kwargs)


def on_wholes(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Every process does all of it."""
    values = list(flat((args, kwargs)))
    mesh = mesh_of(name, values)

    def full(t: Any) -> Any:
        return whole(t)._local_tensor
    found = func(*replaced(args, full), **replaced(kwargs, full))
    return wrap(found, mesh, (WHOLE,) * mesh.ndim, {})


def _whole_in_place(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target = args[0]
    mesh = mesh_of(name, list(flat((args, kwargs))))
    if target.requires_grad and is_grad_enabled():
        raise RuntimeError(f"{name}: in place, with gradients, this is not done to tensors in parts; use the form that gives a new tensor")

    def full(t: Any) -> Any:
        return whole(t)._local_tensor
    with no_grad():
        own = full(target).clone()
        func(own, *replaced(args[1:], full), **replaced(kwargs, full))
        put_whole(target, own, mesh)
    return target


def put_whole(target: Any, value: Tensor, mesh: DeviceMesh) -> None:
    """Writes this process's piece of a whole."""
    if any(p.is_partial() for p in target._placed):
        raise RuntimeError("in-place operations on parts of a sum are not supported; redistribute first")
    sizes, starts = local_piece(tuple(target.meta.shape), mesh, target._placed)
    for d, (n, start) in enumerate(zip(sizes, starts)):
        value = value.narrow(d, start, n)
    target._local_tensor.copy_(value)


# ------------------------------------------------------------------------------------------------------------ element by element
_SUMS, _TANGENT = fields.of("sums"), fields.of("tangent")


def _keeps_sums(name: str, tensors: Sequence[Any], first: Any, axis: int) -> bool:
    """Whether the operation of parts of sums along an axis of the mesh is a part of the result."""
    parts = [t._placed[axis].is_partial("sum") for t in tensors]
    how = _SUMS.get(name)
    if how == "two":
        return all(parts) and len(parts) == 2
    if how == "one":
        return sum(parts) == 1 and all(t._placed[axis].is_partial("sum") or t._placed[axis].is_replicate() for t in tensors)
    if how == "first":
        return sum(parts) == 1 and parts[0] and first is tensors[0] and all(t._placed[axis].is_replicate() for t in tensors[1:])
    return (how == "itself" or _TANGENT.get(name) == "linear") and all(parts)


def _common(name: str, tensors: Sequence[Any], first: Any, shape: Sequence[int], mesh: DeviceMesh) -> tuple[Any, ...]:
    """How the result of an operation element by element lies."""
    from .dtensor import with_dim
    out: list[Any] = []
    for i in range(mesh.ndim):
        if any(t._placed[i].is_partial() for t in tensors) and _keeps_sums(name, tensors, first, i):
            out.append(next(t._placed[i] for t in tensors if t._placed[i].is_partial()))
            continue
        chosen: Any = WHOLE
        for t in tensors:
            p = t._placed[i]
            if p.is_shard() and t.meta.shape[p.dim] == shape[p.dim + len(shape) - len(t.meta.shape)]:
                chosen = with_dim(p, p.dim + len(shape) - len(t.meta.shape))
                break
        out.append(chosen)
    return tuple(out)


def _fitting(t: Any, out: Sequence[Any], shape: Sequence[int]) -> tuple[Any, ...]:
    """How an operand shall lie that is broadcast to a result that lies so."""
    from .dtensor import with_dim
    ahead = len(shape) - len(t.meta.shape)
    wanted: list[Any] = []
    for i, q in enumerate(out):
        if q.is_shard():
            d = q.dim - ahead
            wanted.append(with_dim(q, d) if d >= 0 and t.meta.shape[d] == shape[q.dim] else WHOLE)
        else:
            wanted.append(t._placed[i] if q.is_partial() else WHOLE)
    return tuple(wanted)


def pointwise(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operands of broadcast shapes: all lie as the first that is in pieces."""
    if kwargs.get("out") is not None:
        return on_wholes(name, func, args, kwargs)
    values = list(flat((args, kwargs)))
    mesh = mesh_of(name, values)
    args, kwargs = _adopt_all(args, kwargs, mesh) if implicit[0] else (args, kwargs)
    tensors = [x for x in flat((args, kwargs)) if isinstance(x, DTensor)]
    shape = layout.broadcast_shapes(*[tuple(t.meta.shape) for t in tensors]) if len(tensors) > 1 else tuple(tensors[0].meta.shape)
    out = _common(name, tensors, args[0] if args else None, shape, mesh)

    def piece(t: Any) -> Tensor:
        return entering(t, _fitting(t, out, shape), out)
    found = func(*replaced(args, piece), **replaced(kwargs, piece))
    return wrap(found, mesh, out, {p.dim: shape[p.dim] for p in out if p.is_shard()})


def _adopt_all(args: tuple[Any, ...], kwargs: dict[str, Any], mesh: DeviceMesh) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(adopted(a, mesh) for a in args), {k: adopted(v, mesh) for k, v in kwargs.items()}


def in_place(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What is written to stays as it lies; the other operands are moved there."""
    target, rest = args[0], args[1:]
    mesh_of(name, list(flat((args, kwargs))))
    if not isinstance(target, DTensor):
        return func(target, *replaced(rest, lambda t: whole(t)._local_tensor), **replaced(kwargs, lambda t: whole(t)._local_tensor))
    shape, out = tuple(target.meta.shape), target._placed
    others = [x for x in flat((rest, kwargs)) if isinstance(x, DTensor)]
    inner = name if name.startswith("__") else name.rstrip("_")
    for i, p in enumerate(out):
        kept = inner in ("zero", "copy") or _keeps_sums(inner, [target, *others], target, i) or (not others and _SUMS.get(inner) in ("one", "first"))
        if p.is_partial() and not kept:
            raise RuntimeError(f"{name}: in-place operations that require placement changes are not supported: the tensor is {p!r}; redistribute first")

    def piece(t: Any) -> Tensor:
        return entering(t, _fitting(t, out, shape) if inner != "copy" else out, out)
    func(target._local_tensor, *replaced(rest, piece), **replaced(kwargs, piece))
    return target


def same(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same call on the piece; the result lies as the tensor does."""
    t = args[0]
    if not isinstance(t, DTensor):
        return on_wholes(name, func, args, kwargs)
    others = [x._local_tensor if isinstance(x, DTensor) else x for x in args[1:]]
    found = func(t._local_tensor, *others, **kwargs)
    if found is t._local_tensor:
        return t
    if not isinstance(found, Tensor):
        return found
    placed = dual(t._placed) if name.endswith("_like") and name != "zeros_like" else t._placed
    return make(found, t._mesh, placed, tuple(t.meta.shape))


@rule("view_as", "reshape_as", "expand_as", "type_as")
def same_shape(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`view_as`, `expand_as`, `type_as`: by what they stand for."""
    t, other = args
    return {"view_as": t.view, "reshape_as": t.reshape, "expand_as": t.expand}[name](other.shape) if name != "type_as" else t.to(other.dtype)


# ------------------------------------------------------------------------------------------------------------ random numbers
def drawn(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Random numbers for the whole are drawn by every process from its own generator, which are in one state where they were seeded alike; each keeps
    its piece.  So the numbers do not depend on how the tensor is cut."""
    t = args[0]
    full = ops.empty(tuple(t.meta.shape), dtype=t.meta.dtype, device=t._local_tensor.device)
    if name.endswith("_"):
        with no_grad():
            func(full, *args[1:], **kwargs)
            put_whole(t, full, t._mesh)
        return t
    with no_grad():
        made = make(func(full, *args[1:], **kwargs), t._mesh, (WHOLE,) * t._mesh.ndim, tuple(t.meta.shape))
    return moved(made, dual(t._placed))


@rule("dropout", "alpha_dropout", "feature_dropout", "dropout1d", "dropout2d", "dropout3d")
def _dropout(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("p", "training")
    told = {**dict(zip(names, args[1:])), **{k: v for k, v in kwargs.items() if k in names}}
    t = args[0] if args else kwargs["input"]
    if not told.get("training", True) or told.get("p", 0.5) == 0.0:
        return t
    if name != "dropout":
        return on_wholes(name, func, args, kwargs)
    t = without_parts(t)
    with no_grad():
        mask = func(ops.ones(tuple(t.meta.shape), dtype=t.meta.dtype, device=t._local_tensor.device), told.get("p", 0.5), True)
        mask = moved(make(mask, t._mesh, (WHOLE,) * t._mesh.ndim, tuple(t.meta.shape)), t._placed)
    return t * mask


@rule("equal", "allclose")
def _compares(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*[whole(a)._local_tensor if isinstance(a, DTensor) else a for a in args], **kwargs)


def _fill() -> None:
    """The rules of the kinds that the op table knows."""
    from . import rules_axes, rules_products, rules_tables, rules_views  # noqa: F401  (they register themselves)
    batch = fields.of("batch")
    kinds: dict[str, Rule] = {"pointwise": pointwise, "same": same, "draws each": drawn, "along all": rules_axes.reduction,
                              "along flat": rules_axes.along, "along -1": rules_axes.along, "along 0": rules_axes.along, "along 1": rules_axes.along,
                              "extreme": rules_axes.reduction, "order": rules_axes.along}
    for name, kind in batch.items():
        if kind in kinds:
            RULES.setdefault(name, in_place if kinds[kind] is pointwise and _writes(name) else kinds[kind])


def _writes(name: str) -> bool:
    return (name.endswith("_") and not name.startswith("__")) or (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__"))


_ASKS = frozenset(n for n, kind in fields.of("batch").items() if kind == "asks")
