"""Operations of one's own under a name of one's own (torch.library): Python functions, with gradients.

`custom_op("space::name", mutates_args=())` makes one of a function; it is called as what it returns, or as
`torch.ops.space.name`.  There is no compiler to tell shapes to, so that `register_fake` is kept and not used.

`torch.ops.load_library` loads no code: what is compiled for PyTorch calls PyTorch's own C++.  Of libraries in `_REGISTERED` the operations are here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
from collections.abc import Callable
from typing import Any

from ._core.tensor import Tensor
from .autograd import Function

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "get_ctx", "impl", "register_autograd", "register_fake", "register_kernel", "triton_op",
           "wrap_triton"]

_known: dict[str, CustomOpDef] = {}


class CustomOpDef:
    """A named operation: call it."""

    def __init__(self, name: str, function: Callable[..., Any], mutates_args: Any) -> None:
        space, _, short = name.partition("::")
        if not short or not space:
            raise ValueError(f"custom_op: the name must be 'namespace::name', got {name!r}")
        self._qualname, self._namespace, self._name = name, space, short
        self._function, self._mutates = function, mutates_args
        self._kernels: dict[str, Callable[..., Any]] = {}
        self._fake: Any = None
        self._backward: Any = None
        self._setup: Any = None
        self.__name__, self.__doc__ = short, function.__doc__
        self.__signature__ = inspect.signature(function)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    @property
    def default(self) -> CustomOpDef:
        """Itself: the one form it has."""
        return self

    def register_kernel(self, device_types: Any, func: Any = None) -> Any:
        """Another function for tensors of these device types ("cpu", "cuda"); also a decorator."""
        def register(f: Any) -> Any:
            for kind in [device_types] if isinstance(device_types, str) else device_types or ("cpu", "cuda"):
                self._kernels[kind] = f
            return f
        return register if func is None else register(func)

    def register_fake(self, fn: Any) -> Any:
        """Keeps a function that tells shapes; a decorator."""
        self._fake = fn
        return fn

    register_vmap = register_fake

    def register_autograd(self, backward: Any, /, *, setup_context: Any = None) -> None:
        """The gradient: ``backward(ctx, *grads)``, and ``setup_context(ctx, inputs, output)`` which saves what it needs."""
        self._backward, self._setup = backward, setup_context

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        kind = next((x.device.type for x in (*args, *kwargs.values()) if isinstance(x, Tensor)), "cpu")
        return self._kernels.get(kind, self._function)(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._backward is None:
            return self._run(*args, **kwargs)
        given = self.__signature__.bind(*args, **kwargs)
        given.apply_defaults()
        op = self

        class Recorded(Function):  # type: ignore[misc]
            @staticmethod
            def forward(*inputs: Any) -> Any:
                return op._run(*inputs)

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                if op._setup is not None:
                    op._setup(ctx, inputs, output)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                return op._backward(ctx, *grads)
        Recorded.__name__ = self._name
        return Recorded.apply(*given.arguments.values())


def custom_op(name: str, fn: Any = None, /, *, mutates_args: Any, device_types: Any = None, schema: str | None = None, tags: Any = None) -> Any:
    """Makes an operation of a function: of `fn`, or as a decorator.  Raises ValueError for a name without "::".

    mutates_args: the parameters it writes to; kept.  device_types: where this function serves; `register_kernel` adds others.
    """
    def make(function: Any) -> CustomOpDef:
        made = CustomOpDef(name, function, mutates_args)
        if device_types is not None:
            made.register_kernel(device_types, function)
        _known[name] = made
        return made
    return make if fn is None else make(fn)


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """`custom_op`: in PyTorch a compiler would look into the function for kernels of Triton, and there is none here."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """The kernel, which `triton_op`'s compiler would see: nothing changes here."""
    return triton_kernel


def _found(op: Any) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if op not in _known:
        raise RuntimeError(f"there is no operation {op!r}: custom_op makes one")
    return _known[op]


def register_fake(op: Any, func: Any = None, /, **options: Any) -> Any:
    """`CustomOpDef.register_fake` of an operation or its name; also a decorator."""
    return _found(op).register_fake if func is None else _found(op).register_fake(func)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, **options: Any) -> Any:
    """`CustomOpDef.register_kernel` of an operation or its name; also a decorator."""
    return _found(op).register_kernel(device_types, func)


def register_autograd(op: Any, backward: Any, /, *, setup_context: Any = None, **options: Any) -> None:
    """`CustomOpDef.register_autograd` of an operation or its name."""
    _found(op).register_autograd(backward, setup_context=setup_context)


def impl(qualname: str, types: Any, func: Any = None, **options: Any) -> Any:
    """Another function for an operation on these device types; also a decorator."""
    op = _found(qualname)
    return (lambda f: _served(op, types, f)) if func is None else _served(op, types, func)


