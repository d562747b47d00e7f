"""Activation checkpointing: a part of a model keeps only its inputs, and runs again when its gradients are wanted.

Without `use_reentrant=True` and where it is False, the part is recorded as always, but what its operations save is a place in a list (hooks on saved
tensors, `_Part`). The first place that a pass asks for has the part run again, whose saved tensors fill the list, in the same order. So the graph is the
part's own: gradients of gradients, hooks, `autograd.grad` and checkpoints within checkpoints work as without. With `use_reentrant=True` the whole part is
one operation (`_Again`), whose backward is a pass of its own.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from .._core import ops
from .._core.autograd import saved, tape
from .._core.autograd.function import Function
from .._core.autograd.functions import backward as run_backward
from .._core.errors import warn
from .._core.tensor import Tensor
from ..amp.autocast import inside, regions
from ..autograd import enable_grad, is_grad_enabled, no_grad
from ..autograd.duals import is_dual


def _random_states() -> list[tuple[Any, Any]]:
    from .. import cuda, random

    states: list[tuple[Any, Any]] = [(random.set_rng_state, random.get_rng_state())]
    for i in range(cuda.device_count() if cuda.is_initialized() else 0):
        states.append((lambda state, i=i: cuda.set_rng_state(state, i), cuda.get_rng_state(i)))
    return states


def _devices_of(*args: Any) -> list[int]:
    found: set[int] = set()
    for value in args:
        if isinstance(value, Tensor) and value.device.type == "cuda":
            found.add(value.get_device())
        elif isinstance(value, (tuple, list)):
            found.update(_devices_of(*value))
        elif isinstance(value, dict):
            found.update(_devices_of(*value.values()))
    return sorted(found)


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """The GPUs that tensors among the arguments (also in lists, tuples, dictionaries) are on, and the state of each one's generator."""
    from .. import cuda
    devices = _devices_of(*args)
    return devices, [cuda.get_rng_state(i) for i in devices]


def set_device_states(devices: Any, states: Any, *, device_type: str | None = None) -> None:
    """Gives the generators of GPUs the states that `get_device_states` read."""
    from .. import cuda
    for index, state in zip(devices, states, strict=True):
        cuda.set_rng_state(state, index)


# asked when a part runs first; what each gives is called before the part runs again: modules whose forward is under way then have parameters to gather
surroundings: list[Callable[[], Callable[[], None]]] = []


class _as_it_was:
    """Random numbers, regions of autocast and what was around as they were when a part ran first."""

    def __init__(self, random: list[tuple[Any, Any]], regions: Any, around: Sequence[Callable[[], None]]) -> None:
        self._random, self._inside, self._around = random, inside(regions), around

    def __enter__(self) -> None:
        for again in self._around:
            again()
        self._now = _random_states() if self._random else []
        for restore, state in self._random:
            restore(state)
        self._inside.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._inside.__exit__(*exc)
        for restore, state in self._now:
            restore(state)


class CheckpointError(RuntimeError):
    """A part saved other tensors when it ran again."""


class _Enough(BaseException):
    """Ends a part's second run, once all is there that the first one saved."""

    def __init__(self, part: _Part) -> None:
        self.part = part


class _Place:
    """What stands in the graph for a tensor that a part saved: its number among them, and while a pass needs it, the tensor."""

    __slots__ = ("part", "number", "like", "value", "of", "__weakref__")

    def __init__(self, part: _Part, number: int, t: Tensor) -> None:
        self.part, self.number, self.like = part, number, (t.shape, t.dtype, t.device)
        self.value: Tensor | None = None
        self.of: Any = None  # the pass that it was made for


