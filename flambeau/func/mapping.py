"""`vmap`: a function of examples as a function of batches.

It has three steps, by the names that PyTorch's have in `torch._functorch.vmap`, which is this module: `_process_batched_inputs` looks at the arguments,
`_create_batched_inputs` makes one example of each, `_unwrap_batched` takes the batch out of what the function returned.  Libraries put functions
of their own in their places (tensordict, whose containers are batched as a whole).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._core import ops
from .._core.engine import fields
from .._core.tensor import Tensor
from ..utils._pytree import TreeSpec, _broadcast_to_and_flatten, tree_flatten, tree_unflatten
from .batching import Batched, Level, batched, dispatch, drawing, draws, levels, members, prepare
from .rules import field

_ops: Any = ops
in_dims_t = out_dims_t = int | tuple[Any, ...] | list[Any] | None


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None) -> Callable[..., Any]:
    """The function that applies `func` to each example of its arguments and stacks the results.

    `func` runs once: its tensors look like one example, and each operation is done for the whole batch.  Operations that have
    no form for a batch run example by example; derivatives inside are each example's own.

    Args:
        in_dims: the axis of the examples in each argument (an int, None for an argument given whole, or a structure of
            them like the arguments').
        out_dims: where the axis of the examples goes in each output.
        randomness: "error" (random operations raise RuntimeError), "different" or "same" for all examples.
        chunk_size: at most so many examples at a time; None for all at once.

    Raises RuntimeError where `func` asks for a value on the host (`item`, `if` on a tensor), which each example has its own of.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        prepare()
        size, dims, values, spec = _process_batched_inputs(in_dims, args, func)
        step = size if chunk_size is None else min(chunk_size, size)
        with _Randomness(randomness, values) as randoms:
            if step == size:
                return _once(func, size, dims, values, spec, out_dims, randomness, kwargs)
            parts = []
            for start in range(0, size, step):
                randoms.rewind()
                rows = min(step, size - start)
                part = [v if d is None else v.tensor_split((start, start + rows), d)[1] for v, d in zip(values, dims, strict=True)]
                parts.append(_once(func, rows, dims, part, spec, out_dims, randomness, kwargs))
        flat, made = zip(*map(tree_flatten, parts), strict=True)
        where = _out_dims(out_dims, parts[0], made[0])
        joined = [_ops.cat(column, d) if d is not None else column[0] for d, *column in zip(where or (), *flat, strict=True)]
        return tree_unflatten(joined, made[0])
    return call


def _once(func: Any, size: int, dims: Any, values: Any, spec: Any, out_dims: Any, randomness: str, kwargs: dict[str, Any]) -> Any:
    """The function, run once for so many examples."""
    level = _vmap_increment_nesting(size, randomness)
    try:
        made = func(*_create_batched_inputs(dims, values, level, spec), **kwargs)
        return _unwrap_batched(made, out_dims, level, size, func)
    finally:
        _vmap_decrement_nesting()


def _get_name(func: Any) -> str:
    return getattr(func, "__name__", None) or repr(func)


def _process_batched_inputs(in_dims: Any, args: tuple[Any, ...], func: Any) -> tuple[int, list[Any], list[Any], TreeSpec]:
    """(how many examples there are, the examples' axis in each value, the values, the arguments' structure)."""
    name = _get_name(func)
    if not args:
        raise ValueError(f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with no "
                         "inputs. The latter is unsupported.")
    if not isinstance(in_dims, (int, tuple, list)) and in_dims is not None:
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a (potentially nested) tuple matching the "
                         f"structure of inputs, got: {type(in_dims)}.")
    values, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(tuple(in_dims) if isinstance(in_dims, list) else in_dims, spec)
    if dims is None:
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the structure of `inputs`. in_dims has "
                         f"structure {tree_flatten(in_dims)[1]} but inputs has structure {spec}.")
    sizes = []
    for i, (v, d) in enumerate(zip(values, dims, strict=True)):
        if d is None:
            continue
        if not isinstance(d, int):
            raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for an input but in_dim must be either an integer "
                             "dimension or None.")
        if not isinstance(v, Tensor):
            if in_dims == 0:
                dims[i] = None  # a number beside tensors belongs to every example
                continue
            raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for an input but the input is of type {type(v)}. We "
                             "cannot vmap over non-Tensor arguments, please use None as the respective in_dim")
        rank = len(v.meta.shape)
        if not -rank <= d < rank:
            raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for some input, but that input is a Tensor of "
                             f"dimensionality {rank} so expected in_dim to satisfy -{rank} <= in_dim < {rank}.")
        dims[i] = d % rank
        sizes.append(v.meta.shape[d])
    if not sizes:
        raise ValueError(f"vmap({name}): at least one input must be mapped over: every in_dim is None")
    if any(n != sizes[0] for n in sizes):
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped dimension")
    return sizes[0], dims, values, spec


