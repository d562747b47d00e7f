"""What functions, types and values are called in a graph and in the code it is printed as."""

from __future__ import annotations

import builtins
import inspect
import keyword
import math
import re
import sys
from functools import cache
from typing import Any

from .._core import dtypes
from .._core.ops import table
from .._core.runtime.device import device
from .._core.tensor import Tensor
from ..nn import functional as F
from ..nn.functional.shared import SHARED

PACKAGE = __name__.partition(".")[0]

# parameters of functions of both namespaces that the one in nn.functional has not
_ONLY_IN_TORCH = frozenset(("cudnn_enable", "cudnn_enabled"))
# functions of nn.functional that call the tensor's method there
_METHODS = frozenset(("tanh", "sigmoid"))


def torch_module() -> Any:
    """The module that generated code calls `torch`: the one a program imports by that name, where that is this package."""
    found = sys.modules.get("torch")
    return found if found is not None and "_flambeau" in vars(found) else sys.modules[PACKAGE]


@cache
def _public() -> dict[Any, str]:
    """The path from `torch` of each public function of the tables; what is Python in nn.functional is named there."""
    functional = {n: f for n in dir(F) if hasattr(f := getattr(F, n), "__operation__") and n not in _METHODS}
    found: dict[Any, str] = {}
    for space in ("special", "fft", "linalg"):
        found.update({f: f"torch.{space}.{n}" for n, f in reversed(table.namespace(space).items())})
    found.update({f: f"torch.nn.functional.{n}" for n, f in functional.items()})
    found.update({f: f"torch.{n}" for n, f in reversed(table.namespace("torch").items()) if not n.startswith("_")})
    return found


def filled(function: Any) -> bool:
    """Whether a tracer records all arguments of a function, those with a default all by name, as PyTorch's is Python."""
    space, _, name = _public().get(function, "").rpartition(".")
    return space == "torch.nn.functional" and name not in SHARED


@cache
def defaults(function: Any) -> tuple[str, ...]:
    """The parameters of such a function that a tracer records by name."""
    return tuple([n for n, p in inspect.signature(function).parameters.items() if p.default is not p.empty and n not in _ONLY_IN_TORCH
                  and not (n == "out" and p.kind is p.KEYWORD_ONLY)])


def called_as(function: Any) -> str | None:
    """The name of a tensor's method that a function is, where no namespace has it as a function, or that it calls; None for another."""
    name = getattr(function, "__name__", "")
    if name in _METHODS and getattr(F, name) is function:
        return str(name)
    if function in _public() or Tensor.__dict__.get(name) is not function:
        return None
    return str(name)


def qualified_name(function: Any) -> str:
    """The path by which code can name a function or class: `torch.relu`, `_operator.add`, `package.module.function`."""
    try:
        known = _public().get(function)
    except TypeError:
        known = None
    if known is not None:
        return known
    if function is not None and getattr(builtins, name := getattr(function, "__name__", ""), None) is function:
        return str(name)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if name is None:
        raise RuntimeError(f"Unable to find the name of {function!r}: a call_function node needs a function that has one")
    if name == "<lambda>":
        found = next((n for n, v in vars(sys.modules[function.__module__]).items() if v is function), None)
        if found is None:
            raise RuntimeError("Unable to emit reference to lambda: give the function a name at module scope")
        name = found
    module = _module_of(function)
    if module.split(".")[0] == PACKAGE:
        module = "torch" + module[len(PACKAGE):]
    return f"{module}.{name}"


def _module_of(function: Any) -> str:
    found = getattr(function, "__module__", None)
    if found:
        return str(found)
    owner = getattr(function, "__objclass__", None)
    return str(owner.__module__) if owner is not None else "builtins"


def type_name(t: Any) -> str:
    """A type as annotations and printed graphs show it."""
    if t is None or t is type(None):
        return "None"
    if not isinstance(t, type) or getattr(t, "__args__", None):
        return repr(t).replace("NoneType", "None") if not isinstance(t, str) else t
    return str(t.__name__) if t.__module__ == "builtins" else qualified_name(t)


def shown(value: Any) -> str | None:
    """The text of a constant of this package that is written by a name (`torch.float32`); None for another."""
    if isinstance(value, dtypes.dtype) or type(value).__name__ in ("memory_format", "layout"):
        return repr(value)
    return None


# names that generated code may use without asking, and what they stand for
CUSTOM_BUILTINS: dict[str, Any] = {"inf": math.inf, "nan": math.nan, "NoneType": type(None), "device": device}
RESERVED = frozenset((*keyword.kwlist, *dir(builtins), *CUSTOM_BUILTINS, "torch", "fx_pytree", "pytree"))
_SUFFIX = re.compile(r"(.*)_(\d+)$")
_NO_NAME = re.compile(r"[^0-9a-zA-Z_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake_case(text: str) -> str:
    """"AddRelu" as "add_relu"."""
    return _CAMEL.sub(r"_\1", text).lower()


class Namespace:
    """Names that are given once each: the second `add` is `add_1`."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}
        self._of: dict[Any, str] = {}

    def create_name(self, candidate: str, obj: Any = None) -> str:
        """A name like `candidate` that nobody has yet.  obj: whom it is for, who has the same one when it is asked for again."""
        if obj is not None and obj in self._of:
            return self._of[obj]
        candidate = _NO_NAME.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        match = _SUFFIX.match(candidate)
        base, number = (match[1], int(match[2])) if match else (candidate, self._next.get(candidate, 0))
        while candidate in self._used or self._reserved(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._next[base] = number
        if obj is not None:
            self._of[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Says whom a name is for.  Raises AssertionError where it is another's."""
        if self._of.setdefault(obj, name) != name:
            raise AssertionError("obj is already associated")

    def _reserved(self, name: str, obj: Any) -> bool:
        if name in keyword.kwlist:
            return True
        if name in vars(builtins):
            return vars(builtins)[name] is not obj
        return name in CUSTOM_BUILTINS and CUSTOM_BUILTINS[name] is not obj or name in ("torch", "fx_pytree", "pytree") and not hasattr(obj, "__path__")

    def taken(self, name: str) -> bool:
        """Whether a name was given."""
        return name in self._used

    def forget(self, obj: Any) -> None:
        """Somebody has another name from now on; the old one stays given."""
        self._of.pop(obj, None)


__all__ = ["Namespace", "called_as", "filled", "qualified_name", "shown", "snake_case", "torch_module", "type_name"]
