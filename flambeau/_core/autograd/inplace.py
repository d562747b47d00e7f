"""Writing in place under autograd: what may be written, and how histories are rebuilt afterwards."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .. import hooks, layout
from ..runtime import versions
from ..tensor import Lazy, Tensor, alias, meta
from . import tape
from .mode import _grad

if TYPE_CHECKING:
    from collections.abc import Sequence


def check(t: Tensor, operands: Sequence[Any]) -> bool:
    """Whether an in-place operation on `t` is recorded.  Raises RuntimeError where PyTorch forbids it.  Grad mode is on."""
    n = t.node
    if n is not None:
        base = t.base
        if base is not None:
            if t.__dict__.get("_made", ("",))[0] == "several":
                _may_rebase(t)
            if base.node is None or base.node[tape.SEQ] == 0:  # a plain base is a leaf too
                raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
            _may_rebase(t)
        if n[0] == 0:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        return True
    if t.meta.dtype.kind not in "fc":
        return False
    recorded = any(isinstance(x, Tensor) and x.node is not None for x in operands)
    base = t.base
    if base is not None and (recorded or base.node is not None):
        _may_rebase(t)
        if base.node is not None and base.node[tape.SEQ] == 0:  # it requires grad since the view was taken
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
    return recorded


def of_leaf(t: Tensor) -> bool:
    """Whether `t` requires grad and is a leaf or a view of one, where a write is forbidden unless it goes unseen by autograd."""
    base = t if t.base is None else t.base
    return t.node is not None and (base.node is None or base.node[tape.SEQ] == 0)


_WHY = {
    "several": "This view is the output of a function that returns multiple views. Such functions do not allow the output views to be "
               "modified inplace. You should replace the inplace operation by an out-of-place one.",
    "no_grad": "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Make both the view and the "
               "write inside the no_grad block (so that the write is not recorded) or both outside (so that it is).",
    "inference": "A view was created in inference mode and is being modified inplace in normal mode. Make both the view and the write inside the "
                 "inference_mode block (so that the write is not recorded) or both outside (so that it is).",
}
UNSEEN = ("inference", 0, "")  # what is said of a view that was made in inference mode of what was made outside


def _may_rebase(view: Tensor) -> None:
    """Raises RuntimeError for views whose history a recorded write could not mend."""
    made = view.__dict__.get("_made")
    if made is not None:
        kind, place, name = made
        what = f"Output {place} of {name} is a view and is being modified inplace. " if kind == "several" else ""
        raise RuntimeError(what + _WHY[kind])


def one_of_several(views: Sequence[Tensor], name: str) -> None:
    """Marks the outputs of a function that returns several views: recorded writes to them are errors, as to those of which it is known already."""
    for i, view in enumerate(views):
        view.__dict__.setdefault("_made", ("several", i, name))


def note_view(base: Tensor, view: Tensor) -> None:
    """Remembers a view, so that a later recorded write can refresh its history."""
    view.base = base
    if not _grad.get():
        note_unseen(base, view)
    elif (base.node is None or base.node[tape.SEQ] != 0) and base.meta.dtype.kind in "fc":
        note(base, view)


def note_unseen(base: Tensor, view: Tensor) -> None:
    """Remembers that a view is made while nothing is recorded."""
    if versions.entered and versions.inference.get():
        if base.store.version >= 0:
            view.__dict__["_made"] = UNSEEN
    elif base.node is not None:
        view.__dict__["_made"] = ("no_grad", 0, tape.name_of(base.node))


def note(base: Tensor, view: Tensor) -> None:
    """Puts a view on its base's list of those whose history a recorded write changes."""
    views = base.__dict__.get("_views")
    if views is None:
        base.__dict__["_views"] = [weakref.ref(view)]
        return
    count = len(views)
    if count > 16 and count & count - 1 == 0:  # at powers of two, so that many living views are not looked through each time
        views[:] = [r for r in views if r() is not None]
    views.append(weakref.ref(view))


def rebase(t: Tensor, node: Any) -> None:
    """`node` is the history of t's new value: gives it to t, to its base and to the base's other views."""
    base = t.base
    if base is None:
        renew(t, node)
        refresh(t, t)
        return
    # base = its old value with the view's elements replaced
    renew(base, tape.new(_replaced, (base.node, node), (base.meta, t.meta, t.ptr - base.ptr), {"name": "CopySlices"}))
    renew(t, _view_node(base, t))
    refresh(base, t)