class _Part:
    """One call of a function that is checkpointed: how to make it again, and the places of what it saved."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any], keep_random: bool, context: Any, check: bool, early: bool) -> None:
        self.function, self.context, self.check, self.early = function, context, check, early
        # within another part they are among what that one saves
        self.args, self.names, self.values = saved.packed(tuple(args)), tuple(kwargs), saved.packed(tuple(kwargs.values()))
        self.random = _random_states() if keep_random else []
        self.regions, self.around = regions(), [ask() for ask in surroundings]
        self.places: list[weakref.ref[_Place]] = []
        self.whole = False  # the first run is over

    def save(self, t: Tensor) -> _Place:
        place = _Place(self, len(self.places), t)
        self.places.append(weakref.ref(place))
        return place

    def give(self, place: _Place) -> Tensor:
        """A saved tensor.  In a pass the part runs again once, and each value goes when it was asked for."""
        this = tape.running_pass()
        if place.value is None or place.of is not this or this is None:
            self.run_again(this)
        found = place.value
        if found is None:
            raise CheckpointError(f"checkpoint(): a part saved fewer tensors when it ran again: tensor {place.number} of {len(self.places)} is missing")
        place.value = place.of = None
        if this is None:
            self.forget()
        return found

    def forget(self) -> None:
        for ref in self.places:
            place = ref()
            if place is not None:
                place.value = place.of = None

    def run_again(self, this: Any) -> None:
        count, first = 0, len(self.places)

        def fill(t: Tensor) -> Tensor:
            nonlocal count
            place = self.places[count]() if count < first else None
            count += 1
            if place is not None:
                if self.check and place.like != (t.shape, t.dtype, t.device):
                    raise CheckpointError(f"checkpoint(): a part saved another tensor when it ran again: tensor {place.number} was {place.like} and is "
                                          f"{(t.shape, t.dtype, t.device)}")
                place.value, place.of = t.detach(), this
            if self.early and count == first:
                raise _Enough(self)
            return t.detach()

        if this is not None:
            tape.at_end(self.forget)
        args, values = saved.unpacked(self.args), saved.unpacked(self.values)
        try:
            with enable_grad(), _as_it_was(self.random, self.regions, self.around), self.context, saved.saved_tensors_hooks(fill, lambda t: t):
                self.function(*args, **dict(zip(self.names, values, strict=True)))
        except _Enough as enough:
            if enough.part is not self:
                raise
        if self.check and self.whole and count != first and not (self.early and count > first):
            raise CheckpointError(f"checkpoint(): a part saved {count} tensors when it ran again, and {first} the first time")


class _Again(Function):
    """Runs `function` without recording; backward runs it once more, recorded, and goes back through that."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], kwargs: dict[str, Any], keep_random: bool, anchor: Any,
                *args: Any) -> Any:
        ctx.function, ctx.kwargs = function, kwargs
        ctx.random = _random_states() if keep_random else []
        ctx.regions, ctx.around = regions(), [ask() for ask in surroundings]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        ctx.anchored = anchor is not None
        with no_grad():
            out = function(*args, **kwargs)
        ctx.single = not isinstance(out, tuple)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        this = tape.running_pass()
        if this is not None and not this.every:
            raise RuntimeError("Checkpointing is not compatible with .grad() or when an `inputs` parameter is passed to .backward() where use_reentrant=True: "
                               "the part's own pass would write to the .grad of its parameters. Pass use_reentrant=False.")
        args = list(ctx.others)
        for i, t in zip(ctx.places, ctx.saved_tensors):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        with enable_grad(), _as_it_was(ctx.random, ctx.regions, ctx.around):
            out = ctx.function(*args, **ctx.kwargs)
        outs = (out,) if ctx.single else out
        pairs = [(o, g) for o, g in zip(outs, grads) if isinstance(o, Tensor) and o.requires_grad and g is not None]
        if not pairs and not ctx.anchored:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        if pairs:
            run_backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, None, None, *(a.grad if isinstance(a, Tensor) else None for a in args))


