"""Simulated GPUs: `simulate` and their clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._core.drivers.simulated.driver import SimulatedDriver
from .._core.drivers.simulated.models import MODELS
from .._core.runtime import gpus

_Before = gpus.install


class simulate:
    """Gives this process simulated GPUs, from now on or for a ``with`` block, in place of those it has.

    gpus: how many.  model: one of `models()`, or a model file (".toml", as `python -m flambeau.simulated.calibrate` writes it), for all, or a sequence
    with one for each.  memory: bytes of each (or a string such as "8GiB"), by default the model's.  queue: "eager" (work runs beside the host, as it comes),
    "lazy" (work runs only when something waits for it, so that a missing synchronisation always shows) or "random" (streams
    interleave by `seed`).  network: what joins this machine with others in `torch.distributed`, for predicted times: "NDR", "HDR", "100GbE" and so
    on, or gigabits a second for each GPU, such as "400".  CUDA_VISIBLE_DEVICES applies as on hardware.

    Memory is separate from the host's and has a capacity; nothing is touched until it is used.  Raises ValueError for
    arguments it does not know.
    """

    def __init__(self, gpus: int = 4, model: str | Sequence[str] = "H200", memory: int | str | None = None,
                 queue: str = "eager", seed: int = 0, network: str = "NDR") -> None:
        self._system = _make(gpus, model, memory, queue, seed, network)
        self._before: Any = _Before(self._system)

    def __enter__(self) -> simulate:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Finishes what is queued and puts back the GPUs there were.  Doing it again does nothing."""
        if self._before is not None:
            before, self._before = self._before, None
            self._system.driver.close()
            _Before(*before)


_make = gpus.simulated_system


def models() -> tuple[str, ...]:
    """The names of the GPUs that can be simulated."""
    return tuple(MODELS)


def clock(device: Any = None) -> float:
    """Predicted seconds on the virtual clock: of the host, or of when the work queued on `device` will be done.

    The difference of two readings, each after `cuda.synchronize()`, is the predicted time of what lies between, on the named
    GPU (see `drivers.simulated.models` for its figures).  Only calls that queue work, and waits for it, move the host's
    clock: Python's own time and work on the CPU do not.

    Raises ValueError for a device that is no GPU, RuntimeError when the GPUs are not simulated.
    """
    driver = gpus.start().driver
    if not isinstance(driver, SimulatedDriver):
        raise RuntimeError("clock: these GPUs are real; time them with cuda.Event(enable_timing=True)")
    return driver.host_time() if device is None else driver.device_time(gpus.gpu(device).physical)


__all__ = ["clock", "models", "simulate"]
