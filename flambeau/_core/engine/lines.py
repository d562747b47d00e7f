"""The memory of source lines as an interpreter: while it is on, what an operation gives remembers the user's line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..runtime import provenance
from ..tensor import Tensor
from .interpreters import Interpreter, pop, push

if TYPE_CHECKING:
    from collections.abc import Callable

    from .operation import Operation


class _Lines(Interpreter):
    __slots__ = ()

    def call(self, operation: Operation, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made = function(*args, **kwargs)
        for t in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(t, Tensor) and provenance.of(t) is None:
                provenance.note(t)
        return made


_lines = _Lines()
provenance.on_switch(lambda on: push(_lines) if on else pop(_lines))
provenance.from_environment()
