"""Seeds and states of the random number generators (torch.random)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ._core.runtime import generators
from ._core.runtime.device import resolve
from ._core.runtime.generators import Generator

default_generator = generators.default(resolve("cpu"))


def manual_seed(seed: int) -> Generator:
    """Seeds the generators of every device; returns the CPU's."""
    return generators.manual_seed(seed)


def seed() -> int:
    """Seeds every device from the operating system; returns the seed."""
    fresh = default_generator.seed()
    generators.manual_seed(fresh)
    return fresh


def initial_seed() -> int:
    """The seed of the CPU's generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Any:
    """The state of the CPU's generator as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Any) -> None:
    """Restores what `get_rng_state` gave."""
    default_generator.set_state(new_state)


def thread_safe_generator() -> Generator | None:
    """The generator of this thread where it is a loader's worker, else None: workers are processes here, each with generators of its own."""
    return None


def set_stream(name: str) -> None:
    """Chooses where random numbers come from; `get_stream` tells.

    "mt19937", the one at first: PyTorch's numbers, on the CPU bit for bit, one after the other, on GPUs those of its launches on that model.
    "counter": each element from a seed and its own number, by Philox4x32-10, so that the numbers are the same on every device and drawn by all
    threads.  The default generators begin from their seeds again; other generators keep the stream that they were made with.  Raises ValueError
    for another name.
    """
    generators.set_stream(name)


def get_stream() -> str:
    """The name of the stream of the CPU's default generator: see `set_stream`."""
    return generators.stream()


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **ignored: Any) -> Iterator[None]:
    """Puts the generators back at the end of a block as they were at its beginning."""
    if not enabled:
        yield
        return
    kept = {dev: g.state_bytes() for dev, g in list(generators._defaults.items())}
    stream = generators.stream()
    try:
        yield
    finally:
        generators.set_stream(stream)
        for dev, raw in kept.items():
            generators.default(dev).set_state_bytes(raw)


__all__ = ["Generator", "default_generator", "fork_rng", "get_rng_state", "get_stream", "initial_seed", "manual_seed", "seed", "set_rng_state",
           "set_stream", "thread_safe_generator"]
