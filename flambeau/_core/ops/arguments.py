"""What a call of an operation with something that is no tensor says: PyTorch's TypeError, found after the fact.

Operations look straight into their tensors, so that a right call pays for no check; what a wrong one raises in passing is
put into words here, from the operation's own signature.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ..engine.operation import answers, explain
from ..errors import no_room
from ..kernels.expr import Expr
from ..tensor import Tensor
from .reading import NO_INDEX
from .unsupported import first, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engine.operation import Operation

STUMBLES = (AttributeError, IndexError)  # what using a number or a list as a tensor ends in
_USUAL = ("input", "target", "self", "other")  # tensors, even where the signature leaves their type open


def explained(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError | None:
    """The error for the first argument that should be a tensor or an integer and is not; None when all are."""
    whole = inspect.unwrap(function)
    try:
        given = inspect.signature(whole).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    for place, (key, value) in enumerate(given.arguments.items()):
        parameter = given.signature.parameters[key]
        kind = str(parameter.annotation).strip("'\"")
        if kind in ("int", "int | None") and not _counts(value) and not (value is None and ("None" in kind or parameter.default is None)):
            return TypeError(f"{name}(): argument '{key}' (position {place + 1}) must be int, not {type(value).__name__}")
        wanted = kind.startswith("Tensor") or (kind == "Any" and key in _USUAL and (key != "other" or not isinstance(value, (int, float, complex))))
        if not wanted or isinstance(value, Tensor) or (value is None and ("None" in kind or parameter.default is None)):
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        return TypeError(f"{name}(): argument '{key}' (position {place + 1}) must be Tensor, not {type(value).__name__}")
    return None


def _counts(value: Any) -> bool:
    """Whether it may stand for an integer."""
    return hasattr(value, "__index__") and not (isinstance(value, Tensor) and (value.meta.dtype.kind not in "bui" or value.meta.numel != 1))


def tripped(operation: Operation, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """After an error in an operation: the answer of an argument's class, where one overrides; else the error, in words."""
    if (full := no_room(operation.name, error)) is not None:
        raise full from None
    if not operation.planned and any(isinstance(x, Expr) for x in args):
        return operation.body(*args, **kwargs)  # inside a user's formula
    if any_overrides(args, kwargs):
        for answer in answers:
            made = answer(operation, args, kwargs)
            if made is not NotImplemented:
                return made
    if isinstance(error, AttributeError) and (sparse := first((args, kwargs))) is not None:
        raise refusal(operation.name, sparse.layout) from None
    if isinstance(error, STUMBLES) or (isinstance(error, TypeError) and (str(error) == NO_INDEX or "not supported between instances" in str(error))):
        found = explained(operation.function.__name__, operation.function, args, kwargs)
        if found is not None:
            raise found from None
    raise error


explain.append(tripped)


def any_overrides(args: tuple[Any, ...], kwargs: dict[str, Any], depth: int = 0) -> bool:
    """Whether an argument, or an element of a list among them, is of a class that may answer for operations; lists that hold themselves
    have no end."""
    for x in (*args, *kwargs.values()):
        kind = type(x)
        if kind in (list, tuple):
            if depth < 64 and any_overrides(tuple(x), {}, depth + 1):
                return True
        elif kind is not Tensor and hasattr(kind, "__torch_function__"):
            return True
    return False
