"""Helpers of PyTorch's own that libraries reach for (torch._utils): tensors side by side in one, an exception of another thread."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from flambeau._core import ops as _ops
from flambeau._core.runtime import gpus
from flambeau._core.runtime.device import device as _device

ops: Any = _ops
_REBUILT = {"_rebuild_tensor": "tensor_v1", "_rebuild_tensor_v2": "tensor_v2", "_rebuild_tensor_v3": "tensor_v3", "_rebuild_parameter": "parameter",
            "_rebuild_parameter_with_state": "parameter_with_state", "_rebuild_meta_tensor_no_storage": "on_meta"}


def __getattr__(name: str) -> Any:
    """What files make tensors by: loaded when somebody asks."""
    if name in _REBUILT:
        from flambeau.io import rebuild
        return getattr(rebuild, _REBUILT[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _flatten_dense_tensors(tensors: Sequence[Any]) -> Any:
    """The elements of all tensors, one after another."""
    return ops.cat([t.contiguous().view(-1) for t in tensors]) if len(tensors) != 1 else tensors[0].contiguous().view(-1)


def _unflatten_dense_tensors(flat: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The parts of `flat` in the shapes of `tensors`: views."""
    made, at = [], 0
    for t in tensors:
        made.append(flat.narrow(0, at, t.numel()).view_as(t))
        at += t.numel()
    return tuple(made)


def _accumulate(iterable: Iterable[Any], fn: Any = lambda x, y: x + y) -> Iterator[Any]:
    """Running sums, or another running combination."""
    import itertools
    return itertools.accumulate(iterable, fn)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a GPU that a device, its name or its number means; the current one for None, where `optional`; -1 for a CPU, where `allow_cpu`.

    Raises ValueError otherwise.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if device is not None:
        meant = _device(device)
        if meant.type == "cpu" and allow_cpu:
            return -1
        if meant.type == "cuda" and meant.index is not None:
            return int(meant.index)
        if meant.type == "cpu":
            raise ValueError(f"Expected a non cpu device, but got: {device}")
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    return gpus.current_index()


def _get_available_device_type() -> str | None:
    """"cuda" where there is a GPU."""
    return "cuda" if gpus.count() else None


def _get_all_device_indices() -> list[int]:
    """The numbers of all GPUs."""
    return list(range(gpus.count()))


def _element_size(dtype: Any) -> int:
    """The bytes of an element of a type."""
    return int(dtype.itemsize)


class KeyErrorMessage(str):
    """A text whose `repr` is itself: a KeyError shows it as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception of another thread or process, with its traceback as a text, to be raised here."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, value, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.where = where
        self.exc_msg = "".join(traceback.format_exception(kind, value, trace))

    def reraise(self) -> Any:
        """Raises an exception of the same type that tells where the first came from."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            text = KeyErrorMessage(text)
        elif getattr(self.exc_type, "message", None):
            raise self.exc_type(message=text)
        try:
            made = self.exc_type(text)
        except Exception:
            raise RuntimeError(text) from None
        raise made


def _import_dotted_name(name: str) -> Any:
    """What a name with dots stands for."""
    import importlib
    first, *rest = name.split(".")
    found: Any = importlib.import_module(first)
    for part in rest:
        found = getattr(found, part)
    return found


__all__ = ["ExceptionWrapper", "KeyErrorMessage"]


def _get_device_module(device_type: str) -> Any:
    """The module of a kind of device.  Raises RuntimeError for one that is not known."""
    import importlib
    if device_type not in ("cpu", "cuda", "mps", "xpu", "mtia"):
        raise RuntimeError(f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'.")
    return importlib.import_module(f"flambeau.{device_type}")
