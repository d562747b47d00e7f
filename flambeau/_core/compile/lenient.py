"""A recording of what goes on whatever it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime import capture
from .record import Recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..runtime.device import device

_FEW = 8  # bytes of one number


class Lenient(Recording):
    """A recording that lets everything go on, and only notes what cannot be replayed: `refused`."""

    refused: str | None = None
    open = False
    _fetching = False  # whether Python takes an element from a GPU

    def __enter__(self) -> Lenient:
        super().__enter__()
        self.open = True
        return self

    def close(self) -> None:
        if self.open:
            self.open = False
            super().close()

    def refuse(self, why: str) -> None:
        self.refused = self.refused or why

    def read(self, address: int, nbytes: int, check: bool) -> None:
        if check or nbytes <= _FEW:  # what Python sees is the same as long as these bytes are
            super().read(address, nbytes, True)
        else:
            self.refuse("it looks at a tensor's values")

    def fetched(self, dev: device, address: int, fetch: Callable[[], bytes]) -> None:
        self._fetching = True
        try:
            found = fetch()
        finally:
            self._fetching = False
        if len(found) <= _FEW:
            self.steps.append(capture.Read(address, found, dev))
        else:
            self.refuse("it looks at a tensor's values")

    def _copied(self, copy: Any) -> None:
        if not self._fetching:
            super()._copied(copy)

    def warned(self, message: str, category: type[Warning]) -> bool:
        self.refuse("it warns")
        return False
