"""Tensors that stand for one example of a batch, as `vmap` hands them out.

A `Batched` looks like its example (shape, methods) and holds the whole batch, examples first.  It answers for operations by
`__torch_function__`: by a rule (`rules`) that does the operation for the batch at once, else example by example.  Gradients need nothing: the
tape sees the whole batch.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from .._core import hooks
from .._core import ops as _ops
from .._core.autograd.function import Function
from .._core.tensor import Meta, Tensor, _new
from ..autograd import duals
from ..interop import overriding
from ..interop.overriding import Overridable

ops: Any = _ops


class DataDependent(RuntimeError):
    """A program asked for a value that differs between examples."""


class Level:
    """One `vmap` at work: its number (inner ones are higher), its examples, and what it does about random numbers."""

    __slots__ = ("number", "size", "randomness")

    def __init__(self, number: int, size: int, randomness: str) -> None:
        self.number, self.size, self.randomness = number, size, randomness

    def has(self, x: Any) -> bool:
        """Whether a value is batched at this level."""
        return isinstance(x, Batched) and x.level is self

    def wrap(self, made: Any) -> Any:
        """Results, examples first, as this level's tensors."""
        if isinstance(made, Tensor):
            return batched(made, self)
        if isinstance(made, (tuple, list)):
            parts = [self.wrap(x) for x in made]
            return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)
        return made

    def whole(self, x: Any, rank: int | None = None) -> Any:
        """A batched tensor's batch, its example raised to `rank` axes; another tensor or value as it is."""
        if not self.has(x):
            return x
        value = x.value
        missing = 0 if rank is None else rank - (value.ndim - 1)
        return value[(slice(None), *(None,) * missing)] if missing > 0 else value

    def run(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """An operation on what this level's tensors hold, which may be examples of an outer one."""
        return dispatch(func, args, kwargs) if any(True for _ in members((args, kwargs))) else func(*args, **kwargs)

    def spread(self, x: Any) -> Any:
        """The batch of a tensor, which if it has none is the same for every example (a view)."""
        return x.value if self.has(x) else x.expand(self.size, *x.shape)


class _Layout(Meta):
    """The layout of an example: shape, type and device. It has no strides: that slot is empty."""

    __slots__ = ()


_layouts: dict[Any, _Layout] = {}


def _layout(m: Meta) -> _Layout:
    """The layout of one example of a batch."""
    found = _layouts.get(m)
    if found is None:
        if len(_layouts) > 4096:
            _layouts.clear()
        found = _layouts[m] = _Layout()
        found.shape, found.dtype, found.device = type(m.shape)(m.shape[1:]), m.dtype, m.device
        found.numel = m.numel // (m.shape[0] or 1)
        found.contiguous, found.nbytes, found.sizes, found.plain = False, 0, None, False
    return found


class Batched(Overridable):
    """One example of a batch: `value` the batch, examples along its first axis; `level` the `vmap` it belongs to.

    It has no memory of its own: the slots `ptr`, `store` and `base` are empty.
    """

    __slots__ = ("level", "value")
    level: Level
    value: Any

    @property
    def meta(self) -> Any:  # type: ignore[override]
        return _layout(self.value.meta)

    @property
    def node(self) -> Any:
        return self.value.node

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, tuple(args), kwargs or {})

    __grad_of_batch__ = staticmethod(lambda *args, **options: slopes(*args, **options))
    __function_of_batch__ = staticmethod(lambda *args: applied(*args))
    __dual_of_batch__ = staticmethod(lambda *args: _dual(*args))
    __parts_of_batch__ = staticmethod(lambda *args: _parts(*args))


def batched(value: Any, level: Level) -> Batched:
    """An example of a batch."""
    made: Any = _new(Batched)
    made.level, made.value = level, hooks.resolved(value)
    return made  # type: ignore[no-any-return]


levels: ContextVar[tuple[Level, ...]] = ContextVar("vmap", default=())  # at work, the innermost last


def prepare() -> None:
    """Makes the Tensor's methods ask; once."""
    from . import rules
    overriding.prepare()
    rules.learn()


def own(x: Any) -> Any:
    """A tensor of which each example at each level at work has its own (a view): what a function of an example is differentiated in."""
    for level in levels.get():
        x = _entered(x, level)
    return x


def _entered(x: Any, level: Level) -> Any:
    if isinstance(x, Batched) and x.level is level:
        return x
    if isinstance(x, Batched) and x.level.number > level.number:
        return batched(_entered(x.value, level), x.level)
    return batched(level.spread(x), level)


def slopes(function: Any, outputs: Any, inputs: Any, vectors: Any, **options: Any) -> Any:
    """`autograd.grad` of examples: of their batches."""
    level = _innermost((list(outputs), list(inputs)))
    for x in inputs:
        if not level.has(x):
            raise RuntimeError("vmap: a gradient in a tensor that all examples share: take it by func.grad, which tells the examples' apart")
    ys, vs = [], []
    for y, v in zip(outputs, vectors, strict=True):
        if v is None and y.ndim:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        ys.append(level.spread(y))
        vs.append(ops.ones_like(ys[-1]) if v is None else level.spread(v))
    made = function(ys, [x.value for x in inputs], vs, **options)
    return tuple(None if g is None else batched(g, level) for g in made)


def _dual(make: Any, tensor: Any, tangent: Any, level: Any) -> Batched:
    """Examples with tangents: the batch with a batch of tangents."""
    outer = _innermost((tensor, tangent))
    return batched(make(outer.spread(tensor), outer.spread(tangent), level), outer)


