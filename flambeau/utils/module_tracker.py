"""Which modules run (torch.utils.module_tracker)."""

from __future__ import annotations

import weakref
from typing import Any

from .._core.autograd import tape
from ..nn.hooks import register_module_forward_hook, register_module_forward_pre_hook


class ModuleTracker:
    """A block that knows which modules are at work: `parents` has their paths, from "Global" in, and `is_bw` says whether a backward pass runs.

    A module is called by its path below the outermost one that was entered; that one by its class.
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: Any = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []

    @property
    def is_bw(self) -> bool:
        """Whether gradients are being taken now."""
        return tape.is_running()

    def __enter__(self) -> ModuleTracker:
        self._handles = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave, always_call=True)]
        return self

    def __exit__(self, *exc: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _name(self, module: Any) -> str:
        if module not in self._names:
            top = type(module).__name__
            for path, below in module.named_modules():
                self._names[below] = f"{top}.{path}" if path else top
        return str(self._names[module])

    def _enter(self, module: Any, args: Any) -> None:
        self.parents.add(self._name(module))

    def _leave(self, module: Any, args: Any, output: Any) -> None:
        self.parents.discard(self._name(module))


__all__ = ["ModuleTracker"]
