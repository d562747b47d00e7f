"""Traces: what a program did, stage by stage, on the terminal and on a page.

The module is itself the function `flambeau.trace`: called without a tensor it makes a `Trace`, called with one it gives
the sum of its diagonal, as PyTorch's function of this name does.

`record` notes stages (`stages`) and first values (`values`), `show` prints them, `save` writes the page (`page`) and the
file for trace viewers (`chrome`); `model` follows one input through a model, `progress` a training.
"""

from __future__ import annotations

import sys
import types
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import trace_model as trace_model
    from .progress import Progress as Progress
    from .record import Trace as Trace
    from .stages import Stage as Stage
    from .stages import Work as Work

_WHERE = {"Trace": "record", "Stage": "stages", "Work": "stages", "trace_model": "model", "Progress": "progress"}


def __getattr__(name: str) -> Any:
    import importlib
    if name in _WHERE:
        value = globals()[name] = getattr(importlib.import_module("." + _WHERE[name], __name__), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _diagonal_sum() -> Any:
    from .._core.ops.table import TABLE
    return TABLE["trace"].function


class _Callable(types.ModuleType):
    """A module that can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and not isinstance(args[0], str) or "input" in kwargs:
            return _diagonal_sum()(*args, **kwargs)
        return self.Trace(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
__all__ = ["Progress", "Stage", "Trace", "Work", "trace_model"]  # noqa: F822 (found when asked for)
