"""`Function`: operations whose forward and backward a user writes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from .. import hooks, layout
from ..errors import warn
from ..tensor import Tensor, alias
from . import tape
from .mode import _grad, no_grad
from .saved import Packed, packed


class Called(tape.Described):
    """What the node of a call of a Function has first among what it saves, and after that is freed in the place of its backward function."""

    __slots__ = ("cls", "ctx")

    def __init__(self, cls: type[Function], ctx: FunctionCtx) -> None:
        super().__init__(cls.__name__ + "Backward")
        self.cls, self.ctx = cls, ctx


class Kept(list[Any]):
    """What a call keeps of `save_for_backward`: for each the tensor, its version, and the node of which it is a result.  It goes with what its node
    saves; the `ctx` refers to it weakly."""

    __slots__ = ("__weakref__",)


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
        if self.__dict__.get("_along"):
            return self._forward or ()
        if "_kept" not in self.__dict__:
            return self._saved
        kept = self._kept()  # type: ignore[attr-defined]
        if kept is None:
            tape.freed([], None)
        out = []
        for t, version, own in kept:
            if type(t) is Packed:
                t = t.tensor()
            if t is not None and t.store.version != version:
                tape.changed(t, version, tape.leaf())
            if own is not None and _grad.get():  # an output saved: its history is this very node
                t = alias(t, t.meta, t.ptr)
                t.node = own[0]
            out.append(t)
        return tuple(out)

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """`saved_tensors`, by a name that PyTorch warns of."""
        warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning)
        return self.saved_tensors


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
    _backward_cls: type  # of its calls' nodes

    def __init_subclass__(cls, **options: Any) -> None:
        from .graph import BackwardCFunction
        super().__init_subclass__(**options)
        cls._backward_cls = type(cls.__name__ + "Backward", (BackwardCFunction,), {"__slots__": (), "_forward_cls": cls})

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """The rule of a Function's own for batches: ``vmap(info, in_dims, *args)`` gives the results and where their batches lie.  Without one, `func.vmap`
        runs `forward` and `backward` on batches."""
        raise NotImplementedError("this Function has no vmap of its own")

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
        if ctx._dirty:
            _check_written(ctx, args, outs)
        if not record:
            return result, ctx
        inputs = [a for a in args if isinstance(a, Tensor)]
        for i, t in enumerate(outs):
            if isinstance(t, Tensor) and any(t is a for a in inputs) and id(t) not in ctx._dirty:
                outs[i] = alias(t, t.meta, t.ptr)  # an input returned as it is becomes an output of its own
        tracked = [t for t in outs if isinstance(t, Tensor) and id(t) not in ctx._non_differentiable and t.meta.dtype.kind in "fc8"]
        edges = tuple(a.node if isinstance(a, Tensor) else None for a in args)
        kept = Kept()
        called = Called(cls, ctx)
        saved = (called, kept, [t.meta if isinstance(t, Tensor) else None for t in outs], [a.meta if isinstance(a, Tensor) else None for a in args])
        node = tape.node(_run_backward, edges, saved, called.grad_name)
        node[tape.EXTRA]["outputs"] = len(outs)
        places: dict[int, list[Any]] = {}
        for i, t in enumerate(outs):
            if not any(t is x for x in tracked):
                continue
            out_node = tape.output(node, i, {"name": called.grad_name})
            if id(t) in ctx._dirty:
                from .inplace import rebase
                rebase(t, out_node)
            else:
                t.node = out_node
            places[id(t)] = [t.node]
        found = [(None, 0, None) if t is None else
                 (alias(t, t.meta, t.ptr), +t.store.version, places[id(t)]) if id(t) in places else (t, +t.store.version, None) for t in ctx._saved]
        kept.extend(packed(found) if tape.anomaly.watchers else found)
        ctx._saved = ()
        ctx.__dict__["_kept"] = weakref.ref(kept)
        return (tuple(outs) if isinstance(result, (tuple, list)) else outs[0]), ctx


def _check_written(ctx: FunctionCtx, args: tuple[Any, ...], outs: list[Any]) -> None:
    """Raises RuntimeError for an operand that was marked dirty and is no result, or a view written to by a Function of several; warns of what is no operand."""
    results = {id(t) for t in outs}
    if not ctx._dirty <= results:
        raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace must "
                           "all be outputs of the Function.")
    if not ctx._dirty <= {id(a) for a in args}:
        warn("Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need to pass it to mark_dirty().")
    elif len([t for t in outs if isinstance(t, Tensor)]) > 1 and any(id(t) in ctx._dirty and t.base is not None and t.base.node is not None for t in outs
                                                                     if isinstance(t, Tensor)):
        raise RuntimeError("If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one Tensor: "
                           "return one, or clone the view before.")


def _way_back(cls: Any) -> Any:
    """A Function's gradient, by either of its two names.  Raises RuntimeError where both are written."""
    if cls.vjp is Function.vjp:
        return cls.backward
    if cls.backward is not Function.backward:
        raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them.")
    return cls.vjp


def _run_backward(node: tape.Node, gs: list[Any]) -> Any:
    called, _, metas, wanted = node[tape.SAVED]
    cls, ctx = called.cls, called.ctx
    full = [hooks.zeros_meta(m) if g is None and m is not None and ctx._materialize else g for g, m in zip(gs, metas, strict=True)]
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
