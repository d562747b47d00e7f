"""torch.cuda.profiler: where NVIDIA's profilers begin and end to look.  None of them listens here; `flambeau.trace` and `torch.profiler` look on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from . import init as _init

if TYPE_CHECKING:
    from collections.abc import Iterator


def start() -> None:
    """Accepted.  Raises AssertionError or RuntimeError where there are no GPUs."""
    _init()


def stop() -> None:
    """Accepted, likewise."""
    _init()


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """`start` and `stop` around a block."""
    start()
    try:
        yield
    finally:
        stop()
