"""Activation checkpointing: a part of a model keeps only its inputs, and runs again when its gradients are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import ops
from .._core.autograd.function import Function
from .._core.autograd.functions import backward as run_backward
from .._core.tensor import Tensor
from ..amp.autocast import inside, regions
from ..autograd import enable_grad, is_grad_enabled, no_grad
from ..autograd.duals import is_dual

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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


class _Again(Function):
    """Runs `function` without recording; backward runs it once more, recorded, and goes back through that."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], kwargs: dict[str, Any], keep_random: bool, anchor: Any,
                *args: Any) -> Any:
        ctx.function, ctx.kwargs = function, kwargs
        ctx.random = _random_states() if keep_random else []
        ctx.regions = regions()
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with no_grad():
            out = function(*args, **kwargs)
        ctx.single = not isinstance(out, tuple)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        args = list(ctx.others)
        for i, t in zip(ctx.places, ctx.saved_tensors):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        now = _random_states() if ctx.random else []
        try:
            for restore, state in ctx.random:
                restore(state)
            with enable_grad(), inside(ctx.regions):
                out = ctx.function(*args, **ctx.kwargs)
        finally:
            for restore, state in now:
                restore(state)
        outs = (out,) if ctx.single else out
        pairs = [(o, g) for o, g in zip(outs, grads) if isinstance(o, Tensor) and o.requires_grad and g is not None]
        if pairs:
            run_backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, None, None, *(a.grad if isinstance(a, Tensor) else None for a in args))


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values whose tensors are leaves of their own, on the same memory, that require grad where the tensors do.  Raises RuntimeError for anything but a
    tuple."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, context_fn: Any = None,
               determinism_check: str = "default", debug: bool = False, early_stop: bool = True, preserve_rng_state: bool = True,
               **kwargs: Any) -> Any:
    """``function(*args, **kwargs)`` that keeps its arguments instead of its intermediate results.

    The backward pass runs it again, in the autocast regions of the first time and with its random numbers if `preserve_rng_state`. Tensors among the
    positional arguments, and parameters the function uses, get their gradients. The other options are accepted.
    """
    if not is_grad_enabled() or any(map(is_dual, args)):  # tangents pass through the first run alone
        return function(*args, **kwargs)
    # So that the result is recorded even if only the function's own parameters want gradients.
    anchor = ops.zeros((), requires_grad=True)
    return _Again.apply(function, kwargs, preserve_rng_state, anchor, *args)


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


class set_checkpoint_early_stop:
    """Within the block, whether a recomputation stops once it has what the backward pass needs: accepted, as one here always runs to its end."""

    def __init__(self, enable: bool) -> None:
        self.enable = enable

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass
