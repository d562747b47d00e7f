"""Tensors in memory that other processes see."""

from __future__ import annotations

from typing import Any

from .. import layout
from ..engine.fields import has
from ..runtime.shared_memory import Shared, nameless
from ..tensor import Storage, Tensor, meta, wrap
from .copies import copy_into
from .table import op


def block_of(t: Tensor) -> Shared | None:
    """The shared memory a CPU tensor lies in, if it does."""
    keep: Any = t.store
    while isinstance(keep, Storage):  # `data` has a storage of its own on its tensor's
        keep = getattr(keep, "keep", None)
    return keep if isinstance(keep, Shared) else None


def shared_like(t: Tensor) -> Tensor:
    """A copy of a CPU tensor in shared memory, outside autograd."""
    m = t.meta
    m = meta(m.shape, layout.dense_like(tuple(m.shape), m.strides), m.dtype, m.device)
    block = Shared(nameless(max(m.nbytes, 1)), max(m.nbytes, 1))
    made = wrap(block.address, m, block)
    if m.numel:
        copy_into(made, t.detach())
    return made


@op(spaces=(), learns=False, tangent="none")
def is_shared(self: Tensor) -> bool:
    """Whether `self` lies in memory that other processes can be given; always so on a GPU, as in PyTorch."""
    return self.meta.device.type != "cpu" or block_of(self) is not None


@op(spaces=(), learns=False, tangent="none")
def share_memory_(self: Tensor) -> Tensor:
    """Moves `self` to shared memory: processes forked from now on, and those it is sent to, see each other's writes. Nothing happens
    on a GPU or when it is there already.

    Other tensors on the memory that it had stay there: share first, then take views. Raises RuntimeError for a view.
    """
    if is_shared(self):
        return self
    if self.base is not None:
        raise RuntimeError("share_memory_: self is a view, whose base would stay behind; share the base before taking views of it")
    made: Any = shared_like(self)
    made.store.version = self.store.version
    self.meta, self.store, self.ptr = made.meta, made.store, made.ptr
    return self

has("is_shared", sparse="composite")
