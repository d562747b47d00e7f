"""Groups of threads that share a row."""

from __future__ import annotations


class Group:
    """`x` by `y` threads of a block.

    "warp": the x threads of a line have a row, y lines make a block; "block": a block has a row; "across": threads that are neighbours
    in x have a row each (which are neighbours in memory), those of one x share it.
    size: threads of a row; rows: rows of a block.
    """

    __slots__ = ("kind", "x", "y", "size", "rows")

    def __init__(self, kind: str, x: int, y: int) -> None:
        self.kind, self.x, self.y = kind, x, y
        self.size = y if kind == "across" else x
        self.rows = x if kind == "across" else y

    @property
    def threads(self) -> int:
        return self.x * self.y

    @property
    def key(self) -> tuple[str, int, int]:
        return self.kind, self.x, self.y
