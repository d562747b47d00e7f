"""From a list of samples to a batch."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from .. import dtypes, ops
from ..tensor import Tensor


def default_convert(data: Any) -> Any:
    """NumPy arrays and numbers inside containers become tensors; everything else stays as it is."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        if data.dtype.kind in "SUO":
            return data
        return ops.as_tensor(data)
    if isinstance(data, Mapping):
        return _like(data, {k: default_convert(v) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(v) for v in data))
    if isinstance(data, tuple):
        return [default_convert(v) for v in data]
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _like(data, [default_convert(v) for v in data])
    return data


def _like(sample: Any, content: Any) -> Any:
    """`content` in a container of the sample's type, or as it is if that type cannot be made so."""
    if type(sample) in (dict, list):
        return content
    try:
        if isinstance(sample, MutableMapping):
            import copy

            made = copy.copy(sample)
            made.update(content)
            return made
        if isinstance(sample, MutableSequence):
            import copy

            made_list = copy.copy(sample)
            for i, value in enumerate(content):
                made_list[i] = value
            return made_list
        return type(sample)(content)
    except TypeError:
        return content


def default_collate(batch: Any) -> Any:
    """Samples of one structure as one structure of batches: tensors and arrays are stacked along a new dimension 0,
    numbers become tensors (float64, int64), strings stay lists, and mappings, sequences and named tuples are gone
    into.

    Raises TypeError for other types and RuntimeError for sequences of different lengths.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return ops.stack(list(batch), 0)
    if isinstance(first, np.ndarray | np.generic):
        if first.dtype.kind in "SUO":
            raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
                            f"found {first.dtype}")
        if isinstance(first, np.ndarray):
            return ops.from_numpy(np.stack(batch))
        return ops.from_numpy(np.array(batch))
    if isinstance(first, float):
        return ops.tensor(list(batch), dtype=dtypes.float64)
    if isinstance(first, int):
        return ops.tensor(list(batch))
    if isinstance(first, str | bytes):
        return batch
    if isinstance(first, Mapping):
        return _like(first, {k: default_collate([d[k] for d in batch]) for k in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(values)) for values in zip(*batch)))
    if isinstance(first, Sequence):
        size = len(first)
        if any(len(sample) != size for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(list(values)) for values in zip(*batch)]
        return columns if isinstance(first, tuple) else _like(first, columns)
    raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                    f"{type(first)}")


def pin(data: Any, device: Any = None) -> Any:
    """The same structure with its tensors in pinned memory; objects with a `pin_memory` method of their own use it."""
    if isinstance(data, Tensor):
        return data.pin_memory()
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, str | bytes):
        return data
    if isinstance(data, Mapping):
        return _like(data, {k: pin(v) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin(v) for v in data))
    if isinstance(data, tuple):
        return [pin(v) for v in data]
    if isinstance(data, Sequence):
        return _like(data, [pin(v) for v in data])
    return data
