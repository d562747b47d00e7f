"""Generators: a seed and a position in its stream of random numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from .. import forks
from . import caches, capture
from .device import device as device_class
from .device import resolve
from .random_blocks import Block

_DEFAULT_SEED = 67280421310721  # PyTorch's
_MASK = (1 << 64) - 1
_lock = forks.lock()  # of all generators: held for an addition


STREAMS = ("mt19937", "counter")
_stream = ["mt19937"]  # of the CPU's generators


class Generator:
    """A stream of random numbers on a device: `manual_seed`, `seed`, `initial_seed`, `get_state`, `set_state`.

    It gives PyTorch's numbers, on the CPU ("mt19937": `block` is the stream) and on GPUs, unless `flambeau.random.set_stream` chose "counter".
    Streams that count are a seed and a position; on GPUs all streams count, PyTorch's (`by_threads`) by fours.  Of equal ones chosen by "counter",
    the numbers are the same on every device.
    """

    __slots__ = ("device", "counts", "by_threads", "_seed", "_offset", "_block", "__weakref__")

    def __init__(self, device: Any = "cpu") -> None:
        self.device: device_class = resolve(device)
        self.counts = self.device.type != "cpu" or _stream[0] == "counter"
        self.by_threads = self.device.type == "cuda" and _stream[0] != "counter"
        self._seed = _DEFAULT_SEED
        self._offset = 0
        self._block: Block | None = None

    @property
    def block(self) -> Block:
        """The stream of a generator that does not count."""
        if self._block is None:
            with _lock:
                if self._block is None:
                    self._block = Block(self._seed)
        return self._block

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of `seed` (any integer of 64 bits) from its beginning."""
        seed = int(seed)
        if not -(1 << 63) <= seed <= _MASK:
            raise ValueError(f"Overflow when unpacking long long: a seed has 64 bits, got {seed}")
        capture.unrepeatable("a generator is seeded")
        with _lock:
            self._seed, self._offset = seed & _MASK, 0
            if self._block is not None:
                self._block.seed(self._seed)
        return self

    def initial_seed(self) -> int:
        return self._seed

    def seed(self) -> int:
        """Seeds from the operating system and gives the seed."""
        fresh = int.from_bytes(os.urandom(8), "little") >> 11
        self.manual_seed(fresh)
        return fresh

    def take(self, count: int) -> tuple[int, int]:
        """The seed and the first of `count` positions of a stream that counts, which are used up.  Another stream gives 64 bits as the seed of
        such a stream."""
        if self.by_threads:
            count = count + 3 & ~3
        if capture.active or capture.redrawing:
            made = capture.drawn(self, count)
            if made is not None:
                return made
        if not self.counts:
            return self.block.long_word(), 0
        with _lock:
            start = self._offset
            self._offset = (start + max(count, 1)) & _MASK
            return self._seed, start

    def place(self) -> int:
        """The address of the stream that a launch draws from, of a generator that does not count."""
        if capture.active or capture.redrawing:
            lent = capture.lent(self)
            if lent is not None:
                return lent
        return self.block.address

    def placed(self) -> tuple[int, Block]:
        """`place`, and the stream as it is before the draw, from which the same can be drawn again."""
        again = capture.redrawing and capture.once_more()
        block = again or self.block
        return block.address, block.copy()

    def kept(self) -> Any:
        """Where the stream is, for `put_back`."""
        return self._offset if self.counts else self.block.copy()

    def put_back(self, kept: Any) -> None:
        """Undoes what was drawn since `kept`."""
        if self.counts:
            self._offset = kept
        else:
            self.block.become(kept)

    def get_offset(self) -> int:
        """The position of a stream that counts."""
        if not self.counts:
            raise RuntimeError(f"get_offset: the stream of a generator on {self.device} has no offset unless it counts (flambeau.random.set_stream)")
        return self._offset

    def set_offset(self, offset: int) -> None:
        """Moves a stream that counts."""
        self.get_offset()
        capture.unrepeatable("a generator is moved")
        self._offset = int(offset)

    def state_bytes(self) -> bytes:
        if not self.counts:
            return self.block.state()
        with _lock:
            return self._seed.to_bytes(8, "little") + self._offset.to_bytes(8, "little")

    def set_state_bytes(self, raw: bytes) -> None:
        """Raises RuntimeError unless `raw` is a state this class gave, or PyTorch's of such a device."""
        if not self.counts:
            self.block.set_state(raw)
            self._seed = int.from_bytes(raw[:8], "little")
            return
        if len(raw) != 16:
            raise RuntimeError(f"RNG state is wrong size: expected 16 bytes, got {len(raw)}")
        with _lock:
            self._seed, self._offset = int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")

    # tensors lie above this layer: ops.random gives these two their bodies
    get_state: ClassVar[Callable[..., Any]]
    set_state: ClassVar[Callable[..., Any]]

    def clone_state(self) -> Generator:
        return _rebuild(str(self.device), self.state_bytes())

    def __reduce__(self) -> Any:
        return _rebuild, (str(self.device), self.state_bytes())


def _rebuild(dev: str, raw: bytes) -> Generator:
    g = Generator(dev)
    g.counts = len(raw) == 16
    g.set_state_bytes(raw)
    return g


def stream() -> str:
    """The stream of the CPU's generators."""
    return _stream[0]


def set_stream(name: str) -> None:
    """Chooses the stream of the default generators, which then begin from their seeds, and of generators made from now on."""
    if name not in STREAMS:
        raise ValueError(f"set_stream: name must be 'mt19937' (PyTorch's numbers) or 'counter' (the same numbers on every device), got {name!r}")
    if name == _stream[0]:
        return
    _stream[0] = name
    default(resolve("cpu"))
    for dev, g in list(_defaults.items()):
        g.counts = dev.type != "cpu" or name == "counter"
        g.by_threads = dev.type == "cuda" and name != "counter"
        g.manual_seed(g.initial_seed())
    caches.forget()  # plans hold what draws are made from


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
