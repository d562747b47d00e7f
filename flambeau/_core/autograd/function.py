"""`Function`: operations whose forward and backward a user writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import hooks, layout
from ..tensor import Tensor, alias
from . import tape
from .mode import _grad, no_grad
from .saved import Packed, packed

if TYPE_CHECKING:
    from collections.abc import Sequence


class FunctionCtx:
    """What `forward` leaves for `backward`: saved tensors, marks, and any attribute."""

    needs_input_grad: tuple[bool, ...]

    def __init__(self) -> None:
        self._saved: tuple[Any, ...] = ()
        self._non_differentiable: set[int] = set()
        self._dirty: set[int] = set()
        self._materialize = True
        self._forward: tuple[Any, ...] | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for backward; changing one in place before then is an error."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument is of type {type(t).__name__}")
        self._saved = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for `jvp`, which runs right after the forward."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_forward can only save tensors, but argument is of type {type(t).__name__}, so it should be saved as an "
                                "attribute of the context")
        self._forward = tensors

    def along(self, function: Any, tangents: Sequence[Any]) -> Any:
        """What the function's `jvp` makes of the tangents of its arguments."""
        self.__dict__["_along"] = True
        try:
            return function.jvp(self, *tangents)
        finally:
            self.__dict__["_along"], self._forward = False, None

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self._non_differentiable = {id(t) for t in tensors}

    def mark_dirty(self, *tensors: Tensor) -> None:
        self._dirty = {id(t) for t in tensors}

    def set_materialize_grads(self, value: bool) -> None:
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        if self.__dict__.get("_along") and self._forward is not None:
            return self._forward
        node = self.__dict__.get("_node")
        if node is not None and node[tape.SAVED] is None:
            tape.freed(node, None)
        out = []
        for t, version, own in self.__dict__.get("_kept", ()):
            if type(t) is Packed:
                t = t.tensor()
            if t is not None and t.store.version != version:
                tape.changed(t, version, node or [0, None, None, (), None, None])
            if own is not None and _grad.get():  # an output saved: its history is this very node
                t = alias(t, t.meta, t.ptr)
                t.node = own[0]
            out.append(t)
        return tuple(out) if "_kept" in self.__dict__ else self._saved


def once_differentiable(backward: Any) -> Any:
    """Marks a backward that cannot itself be differentiated."""
    def run(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            found = backward(ctx, *grads)
        if tape.recording(*[g for g in grads if isinstance(g, Tensor)]):
            several = isinstance(found, (tuple, list))
            found = tuple(alias(t, t.meta, t.ptr) if isinstance(t, Tensor) else t for t in (found if several else (found,)))
            for t in found:
                if isinstance(t, Tensor):
                    tape.record(t, _twice, [g for g in grads if isinstance(g, Tensor)], (), "Error")
            return found if several else found[0]
        return found
    return run


def _twice(node: Any, g: Tensor) -> Any:
    raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


class Function:
    """Base of user-written operations: static `forward(ctx, *args)` (or `forward(*args)` with `setup_context(ctx, inputs,
    output)`) and `backward(ctx, *grads)`, which may be called `vjp`, for forward mode `jvp(ctx, *tangents)`; use through `apply`."""

    generate_vmap_rule = False

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use it "
                                  "with backward mode AD.")

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function "
                           f"with static forward method: {type(self).__name__}.apply(...)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        for a in args:
            if isinstance(a, Tensor) and type(a) is not Tensor and (whole := getattr(type(a), "__function_of_batch__", None)) is not None:
                return whole(cls, args, kwargs)  # examples of a batch
            if isinstance(a, Tensor) and not a.meta.plain and "_tangents" in a.__dict__:
                return hooks.function_of_duals(cls, args, kwargs)
        return cls.carried_out(args, kwargs)[0]

    @classmethod
    def carried_out(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, FunctionCtx]:
        """The result of a call, recorded, and what its `forward` left."""
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.node is not None for a in args)
        record = _grad.get() and any(ctx.needs_input_grad)
        token = _grad.set(False)
        try:
            setup = cls.__dict__.get("setup_context") or getattr(cls, "setup_context", None)
            if setup is not None:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)  # type: ignore[attr-defined]
            else:
                result = cls.forward(ctx, *args, **kwargs)
        finally:
            _grad.reset(token)
        outs = list(result) if isinstance(result, (tuple, list)) else [result]
        if not record:
            return result, ctx
        inputs = [a for a in args if isinstance(a, Tensor)]
        for i, t in enumerate(outs):
            if isinstance(t, Tensor) and any(t is a for a in inputs) and id(t) not in ctx._dirty:
                outs[i] = alias(t, t.meta, t.ptr)  # an input returned as it is becomes an output of its own
        tracked = [t for t in outs if isinstance(t, Tensor) and id(t) not in ctx._non_differentiable and t.meta.dtype.kind in "fc8"]
        edges = tuple(a.node if isinstance(a, Tensor) else None for a in args)
        saved = (cls, ctx, [t.meta for t in tracked], len(outs), [i for i, t in enumerate(outs) if any(t is x for x in tracked)],
                 [a.meta if isinstance(a, Tensor) else None for a in args])
        name = cls.__name__ + "Backward"
        node = tape.node(_run_backward, edges, saved, name)
        node[tape.EXTRA]["outputs"] = len(tracked)
        places: dict[int, list[Any]] = {}
        for i, t in enumerate(tracked):
            out_node = tape.output(node, i, {"name": name})
            if id(t) in ctx._dirty:
                from .inplace import rebase
                rebase(t, out_node)
            else:
                t.node = out_node
            places[id(t)] = [t.node]
        ctx.__dict__["_kept"] = [
            (None, 0, None) if t is None else
            (alias(t, t.meta, t.ptr), t.store.version, places[id(t)]) if id(t) in places else (t, t.store.version, None) for t in ctx._saved]
        ctx._saved = ()
        if tape.anomaly.watchers:
            ctx.__dict__["_kept"] = packed(ctx.__dict__["_kept"])
        ctx.__dict__["_node"] = None
        return (tuple(outs) if isinstance(result, (tuple, list)) else outs[0]), ctx


