"""Where tensors came from: behind a switch, each tensor remembers the source line that made or moved it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..errors import inside, site

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["VARIABLE", "caller", "enabled", "from_environment", "inside", "note", "of", "on_switch", "provenance", "site"]

VARIABLE = "FLAMBEAU_PROVENANCE"
_KEY = "_provenance"
_on = False
_switched: list[Callable[[bool], None]] = []


class provenance:
    """Turns the memory of source lines on or off: a call, or a `with` block that puts it back.

    While it is on, every tensor remembers the user's line that made or moved it, and errors about tensors on different
    devices name those lines; operations take their slow path.  While it is off nothing is done or paid for.  The
    environment variable FLAMBEAU_PROVENANCE=1 turns it on from the start.
    """

    def __init__(self, mode: bool = True) -> None:
        self._before = _on
        _set(bool(mode))

    def __enter__(self) -> provenance:
        return self

    def __exit__(self, *exc: object) -> None:
        _set(self._before)

    @staticmethod
    def enabled() -> bool:
        """Whether lines are being remembered."""
        return _on

    @staticmethod
    def of(t: Any) -> str | None:
        """The line `t` came from, as `file:line`; None when it was not remembered."""
        return of(t)


def _set(mode: bool) -> None:
    global _on
    if mode is _on:
        return
    _on = mode
    for tell in _switched:
        tell(mode)


def on_switch(tell: Callable[[bool], None]) -> None:
    """Registers what to call, with the new mode, when the switch is turned."""
    _switched.append(tell)


def from_environment() -> None:
    """Turns the switch on where the environment says so."""
    if os.environ.get(VARIABLE, "").strip() not in ("", "0"):
        _set(True)


def enabled() -> bool:
    """Whether lines are being remembered."""
    return _on


def of(t: Any) -> str | None:
    """The line a tensor came from, as `file:line`, when it was remembered."""
    found: str | None = getattr(t, "__dict__", {}).get(_KEY)
    return found


def caller() -> str | None:
    """The same as `file:line`."""
    found = site()
    return None if found is None else f"{found[0]}:{found[1]}"


def note(t: Any) -> None:
    """Remembers the caller's line for a tensor, when the switch is on."""
    if _on:
        line = caller()
        if line is not None:
            t.__dict__[_KEY] = line
