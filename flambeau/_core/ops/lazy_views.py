"""Conjugate and negative views: tensors that show the conjugates or negatives of the elements in their memory, worked out by who reads them.

`x.conj()` and `x.conj().imag` are such views. A `tensor.Lazy` meta says so, and holds the address. An operation meets one as it meets any operand
that is not plain: it asks, and `answer` gives it what it can work on. Operations that show memory are carried out on the memory, and what they
give is such a view again; those that write compute on a copy, whose conjugates are then written to the memory; all others get the elements
themselves in new memory. So no operation knows of these views, and nobody else pays for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import hooks
from ..autograd import inplace, tape
from ..autograd.mode import _grad, no_recording
from ..engine import fields
from ..engine.fields import has
from ..engine.operation import any_lazy, layouts
from ..engine.plans import Compose, Turned, under
from ..kernels.expr import Expr
from ..tensor import Lazy, Tensor, _new, alias
from . import complexes
from .complexes import CONJ, imag, real, view_as_real
from .table import TABLE, op

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engine.operation import Operation
    from ..tensor import Meta

has("""adjoint as_strided broadcast_to chunk detach diagonal dsplit expand expand_as flatten hsplit index movedim narrow permute positive ravel
 reshape reshape_as select split split_with_sizes squeeze swapaxes t tensor_split transpose unbind unflatten unfold unsafe_chunk unsafe_split
 unsqueeze view view_as vsplit atleast_1d atleast_2d atleast_3d view_as_complex""", memory="view")
has("as_strided_ detach_ resize_ resize_as_ set_ share_memory_ squeeze_ swapaxes_ t_ transpose_ unsqueeze_", memory="relaid")
has("resolve_conj resolve_neg", sparse="composite")
_MEMORY = fields.of("memory")
_WORDS = {"conj": ("conjugate", "resolve_conj"), "neg": ("negative", "resolve_neg")}


def bits(t: Tensor) -> tuple[bool, bool]:
    """Whether a tensor's elements are the conjugates, and whether they are the negatives, of what is in its memory."""
    m = t.meta
    return (m.conj, m.neg) if m.__class__ is Lazy else (False, False)


def address(t: Tensor) -> int:
    """Where a tensor's first element lies."""
    m = t.meta
    return m.address if m.__class__ is Lazy else t.ptr


def flag(t: Tensor, conj: bool, neg: bool) -> Tensor:
    """Makes a view of the memory one of the conjugates or negatives in it."""
    if conj or neg:
        m = Lazy.of(under(t.meta))
        m.conj, m.neg, m.address = conj, neg, t.ptr
        t.meta = m
        del t.ptr
    return t


def turned(x: Tensor, conj: bool, neg: bool) -> Tensor:
    """Conjugates and negatives, in new memory."""
    if conj:
        x = CONJ((x,))
    return _neg()((x,)) if neg else x


def _neg() -> Any:
    return TABLE["neg"].pointwise


def _on_memory(t: Tensor, node: Any) -> Tensor:
    """A plain tensor on the same memory, and a view of the same one."""
    r: Tensor = _new(Tensor)
    r.meta, r.store, r.ptr, r.node, r.base = under(t.meta), t.store, address(t), node, t.base
    if "_made" in t.__dict__:
        r.__dict__["_made"] = t.__dict__["_made"]
    return r


def resolved(t: Tensor) -> Tensor:
    """The elements in memory of their own, with the history of `t`; another tensor as it is."""
    if t.meta.__class__ is not Lazy:
        return t
    with no_recording():
        made = turned(_on_memory(t, None), *bits(t))
    made.node = t.node
    return made


def settle(t: Tensor) -> None:
    """Makes a conjugate or negative view a tensor with memory of its own, for those who need an address."""
    if t.meta.__class__ is Lazy:
        r = resolved(t)
        t.meta, t.store, t.ptr, t.base = r.meta, r.store, r.ptr, None


def all_resolved(x: Any) -> Any:
    """Arguments with all such views among them resolved."""
    if isinstance(x, Tensor):
        return resolved(x)
    if not any_lazy(x):
        return x
    if x.__class__ is dict:
        return {k: all_resolved(v) for k, v in x.items()}
    parts = [all_resolved(v) for v in x]
    return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)


@tape.keeps_nothing
def _turned_back(node: Any, g: Tensor) -> Any:
    return (turned(g, *node[tape.SAVED]),)


@tape.keeps_nothing
def _as_it_is(node: Any, g: Tensor) -> Any:
    return (g,)


