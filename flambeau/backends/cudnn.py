"""cuDNN's switches (torch.backends.cudnn): remembered; results here are deterministic whatever they say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """Whether cuDNN serves convolutions here."""
    return False


def version() -> int | None:
    """cuDNN's version; None without it."""
    return None


@contextlib.contextmanager
def flags(enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False,
          allow_tf32: bool = True, **others: object) -> Iterator[None]:
    """Sets the switches for a block."""
    here = globals()
    names = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
    before = {n: here[n] for n in names}
    here.update(enabled=enabled, benchmark=benchmark, benchmark_limit=benchmark_limit, deterministic=deterministic, allow_tf32=allow_tf32)
    try:
        yield
    finally:
        here.update(before)


__all__ = ["allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled", "flags", "is_available", "version"]
