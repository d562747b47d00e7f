"""Functions of PyTorch's top namespace that ask about tensors and settings, or are function forms of methods."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from .. import dtypes, layout
from ..errors import warn
from ..layout import Size
from ..runtime import caches
from ..tensor import Tensor


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage, typed or not."""
    from .storages import UntypedStorage
    from .typed_storages import TypedStorage
    return isinstance(obj, (TypedStorage, UntypedStorage))


def is_floating_point(input: Tensor) -> bool:  # noqa: A002 (PyTorch's name)
    """Whether the type is float16, bfloat16, float32 or float64."""
    return input.meta.dtype.is_floating_point


def is_complex(input: Tensor) -> bool:  # noqa: A002
    """Whether the type is complex64 or complex128."""
    return input.meta.dtype.is_complex


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly detection looks for NaN in gradients."""
    from ..autograd.tape import anomaly
    return anomaly.check_nan


def is_nonzero(input: Tensor) -> bool:  # noqa: A002
    """The truth of the one element."""
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:  # noqa: A002
    """Whether both tensors have one shape."""
    return input.meta.shape == other.meta.shape


def numel(input: Tensor) -> int:  # noqa: A002
    """The number of elements."""
    return input.meta.numel


def typename(obj: Any) -> str:
    """`torch.FloatTensor` and its like for tensors, the qualified class name for anything else."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


_results: dict[Any, dtypes.dtype] = caches.cache(globals(), "_results")  # of `result_type`, by both tensors' metas


def result_type(tensor1: Any, tensor2: Any) -> dtypes.dtype:
    """The type an operation on these tensors or numbers would give."""
    try:
        return _results[tensor1.meta, tensor2.meta]
    except (KeyError, AttributeError):
        pass
    both, since = (tensor1, tensor2), caches.epoch
    found = dtypes.result_of([x.meta.dtype for x in both if isinstance(x, Tensor) and x.meta.shape],
                             [x.meta.dtype for x in both if isinstance(x, Tensor) and not x.meta.shape],
                             [dtypes.of_scalar(x) for x in both if not isinstance(x, Tensor)])
    if isinstance(tensor1, Tensor) and isinstance(tensor2, Tensor):
        caches.keep_since(since, _results, (tensor1.meta, tensor2.meta), found)
    return found


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of these shapes broadcast to."""
    tuples = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    if any(d < 0 for s in tuples for d in s):
        raise RuntimeError("Trying to create tensor with negative dimension in broadcast_shapes")
    return Size(layout.broadcast_shapes(*tuples)) if tuples else Size(())


_settings: dict[str, Any] = {"precision": "highest", "interop": 1}


def set_float32_matmul_precision(precision: str) -> None:
    """"highest", "high" or "medium": how exact float32 matrix products on a GPU must be."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"{precision} is not one of 'highest', 'high', or 'medium'.")
    _settings["precision"] = precision
    from ..runtime import dispatch
    dispatch.set_tf32(precision != "highest")


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` chose: "highest", "high" or "medium"."""
    return str(_settings["precision"])


def set_num_threads(int: int) -> None:  # noqa: A002 (PyTorch's name)
    """How many threads kernels on the CPU may use."""
    from ..kernels import native
    if int <= 0:
        raise RuntimeError("expected positive number of threads")
    native.set_num_threads(int)
    from ..runtime import dispatch
    dispatch.changed()  # kept launches were cut for as many threads as there were


def get_num_threads() -> int:
    """How many threads kernels on the CPU may use."""
    from ..kernels import native
    count: Any = native.get_num_threads()
    return count if isinstance(count, int) else len(os.sched_getaffinity(0))


def set_num_interop_threads(int: int) -> None:  # noqa: A002
    """Remembered; operations here run in the order of the program."""
    _settings["interop"] = int


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was told."""
    found: Any = _settings["interop"]
    return found  # type: ignore[no-any-return]


def is_conj(input: Any) -> bool:  # noqa: A002
    """Whether it is a view of conjugates, see `conj`."""
    _tensor("is_conj", input)
    return bool(input.is_conj())


def is_neg(input: Any) -> bool:  # noqa: A002
    """Whether it is a view of negatives, as `x.conj().imag` is."""
    _tensor("is_neg", input)
    return bool(input.is_neg())


def is_signed(input: Any) -> bool:  # noqa: A002
    """Whether the type has negative numbers."""
    _tensor("is_signed", input)
    return input.meta.dtype.kind not in "bu"


def is_inference(input: Any) -> bool:  # noqa: A002
    """Whether it was made in inference mode."""
    return bool(input.is_inference())


def is_distributed(input: Any) -> bool:  # noqa: A002
    """False: a tensor lies on one device."""
    return False


def get_device(input: Any) -> int:  # noqa: A002
    """The index of the GPU; -1 for the CPU."""
    found: int = input.get_device()
    return found


def _tensor(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")


@cache
def _late(space: str, name: str) -> Any:
    """An operation of the table, which is complete only once all of its modules are there."""
    from . import table
    return table.find(space, name)


def frobenius_norm(input: Any, dim: Any = (), keepdim: bool = False) -> Tensor:  # noqa: A002
    """The square root of the sum of squares over `dim` (all by default)."""
    made: Tensor = _late("torch", "norm")(input, 2, dim or None, keepdim)
    return made


def nuclear_norm(input: Any, dim: Any = None, keepdim: bool = False) -> Tensor:  # noqa: A002
    """The sum of singular values over two axes."""
    made: Tensor = _late("linalg", "matrix_norm")(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
    return made


def resize_as_(input: Any, the_template: Any, *, memory_format: Any = None) -> Tensor:  # noqa: A002
    """`input.resize_as_(the_template)`."""
    made: Tensor = input.resize_as_(the_template, memory_format=memory_format)
    return made


def as_strided_(input: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:  # noqa: A002
    """`input.as_strided_(...)`."""
    made: Tensor = input.as_strided_(size, stride, storage_offset)
    return made


def detach_(input: Any) -> Tensor:  # noqa: A002
    """`input.detach_()`."""
    made: Tensor = input.detach_()
    return made


_kept = {"warn": False}


def set_warn_always(b: bool, /) -> None:
    """Remembered."""
    _kept["warn"] = bool(b)


def is_warn_always_enabled() -> bool:
    """Whether warnings are shown each time, as `set_warn_always` was told."""
    return bool(_kept["warn"])


def set_vital(*args: Any, **kwargs: Any) -> None:
    """Nothing but a warning, as in PyTorch: loaders of libraries still call it."""
    warn("'set_vital' is deprecated, please do not call")


def is_anomaly_enabled() -> bool:
    """Whether `autograd.set_detect_anomaly` is on."""
    from ..autograd import tape
    return tape.anomaly.lines


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """`autograd.set_detect_anomaly`, from now on.  Raises TypeError for what is no bool."""
    from ..autograd import tape
    for place, (name, value) in enumerate((("enabled", enabled), ("check_nan", check_nan)), 1):
        if not isinstance(value, bool):
            raise TypeError(f"set_anomaly_enabled(): argument '{name}' (position {place}) must be bool, not {type(value).__name__}")
    tape.anomaly.detect(enabled, check_nan)


def set_flush_denormal(mode: bool) -> bool:
    """False: denormal numbers are always kept."""
    return False
