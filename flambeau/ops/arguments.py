"""What a call of an operation with something that is no tensor says: PyTorch's TypeError, found after the fact.

Operations look straight into their tensors, so that a right call pays for no check; what a wrong one raises in passing is
put into words here, from the operation's own signature.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

STUMBLES = (AttributeError, IndexError)  # what using a number or a list as a tensor ends in
_USUAL = ("input", "target", "self", "other")  # tensors, even where the signature leaves their type open


def explained(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError | None:
    """The error for the first argument that should be a tensor and is not; None when all are."""
    whole = inspect.unwrap(function)
    try:
        given = inspect.signature(whole).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    for place, (key, value) in enumerate(given.arguments.items()):
        parameter = given.signature.parameters[key]
        kind = str(parameter.annotation)
        wanted = kind.startswith("Tensor") or (kind == "Any" and key in _USUAL and (key != "other" or not isinstance(value, (int, float, complex))))
        if not wanted or isinstance(value, Tensor) or (value is None and ("None" in kind or parameter.default is None)):
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        return TypeError(f"{name}(): argument '{key}' (position {place + 1}) must be Tensor, not {type(value).__name__}")
    return None


def takes_tensors(function: Any) -> int:
    """How many parameters of a function are tensors by its annotations."""
    parameters = inspect.signature(inspect.unwrap(function)).parameters.values()
    return sum(str(p.annotation).startswith("Tensor") for p in parameters)


def checked(row: Any) -> Any:
    """A row's function with its errors explained.  It asks the row at each call, for onlookers put stand-ins there."""
    @functools.wraps(row.function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return row.function(*args, **kwargs)
        except STUMBLES:
            error = explained(row.name, row.function, args, kwargs)
            if error is None:
                raise
            raise error from None
    return call