def turning(source: Any, conj: bool, neg: bool) -> Any:
    """The node of the conjugates or negatives of what `source` is the node of."""
    return None if source is None else tape.node(_turned_back, (source,), (conj, neg), "ConjBackward0" if conj else "NegViewBackward0")


def shown(t: Tensor, conj: bool, neg: bool) -> Tensor:
    """A view of the conjugates, or the negatives, of a tensor's elements."""
    if t.meta.__class__ is Lazy:
        had = bits(t)
        conj, neg, r = had[0] ^ conj, had[1] ^ neg, _on_memory(t, None)
    else:
        had, r = (False, False), alias(t, t.meta, t.ptr)
        if "_made" in t.__dict__:
            r.__dict__["_made"] = t.__dict__["_made"]
    inplace.note_view(t if t.base is None else t.base, r)
    if t.node is not None and _grad.get():
        r.node = turning(t.node, conj ^ had[0], neg ^ had[1])
    return flag(r, conj, neg)


# --------------------------------------------------------------------------------------------------------------- operations
def _turning(m: Meta, conj: bool, neg: bool) -> Turned:
    """The plan of a view of the conjugates, or the negatives, of tensors of a plain layout."""
    like = Lazy.of(m)
    like.conj, like.neg = conj, neg
    return Turned(like, lambda t: shown(t, conj, neg))


@op(batch="pointwise", tangent="linear", sparse="values", own_view=True, gives="Tensor")
def conj(input: Tensor) -> Any:  # noqa: A002 (PyTorch's name)
    """The complex conjugate, a view: the elements are conjugated when they are read, and writes go through. A real tensor is its own."""
    if isinstance(input, Expr):  # type: ignore[unreachable]  # in a formula
        return complexes.conj_physical.__operation__.body(input)  # type: ignore[unreachable]
    return _turning(under(input.meta), True, False) if input.meta.dtype.is_complex else Compose(lambda t: t)


@op(batch="pointwise", tangent="linear", own_view=True, gives="Tensor")
def _neg_view(input: Tensor) -> Any:  # noqa: A002
    """The negative, a view: the elements are negated when they are read. Raises NotImplementedError for truths."""
    if input.meta.dtype.kind == "b":
        raise NotImplementedError("_neg_view: truths have no negatives; use logical_not()")
    return _turning(under(input.meta), False, True)


@op(batch="pointwise", tangent="linear")
def resolve_conj(input: Tensor) -> Tensor:  # noqa: A002
    """The elements of a conjugate view in memory of their own; another tensor itself."""
    return input


@op(batch="pointwise", tangent="linear")
def resolve_neg(input: Tensor) -> Tensor:  # noqa: A002
    """The elements of a negative view in memory of their own; another tensor itself."""
    return input


setattr(Tensor, "_neg_view", _neg_view)  # noqa: B010 (mypy forbids a method's assignment)


# ------------------------------------------------------------------------------------------------------------------ answers
def answer(operation: Operation, values: tuple[Any, ...], out: Any = None) -> Any:
    """A call with conjugate or negative views among its operands."""
    name, first = operation.name, values[0] if values else None
    args, kwargs = operation._signature().as_written(values)
    if out is not None:
        return _into(operation, out, args, kwargs)
    if isinstance(first, Tensor) and first.meta.__class__ is Lazy:
        own = _OWN.get(name)
        if own is not None:
            return own(first, *args[1:], **kwargs)
        if _MEMORY.get(name) == "none":
            return operation.as_they_are(values)
        if _MEMORY.get(name) == "relaid":
            return _relaid(operation, first, args, kwargs)
        if name[-1] == "_" and name[-2:] != "__":
            return _written(operation, first, args, kwargs)
        if _MEMORY.get(name) == "view":
            made = _viewed(operation, first, args, kwargs)
            if made is not NotImplemented:
                return made
    given = tuple([all_resolved(a) for a in args])
    made = operation.function(*given, **all_resolved(kwargs))
    return first if given and made is given[0] else made