def renew(t: Tensor, node: Any) -> None:
    """Gives t its new history; a gradient that `retain_grad` asked for is that of the new value."""
    extra = t.node[tape.EXTRA] if t.node is not None else None
    if extra is not None and "retain" in extra and node is not None and node is not t.node:
        node[tape.EXTRA] = {**(node[tape.EXTRA] or {}), "retain": extra.pop("retain")}
    t.node = node


def refresh(base: Tensor, done: Tensor) -> None:
    for ref in base.__dict__.get("_views", ()):
        view = ref()
        if view is not None and view is not done and view.base is base:
            renew(view, _view_node(base, view))


def _view_node(base: Tensor, view: Tensor) -> Any:
    m = view.meta
    if m.__class__ is Lazy:
        shown = tape.new(_as_strided, (base.node,), (base.meta, m.under, m.address - base.ptr), {"name": "AsStridedBackward0"})
        return hooks.turning(shown, m.conj, m.neg)
    return tape.new(_as_strided, (base.node,), (base.meta, view.meta, view.ptr - base.ptr), {"name": "AsStridedBackward0"})


def _replaced(node: Any, g: Tensor) -> Any:
    return _cleared(g, node[tape.SAVED]), _taken(g, node[tape.SAVED])


def _as_strided(node: Any, g: Tensor) -> Any:
    return (_put(g, node[tape.SAVED]),)


# Linear maps between a base and the part of it that a view shows; a place is (the base's meta, the view's meta, bytes
# between their first elements).  Each is recorded with its adjoint, so gradients of gradients pass through view writes.
def _dense(g: Tensor, place: Any) -> tuple[Tensor, Tensor]:
    """A copy of `g` laid out like the base, and the view's elements of it; outside the tape."""
    like, part, offset = place
    whole = hooks.dense_copy(alias(g, g.meta, g.ptr), like)
    return whole, _at(whole, like, part, offset)


def _at(whole: Tensor, like: Any, part: Any, offset: int) -> Tensor:
    """The elements of `whole`, laid out like `like`, at a view's place.  A view may show the parts of complex numbers."""
    d = whole.meta.dtype if part.dtype is like.dtype else part.dtype
    return alias(whole, meta(part.shape, part.strides, d, whole.meta.device), whole.ptr + offset)


def _cleared(g: Tensor, place: Any) -> Tensor:
    """`g` with 0 at the place."""
    whole, here = _dense(g, place)
    here.zero_()
    return tape.record(whole, lambda node, gg: (_cleared(gg, node[tape.SAVED]),), (g,), place, "CopySlicesBackward0")


def _taken(g: Tensor, place: Any) -> Tensor:
    """The elements of `g` at the place."""
    out = _dense(g, place)[1].clone()
    return tape.record(out, lambda node, gg: (_put(gg, node[tape.SAVED]),), (g,), place, "AsStridedBackward0")


def _put(g: Tensor, place: Any) -> Tensor:
    """Zeros like the base with `g` at the place; elements shown more than once get the sum."""
    like, part, offset = place
    given = alias(g, g.meta, g.ptr)
    d = g.meta.dtype if part.dtype is like.dtype else like.dtype
    whole = hooks.zeros_meta(meta(like.shape, like.strides, d, g.meta.device))
    here = _at(whole, like, part, offset)
    for axis, (n, step) in enumerate(zip(part.shape, part.strides, strict=True)):
        if step == 0 and n > 1:  # an expanded axis: its elements are one
            given, here = given.sum(axis, keepdim=True), here.narrow(axis, 0, 1)
    if layout.overlaps_itself(here.meta.shape, here.meta.strides):
        whole = hooks.strided_sum(given, like, tuple(here.meta.shape), here.meta.strides, offset // g.meta.dtype.itemsize)
    else:
        here.add_(given)
    return tape.record(whole, lambda node, gg: (_taken(gg, node[tape.SAVED]),), (g,), place, "AsStridedBackward0")


__all__ = ["alias", "check", "note_view", "rebase"]
