"""Whether a test failed for want of something that Flambeau has not, and what that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..interop.stand_ins import LeftOut, NotHere
from ..script import missing

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = __name__.partition(".")[0]


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def wanted(error: BaseException) -> str | None:
    """What Flambeau has not, in a sentence; None where the error is another."""
    first = missing._first(error)
    if first is not None:
        return missing._said(first)
    for link in chain(error):
        if isinstance(link, (LeftOut, NotHere)) or (isinstance(link, NotImplementedError) and _ours(link)):
            return str(link) or type(link).__name__
    return None


def _ours(error: BaseException) -> bool:
    """Whether an error arose in this package's own code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE


def mixes_devices(error: BaseException) -> str | None:
    """The first line of an error for tensors on several devices; None for another."""
    found = next((link for link in chain(error) if getattr(link, "mixed_devices", False)), None)
    return None if found is None else str(found).splitlines()[0]
