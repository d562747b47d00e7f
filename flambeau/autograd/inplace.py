"""Writing in place under autograd: what may be written, and how histories are rebuilt afterwards."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..tensor import Tensor, alias, meta
from . import tape
from .mode import _grad

if TYPE_CHECKING:
    from collections.abc import Sequence


def check(t: Tensor, operands: Sequence[Any]) -> bool:
    """Whether an in-place operation on `t` is recorded.  Raises RuntimeError where PyTorch forbids it.  Grad mode is on."""
    n = t.n
    if n is not None:
        base = getattr(t, "b", None)
        if base is not None:
            if base.n is not None and base.n[0] == 0:
                raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
            _may_rebase(t)
        if n[0] == 0:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        return True
    if t.m.dtype.kind not in "fc":
        return False
    recorded = any(isinstance(x, Tensor) and x.n is not None for x in operands)
    base = getattr(t, "b", None)
    if base is not None and (recorded or base.n is not None):
        _may_rebase(t)
    return recorded


_WHY = {
    "several": "This view is the output of a function that returns multiple views. Such functions do not allow the output views to be "
               "modified inplace. You should replace the inplace operation by an out-of-place one.",
    "no_grad": "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Make both the view and the "
               "write inside the no_grad block (so that the write is not recorded) or both outside (so that it is).",
}


def _may_rebase(view: Tensor) -> None:
    """Raises RuntimeError for views whose history a recorded write could not mend."""
    made = view.__dict__.get("_made")
    if made is not None:
        kind, place, name = made
        what = f"Output {place} of {name} is a view and is being modified inplace. " if kind == "several" else ""
        raise RuntimeError(what + _WHY[kind])


def one_of_several(views: Sequence[Tensor], name: str) -> None:
    """Marks the outputs of a function that returns several views: recorded writes to them are errors."""
    for i, view in enumerate(views):
        view.__dict__["_made"] = ("several", i, name)


def note_view(base: Tensor, view: Tensor) -> None:
    """Remembers a view, so that a later recorded write can refresh its history."""
    view.b = base
    if not _grad.get():
        if base.n is not None:
            view.__dict__["_made"] = ("no_grad", 0, tape.name_of(base.n))
    elif (base.n is None or base.n[0] != 0) and base.m.dtype.kind in "fc":
        views = base.__dict__.setdefault("_views", [])
        if len(views) > 16:
            views[:] = [r for r in views if r() is not None]
        views.append(weakref.ref(view))


def rebase(t: Tensor, node: Any) -> None:
    """`node` is the history of t's new value: gives it to t, to its base and to the base's other views."""
    base = getattr(t, "b", None)
    if base is None:
        t.n = node
        refresh(t, t)
        return
    # base = its old value with the view's elements replaced
    base.n = [tape.next_seq(), None, _replaced, (base.n, node), (base.m, t.m, t.p - base.p), {"name": "CopySlices"}]
    t.n = _view_node(base, t)
    refresh(base, t)


def refresh(base: Tensor, done: Tensor) -> None:
    for ref in base.__dict__.get("_views", ()):
        view = ref()
        if view is not None and view is not done and getattr(view, "b", None) is base:
            view.n = _view_node(base, view)


def _view_node(base: Tensor, view: Tensor) -> Any:
    return [tape.next_seq(), None, _as_strided, (base.n,), (base.m, view.m, view.p - base.p), {"name": "AsStridedBackward0"}]


def _part(whole: Tensor, like: Any, part: Any, offset: int) -> Tensor:
    """The elements of `whole` (contiguous, of the shape of `like`) at a view's place."""
    from ..ops.views import at_same_place
    return at_same_place(whole, like, part, offset)


def _replaced(node: Any, g: Tensor) -> Any:
    like, part, offset = node[tape.SAVED]
    from ..ops.views import dense_copy
    rest = dense_copy(g, like)
    here = _part(rest, like, part, offset)
    mine = here.clone()
    if rest.n is not None:
        rest = rest.clone()
        here = _part(rest, like, part, offset)
    here.zero_()
    return rest, mine


def _as_strided(node: Any, g: Tensor) -> Any:
    like, part, offset = node[tape.SAVED]
    from ..ops.creation import zeros_meta
    whole = zeros_meta(meta(like.shape, like.strides, g.m.dtype, g.m.device))
    here = _part(whole, like, part, offset)
    for axis, (d, s) in enumerate(zip(part.shape, part.strides, strict=True)):
        if s == 0 and d > 1:  # an expanded axis: its elements are one
            g = g.sum(axis, keepdim=True)
            here = here.narrow(axis, 0, 1)
    here.add_(g)
    return (whole,)


__all__ = ["alias", "check", "note_view", "rebase"]
