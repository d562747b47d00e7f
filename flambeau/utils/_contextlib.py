"""Context managers that are decorators too (torch.utils._contextlib): what `no_grad` is made of, for libraries that derive their own."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from .._core.autograd.mode import DecoratorContextManager as _DecoratorContextManager
from .._core.autograd.mode import NoParamDecoratorContextManager as _NoParamDecoratorContextManager

if TYPE_CHECKING:
    from collections.abc import Callable


def context_decorator(ctx: Any, func: Any) -> Any:
    """`func` run inside a context.  ctx: a context manager that may be entered again, or a function that makes one for each call.
    Raises RuntimeError for something that is both, ValueError for a class."""
    if callable(ctx) and hasattr(ctx, "__enter__"):
        raise RuntimeError(f"Passed in {ctx} is both callable and also a valid context manager (has __enter__), making it ambiguous which interface to "
                           "use. If you intended to pass a context manager factory, rewrite your call as context_decorator(lambda: ctx()); if you "
                           "intended to pass a context manager directly, rewrite your call as context_decorator(lambda: ctx)")
    if inspect.isclass(func):
        raise RuntimeError("Cannot decorate classes; it is ambiguous whether or not only the constructor or all methods should have the context manager "
                           "applied; additionally, decorating a class at definition-site will prevent use of the identifier as a conventional type. "
                           "To specify which methods to decorate, decorate each of them individually.")
    make: Callable[[], Any] = ctx if callable(ctx) else lambda: ctx

    class Entered(_DecoratorContextManager):
        def clone(self) -> Any:
            return make()
    return functools.wraps(func)(Entered()(func))


__all__ = ["_DecoratorContextManager", "_NoParamDecoratorContextManager", "context_decorator"]
