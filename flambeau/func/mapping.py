"""`vmap`: a function of examples as a function of batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._core import ops
from .._core.engine import fields
from .._core.tensor import Tensor
from .batching import Level, batched, dispatch, drawing, draws, levels, members, prepare
from .rules import field
from .trees import leaves, rebuild, spread

_ops: Any = ops


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
        values, dims, size = _split(func, in_dims, args)
        whole = [v if d is None else v.movedim(d, 0) for v, d in zip(values, dims, strict=True)]
        step = size if chunk_size is None else min(chunk_size, size)
        with _Randomness(randomness, values) as randoms:
            parts = []
            for start in range(0, max(size, 1), step or 1):
                randoms.rewind()
                rows = min(step, size - start)
                level = Level(len(levels.get()) + 1, rows, randomness)
                each = [v if d is None else batched(v if rows == size else v.narrow(0, start, rows), level) for v, d in zip(whole, dims, strict=True)]
                token = levels.set((*levels.get(), level))
                try:
                    made = func(*rebuild(args, iter(each)), **kwargs)
                finally:
                    levels.reset(token)
                parts.append(_taken(made, level, out_dims, func))
        if len(parts) == 1:
            return rebuild(parts[0][0], iter(parts[0][1]))
        joined = [_ops.cat(list(column), d) if d is not None else column[0] for d, *column in zip(parts[0][2], *[p[1] for p in parts], strict=True)]
        return rebuild(parts[0][0], iter(joined))
    return call


def _split(func: Callable[..., Any], in_dims: Any, args: tuple[Any, ...]) -> tuple[list[Any], list[Any], int]:
    """The arguments' values, the examples' axis in each, and how many examples there are."""
    name = getattr(func, "__name__", repr(func))
    if not args:
        raise ValueError(f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with no "
                         "inputs. The latter is unsupported.")
    if not isinstance(in_dims, (int, tuple, list)) and in_dims is not None:
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a (potentially nested) tuple matching the "
                         f"structure of inputs, got: {type(in_dims)}.")
    values, dims = leaves(args), spread(tuple(in_dims) if isinstance(in_dims, list) else in_dims, args, f"vmap({name}): in_dims")
    sizes = set()
    for i, (v, d) in enumerate(zip(values, dims, strict=True)):
        if d is None:
            continue
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
        sizes.add(v.meta.shape[d])
    if not sizes:
        raise ValueError(f"vmap({name}): at least one input must be mapped over: every in_dim is None")
    if len(sizes) > 1:
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)} for the mapped dimension")
    return values, dims, sizes.pop()


def _taken(made: Any, level: Level, out_dims: Any, func: Any) -> tuple[Any, list[Any], list[Any]]:
    """(the output's structure, its tensors with the examples' axis in place, where that is)."""
    name = getattr(func, "__name__", func)
    found = leaves(made)
    if not all(isinstance(t, Tensor) for t in found):
        other = next(t for t in found if not isinstance(t, Tensor))
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(other)}")
    single = isinstance(made, Tensor)
    try:
        where = spread(out_dims[0] if single and isinstance(out_dims, (tuple, list)) and len(out_dims) == 1 else out_dims, made, "")
    except ValueError:
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims}): out_dims is not compatible with the structure of the outputs") from None
    out: list[Any] = []
    for t, d in zip(found, where, strict=True):
        if d is None:
            if level.has(t):
                raise ValueError(f"vmap({name}, ...): `{name}` can not return a batched tensor when out_dim is None")
            out.append(t)
            continue
        rank = t.ndim + 1
        if not -rank <= d < rank:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {d})")
        out.append(level.spread(t).movedim(0, d))
    return made, out, where


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
