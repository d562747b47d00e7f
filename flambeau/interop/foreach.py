"""`torch._foreach_add` and its kin: an operation on each tensor of a list, by the table of operations.

Each argument after the first list is one for all tensors, or a list with one for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._core.engine.fronts import TENSOR
from .._core.ops import table
from .._core.tensor import Tensor


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


def _tensors_only(row: table.Row) -> bool:
    """Whether an operation element by element of two tensors takes no number for the second; its form for lists does."""
    if row.pointwise is None or row.pointwise.arity != 2:
        return False
    signature = row.function.__operation__.started().signature
    return all(signature.kinds[n] == TENSOR for n in signature.positional[:2])


def find(name: str) -> Callable[..., Any] | None:
    """The function `torch._foreach_...` of this name; None where there is no such operation."""
    own = _OWN.get(name)
    if own is not None:
        return own
    base = name.removeprefix("_foreach_")
    inplace = base.endswith("_")
    base = base.rstrip("_")
    row = table.TABLE.get(base)
    if not name.startswith("_foreach_") or row is None or not row.method:
        return None
    tensors = _tensors_only(row)
    if inplace and row.inplace is None and not tensors:
        return None
    copied = inplace and row.inplace is None
    method = base + "_" if inplace and not copied else base

    def each(self: Any, *args: Any, **kwargs: Any) -> Any:
        count = _spread(self, args, name)
        made = []
        for i in range(count):
            here = [_one(value, i) for value in args]
            if tensors:
                here = [value if isinstance(value, Tensor) else self[i].new_full((), value) for value in here]
            result = getattr(self[i], method)(*here, **{k: _one(v, i) for k, v in kwargs.items()})
            if copied:
                self[i].copy_(result)
            made.append(result)
        return None if inplace else made

    each.__name__ = each.__qualname__ = name
    each.__doc__ = f"`{base}` of each tensor of a list{', in place' if inplace else ''}."
    return each
