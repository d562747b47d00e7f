"""`vmap`: a function of examples as a function of batches."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .. import ops
from ..tensor import Tensor
from .trees import leaves, rebuild, spread

if TYPE_CHECKING:
    from collections.abc import Callable

_ops: Any = ops


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None) -> Callable[..., Any]:
    """The function that applies `func` to each example of its arguments and stacks the results.

    It runs `func` once for each example, in order, on views of the arguments: right for every function, including ones with
    derivatives inside, and as fast as the loop written out.

    Args:
        in_dims: the axis of the examples in each argument (an int, None for an argument given whole, or a structure of
            them like the arguments').
        out_dims: where the axis of the examples goes in each output.
        randomness: "error" (random operations raise RuntimeError), "different" or "same" for all examples.
        chunk_size: accepted.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        values, dims, size = _split(func, in_dims, args)
        state = _Randomness(randomness)
        results = []
        for i in range(size):
            state.before()
            each = [v if d is None else v.select(d, i) for v, d in zip(values, dims, strict=True)]
            results.append(func(*rebuild(args, iter(each)), **kwargs))
            state.after()
        return _joined(results, out_dims, func)
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
        rank = len(v.m.shape)
        if not -rank <= d < rank:
            raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for some input, but that input is a Tensor of "
                             f"dimensionality {rank} so expected in_dim to satisfy -{rank} <= in_dim < {rank}.")
        sizes.add(v.m.shape[d])
    if not sizes:
        raise ValueError(f"vmap({name}): at least one input must be mapped over: every in_dim is None")
    if len(sizes) > 1:
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)} for the mapped dimension")
    size = sizes.pop()
    if not size:
        raise RuntimeError(f"vmap({name}): the mapped dimension has size 0, so that there is no example to run the function on")
    return values, dims, size


def _joined(results: list[Any], out_dims: Any, func: Any) -> Any:
    """The examples' outputs, stacked leaf by leaf."""
    first = results[0]
    if first is not None and not all(isinstance(t, Tensor) for t in leaves(first)):
        raise ValueError(f"vmap({getattr(func, '__name__', func)}, ...): must only return Tensors, got type {type(first)}")
    where = spread(out_dims if not isinstance(out_dims, tuple) or isinstance(first, (tuple, list, dict)) else out_dims[0], first, "vmap: out_dims")
    columns = zip(*[leaves(r) for r in results], strict=True)
    return rebuild(first, iter([ts[0] if d is None else _ops.stack(list(ts), d) for ts, d in zip(columns, where, strict=True)]))


class _Randomness:
    """What the examples may do with the default random generator."""

    def __init__(self, mode: str) -> None:
        from ..runtime import generators
        from ..runtime.device import resolve
        self.mode = mode
        self.generator = generators.default(resolve("cpu"))
        self.state = self.generator.state_bytes()

    def before(self) -> None:
        if self.mode == "same":
            self.generator.set_state_bytes(self.state)

    def after(self) -> None:
        if self.mode == "error" and self.generator.state_bytes() != self.state:
            raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness "
                               "flags on vmap or perform the randomness operation out of vmap")
