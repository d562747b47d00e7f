"""Operations that take functions (torch._higher_order_ops): here they are Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._core import ops as _ops
from flambeau._core.tensor import Tensor as _Tensor
from flambeau.interop import stand_ins
from flambeau.utils import _pytree

ops: Any = _ops


def associative_scan(combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise") -> Any:
    """Running combinations along `dim` of a tensor, or of a tree of tensors of one length there, by an associative function.

    Halves the length at each step, so that the function is called about 2 log2(n) times on whole slices: G. Blelloch, "Prefix sums and
    their applications", 1990.  Raises ValueError where nothing is scanned or lengths differ.
    """
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    dims = [dim % x.dim() for x in leaves]
    sizes = {x.shape[d] for x, d in zip(leaves, dims)}
    if len(sizes) != 1:
        raise ValueError(f"associative_scan: xs have different lengths along dim {dim}: {sorted(sizes)}")

    def combined(a: list[Any], b: list[Any]) -> list[Any]:
        return list(_pytree.tree_leaves(combine_fn(spec.unflatten(a), spec.unflatten(b))))

    def part(x: Any, d: int, start: int, stop: int | None, step: int) -> Any:
        return x[(slice(None),) * d + (slice(start, stop, step),)]

    def scanned(xs: list[Any]) -> list[Any]:
        n = xs[0].shape[dims[0]]
        if n < 2:
            return xs
        pairs = combined([part(x, d, 0, n - 1, 2) for x, d in zip(xs, dims)], [part(x, d, 1, None, 2) for x, d in zip(xs, dims)])
        odd = scanned(pairs)
        later = [part(x, d, 2, None, 2) for x, d in zip(xs, dims)]
        even = [part(x, d, 0, 1, 1) for x, d in zip(xs, dims)]
        if later[0].shape[dims[0]]:
            count = later[0].shape[dims[0]]
            rest = combined([part(x, d, 0, count, 1) for x, d in zip(odd, dims)], later)
            even = [ops.cat([a, b], d) for a, b, d in zip(even, rest, dims)]
        return [_woven(a, b, d) for a, b, d in zip(even, odd, dims)]

    if reverse:
        leaves = [x.flip(d) for x, d in zip(leaves, dims)]
    made = scanned(leaves)
    return spec.unflatten([x.flip(d) for x, d in zip(made, dims)] if reverse else made)


def _woven(even: Any, odd: Any, d: int) -> Any:
    """One of the first, one of the second, in turn; the first may have one more."""
    count = odd.shape[d]
    pairs = ops.stack([even.narrow(d, 0, count), odd], d + 1).flatten(d, d + 1)
    return pairs if even.shape[d] == count else ops.cat([pairs, even.narrow(d, count, 1)], d)


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: tuple[Any, ...] | list[Any] = ()) -> Any:
    """``true_fn(*operands)`` where `pred`, a bool or a tensor of one element, holds, else ``false_fn(*operands)``: Python's own branch, whose
    value the host waits for.  Raises RuntimeError for a tensor of several elements.
    """
    if isinstance(pred, _Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    return (true_fn if pred else false_fn)(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: tuple[Any, ...] | list[Any]) -> Any:
    """Calls ``body_fn(*carried)``, which gives the next ones, while ``cond_fn(*carried)``, a bool or a tensor of one element, holds: Python's own loop,
    whose condition the host waits for.  Gives what the last call gave, or the inputs where there was none.

    Raises RuntimeError for what is no function, for inputs in neither a tuple nor a list, for a condition of several elements, and for another number
    of values than were carried.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple or list, got {type(carried_inputs)}")
    made: Any = tuple(carried_inputs)
    while True:
        carried = made if isinstance(made, (tuple, list)) else (made,)
        if len(carried) != len(carried_inputs):
            raise RuntimeError(f"while_loop: body_fn gave {len(carried)} values for {len(carried_inputs)} carried_inputs")
        pred = cond_fn(*carried)
        if isinstance(pred, _Tensor) and pred.numel() != 1:
            raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got a tensor of size {list(pred.shape)}")
        if not pred:
            return made
        made = body_fn(*carried)


_module = stand_ins.module(f"{__name__}.associative_scan", {"associative_scan": associative_scan}, "Running combinations.")
associative_scan = _module.associative_scan  # the name is the function's, as in PyTorch; `import` finds the module

from flambeau.nn.attention.flex_attention import flex_attention  # noqa: E402 (PyTorch's operation of this name, which policies name)

globals().update(stand_ins.names(__name__, "inductor_compiled_code()", "functions are not compiled by Inductor here"))

__all__ = ["associative_scan", "cond", "flex_attention", "while_loop"]
