"""Calls with dual tensors: the result, and its tangents.

What is linear does itself on the tangents (the field "tangent" of an operation). Any other is carried out on shadows of its operands, recorded, whoever records
otherwise, and the tangents are pushed through what it put on the tape (`through_tape`).

With tangents of several levels the outermost comes first: the operation is called again, on shadows that have only those of the inner levels,
and what comes of that, results and inner tangents alike, is on the tape and gets its outer tangents.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .._core import hooks
from .._core import ops as _ops
from .._core.autograd import functions, inplace, tape
from .._core.autograd.mode import _grad, _inference
from .._core.engine import fields
from .._core.engine.operation import answers
from .._core.runtime.capture import now
from .._core.tensor import Tensor
from . import through_tape
from .duals import DualMeta, Level, attach, is_dual, keep, lowered, members, recorded, replaced, strip, tangents, undress, without, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._core.engine.operation import Operation

ops: Any = _ops
enabled: ContextVar[bool] = ContextVar("forward-mode differentiation", default=True)


_TANGENT = fields.of("tangent")


def differentiable(t: Any) -> bool:
    """Whether a value is a tensor that can have tangents."""
    return isinstance(t, Tensor) and t.meta.dtype.kind in "fc"


def answer(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer for a call with dual tensors among its arguments; NotImplemented where there are none."""
    duals, stale = [], False
    for t in members((args, kwargs)):
        if is_dual(t):
            duals.append(t)
        elif isinstance(t.meta, DualMeta):  # the meta of a dual tensor, taken over by a plain one
            undress(t)
            stale = True
    call = operation.started().direct
    if not duals:
        return call(*args, **kwargs) if stale and all(t.meta.plain for t in members((args, kwargs))) else NotImplemented
    if operation.function.__name__ in ("__repr__", "__format__"):
        return _shown(call, duals, args, kwargs)
    if not enabled.get() or _inference.get() or _TANGENT.get(operation.function.__name__) == "none":
        with without(duals):
            return call(*args, **kwargs)
    name = operation.name
    rule = _TANGENT.get(name)
    if rule == "view":
        return _viewed_in_place(call, args, kwargs)
    if rule in ("linear", "first"):
        if not (name == "constant_pad_nd" and _given("value", 2, args, kwargs)) and not (name == "embedding" and _given("max_norm", 3, args, kwargs)):
            return _linear(call, duals, args, kwargs, rule == "linear")
    elif rule in ("product", "product and bias"):
        made = _product(call, duals, args, kwargs, rule != "product")
        if made is not NotImplemented:
            return made
    writes = (name.endswith("_") and not name.endswith("__")) or kwargs.get("inplace") is True or operation.function.__name__ == "__setitem__"
    return carried(call, duals, args, kwargs, writes)


def innermost(duals: Sequence[Tensor]) -> Level:
    return max((level for t in duals for level in tangents(t)), key=lambda v: v.number)


def _shown(call: Any, duals: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    level = innermost(duals)
    with without(duals):
        text = call(*args, **kwargs)
    tangent = tangents(duals[0])[level]
    return f"{text[:-1]},\n       tangent={tangent!r})" if text.endswith(")") else text


def _given(name: str, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call gives a parameter, and not 0: a value to pad with, a norm to scale to, by which it is not linear."""
    return bool(kwargs.get(name, args[place] if len(args) > place else 0))


# ----------------------------------------------------------------------------------------------------------- linear operations
def _linear(call: Any, duals: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], jointly: bool) -> Any:
    """What is linear: itself on the tangents. jointly: in all tensors, those without a tangent have 0; else in the first."""
    level = innermost(duals)
    if not jointly and level not in tangents(args[0]):
        with without(duals, level):
            return call(*args, **kwargs)
    with without(duals, level):
        made = call(*args, **kwargs)
    if not any(map(differentiable, members(made))):
        return made

    def moved(t: Tensor) -> Any:
        found = tangents(t).get(level)
        return found if found is not None else ops.zeros_like(t) if differentiable(t) else t
    changed = call(*replaced(args, moved), **replaced(kwargs, moved))
    return _joined(made, changed, duals, level)


def _joined(made: Any, changed: Any, duals: list[Tensor], level: Level) -> Any:
    stores = {id(x.store): tangents(x)[level].store for x in duals if level in tangents(x)}
    own = set(map(id, stores.values()))
    for y, v in zip(members(made), members(changed), strict=True):
        if differentiable(y) and not any(y is x for x in duals):
            attach(y, level, v if id(y.store) in stores or id(v.store) not in own else v.clone())
    return made


def _viewed_in_place(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, *rest = args
    kept = dict(tangents(x))
    with without([x]):
        call(x, *rest, **kwargs)
    for level in kept:
        strip(x, level)
    for level, v in kept.items():
        attach(x, level, call(v.view_as(v), *rest, **kwargs))
    return x


def _product(call: Any, duals: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], biased: bool) -> Any:
    """What is linear in each tensor: the sum of what it is with one tensor's tangent in its place. biased: the third is added."""
    level = innermost(duals)
    bias = (args[2] if len(args) > 2 else kwargs.get("bias")) if biased else None
    given = list(members((args, kwargs)))
    places = [i for i, t in enumerate(given) if level in tangents(t) and t is not bias]
    if not places or not all(map(differentiable, given)):
        return NotImplemented
    below = [lowered(t, level) if level in tangents(t) else t for t in given]

    def called(values: list[Any]) -> Any:
        filled = iter(values)
        named: Any
        changed, named = replaced((args, kwargs), lambda t: next(filled))
        return call(*changed, **named)
    made = called(below)
    own: Any = None if bias is None else tangents(bias).get(level)
    total: Any = None
    for place in places:
        values: list[Any] = [tangents(t)[level] if i == place else own if t is bias else low
                             for i, (t, low) in enumerate(zip(given, below, strict=True))]
        own, term = None, called(values)
        total = term if total is None else total + term
    attach(made, level, total)
    return made


# -------------------------------------------------------------------------------------------------------- any other operation
def carried(call: Any, duals: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], writes: bool) -> Any:
    """A call with dual tensors, recorded to push their tangents through it.  writes: it may change its operands."""
    level = min((level for t in duals for level in tangents(t)), key=lambda v: v.number)
    recording = _grad.get() and any(map(recorded, members((args, kwargs))))
    shadows = through_tape.Shadows(level)
    if writes and recording:
        inplace.check(args[0], [t for t in members((args, kwargs)) if differentiable(t)])

    def shadow(t: Tensor) -> Tensor:
        return shadows.of(t) if differentiable(t) and (writes or level in tangents(t)) else t
    now.hold(1)  # what is learned is one node, of which nothing is known
    token = _grad.set(True)
    try:
        made = call(*replaced(args, shadow), **replaced(kwargs, shadow))
    finally:
        _grad.reset(token)
        now.hold(-1)
    results = list(members(made))
    for y in results:
        if not y.meta.plain and not isinstance(y.meta, DualMeta) and not hasattr(y.meta, "under"):
            raise NotImplementedError("forward AD: sparse tensors have no tangents; make the tensor dense, or differentiate by a backward pass")
    of_operands = {id(s): t for t, s, _ in shadows.made.values()}
    written = [(t, s) for t, s, node in shadows.made.values() if s.node is not node]
    stores = {id(t.store) for t, s in ((t, s) for t, s, _ in shadows.made.values())}
    if not written and any(id(y.store) in stores and id(y) not in of_operands and differentiable(y) for y in results):
        return _linear(call, duals, args, kwargs, True)  # views
    outs = [s for _, s in written]
    for y in results:
        if differentiable(y) and id(y) not in of_operands and not any(y is o for o in outs):
            outs.append(y)
    parts = [x for y in outs for x in _parts(y)]  # results and their tangents of inner levels
    pushed = through_tape.pushed(parts, shadows, recording)
    for x in (*parts, *[v for v in pushed if v is not None]):
        through_tape.settle(x, shadows, recording)
    for x, v in zip(parts, pushed, strict=True):
        if v is not None and id(x) not in of_operands:
            attach(x, level, v)
    for t, s in written:
        _rewritten(t, s, dict(zip(map(id, parts), pushed, strict=True)), level, recording)
    if any(id(y) in of_operands for y in results):
        made = replaced(made, lambda y: of_operands.get(id(y), y))
    return made


def _parts(t: Tensor) -> list[Tensor]:
    return [t, *[x for v in tangents(t).values() for x in _parts(v)]]


def _rewritten(t: Tensor, s: Tensor, pushed: dict[int, Any], level: Level, recording: bool) -> None:
    """An operand that a call wrote to, by way of its shadow: its history and its tangents."""
    if recording and (t.node is not None or s.node is not None):
        inplace.rebase(t, s.node if s.node is not None or getattr(t, "base", None) is None else tape.new(through_tape.nothing, ()))
    write(t, level, pushed[id(s)])
    for other in {*tangents(t), *tangents(s)} - {level}:
        inner = tangents(s).get(other)
        if inner is not tangents(t).get(other):
            write(t, other, inner)


# -------------------------------------------------------------------------------------------------------------- gradients
def grad_of_duals(outputs: list[Any], inputs: list[Any], vectors: list[Any], *, retain_graph: Any, create_graph: bool, **options: Any) -> Any:
    """`autograd.grad` among dual tensors: gradients with tangents.

    The tangent of a gradient is the gradient of the tangent, as derivatives may be taken in any order.
    """
    tensors = [t for t in (*outputs, *inputs, *vectors) if is_dual(t)]
    level = innermost(tensors)

    def low(t: Any) -> Any:
        return lowered(t, level) if isinstance(t, Tensor) and is_dual(t) else t
    ys, xs, vs = [low(y) for y in outputs], [low(x) for x in inputs], [low(v) for v in vectors]
    found = functions.grad(ys, xs, vs, retain_graph=True, create_graph=create_graph, **options)
    roots = []
    for y, y_low, v, v_low in zip(outputs, ys, vectors, vs, strict=True):
        own = tangents(y).get(level) if isinstance(y, Tensor) else None
        if own is not None and own.node is not None:
            roots.append((own, ops.ones_like(own) if v is None else v_low))
        other = None if v is None else tangents(v).get(level)
        if other is not None:
            roots.append((y_low, other))
    if not roots:
        return found
    options |= {"allow_unused": True, "materialize_grads": False}
    moved = functions.grad([y for y, _ in roots], xs, [v for _, v in roots], retain_graph=retain_graph or create_graph, create_graph=create_graph,
                           **options)
    for g, v in zip(found, moved, strict=True):
        if g is not None and v is not None:
            attach(g, level, v)
    return found


def function_of_duals(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An autograd.Function on dual tensors: by its own `jvp`, at the innermost level; by its `backward` at those outside."""
    duals = [t for t in members((args, kwargs)) if is_dual(t)]
    if not enabled.get() or _inference.get():
        with without(duals):
            return function.apply(*args, **kwargs)
    levels = {level for t in duals for level in tangents(t)}
    if len(levels) > 1:
        return carried(function.apply, duals, args, kwargs, False)
    (level,) = levels
    with without(duals):
        made, ctx = function.carried_out(args, kwargs)
    given = [tangents(x).get(level) if isinstance(x, Tensor) else None for x in args]
    if ctx._materialize:
        given = [ops.zeros_like(x) if v is None and differentiable(x) else v for x, v in zip(args, given, strict=True)]
    versions = [None if v is None else v.store.version for v in given]
    with without(duals):
        found = ctx.along(function, given)
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    several = isinstance(found, (tuple, list))
    if len(results) != (len(found) if several else 1):
        raise RuntimeError(f"Function's jvp returned an invalid number of forward gradients (expected {len(results)} but got {len(found) if several else 1})")
    for i, (y, v) in enumerate(zip(results, found if several else [found], strict=True)):
        if v is not None and not isinstance(v, Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(v).__name__}) for grad output {i}.")
        if not differentiable(y) or id(y) in ctx._non_differentiable:
            if v is not None:
                raise RuntimeError(f"A custom Function's jvp returned a tangent of output {i}, which is not differentiable. You should return None at that "
                                   "position instead.")
            continue
        if v is None:
            continue
        if v.meta.shape != y.meta.shape:
            raise RuntimeError(_SIZES.format(list(y.meta.shape), list(v.meta.shape)))
        at = next((k for k, x in enumerate(args) if isinstance(x, Tensor) and x.store is y.store), None)
        if at is None:
            attach(y, level, v)
        elif id(y) in ctx._dirty:
            if (v is not given[at] and tangents(y).get(level) is not None) or (v is given[at] and v.store.version == versions[at]):
                raise RuntimeError("An inplace custom Function is not modifying the forward mode gradients inplace: the jvp function must modify the "
                                   f"corresponding gradient inplace, that of input {at}, and return it.")
            write(y, level, v)
        else:
            was = given[at]
            if was is None or v is was or v.store is not was.store:
                which = "given" if v.base is None or was is None or was.base is None else "same base as the given"
                raise RuntimeError("A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view of the "
                                   f"{which} tangent: return tangent.view_as(tangent) for output {i}.")
            if y is args[at]:
                with without(duals):
                    results[i] = y.view_as(y)
            attach(results[i], level, v)
    return tuple(results) if isinstance(made, (tuple, list)) else results[0]


_SIZES = ("Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. Tensor is of size {} "
          "while the given forward gradient is of size {}.")


def carry_duals(call: Any, args: tuple[Any, ...]) -> Any:
    """A call of a function of tensors that is no operation, with dual ones among them."""
    duals = [t for t in members(args) if is_dual(t)]
    if not enabled.get() or _inference.get():
        with without(duals):
            return call(*args)
    return carried(call, duals, args, {}, False)


def no_out_of_duals(name: str) -> None:
    """Raises PyTorch's error for an operation with `out=` and dual tensors."""
    if enabled.get():
        raise NotImplementedError(f"Trying to use forward AD with {name}_out that does not support it because it is an out= function")


answers.append(answer)
hooks.provide(answer_of_duals=answer, carry_duals=carry_duals, keep_tangents=keep)
hooks.provide(function_of_duals=function_of_duals, grad_of_duals=grad_of_duals, no_out_of_duals=no_out_of_duals)
