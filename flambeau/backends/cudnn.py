"""cuDNN's switches (torch.backends.cudnn): what serves convolutions on NVIDIA GPUs, and how.

enabled: whether cuDNN is used at all.  benchmark: try the algorithms when a convolution of new sizes is first met, and keep the
fastest.  benchmark_limit: how many are tried, of those that cuDNN proposes first; 0 for all.  deterministic: take none whose results
differ from run to run.  allow_tf32: float32 may be rounded to TF32.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from .._core.runtime import backend_flags

_NAMES = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
enabled: bool
benchmark: bool
benchmark_limit: int
deterministic: bool
allow_tf32: bool


class _Switches(ModuleType):
    """This module, whose switches are read and set where launches are prepared."""

    def __getattr__(self, name: str) -> Any:
        if name in _NAMES:
            return backend_flags.values[f"cudnn.{name}"]
        raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _NAMES:
            backend_flags.put(f"cudnn.{name}", value if name == "benchmark_limit" else bool(value))
        else:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Switches


def is_available() -> bool:
    """Whether cuDNN serves convolutions here: it is installed, and there is an NVIDIA GPU."""
    from .. import cuda
    return version() is not None and cuda.is_available() and not cuda.get_device_properties(0).simulated


def version() -> int | None:
    """cuDNN's version, as 91200 for 9.12; None without it."""
    from .._core.drivers.nvidia import cudnn
    return cudnn.version()


@contextlib.contextmanager
def flags(enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False,
          allow_tf32: bool = True, **others: object) -> Iterator[None]:
    """Sets the switches for a block."""
    before = {n: backend_flags.values[f"cudnn.{n}"] for n in _NAMES}
    here = {"enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit, "deterministic": deterministic, "allow_tf32": allow_tf32}
    for n, v in here.items():
        backend_flags.put(f"cudnn.{n}", v)
    try:
        yield
    finally:
        for n, v in before.items():
            backend_flags.put(f"cudnn.{n}", v)


__all__ = ["allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled", "flags", "is_available", "version"]
