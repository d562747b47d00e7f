"""torch._inductor: its settings, remembered and without effect, and switches around compiled steps, which need none of them here."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from flambeau.interop import stand_ins

from ._dynamo import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

config: Any = Settings(f"{__name__}.config")


def cudagraph_mark_step_begin() -> None:
    """Accepted: a step's memory is not kept for the next one's results."""


@contextlib.contextmanager
def fresh_inductor_cache(cache_entries: Any = None, dir: Any = None, delete: bool = True) -> Iterator[None]:  # noqa: A002
    """Accepted: kernels are found by what they do, so that an old one is never the wrong one."""
    yield


stand_ins.module("flambeau._inductor.utils", {"fresh_inductor_cache": fresh_inductor_cache, "fresh_cache": fresh_inductor_cache}, "Its small tools.")

__all__ = ["config", "cudagraph_mark_step_begin"]
