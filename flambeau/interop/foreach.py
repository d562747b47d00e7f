"""`torch._foreach_add` and its kin: an operation on each tensor of a list, by the table of operations.

Each argument after the first list is one for all tensors, or a list with one for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._core.ops import table
from .._core.tensor import Tensor

_NUMBERED = frozenset(("minimum", "maximum"))  # take a number where the operation takes a tensor


def _one(value: Any, i: int) -> Any:
    return value[i] if isinstance(value, (list, tuple)) else value


def _spread(self: Any, args: tuple[Any, ...], name: str) -> int:
    if not isinstance(self, (list, tuple)) or not self:
        raise RuntimeError(f"{name}: Tensor list must have at least one tensor.")
    for i, value in enumerate(args, 2):
        if isinstance(value, (list, tuple)) and len(value) != len(self):
            raise RuntimeError(f"{name}: Tensor lists must have the same number of tensors, got {len(self)} and {len(value)} (argument {i})")
    return len(self)


def _copy(self: Any, src: Any, non_blocking: bool = False) -> None:
    for i in range(_spread(self, (src,), "_foreach_copy_")):
        self[i].copy_(_one(src, i), non_blocking)


def _zero(self: Any) -> None:
    for t in self:
        t.zero_()


def _norm(self: Any, ord: Any = 2, dtype: Any = None) -> list[Tensor]:  # noqa: A002 (PyTorch's name)
    vector_norm: Any = table.find("linalg", "vector_norm")
    return [vector_norm(t, ord, dtype=dtype) for t in self]


def _max(self: Any) -> list[Tensor]:
    return [t.max() for t in self]


_OWN: dict[str, Callable[..., Any]] = {"_foreach_copy_": _copy, "_foreach_zero_": _zero, "_foreach_norm": _norm, "_foreach_max": _max}


def find(name: str) -> Callable[..., Any] | None:
    """The function `torch._foreach_...` of this name; None where there is no such operation."""
    own = _OWN.get(name)
    if own is not None:
        return own
    base = name.removeprefix("_foreach_")
    inplace = base.endswith("_")
    base = base.rstrip("_")
    row = table.TABLE.get(base)
    if not name.startswith("_foreach_") or row is None or not row.method or (inplace and row.inplace is None and base not in _NUMBERED):
        return None
    method = base + "_" if inplace and base not in _NUMBERED else base

    def each(self: Any, *args: Any, **kwargs: Any) -> Any:
        count = _spread(self, args, name)
        made = []
        for i in range(count):
            here = [_one(value, i) for value in args]
            if base in _NUMBERED:
                here = [value if isinstance(value, Tensor) else self[i].new_full((), value) for value in here]
            result = getattr(self[i], method)(*here, **{k: _one(v, i) for k, v in kwargs.items()})
            if inplace and base in _NUMBERED:
                self[i].copy_(result)
            made.append(result)
        return None if inplace else made

    each.__name__ = each.__qualname__ = name
    each.__doc__ = f"`{base}` of each tensor of a list{', in place' if inplace else ''}."
    return each
