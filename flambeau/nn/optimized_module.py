"""Modules whose calls are compiled: what `flambeau.compile` gives for a Module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.compile.compiled import compiled
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Callable


class OptimizedModule(Module):
    """A Module that does what the one that it was made of, `_orig_mod`, does, with its Python left out where `flambeau.compile` may.

    Its parameters, buffers and Modules are those of `_orig_mod`, of which attributes are read and set, so that ``state_dict()`` has PyTorch's names:
    ``_orig_mod.weight``.
    """

    _calls: Callable[..., Any]

    def __init__(self, module: Module) -> None:
        super().__init__()
        self._modules["_orig_mod"] = module
        self._begin()

    def _begin(self) -> None:
        self.__dict__["_calls"] = compiled(self._modules["_orig_mod"].__call__)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._calls(*args, **kwargs)

    @property
    def training(self) -> bool:
        return bool(self._modules["_orig_mod"].training)

    @training.setter
    def training(self, mode: bool) -> None:
        self._modules["_orig_mod"].training = mode

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules")
        if not modules:
            raise AttributeError(name)
        return modules[name] if name in modules else getattr(modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            super().__setattr__(name, value)
        else:
            setattr(self._modules["_orig_mod"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._modules["_orig_mod"], name)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_calls", "_compiled_call_impl")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin()


_OWN = {"training", "_orig_mod", "__class__", "__dict__"}

