"""Whether the parts of sparse tensors are checked, and the checks."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

_on: ContextVar[bool] = ContextVar("check_sparse_invariants", default=False)


def checking() -> bool:
    """Whether new sparse tensors are checked."""
    return _on.get()


class check_sparse_tensor_invariants:
    """Whether indices of new sparse tensors are checked against their sizes: a `with` block, a decorator, or `enable()`."""

    def __init__(self, enable: bool = True) -> None:
        self._enable = enable
        self._tokens: list[Any] = []

    @staticmethod
    def is_enabled() -> bool:
        """Whether they are."""
        return _on.get()

    @staticmethod
    def enable() -> None:
        """Checks from now on."""
        _on.set(True)

    @staticmethod
    def disable() -> None:
        """Checks no longer."""
        _on.set(False)

    def __enter__(self) -> None:
        self._tokens.append(_on.set(self._enable))

    def __exit__(self, *exc: object) -> None:
        _on.reset(self._tokens.pop())

    def __call__(self, function: Any) -> Any:
        import functools

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with check_sparse_tensor_invariants(self._enable):
                return function(*args, **kwargs)
        return call


def check_coo(indices: Any, shape: Any) -> None:
    """Raises RuntimeError for an index outside the shape."""
    for d, row in enumerate(indices.unbind(0)):
        if not row.numel():
            continue
        low, high = int(row.min()), int(row.max())
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {d}")
        if high >= shape[d]:
            raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {shape[d]} but found index {high}")


def check_compressed(ends: Any, minor: Any, names: tuple[str, str], count: int) -> None:
    """Raises RuntimeError for ends that do not rise from 0 to the number of entries, or other indices that do not lie below `count`; names: of both."""
    first, second = names
    if int(ends[0]) != 0 or int(ends[-1]) != minor.shape[0]:
        raise RuntimeError(f"`{first}[..., 0] == 0` and `{first}[..., -1] == nnz` must hold: they are {int(ends[0])} and {int(ends[-1])} "
                           f"with {minor.shape[0]} entries")
    if bool((ends[1:] < ends[:-1]).any()):
        raise RuntimeError(f"{first} must not fall from one {'column' if first[1] == 'c' else 'row'} to the next")
    if minor.numel() and (int(minor.min()) < 0 or int(minor.max()) >= count):
        raise RuntimeError(f"`0 <= {second} < {count}` is not satisfied")