def _parts(take: Any, x: Batched, level: Any) -> tuple[Batched, Batched | None]:
    """Examples without their tangents, and the tangents."""
    value, tangent = take(x.value, level)
    return batched(value, x.level), None if tangent is None else batched(tangent, x.level)


def applied(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An autograd.Function on examples: by its own `vmap`, else example by example."""
    level = _innermost(args, kwargs)
    rule = None if function.vmap is Function.vmap else function.vmap  # a rule of the function's own
    if rule is None:
        return by_examples(level, function.apply, args, kwargs)
    info = _Info(level.size, level.randomness)
    made, where = rule(info, tuple(0 if level.has(x) else None for x in args), *[level.whole(x) for x in args])

    def placed(x: Any, d: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return type(x)(placed(y, e) for y, e in zip(x, d if isinstance(d, (tuple, list)) else [d] * len(x), strict=True))
        return x if d is None else batched(x.movedim(d, 0), level)
    return placed(made, where)


class _Info:
    """What a Function's `vmap` is told."""

    def __init__(self, batch_size: int, randomness: str) -> None:
        self.batch_size, self.randomness = batch_size, randomness


# -------------------------------------------------------------------------------------------------------------- the calls
def members(x: Any) -> Any:
    """The batched tensors among values and in tuples, lists, slices and dicts of them."""
    return duals.members(x, Batched)


def replaced(x: Any, change: Any) -> Any:
    """A structure with `change` made to each tensor of Batched in it."""
    return duals.replaced(x, change, Batched)


def _innermost(args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Level:
    """The innermost level of the batched tensors among arguments."""
    found: Any = None
    for x in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(x, Batched):
            level = x.level
            if found is None or level.number > found.number:
                found = level
        elif isinstance(x, (tuple, list, dict, slice)):
            for y in members(x):
                if found is None or y.level.number > found.number:
                    found = y.level
    return found  # type: ignore[no-any-return]


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer for a call with batched tensors among its arguments, at the innermost level among them."""
    from . import rules
    if "axis" in kwargs or "keepdims" in kwargs:
        kwargs = {{"axis": "dim", "keepdims": "keepdim"}.get(k, k): v for k, v in kwargs.items()}
    level = _innermost(args, kwargs)
    name = rules.name_of(func)
    field = rules.field(name)
    if field == "reads":
        raise DataDependent(f"vmap: {name} asks for a value, and each example has its own. Code that branches on a tensor's values, or calls "
                            "item() on one, cannot be batched: use torch.where for both branches, or a loop over the examples")
    if field in ("draws", "draws each"):
        return _random(func, name, args, kwargs, level)
    rule = rules.find(name)
    if rule is not None:
        made = rule(level, func, args, kwargs)
        if made is not NotImplemented:
            return made
    return by_examples(level, func, args, kwargs)


def by_examples(level: Level, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], before: Any = None) -> Any:
    """The operation on one example after the other, and the results stacked."""
    if not level.size:
        raise RuntimeError(f"vmap: {getattr(func, '__name__', func)} has no form for a batch of no examples")
    results = []
    for i in range(level.size):
        if before is not None:
            before()
        one = replaced((args, kwargs), lambda x, i=i: x.value.select(0, i) if x.level is level else x)
        results.append(level.run(func, *one[0], **one[1]))
    first = results[0]
    if args and isinstance(args[0], Batched) and writes(getattr(func, "__name__", "")) and isinstance(first, Tensor):
        return args[0]
    return _stacked(level, results)


def writes(name: str) -> bool:
    """Whether an operation of this name writes to its first operand and gives it back."""
    return name.endswith("_") and not name.endswith("__") or name.startswith("__i") and name != "__invert__"


def _stacked(level: Level, results: list[Any]) -> Any:
    first = results[0]
    if isinstance(first, Tensor):
        return batched(ops.stack(results), level)
    if isinstance(first, (tuple, list)):
        parts = [_stacked(level, list(column)) for column in zip(*results, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if any(r != first for r in results):
        raise DataDependent("vmap: an operation gave each example another value that is no tensor")
    return first


# --------------------------------------------------------------------------------------------------------------- random numbers
def _random(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], level: Level) -> Any:
    """A random operation on examples: refused, one draw for all (the generator is wound back for each), or one each."""
    if level.randomness == "error":
        if not draws(name, args, kwargs):
            return by_examples(level, func, args, kwargs)
        raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness "
                           "flags on vmap or perform the randomness operation out of vmap")
    drawing.append(True)
    try:
        return _drawn(func, name, args, kwargs, level)
    finally:
        drawing.pop()


drawing: list[bool] = []  # draws for examples, at work


def _drawn(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], level: Level) -> Any:
    from . import rules
    if level.randomness == "different":
        if rules.field(name) == "draws each" and all(level.has(x) for x in (*args, *kwargs.values()) if isinstance(x, Tensor)):
            whole = replaced((args, kwargs), lambda x: x.value)
            made = level.run(func, *whole[0], **whole[1])
            return args[0] if name.endswith("_") else level.wrap(made)
        return by_examples(level, func, args, kwargs)
    from .._core.runtime import generators
    device = next(members((args, kwargs))).value.meta.device
    generator = kwargs.get("generator") or generators.default(device)
    state = generator.state_bytes()
    return by_examples(level, func, args, kwargs, lambda: generator.set_state_bytes(state))


def draws(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call draws numbers at all: dropout outside of training does not."""
    if "dropout" not in name and name != "rrelu":
        return True
    place = 4 if name == "rrelu" else 3 if name == "native_dropout" else 2
    training = kwargs.get("training", kwargs.get("train", args[place] if len(args) > place else name != "rrelu"))
    p = kwargs.get("p", args[1] if len(args) > 1 and name != "rrelu" else 0.5)
    return bool(training) and p != 0
