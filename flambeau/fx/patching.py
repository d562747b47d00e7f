"""What tracing puts in the place of functions and methods for a while: wrapped functions, and the attributes of modules."""

from __future__ import annotations

import builtins
import sys
from functools import wraps
from types import CodeType
from typing import TYPE_CHECKING, Any

from .proxy import first_proxy

if TYPE_CHECKING:
    from collections.abc import Callable

# (id of a module's globals, name): the globals.  What `wrap` was told of.
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}
# (class, name) of methods that become nodes
_wrapped_methods: dict[tuple[type, str], None] = {}
_NONE: Any = object()


def wrap(fn_or_name: Any) -> Any:
    """Has calls of a function become one node, not what it does: `wrap("name")` or, as a decorator, of the function itself.

    To be called at the top of a module, of a function of its globals.  Raises RuntimeError for what is neither a function nor a name,
    NotImplementedError when called elsewhere.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    if callable(fn_or_name) and not isinstance(getattr(fn_or_name, "__code__", None), CodeType) and not hasattr(fn_or_name, "__name__"):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    frame: Any = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


def wrap_method(cls: type, name: str) -> None:
    """Has calls of a class's method with a traced value become nodes."""
    _wrapped_methods[cls, name] = None


def recording(function: Any, method: str | None = None) -> Callable[..., Any]:
    """A function that becomes a node when it is given a proxy, and is itself otherwise."""
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = first_proxy((*args, *kwargs.values()))
        if found is None:
            return function(*args, **kwargs)
        made = found.tracer.create_proxy("call_method" if method else "call_function", method or function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made
    return call


class Patcher:
    """Puts things in the place of others within a ``with`` block, and takes each back in turn."""

    def __init__(self) -> None:
        self._back: list[Callable[[], None]] = []
        self._seen: set[int] = set()

    def put(self, owner: type | dict[str, Any], name: str, new: Any) -> None:
        """`new` as an attribute of a class or an entry of a dictionary."""
        if isinstance(owner, dict):
            before = owner.get(name, _NONE)

            def back() -> None:
                if before is _NONE:
                    del owner[name]
                else:
                    owner[name] = before
            owner[name] = new
        else:
            old = owner.__dict__.get(name, _NONE)

            def back() -> None:
                if old is _NONE:
                    delattr(owner, name)
                else:
                    setattr(owner, name, old)
            setattr(owner, name, new)
        self._back.append(back)

    def wrapped(self) -> None:
        """What `wrap` was told of."""
        for (_, name), space in list(_wrapped.items()):
            function = space.get(name, getattr(builtins, name, None))
            if function is not None:
                self.put(space, name, recording(function))
        for cls, name in list(_wrapped_methods):
            self.put(cls, name, recording(getattr(cls, name), name))

    def functions_in(self, space: dict[str, Any], ids: set[int]) -> None:
        """The functions with these identities, wherever a module's globals name them."""
        if id(space) in self._seen:
            return
        self._seen.add(id(space))
        for name, value in list(space.items()):
            if not name.startswith("_") and callable(value) and id(value) in ids:
                self.put(space, name, recording(value))

    def __enter__(self) -> Patcher:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._back:
            self._back.pop()()
        self._seen.clear()


__all__ = ["Patcher", "wrap", "wrap_method"]
