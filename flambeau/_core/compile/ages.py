"""Which objects are older than a moment, as far as Python's collector tells, without a look at all that lives."""

from __future__ import annotations

import gc
from typing import Any


class Since:
    """What was made from now on, until `close`, while nothing but an explicit call collects.

    The collector's youngest generation holds what was made since it last looked there, so that, less what was in it before, tells what is new: a few
    thousand objects, where a look at all of them takes a second in a large program.
    """

    def __init__(self) -> None:
        self._before = {id(x): x for x in gc.get_objects(generation=0)}  # kept, so that no place is given to others
        self._made: set[int] = set()
        self._older: dict[int, Any] = {}  # what was asked for and is not among them
        self._open = True
        gc.callbacks.append(self._collected)

    def made(self, x: Any) -> bool:
        """Whether an object is new; so is what the collector does not know, such as a number."""
        n = id(x)
        if n in self._made or not gc.is_tracked(x):
            return True
        if not self._open or n in self._before or n in self._older:
            return False
        for y in reversed(gc.get_objects(generation=0)):  # what was made last is asked for most
            if y is x:
                self._made.add(n)
                return True
        self._older[n] = x
        return False

    def close(self) -> None:
        """What is made later counts as older."""
        if self._open:
            self._take()
            self._open = False
            gc.callbacks[:] = [f for f in gc.callbacks if f != self._collected]  # a program may have emptied it

    def release(self) -> None:
        """Lets go of what it kept."""
        self.close()
        self._before.clear()
        self._older.clear()

    def _take(self) -> None:
        self._made.update(id(x) for x in gc.get_objects(generation=0) if id(x) not in self._before)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":  # what stays is in an older generation afterwards
            self._take()
