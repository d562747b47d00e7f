"""What an operation does with a tensor that is not strided: it is refused, or handed to the operation's sparse form.

A sparse tensor has no address and its meta no strides: those slots are empty.  An operation notices such a tensor where it looks its operands
up, and asks (`engine.operation.layouts`), so that none reads memory that is not there.
"""

from __future__ import annotations

from typing import Any

from ..tensor import Meta, Tensor


class Unsupported(NotImplementedError):
    """An operation that has no form for a tensor's layout."""


class SparseMeta(Meta):
    """Shape, type and device of a sparse tensor: belongs to no plan.  sparse_dim, dense_dim: how many of its dimensions the indices tell, and the values."""

    __slots__ = ("layout", "sparse_dim", "dense_dim")
    layout: Any
    sparse_dim: int
    dense_dim: int

    def __repr__(self) -> str:
        return f"SparseMeta({tuple(self.shape)}, {self.dtype.name}, {self.device})"


def refusal(name: str, layout: Any) -> Unsupported:
    """The error for an operation without a form for the layout."""
    return Unsupported(f"{name} is not implemented for tensors of layout {layout!r}: .to_dense() gives a strided one")


def first(x: Any) -> Any:
    """The first sparse tensor among values, and in their tuples, lists and dictionaries; None where there is none."""
    if isinstance(x, Tensor):
        return x if isinstance(x.meta, SparseMeta) else None
    inner = x.values() if isinstance(x, dict) else x if isinstance(x, (tuple, list)) else ()
    return next((found for v in inner if (found := first(v)) is not None), None)