class CheckpointFunction(Function):
    """What `checkpoint(use_reentrant=True)` applies, for programs that apply it themselves: of the function, whether to keep the random state, and the
    function's arguments."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        return _Again.forward(ctx, run_function, {}, preserve_rng_state, None, *args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, None, *_Again.backward(ctx, *grads)[4:])


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns where no tensor among these requires grad: what is made of them by a part that is one operation has no gradient."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warn("None of the inputs have requires_grad=True. Gradients will be None")


def noop_context_fn() -> tuple[Any, Any]:
    """Two contexts that change nothing, as `checkpoint` has them without a `context_fn`."""
    return nullcontext(), nullcontext()


class DefaultDeviceType:
    """The kind of device whose random state would be kept where no argument tells one: remembered, as the states of all are kept here."""

    _default_device_type: str | None = None

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Remembers a kind."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """What was set; else "cuda" where there is a GPU, or "cpu"."""
        from .. import cuda
        return DefaultDeviceType._default_device_type or ("cuda" if cuda.is_available() else "cpu")


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values whose tensors are leaves of their own, on the same memory, that require grad where the tensors do.  Raises RuntimeError for anything but a
    tuple."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, context_fn: Callable[[], tuple[Any, Any]] | None = None,
               determinism_check: str = "default", debug: bool = False, early_stop: bool = True, preserve_rng_state: bool = True,
               **kwargs: Any) -> Any:
    """``function(*args, **kwargs)`` that keeps its arguments instead of its intermediate results.

    The backward pass runs it again, in the autocast regions of the first time and with its random numbers if `preserve_rng_state`. Tensors among the
    arguments, and parameters the function uses, get their gradients.

    use_reentrant: False records the function as it is, and only what its operations save is made again, so that everything of autograd works as without.
    True makes it one operation, whose backward is a pass of its own that writes to leaves' `.grad`: for `backward` alone. Without it the function is one
    operation too, and gradients of parameters alone pass as well.
    For use_reentrant=False alone: context_fn gives two contexts, for the first run and for the others; determinism_check "none" does not compare what the
    runs saved; early_stop ends a run once all that was saved is there.
    Raises ValueError for options or keywords that use_reentrant=True does not have, or for another determinism_check; CheckpointError, a RuntimeError,
    when a run saves other tensors than the first.
    """
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check: expected 'default' or 'none', got {determinism_check!r}")
    if use_reentrant:
        if kwargs:
            raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}: with use_reentrant=True the function takes positional arguments")
        if context_fn is not None or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if not is_grad_enabled() or any(map(is_dual, args)):  # tangents pass through the first run alone
        return function(*args, **kwargs)
    if use_reentrant is False:
        first, again = (nullcontext(), nullcontext()) if context_fn is None else context_fn()
        early = early_stop if _early_stop is None else _early_stop
        part = _Part(function, args, kwargs, preserve_rng_state, again, determinism_check == "default", early)
        with first, saved.saved_tensors_hooks(part.save, part.give):
            out = function(*args, **kwargs)
        part.whole = True
        return out
    # So that the result is recorded even if only the function's own parameters want gradients.
    anchor = None if use_reentrant else ops.zeros((), requires_grad=True)
    return _Again.apply(function, kwargs, preserve_rng_state, anchor, *args)


class CheckpointPolicy(enum.Enum):
    """What a policy of selective checkpointing says of one operation's result: whether it is kept or made again, and whether that is a wish."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4


class SelectiveCheckpointContext:
    """What a policy is told besides the operation: whether the part runs again (`is_recompute`)."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


def create_selective_checkpoint_contexts(policy_fn_or_list: Callable[..., Any] | Sequence[Any],
                                         allow_cache_entry_mutation: bool = False) -> tuple[Any, Any]:
    """The two contexts that `checkpoint` takes as `context_fn`.

    A policy chooses between memory and time, never values. Here the part is made again as a whole, whatever the policy says: the gradients are the same,
    the time that it would save is not saved. Raises TypeError for what is neither a function nor a list of operations.
    """
    if not callable(policy_fn_or_list) and not isinstance(policy_fn_or_list, (list, tuple)):
        raise TypeError(f"policy_fn_or_list must be either a function or a list of ops, got {type(policy_fn_or_list).__name__}")
    return nullcontext(), nullcontext()


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None,
                          **kwargs: Any) -> Any:
    """Runs a `Sequential`, or a list of functions, cut into `segments` of which all but the last are checkpointed."""
    steps: Sequence[Any] = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def run(part: Sequence[Any]) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for step in part:
                x = step(x)
            return x
        return forward

    size = len(steps) // segments
    end = 0
    for start in range(0, size * (segments - 1), size or 1):
        end = start + size
        input = checkpoint(run(steps[start:end]), input, use_reentrant=use_reentrant, **kwargs)
    return run(steps[end:])(input)


_early_stop: bool | None = None


class set_checkpoint_early_stop:
    """Within the block, whether the second run of what is checkpointed there ends once it has what the backward pass needs, whatever the calls say."""

    def __init__(self, enable: bool) -> None:
        self.enable = enable

    def __enter__(self) -> None:
        global _early_stop
        self._before, _early_stop = _early_stop, self.enable

    def __exit__(self, *exc: object) -> None:
        global _early_stop
        _early_stop = self._before


class set_checkpoint_debug_enabled:
    """Accepted as a block: an error of a part that saved other tensors tells which, always."""

    def __init__(self, enabled: bool | None) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None
