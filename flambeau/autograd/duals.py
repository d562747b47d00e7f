"""Tensors with tangents, which forward-mode differentiation carries along: where the tangents are kept.

A dual tensor is the tensor itself: the same object, memory and history. Its tangents are kept beside its other attributes, one for each level
(each `func.jvp` at work is one, inner ones higher), and its meta is a `DualMeta`, which is in the key of no plan, so that an operation
notices it where it looks its operands up and asks (`pushing.answer`). Tensors without tangents pay nothing.

A tangent is an ordinary tensor, laid out as the tensor it belongs to, and perhaps a dual one of the levels outside. The tangent of a view is a view
of its base's tangent, so that writes to one are seen in the other.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

from .._core import hooks, layout
from .._core import ops as _ops
from .._core.autograd import tape
from .._core.autograd.mode import _grad
from .._core.engine.plans import under
from .._core.runtime import caches
from .._core.tensor import Guise, Meta, Tensor, alias

if TYPE_CHECKING:
    from collections.abc import Iterator

ops: Any = _ops
KEY = "_tangents"  # of a tensor's attributes: tangents by level


class DualMeta(Guise):
    """The meta of a tensor with tangents."""

    __slots__ = ()


_dressed: dict[Meta, DualMeta] = caches.cache(globals(), "_dressed")


def _dual(m: Meta) -> DualMeta:
    found = _dressed.get(m)
    if found is None:
        since, found = caches.epoch, DualMeta.of(m)
        caches.keep_since(since, _dressed, m, found)
    return found


class Level:
    """One differentiation at work. number: inner ones are higher.  members: the tensors that have a tangent of this level."""

    __slots__ = ("number", "members")
    _last = 0

    def __init__(self) -> None:
        Level._last += 1
        self.number = Level._last
        self.members: dict[int, weakref.ref[Tensor]] = {}

    def end(self) -> None:
        """Takes all tangents of this level away."""
        for ref in list(self.members.values()):
            t = ref()
            if t is not None:
                strip(t, self)
        self.members.clear()


def tangents(t: Tensor) -> dict[Level, Tensor]:
    """The tangents of a tensor, by level."""
    found: dict[Level, Tensor] = t.__dict__.get(KEY) or {}
    return found


def is_dual(t: Any) -> bool:
    """Whether a value is a tensor with tangents."""
    return isinstance(t, Tensor) and not t.meta.plain and KEY in t.__dict__


def attach(t: Tensor, level: Level, tangent: Tensor) -> None:
    """Gives a tensor its tangent of a level, laid out as the tensor."""
    hooks.settle(t)
    tangent = fitted(hooks.resolved(tangent), t)
    t.__dict__.setdefault(KEY, {})[level] = tangent
    if not isinstance(t.meta, DualMeta):
        t.meta = _dual(under(t.meta))
    key, members = id(t), level.members
    if key not in members:
        members[key] = weakref.ref(t, lambda _: members.pop(key, None))


def keep(source: Tensor, target: Tensor) -> None:
    """Gives a tensor the tangents of another, of which it is a copy by another class."""
    for level, tangent in tangents(source).items():
        attach(target, level, tangent)


def strip(t: Tensor, level: Level) -> None:
    """Takes the tangent of a level from a tensor."""
    kept = t.__dict__.get(KEY)
    if kept:
        kept.pop(level, None)
    if not kept:
        undress(t)
    level.members.pop(id(t), None)


def undress(t: Tensor) -> None:
    """Makes a tensor a plain one; also one that took over the meta of one with tangents, and has none itself."""
    t.__dict__.pop(KEY, None)
    if isinstance(t.meta, DualMeta):
        t.meta = t.meta.under


class without:
    """A block in which these tensors have no tangents (of one level, or of any)."""

    __slots__ = ("_given", "_level", "_kept")

    def __init__(self, given: list[Tensor], level: Level | None = None) -> None:
        self._given = {id(t): t for t in given}  # one may be among the operands twice
        self._level = level
        self._kept: list[tuple[Tensor, dict[Level, Tensor]]] = []

    def __enter__(self) -> None:
        for t in self._given.values():
            kept = t.__dict__.pop(KEY, None)
            if kept is not None:
                self._kept.append((t, kept))
                rest = {} if self._level is None else {k: v for k, v in kept.items() if k is not self._level}
                if rest:
                    t.__dict__[KEY] = rest
                else:
                    undress(t)

    def __exit__(self, *exc: object) -> None:
        for t, kept in self._kept:
            t.__dict__[KEY] = kept
            if not isinstance(t.meta, DualMeta):
                t.meta = _dual(under(t.meta))


def lowered(t: Tensor, level: Level) -> Tensor:
    """A tensor on the same memory, with the same history, without the tangent of this level."""
    made = alias(t, under(t.meta), t.ptr)
    made.node = t.node
    for other, tangent in tangents(t).items():
        if other is not level:
            attach(made, other, tangent)
    return made


def apart(t: Any) -> Any:
    """`detach` for what differentiates: the tangents stay, without their history too."""
    made = t.detach()
    for level, tangent in tangents(t).items():
        attach(made, level, apart(tangent))
    return made


def recorded(t: Tensor) -> bool:
    """Whether a tensor or one of its tangents has a history."""
    return t.node is not None or any(recorded(x) for x in tangents(t).values())


def fitted(tangent: Tensor, t: Tensor) -> Tensor:
    """A tangent in the shape and layout of what it belongs to; of PyTorch's rules for types, only that real tensors have real tangents."""
    m, own = t.meta, tangent.meta
    made: Any = tangent
    if own.dtype.is_complex and not m.dtype.is_complex:
        made = ops.real(made)
    if own.shape != m.shape:
        made = made.expand(m.shape)
    if made.meta.strides == m.strides or all(n == 1 or a == b for n, a, b in zip(m.shape, made.meta.strides, m.strides, strict=True)) or not m.numel:
        return made  # type: ignore[no-any-return]
    if layout.overlaps_itself(tuple(m.shape), m.strides):
        return made  # type: ignore[no-any-return]
    like: Any = ops.empty_strided(tuple(m.shape), m.strides, dtype=made.meta.dtype, device=made.meta.device)
    return like.copy_(made)  # type: ignore[no-any-return]


