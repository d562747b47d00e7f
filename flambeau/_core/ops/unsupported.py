"""What an operation does with a tensor that is not strided: it is refused, or handed to the operation's sparse form.

A sparse tensor has no address and its meta no strides.  Asking for either raises `Unsupported`, so that no operation can
read memory that is not there; the places through which operations are called hand the call to `instead`.
"""

from __future__ import annotations

from typing import Any

from .. import hooks
from ..tensor import Meta


class Unsupported(NotImplementedError, AttributeError):
    """An operation that has no form for a tensor's layout.  (An AttributeError, so that quick paths give way to general ones.)"""


class SparseMeta(Meta):
    """Shape, type and device of a sparse tensor: belongs to no plan.  sparse_dim, dense_dim: how many of its dimensions the indices tell, and the values."""

    __slots__ = ("layout", "sparse_dim", "dense_dim")
    layout: Any
    sparse_dim: int
    dense_dim: int

    def __repr__(self) -> str:
        return f"SparseMeta({tuple(self.shape)}, {self.dtype.name}, {self.device})"

    @property
    def strides(self) -> Any:  # type: ignore[override]
        """Raises Unsupported: there are none."""
        raise refusal("this operation", self.layout)


def refusal(name: str, layout: Any) -> Unsupported:
    """The error for an operation without a form for the layout."""
    return Unsupported(f"{name} is not implemented for tensors of layout {layout!r}: .to_dense() gives a strided one")


def instead(name: str, args: Any, kwargs: Any, error: Unsupported) -> Any:
    """The sparse form of operation `name`.  Raises `error`, with the operation's name in it, where there is none."""
    return hooks.sparse_form(name, args, kwargs, error)