def _viewed(operation: Operation, t: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation shows of the memory; NotImplemented where it shows none."""
    given = tuple([all_resolved(a) for a in args[1:]])
    bare = _on_memory(t, t.node)
    made = operation.function(bare, *given, **all_resolved(kwargs))
    if made is bare:
        return t
    parts = made if isinstance(made, (tuple, list)) else (made,)
    if not parts or any(p.store is not t.store for p in parts):
        return NotImplemented
    for p in parts:
        if p.meta.dtype is not t.meta.dtype and operation.name != "view_as_complex":
            word = "conjugate view tensors" if bits(t)[0] else "tensors with negative bit set"
            raise RuntimeError(f"torch.Tensor.view is not supported for {word} when converting to a different dtype: resolve it first")
        _also(p, *bits(t))
    return made


def _also(t: Tensor, conj: bool, neg: bool) -> None:
    """Turns the elements of a view once more."""
    had = bits(t)
    if t.meta.__class__ is Lazy:
        t.ptr, t.meta = address(t), under(t.meta)
    flag(t, conj ^ had[0], neg ^ had[1])


def _write(t: Tensor, new: Tensor) -> Tensor:
    """Gives `t` new elements."""
    conj, neg = bits(t)
    memory = _on_memory(t, turning(t.node, conj, neg))
    if memory.meta.shape != new.meta.shape:
        memory.resize_(tuple(new.meta.shape))
        t.meta = under(memory.meta)
        t.ptr = memory.ptr
        flag(t, conj, neg)
    memory.copy_(turned(new, conj, neg))
    if t.base is None:
        t.node = turning(memory.node, conj, neg)
    return t


def _written(operation: Operation, t: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation that writes into the view: it writes into a copy, which is written to the memory."""
    if t.node is not None and _grad.get():
        inplace.check(t, ())
    new = resolved(t)
    made = operation.function(new, *[all_resolved(a) for a in args[1:]], **all_resolved(kwargs))
    if made is not new and made is not None:
        return made
    _write(t, new)
    return t if made is new else None


def _into(operation: Operation, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with `out=`."""
    outs = out if isinstance(out, (tuple, list)) else (out,)
    targets = [all_resolved(o) for o in outs]
    made = operation.function(*[all_resolved(a) for a in args], **all_resolved(kwargs), out=targets[0] if outs[0] is out else type(out)(targets))
    for o, target in zip(outs, targets, strict=True):
        if o is not target:
            _write(o, target)
    return out if isinstance(made, Tensor) or not hasattr(made, "_fields") else type(made)(*outs)


def _relaid(operation: Operation, t: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation that gives the tensor another layout or memory."""
    conj, neg = bits(t)
    bare = _on_memory(t, t.node)
    operation.function(bare, *[all_resolved(a) for a in args[1:]], **all_resolved(kwargs))
    t.meta, t.ptr, t.store, t.node, t.base = bare.meta, bare.ptr, bare.store, bare.node, bare.base
    return flag(t, conj, neg)


def _real(t: Tensor) -> Tensor:
    return flag(real(_on_memory(t, t.node)), False, bits(t)[1]) if t.meta.dtype.is_complex else t


def _imag(t: Tensor) -> Tensor:
    conj, neg = bits(t)
    return flag(imag(_on_memory(t, t.node)), False, conj ^ neg)


def _numpy(t: Tensor, *, force: bool = False) -> Any:
    if force:
        return t.detach().resolve_conj().resolve_neg().numpy(force=True)
    word, way = _WORDS["conj" if bits(t)[0] else "neg"]
    raise RuntimeError(f"Can't call numpy() on Tensor that has {word} bit set. Use tensor.{way}().numpy() instead.")


def _as_real(t: Tensor) -> Tensor:
    conj, neg = bits(t)
    if conj:
        raise RuntimeError("view_as_real doesn't work on unresolved conjugated tensors: resolve_conj() gives one, which does not show the same memory.")
    return flag(view_as_real(_on_memory(t, t.node)), False, neg)


def _cloned(which: int) -> Callable[[Tensor], Tensor]:
    """Of `resolve_conj` and `resolve_neg`: the view itself where it has no such bit, else its elements."""
    def call(t: Tensor) -> Tensor:
        if not bits(t)[which]:
            return t
        made = resolved(t)
        made.node = None
        return tape.record(made, _as_it_is, (t,), None, "CloneBackward0")
    return call


_OWN: dict[str, Callable[..., Any]] = {
    "conj": lambda t: shown(t, True, False) if t.meta.dtype.is_complex else t, "_neg_view": lambda t: shown(t, False, True),
    "resolve_conj": _cloned(0), "resolve_neg": _cloned(1), "real": _real, "imag": _imag, "numpy": _numpy, "view_as_real": _as_real,
    "is_conj": lambda t: bits(t)[0], "is_neg": lambda t: bits(t)[1]}

layouts[Lazy] = answer
hooks.provide(resolved=resolved, settle=settle, turning=turning)
