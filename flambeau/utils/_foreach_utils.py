"""Lists of tensors for the `_foreach_` operations (torch.utils._foreach_utils)."""

from __future__ import annotations

from typing import Any


def _get_foreach_kernels_supported_devices() -> list[str]:
    return ["cuda", "cpu"]


_get_fused_kernels_supported_devices = _get_foreach_kernels_supported_devices


def _group_tensors_by_device_and_dtype(tensorlistlist: list[list[Any]], with_indices: bool = False) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """Rows of lists of one length (parameters, their gradients, ...) by the device and type of the first row's tensors, with their places.

    A tensor of a later row may be None.  Raises RuntimeError where the lists differ in length.
    """
    if len({len(row) for row in tensorlistlist}) > 1:
        raise RuntimeError(f"_group_tensors_by_device_and_dtype: the lists differ in length: {[len(row) for row in tensorlistlist]}")
    groups: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for i, first in enumerate(tensorlistlist[0] if tensorlistlist else ()):
        rows, places = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for row, source in zip(rows, tensorlistlist, strict=True):
            row.append(source[i])
        if with_indices:
            places.append(i)
    return groups


def _device_has_foreach_support(device: Any) -> bool:
    return device.type in _get_foreach_kernels_supported_devices()


def _has_foreach_support(tensors: list[Any], device: Any) -> bool:
    from .._core.tensor import Tensor
    return _device_has_foreach_support(device) and all(t is None or type(t) is Tensor for t in tensors)