def write(t: Any, level: Level, tangent: Tensor | None) -> None:
    """The tangent of what was just written into `t` (None: zero). Where its base, or views of it, have tangents, those change too."""
    own: Any = tangents(t).get(level)
    if own is None:
        if tangent is None:
            return
        base = getattr(t, "base", None)
        if base is None:
            attach(t, level, tangent)
            _views(t, level)
            return
        if level not in tangents(base):
            attach(base, level, ops.empty_strided(tuple(base.meta.shape), base.meta.strides, dtype=base.meta.dtype, device=base.meta.device).zero_())
            _views(base, level)
        if level not in tangents(t):
            _show(base, t, level)
        own = tangents(t).get(level)
        if own is None:  # a view by another type
            attach(t, level, tangent)
            return
    if own.node is not None and own.node[tape.SEQ] == 0 and _grad.get():  # a leaf of the user's: it stays as it is
        attach(t, level, ops.zeros_like(own) if tangent is None else tangent)
    elif tangent is None:
        own.zero_()
    else:
        own.copy_(tangent)


def _views(base: Tensor, level: Level) -> None:
    """Gives the views that there are of a tensor their parts of its tangent, which is new."""
    found = [ref() for ref in base.__dict__.get("_views", ())]
    if not _grad.get():  # where nothing is recorded, tensors keep no list of their views
        found += [x for x in gc.get_referrers(base.store) if isinstance(x, Tensor)]
    for view in found:
        if view is not None and getattr(view, "base", None) is base and level not in tangents(view):
            _show(base, view, level)


def _show(base: Tensor, view: Tensor, level: Level) -> None:
    """Gives a view its part of its base's tangent."""
    whole: Any = tangents(base)[level]
    if view.meta.dtype is base.meta.dtype and whole.meta.strides == base.meta.strides:
        offset = (view.ptr - base.ptr) // base.meta.dtype.itemsize + whole.storage_offset()
        attach(view, level, whole.as_strided(tuple(view.meta.shape), view.meta.strides, offset))


# --------------------------------------------------------------------------------------------------------------- structures
def members(x: Any, kind: type = Tensor) -> Iterator[Any]:
    """The tensors of a class among values and in tuples, lists, slices and dicts of them."""
    if isinstance(x, kind):
        yield x
    elif isinstance(x, (tuple, list)):
        for y in x:
            yield from members(y, kind)
    elif isinstance(x, dict):
        yield from members(list(x.values()), kind)
    elif isinstance(x, slice):
        yield from members((x.start, x.stop, x.step), kind)


def replaced(x: Any, change: Any, kind: type = Tensor) -> Any:
    """A structure with `change` made to each tensor of a class in it."""
    if isinstance(x, kind):
        return change(x)
    if isinstance(x, (tuple, list)) and type(x).__name__ != "Size":
        parts = [replaced(y, change, kind) for y in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if isinstance(x, dict):
        return {k: replaced(v, change, kind) for k, v in x.items()}
    return x