def get_ctx() -> Any:
    """Raises RuntimeError: shapes are not told ahead, so that there is no context of it."""
    raise RuntimeError("get_ctx: there is no fake implementation at work")


def _signature(schema: str) -> inspect.Signature:
    """The parameters of a schema such as "(Tensor x, int? k=None, *, float s=1.0) -> Tensor".  Raises RuntimeError for a text that is none."""
    found = re.fullmatch(r"\s*\((.*)\)\s*->\s*(.+)", schema, re.DOTALL)
    if found is None:
        raise RuntimeError(f"expected a schema like '(Tensor x, int k=1) -> Tensor', got {schema!r}")
    made: list[inspect.Parameter] = []
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for part in re.split(r",(?![^\[(]*[\])])", found.group(1)):
        words, _, default = part.strip().partition("=")
        if words.strip() == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif words.strip():
            made.append(inspect.Parameter(words.split()[-1], kind, default=_value(default.strip()) if default else inspect.Parameter.empty))
    return inspect.Signature(made)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False}.get(text, text)


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """Makes an operation of a name and a schema; `impl`, `register_kernel` say later what it does.  Raises RuntimeError where one has the name."""
    if qualname in _known:
        raise RuntimeError(f"define: there is an operation {qualname!r} already")
    signature = _signature(schema)

    def missing(*args: Any, **kwargs: Any) -> Any:
        kind = next((x.device.type for x in (*args, *kwargs.values()) if isinstance(x, Tensor)), "cpu")
        raise NotImplementedError(f"Could not run '{qualname}' with arguments on the device '{kind}': nothing was registered for it")
    missing.__signature__ = signature  # type: ignore[attr-defined]
    _known[qualname] = CustomOpDef(qualname, missing, ())


# PyTorch's names of whom a function serves
_EVERY = frozenset(("default", "compositeimplicitautograd", "compositeexplicitautograd", ""))


def _served(op: CustomOpDef, types: Any, func: Any) -> Any:
    for kind in [types] if isinstance(types, str) else types:
        name = kind.lower().removeprefix("autograd")
        if name in _EVERY:
            op._function, op._kernels = func, {}
        elif name == "meta":
            op.register_fake(func)
        else:
            op.register_kernel(name, func)
    return func


class Library:
    """Operations of one namespace, defined and given their functions by name: ``Library("mine", "DEF")``, or "IMPL", "FRAGMENT"."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}: expected DEF, IMPL or FRAGMENT")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Makes an operation of a schema that begins with its name, which is given back."""
        name = schema.partition("(")[0].strip()
        define(f"{self.ns}::{name}", schema[len(schema.partition("(")[0]):])
        return name

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", *, with_keyset: bool = False, allow_override: bool = False) -> None:
        """What an operation does, on the devices of `dispatch_key` (all: "CompositeExplicitAutograd")."""
        name = op_name if isinstance(op_name, str) else op_name._name
        _served(_found(name if "::" in name else f"{self.ns}::{name}"), dispatch_key or self.dispatch_key, fn)


# libraries by their file's name before the first dot: the module of `interop` that has what they register
_REGISTERED = {"_torchaudio": "torchaudio", "libtorchaudio": "torchaudio"}
loaded_libraries: set[str] = set()
_refused: dict[str, None] = {}


def load_library(path: Any) -> None:
    """Registers the operations of a compiled library that are here in Flambeau's own form, those of torchaudio; then `loaded_libraries` has the path.

    Raises OSError, as PyTorch does for what it cannot load, for a file that is not there and for any other library: packages that
    have a Python form of their operations take that.
    """
    file = os.path.realpath(path)
    if not os.path.isfile(file):
        raise OSError(f"Could not load this library: {file}: there is no such file")
    where = _REGISTERED.get(os.path.basename(file).partition(".")[0])
    if where is None:
        _refused[file] = None
        raise OSError(f"Could not load this library: {file}: Flambeau loads no code that is compiled for PyTorch, and has no operations of its own in "
                      "this library's place")
    if file not in loaded_libraries:
        for name, (schema, function) in importlib.import_module(f".interop.{where}", __package__).OPERATORS.items():
            if name not in _known:
                define(name, schema)
                _served(_known[name], "", function)
        loaded_libraries.add(file)


def import_module(module: str) -> None:
    """Imports a module that registers operations."""
    importlib.import_module(module)


class _Space:
    """The operations of one namespace."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<torch.ops.{self._name}>"

    def __getattr__(self, name: str) -> Any:
        found = _known.get(f"{self._name}::{name}")
        if found is None:
            compiled = f"; libraries that could not be loaded: {', '.join(_refused)}" if _refused and not name.startswith("__") else ""
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'{compiled}")
        return found


def space(name: str) -> Any:
    """`torch.ops.<name>`; None where nothing was registered under it, unless it may be that of a library which could not be loaded."""
    return _Space(name) if _refused or any(k.startswith(name + "::") for k in _known) else None