def _create_batched_inputs(flat_in_dims: list[Any], flat_args: list[Any], vmap_level: int, args_spec: TreeSpec) -> Any:
    """The arguments as one example has them."""
    each = [v if d is None else _add_batch_dim(v, d, vmap_level) for v, d in zip(flat_args, flat_in_dims, strict=True)]
    return tree_unflatten(each, args_spec)


def _unwrap_batched(batched_outputs: Any, out_dims: Any, vmap_level: int, batch_size: int, func: Any) -> Any:
    """What the function returned, the examples' axis in place."""
    flat, spec = tree_flatten(batched_outputs)
    where = _out_dims(out_dims, batched_outputs, spec)
    name = _get_name(func)
    if where is None:
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of `outputs`. out_dims has "
                         f"structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}.")
    return tree_unflatten([_maybe_remove_batch_dim(name, t, vmap_level, batch_size, d) for t, d in zip(flat, where, strict=True)], spec)


def _out_dims(out_dims: Any, outputs: Any, spec: TreeSpec) -> list[Any] | None:
    """The examples' axis in each output, None where `out_dims` has another structure."""
    if isinstance(outputs, Tensor):  # (0,) says it of a single tensor too
        return [out_dims] if out_dims is None or isinstance(out_dims, int) else list(out_dims) if len(out_dims) == 1 else None
    return _broadcast_to_and_flatten(tuple(out_dims) if isinstance(out_dims, list) else out_dims, spec)


# ----------------------------------------------------------------------------------------------- levels by number, as PyTorch's core has them
def _vmap_increment_nesting(batch_size: int, randomness: str) -> int:
    """Begins a level of so many examples, inside of those there are; gives its number."""
    prepare()
    number = len(levels.get()) + 1
    levels.set((*levels.get(), Level(number, batch_size, randomness)))
    return number


def _vmap_decrement_nesting() -> int:
    """Ends the innermost level; gives its number."""
    *outer, last = levels.get()
    levels.set(tuple(outer))
    return last.number


def _add_batch_dim(tensor: Any, in_dim: int, level: int) -> Batched:
    """One example of a tensor, whose examples lie along `in_dim`."""
    return batched(tensor.movedim(in_dim, 0), levels.get()[level - 1])


def _remove_batch_dim(tensor: Any, level: int, batch_size: int, out_dim: int) -> Any:
    """The examples of a tensor along `out_dim`; of one that has none at this level, the same for each."""
    rank = tensor.ndim + 1
    if not -rank <= out_dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {out_dim})")
    return levels.get()[level - 1].spread(tensor).movedim(0, out_dim)


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None) -> Any:
    """`_remove_batch_dim` of an output, or, where `out_dim` is None, the output, which must not be batched."""
    if out_dim is None:
        if isinstance(batched_output, Tensor) and levels.get()[vmap_level - 1].has(batched_output):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return batched_output
    if not isinstance(batched_output, Tensor):
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. "
                         "Did you mean to set out_dims= to None for output?")
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


class _Randomness:
    """What the examples may do with random generators: watches those of the arguments' devices."""

    def __init__(self, mode: str, values: list[Any]) -> None:
        from .._core.runtime import generators
        from .._core.runtime.device import resolve
        self.mode = mode
        devices = dict.fromkeys([resolve("cpu"), *(v.device for v in values if isinstance(v, Tensor))])
        self.states = [(g, g.state_bytes()) for g in (generators.default(d) for d in devices)]
        self.hook: Any = None

    def __enter__(self) -> _Randomness:
        if self.mode == "different":
            from .._core.engine import interpreters
            self.hook = interpreters.watch(_each_its_own)
        return self

    def rewind(self) -> None:
        """Before each chunk: the same numbers again, where all examples share them."""
        if self.mode == "same":
            for g, state in self.states:
                g.set_state_bytes(state)

    def __exit__(self, kind: Any, *rest: object) -> None:
        if self.hook is not None:
            self.hook.close()
        drawn = self.mode == "error" and any(g.state_bytes() != state for g, state in self.states)
        if drawn:
            for g, state in self.states:
                g.set_state_bytes(state)
        if drawn and kind is None:
            raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness "
                               "flags on vmap or perform the randomness operation out of vmap")


_ALONE = fields.of("draws_alone")

def _each_its_own(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A draw that no example's tensor takes part in, made for each example."""
    active = levels.get()
    if active and any(True for _ in members((args, kwargs))):
        return dispatch(function, args, kwargs)
    if not active or drawing:
        return function(*args, **kwargs)
    level = active[-1]
    if field(name).startswith("draws") and name.endswith("_") and level.randomness == "different":
        raise RuntimeError(f"vmap: {name}: cannot draw different numbers for each example into a tensor that all share")
    if name not in _ALONE or level.randomness != "different" or not draws(name, args, kwargs):
        return function(*args, **kwargs)
    drawing.append(True)
    try:
        return batched(_ops.stack([function(*args, **kwargs) for _ in range(level.size)]), level)
    finally:
        drawing.pop()
