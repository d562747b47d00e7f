"""What a call of an operation with something that is no tensor says: PyTorch's TypeError, found after the fact.

Operations look straight into their tensors, so that a right call pays for no check; what a wrong one raises in passing is
put into words here, from the operation's own signature.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

from ..tensor import Tensor
from .unsupported import Unsupported, instead

if TYPE_CHECKING:
    from collections.abc import Callable

# codes of functions: that hear when an argument's class wants to answer in their place, and that try their luck before those
HANDLERS: set[Any] = set()
FIRST: set[Any] = set()


class Overridden(AttributeError):
    """Stops an operation that looks into a tensor whose class answers for it; see `interop.overriding`."""


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


# what PyTorch also takes for its parameters
_BY_NUMPY = {"axis": "dim", "keepdims": "keepdim"}


def by_numpy(function: Any, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments that go by NumPy's names (`axis`, `keepdims`) under the function's own; None where there are none of these."""
    if "axis" not in kwargs and "keepdims" not in kwargs:
        return None
    known = inspect.signature(inspect.unwrap(function)).parameters
    found = {_BY_NUMPY[k] if k in _BY_NUMPY and k not in known and _BY_NUMPY[k] in known else k: v for k, v in kwargs.items()}
    return found if len(found) == len(kwargs) and found.keys() != kwargs.keys() else None


def numpy_too(function: Any) -> Any:
    """A function that takes NumPy's names of its parameters too."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "axis" in kwargs or "keepdims" in kwargs:
            kwargs = by_numpy(function, kwargs) or kwargs
        return function(*args, **kwargs)
    return call


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
        except TRIPS as error:
            return tripped(error, call, row.name, row.function, args, kwargs)
    HANDLERS.add(call.__code__)  # type: ignore[attr-defined]
    return call


def covered(name: str, function: Any) -> Any:
    """A function made of operations, with the same."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TRIPS as error:
            return tripped(error, call, name, function, args, kwargs)
    HANDLERS.add(call.__code__)  # type: ignore[attr-defined]
    return call


TRIPS = (*STUMBLES, TypeError)


def tripped(error: Exception, public: Any, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """After an error in a public function: the answer of an argument's class, where one overrides; else the error, in words."""
    if isinstance(error, Unsupported):
        return instead(name, args, kwargs, error)
    if any_overrides(args, kwargs):
        from ...interop.overriding import ask, hearing
        relevant = hearing(error, args, kwargs, sys._getframe(1))
        if relevant:
            return ask(public, relevant, args, kwargs)
    if isinstance(error, STUMBLES):
        found = explained(name, function, args, kwargs)
        if found is not None:
            raise found from None
    raise error


def any_overrides(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an argument, or an element of a list among them, is of a class that may answer for operations."""
    for x in (*args, *kwargs.values()):
        kind = type(x)
        if kind in (list, tuple):
            if any_overrides(tuple(x), {}):
                return True
        elif kind is not Tensor and hasattr(kind, "__torch_function__"):
            return True
    return False
