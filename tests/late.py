"""Modules that take long to import, imported by the first test that needs them and not when tests are collected.

`import scipy` is as late by itself for what stands inside tests (`scipy.stats.kstest(...)`); `Late` is for tables of oracles.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


class Late:
    """The functions of a module: `Late("scipy.special").erf` imports it when it is called."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(import_module(self._module), name)(*args, **kwargs)

        call.__name__ = name  # names the test's case
        return call
