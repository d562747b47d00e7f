"""Cycles of references that hold tensors of a GPU until Python collects them."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Any

from ..._core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


def observe_tensor_cycles(callback: Callable[[str], Any]) -> Callable[[], None]:
    """Calls `callback` with a text whenever Python has collected a cycle that held tensors of a GPU.  Gives a function that ends it.

    The collector is told to keep what it finds meanwhile; what it has found is dropped here.
    """
    def after(phase: str, told: Any) -> None:
        if phase != "stop":
            return
        gc.set_debug(before)
        held = [t for t in gc.garbage if isinstance(t, Tensor) and t.is_cuda]
        kinds = sorted({type(x).__name__ for x in gc.garbage if not isinstance(x, Tensor | dict | tuple | list)})
        if held:
            callback(f"{len(held)} tensors of a GPU, {sum(t.nbytes for t in held)} bytes, were held by cycles through {', '.join(kinds) or 'containers'}")
        gc.garbage.clear()
        gc.set_debug(before | gc.DEBUG_SAVEALL)

    before = gc.get_debug()
    gc.callbacks.append(after)
    gc.set_debug(before | gc.DEBUG_SAVEALL)

    def end() -> None:
        if after in gc.callbacks:
            gc.callbacks.remove(after)
            gc.set_debug(before)
    return end


def warn_tensor_cycles() -> Callable[[], None]:
    """Warns, by this module's logger, of cycles that held tensors of a GPU.  Gives a function that ends it."""
    logger.info("Watching Python reference cycles for CUDA Tensors.")
    return observe_tensor_cycles(lambda text: logger.warning("Reference cycle includes a CUDA Tensor: %s", text))


__all__ = ["observe_tensor_cycles", "warn_tensor_cycles"]
