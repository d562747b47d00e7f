"""What a line of the benchmark is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Work = Callable[[], Any]


class Line(NamedTuple):
    """One row of the table: the same work by both sides.

    setup: given the library's module (torch or flambeau), makes the inputs and gives the work to time.
    target: how many times torch's speed Flambeau's must at least be.
    ours: Flambeau's own setup, where the work is said in another way there.
    beside: the other side: "torch", "jax", or "plain" where there is nothing of theirs to compare with: `setup` is Flambeau's plain way then.
    clocked: the work gives its seconds itself (those of a simulated GPU's clock).
    nbytes: what is moved; the table then says bytes a second too.
    """

    name: str
    target: float
    setup: Callable[[Any], Work]
    ours: Callable[[Any], Work] | None = None
    beside: str = "torch"
    clocked: bool = False
    nbytes: int = 0