def _way_back(cls: Any) -> Any:
    """A Function's gradient, by either of its two names.  Raises RuntimeError where both are written."""
    if cls.vjp is Function.vjp:
        return cls.backward
    if cls.backward is not Function.backward:
        raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them.")
    return cls.vjp


def _run_backward(node: tape.Node, gs: list[Any]) -> Any:
    cls, ctx, metas, count, at, wanted = node[tape.SAVED]
    full: list[Any] = [None] * count
    for i, g, m in zip(at, gs, metas, strict=True):
        if g is None and ctx._materialize:
            g = hooks.zeros_meta(m)
        full[i] = g
    found = _way_back(cls)(ctx, *full)
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    edges = node[tape.EDGES]
    while len(found) > len(edges) and found[-1] is None:
        found.pop()
    if len(found) != len(edges):
        raise RuntimeError(f"function {cls.__name__}Backward returned an incorrect number of gradients (expected {len(edges)}, got "
                           f"{len(found)})")
    return [_fitted(cls, i, g, m) if e is not None else None for i, (g, e, m) in enumerate(zip(found, edges, wanted, strict=True))]


def _fitted(cls: Any, i: int, g: Any, m: Any) -> Any:
    """A user's gradient in its input's type, summed over axes the input was broadcast along."""
    if g is None or g.meta is m:
        return g
    if isinstance(g, Tensor):
        g = hooks.resolved(g)
    else:
        raise TypeError(f"function {cls.__name__}Backward returned {type(g).__name__} as gradient {i}; expected a Tensor or None")
    if g.meta.device is not m.device:
        raise RuntimeError(f"Function {cls.__name__}Backward returned an invalid gradient at index {i} - expected device {m.device} but got "
                           f"{g.meta.device}")
    try:
        fits = tuple(layout.broadcast_shapes(g.meta.shape, m.shape)) == tuple(g.meta.shape)
    except RuntimeError:
        fits = False
    if not fits:
        raise RuntimeError(f"Function {cls.__name__}Backward returned an invalid gradient at index {i} - got {list(g.meta.shape)} but expected "
                           f"shape compatible with {list(m.shape)}")
    if g.meta.shape == m.shape and g.meta.dtype is m.dtype:
        return g  # of other strides
    return hooks.fit(g, m)


for _kind in (Function, FunctionCtx):
    _kind.__module__ = "flambeau.autograd.function"  # where a program finds them
