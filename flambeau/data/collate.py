"""From a list of samples to a batch."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._core import dtypes, ops
from .._core.runtime.device import device
from .._core.tensor import Tensor, meta, new

np_str_obj_array_pattern = re.compile("[SaUO]")  # NumPy's types that no tensor holds


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


_shared_empty: Any = None  # in a worker: an empty tensor in memory that the loader's process sees


def use(shared_empty: Any) -> None:
    """In a worker: batches are made in this function's tensors."""
    global _shared_empty
    _shared_empty = shared_empty


def stack(samples: list[Tensor]) -> Any:
    """`ops.stack(samples)`, in shared memory in a worker, and without a launch for each sample."""
    first = samples[0].meta
    for t in samples:
        if type(t) is not Tensor or t.meta is not first or t.node is not None:
            return ops.stack(samples, 0)
    if first.device.type != "cpu" or not first.contiguous:
        return ops.stack(samples, 0)
    m = meta((len(samples), *first.shape), None, first.dtype, first.device)
    out = new(m) if _shared_empty is None else _shared_empty(m)
    size = first.numel * first.dtype.itemsize
    if size:
        move, at = ctypes.memmove, out.ptr
        for t in samples:
            move(at, t.ptr, size)
            at += size
    return out


def _stack_arrays(arrays: list[Any]) -> Any:
    first = arrays[0]
    d = dtypes.from_numpy(first.dtype)
    if not first.dtype.isnative or any(a.dtype != first.dtype or a.shape != first.shape for a in arrays):
        return stack([ops.as_tensor(a) for a in arrays])
    m = meta((len(arrays), *first.shape), None, d, device("cpu"))
    out = new(m) if _shared_empty is None else _shared_empty(m)
    np.stack(arrays, out=out.numpy())
    return out


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """A batch of tensors, stacked."""
    return stack(list(batch))


# PyTorch's table of types and functions; what a program adds to it, `default_collate` uses
default_collate_fn_map: dict[Any, Callable[..., Any]] = {Tensor: collate_tensor_fn}


def collate(batch: Any, *, collate_fn_map: Mapping[Any, Callable[..., Any]] | None = None) -> Any:
    """`default_collate` with functions of one's own for some types: ``collate_fn_map`` maps a type, or a tuple of types, to
    ``function(batch, *, collate_fn_map)``."""
    first = batch[0]
    kind = type(first)
    again: Callable[[Any], Any] = default_collate
    if collate_fn_map is not None:
        found = collate_fn_map.get(kind)
        if found is None:
            found = next((f for key, f in collate_fn_map.items() if isinstance(first, key)), None)
        if found is not None:
            return found(batch, collate_fn_map=collate_fn_map)
        again = partial(collate, collate_fn_map=collate_fn_map)

    if isinstance(first, Tensor):
        return stack(list(batch))
    if isinstance(first, np.ndarray | np.generic):
        if first.dtype.kind in "SUO":
            raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
                            f"found {first.dtype}")
        if isinstance(first, np.ndarray):
            return _stack_arrays(list(batch))
        return ops.from_numpy(np.array(batch))
    if isinstance(first, float):
        if all(type(x) is float for x in batch):
            return ops.from_numpy(np.array(batch))
        return ops.tensor(list(batch), dtype=dtypes.float64)
    if isinstance(first, int):
        if kind in (int, bool) and all(type(x) is kind for x in batch):
            numbers = np.array(batch)
            if numbers.dtype.kind in "ib":  # not too large for int64
                return ops.from_numpy(numbers)
        return ops.tensor(list(batch))
    if isinstance(first, str | bytes):
        return batch
    if isinstance(first, Mapping):
        return _like(first, {k: again([d[k] for d in batch]) for k in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(again(values) for values in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        size = len(first)
        if any(len(sample) != size for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [again(values) for values in zip(*batch, strict=True)]
        return columns if isinstance(first, tuple) else _like(first, columns)
    raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                    f"{type(first)}")


def default_collate(batch: Any) -> Any:
    """Samples of one structure as one structure of batches: tensors and arrays are stacked along a new dimension 0,
    numbers become tensors (float64, int64), strings stay lists, and mappings, sequences and named tuples are gone
    into.

    Raises TypeError for other types and RuntimeError for sequences of different lengths.
    """
    return collate(batch) if len(default_collate_fn_map) == 1 else collate(batch, collate_fn_map=default_collate_fn_map)


def each(data: Any, function: Callable[[Any], Any], method: str) -> Any:
    """The same structure with `function` applied to its tensors and to objects that have a method of this name."""
    if isinstance(data, Tensor) or hasattr(data, method):
        return function(data)
    if isinstance(data, str | bytes):
        return data
    if isinstance(data, Mapping):
        return _like(data, {k: each(v, function, method) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(each(v, function, method) for v in data))
    if isinstance(data, tuple):
        return [each(v, function, method) for v in data]
    if isinstance(data, Sequence):
        return _like(data, [each(v, function, method) for v in data])
    return data
