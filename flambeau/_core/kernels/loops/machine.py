"""What a machine of threads is, as far as the walk of a program's axes depends on it.  Machines of vectors are CPUs, and alike: see `stages`."""

from __future__ import annotations


class Machine:
    """vector: bytes that a thread reads at once; values: registers a thread may keep values in.

    block: most threads of a block; shared: bytes of shared memory for a block's rows; tile: and for a tile that is turned.
    cores: how many blocks' worth of hardware there is to fill; alone, together: bytes a microsecond that one core moves, and all of
    them; launch: microseconds another launch takes, with what it joins.  Roughly: they choose between ways to cut a row, and are
    constants of a class of machines, since what a row gives must not depend on the one at hand.
    expsums: whether its renderer has sums of exponentials that find their maximum on the way (`accumulators.EXPSUM`).
    """

    __slots__ = ("expsums", "vector", "values", "block", "shared", "tile", "cores", "alone", "together", "launch")

    def __init__(self, vector: int = 16, values: int = 48, block: int = 1024, shared: int = 100_608, tile: int = 48 << 10,
                 cores: int = 132, alone: float = 30_000.0, together: float = 4_000_000.0, launch: float = 3.0, expsums: bool = False) -> None:
        self.expsums = expsums
        self.vector, self.values = vector, values
        self.block, self.shared, self.tile = block, shared, tile
        self.cores, self.alone, self.together, self.launch = cores, alone, together, launch
