"""How tensors go through `multiprocessing`'s queues, pipes and process arguments: as a descriptor of shared memory."""

from __future__ import annotations

import os
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

from .._core import dtypes
from .._core.ops import shared_tensors
from .._core.runtime.device import device
from .._core.runtime.shared_memory import Shared
from .._core.tensor import Tensor, meta, wrap
from ..nn.parameter import Parameter


def reduce_tensor(t: Tensor) -> Any:
    """Raises RuntimeError for a tensor with a history, which ends at the process."""
    m = t.meta
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
                           "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor "
                           "before serializing (e.g., putting it on the queue).")
    if m.device.type != "cpu" or m.numel == 0 or type(t) is not Tensor:
        return t.__reduce_ex__(2)  # by value
    block = shared_tensors.block_of(t)
    if block is None:
        if t.base is not None:  # its base stays where it is
            t = shared_tensors.shared_like(t).requires_grad_(t.requires_grad)
        else:
            shared_tensors.share_memory_(t)
        block = shared_tensors.block_of(t)
        assert block is not None
        m = t.meta
    place = (block.size, t.ptr - block.address)
    return _rebuild, (DupFd(block.descriptor), place, tuple(m.shape), m.strides, m.dtype.name, bool(t.requires_grad))


def _rebuild(descriptor: Any, place: tuple[int, int], shape: tuple[int, ...], strides: tuple[int, ...], name: str, grad: bool) -> Tensor:
    size, offset = place
    block = Shared(os.dup(number := descriptor.detach()), size)
    os.close(number)
    t = wrap(block.address + offset, meta(shape, strides, dtypes.BY_NAME[name], device("cpu")), block)
    return t.requires_grad_() if grad else t


def _reduce_parameter(p: Parameter) -> Any:
    if p.meta.device.type == "cpu" and p.meta.numel:
        shared_tensors.share_memory_(p)
    return p.__reduce_ex__(2)


def init_reductions() -> None:
    """Teaches `multiprocessing` about tensors; importing `flambeau.multiprocessing` does it."""
    ForkingPickler.register(Tensor, reduce_tensor)
    ForkingPickler.register(Parameter, _reduce_parameter)
