"""Generators: a seed and a position in its stream of random numbers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from .. import forks
from . import capture
from .device import device as device_class
from .device import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

_DEFAULT_SEED = 67280421310721  # PyTorch's
_MASK = (1 << 64) - 1
_lock = forks.lock()  # of all generators: held for an addition


class Generator:
    """A stream of random numbers on a device: `manual_seed`, `seed`, `initial_seed`, `get_state`, `set_state`.

    Generators of equal seed and position give the same numbers on every device.
    """

    __slots__ = ("device", "_seed", "_offset", "__weakref__")

    def __init__(self, device: Any = "cpu") -> None:
        self.device: device_class = resolve(device)
        self._seed = _DEFAULT_SEED
        self._offset = 0

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of `seed` (any integer of 64 bits) from its beginning."""
        seed = int(seed)
        if not -(1 << 63) <= seed <= _MASK:
            raise ValueError(f"Overflow when unpacking long long: a seed has 64 bits, got {seed}")
        capture.unrepeatable("a generator is seeded")
        with _lock:
            self._seed, self._offset = seed & _MASK, 0
        return self

    def initial_seed(self) -> int:
        return self._seed

    def seed(self) -> int:
        """Seeds from the operating system and gives the seed."""
        fresh = int.from_bytes(os.urandom(8), "little") >> 11
        self.manual_seed(fresh)
        return fresh

    def take(self, count: int) -> tuple[int, int]:
        """The seed and the first of `count` positions, which are used up."""
        if capture.active or capture.redrawing:
            made = capture.drawn(self, count)
            if made is not None:
                return made
        with _lock:
            start = self._offset
            self._offset = (start + max(count, 1)) & _MASK
            return self._seed, start

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> None:
        capture.unrepeatable("a generator is moved")
        self._offset = int(offset)

    def state_bytes(self) -> bytes:
        with _lock:
            return self._seed.to_bytes(8, "little") + self._offset.to_bytes(8, "little")

    def set_state_bytes(self, raw: bytes) -> None:
        """Raises RuntimeError unless `raw` is a state this class gave."""
        if len(raw) != 16:
            raise RuntimeError(f"RNG state is wrong size: expected 16 bytes, got {len(raw)}")
        with _lock:
            self._seed, self._offset = int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")

    # tensors lie above this layer: ops.random gives these two their bodies
    get_state: ClassVar[Callable[..., Any]]
    set_state: ClassVar[Callable[..., Any]]

    def clone_state(self) -> Generator:
        other = Generator(self.device)
        other.set_state_bytes(self.state_bytes())
        return other

    def __reduce__(self) -> Any:
        return _rebuild, (str(self.device), self.state_bytes())


def _rebuild(dev: str, raw: bytes) -> Generator:
    g = Generator(dev)
    g.set_state_bytes(raw)
    return g


_defaults: dict[device_class, Generator] = {}
_seeded: list[int] = []


def default(dev: device_class) -> Generator:
    """The generator a device uses when none is given."""
    found = _defaults.get(dev)
    if found is None:
        found = Generator(dev)
        if _seeded:
            found.manual_seed(_seeded[0])
        found = _defaults.setdefault(dev, found)
    return found


def manual_seed(seed: int) -> Generator:
    """Seeds every device's default generator (those not used yet too) and gives the CPU's."""
    cpu = default(resolve("cpu"))
    cpu.manual_seed(seed)
    _seeded[:] = [int(seed)]
    for g in list(_defaults.values()):
        g.manual_seed(seed)
    return cpu


def seed_cuda(seed: int, dev: device_class | None = None) -> None:
    """Seeds the default generators of all GPUs, or of one."""
    if dev is not None:
        default(dev).manual_seed(seed)
        return
    for d, g in list(_defaults.items()):
        if d.type == "cuda":
            g.manual_seed(seed)

