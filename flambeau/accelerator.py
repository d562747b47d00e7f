"""The accelerator of this machine, whatever its kind (torch.accelerator): CUDA GPUs, real or simulated, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._core import dtypes as _dtypes
from ._core.runtime import gpus as _gpus
from ._core.runtime.device import device as _device

if TYPE_CHECKING:
    from ._core.runtime.streams import Stream


def is_available() -> bool:
    """Whether there is one."""
    return _gpus.count() > 0


def device_count() -> int:
    """How many there are."""
    return _gpus.count()


def current_accelerator(check_available: bool = False) -> _device | None:
    """`device('cuda')`, or None when there is none."""
    return _device("cuda") if _gpus.count() else None


def get_device_module(device: Any = None) -> Any:
    """The module of a device's kind: `flambeau.cuda` or `flambeau.cpu`; by default the accelerator's, or the CPU's without one.

    Raises RuntimeError for a string that names no device.
    """
    import importlib
    kind = ("cuda" if _gpus.count() else "cpu") if device is None else _device(device).type
    return importlib.import_module(f".{kind}", __package__)


def _cuda() -> Any:
    from . import cuda
    return cuda


def current_device_index() -> int:
    """The index of this thread's current one.  Raises RuntimeError when there is none."""
    index: int = _cuda().current_device()
    return index


current_device_idx = current_device_index


def set_device_index(device: Any) -> None:
    """Makes one current in this thread."""
    _cuda().set_device(device)


set_device_idx = set_device_index


def current_stream(device: Any = None) -> Stream:
    """This thread's current stream."""
    stream: Stream = _cuda().current_stream(device)
    return stream


def set_stream(stream: Stream) -> None:
    """Makes a stream current in this thread."""
    _cuda().set_stream(stream)


def synchronize(device: Any = None) -> None:
    """Waits for all its work."""
    _cuda().synchronize(device)


class device_index:
    """A ``with`` block in which the one of this index is current; None: no change."""

    def __init__(self, device: int | None) -> None:
        self._block = _cuda().device(device)

    def __enter__(self) -> None:
        self._block.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._block.__exit__(*exc)


def memory_allocated(device: Any = None) -> int:
    """Bytes in tensors."""
    n: int = _cuda().memory_allocated(device)
    return n


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the driver."""
    n: int = _cuda().memory_reserved(device)
    return n


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes in tensors at once."""
    n: int = _cuda().max_memory_allocated(device)
    return n


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes taken from the driver at once."""
    n: int = _cuda().max_memory_reserved(device)
    return n


def memory_stats(device: Any = None) -> dict[str, Any]:
    """The allocator's counters, with PyTorch's names."""
    found: dict[str, Any] = _cuda().memory_stats(device)
    return found


def reset_peak_memory_stats(device: Any = None) -> None:
    """Peaks start again from what is in use now."""
    _cuda().reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device_index: Any = None, /) -> None:
    """The allocator's sums start again from 0.  Raises RuntimeError where there is none."""
    _some()
    _cuda().reset_accumulated_memory_stats(device_index)


def get_memory_info(device_index: Any = None, /) -> tuple[int, int]:
    """(free, total) bytes of its memory.  Raises RuntimeError where there is none."""
    _some()
    found: tuple[int, int] = _cuda().mem_get_info(device_index)
    return found


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    """{"supported_dtypes": the types of which it can hold tensors}.  Raises RuntimeError where there is none."""
    _some()
    _gpus.gpu(device)
    return {"supported_dtypes": set(_dtypes.BY_NAME.values())}


def _some() -> None:
    if not _gpus.count():
        raise RuntimeError("Cannot access accelerator device when none is available.")


def empty_cache() -> None:
    """Gives what nobody uses back to the driver."""
    _cuda().empty_cache()


def empty_host_cache() -> None:
    """Gives the pinned host memory that nobody uses back to the system."""
    _cuda().empty_host_cache()


__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index",
           "empty_cache", "empty_host_cache", "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved",
           "memory_stats", "get_device_capability", "get_memory_info", "reset_accumulated_memory_stats",
           "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream", "synchronize"]
