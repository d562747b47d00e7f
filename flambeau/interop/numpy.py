"""NumPy's protocols on tensors: `np.asarray(t)`, `np.sin(t)`, `array + t`, and the same for GPUs (`__cuda_array_interface__`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import dtypes
from .._core.ops.reading import numpy as shared
from .._core.tensor import Tensor


def array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    """The elements as an array: shared when the type stays and `copy` is not True.

    Raises ValueError when `copy` is False and one is needed; TypeError and RuntimeError as `numpy()`.
    """
    made = shared(self)
    if dtype is not None and np.dtype(dtype) != made.dtype:
        if copy is False:
            raise ValueError(f"Unable to avoid copy while creating an array as requested: the tensor is {self.meta.dtype}, "
                             f"dtype={np.dtype(dtype)} needs a copy")
        return made.astype(dtype)
    return made.copy() if copy else made


def array_wrap(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """What a NumPy function made of this tensor, as a tensor (booleans as uint8, as PyTorch does)."""
    from .._core.ops.creation import from_numpy
    made = np.asarray(array)
    if made.dtype == bool:
        made = made.astype(np.uint8)
    if dtypes.NUMPY_TO_DTYPE.get(made.dtype) is None:
        return array
    if any(s < 0 for s in made.strides) or not made.flags.writeable:
        made = made.copy()
    return from_numpy(made)


def cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """The CUDA array interface, version 2 (as PyTorch gives it): a GPU tensor's address, shape, type and strides.

    Raises AttributeError for a tensor on the CPU, of bfloat16 (which the interface has no name for), or on a simulated GPU,
    whose addresses no CUDA library can read; RuntimeError for one that requires grad.
    """
    if self.meta.device.type != "cuda":
        raise AttributeError(f"Can't get __cuda_array_interface__ on non-CUDA tensor on {self.meta.device}. If CUDA data is required use "
                             "tensor.cuda() to copy tensor to device memory.")
    from .._core.runtime import gpus
    if gpus.require_context().driver.simulated:
        raise AttributeError(f"Can't get __cuda_array_interface__: {self.meta.device} is a simulated GPU, and its addresses mean nothing to CUDA "
                             "libraries. Use tensor.cpu(), or DLPack within this process.")
    if self.node is not None:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't required, use "
                           "var.detach() to get Variable that doesn't require grad.")
    if self.is_conj() or self.is_neg():
        raise RuntimeError("Can't get __cuda_array_interface__ of a conjugate or negative view: resolve it first")
    d = self.meta.dtype
    if d is dtypes.bfloat16:
        raise AttributeError("Can't get __cuda_array_interface__ of bfloat16, which it has no name for: use .float() or DLPack")
    return {"typestr": f"{'|' if d.itemsize == 1 else '<'}{d.kind}{d.itemsize}", "shape": tuple(self.meta.shape),
            "strides": None if self.meta.contiguous else tuple(s * d.itemsize for s in self.meta.strides),
            "data": (self.ptr if self.meta.numel else 0, False), "version": 2}
