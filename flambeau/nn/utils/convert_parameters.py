"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..._core import ops
from ..._core.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Any:
    """The elements of all parameters, one after the other. Raises TypeError if they are on different devices."""
    parts = list(parameters)
    _one_device(parts)
    return ops.cat([p.reshape(-1) for p in parts])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Gives each parameter its slice of `vec` as data."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    parts = list(parameters)
    _one_device(parts)
    start = 0
    for p in parts:
        count = p.numel()
        p.data = vec.narrow(0, start, count).reshape(p.shape).data
        start += count


def _one_device(parts: list[Any]) -> None:
    where = {p.device for p in parts}
    if len(where) > 1:
        raise TypeError(f"Found two parameters on different devices, this is currently not supported: "
                        f"{' and '.join(sorted(map(str, where)))}")
