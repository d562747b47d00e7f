"""Classes that answer for operations on them (torch.overrides): `__torch_function__` on subclasses of Tensor and on objects
that are no tensors.

A plain tensor pays nothing for it; see `interop.overriding`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ._core.engine import interpreters
from ._core.runtime.asking import of_program
from ._core.tensor import Tensor
from .interop.overriding import DisableTorchFunctionSubclass, ask, enabled, known_as, overloaded, overrides

if TYPE_CHECKING:
    from ._core.engine.operation import Operation

__all__ = ["TorchFunctionMode", "enable_reentrant_dispatch",
           "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions", "get_testing_overrides",
           "handle_torch_function", "has_torch_function", "is_tensor_like", "is_tensor_method_or_property", "redispatch_function", "resolve_name",
           "wrap_torch_function"]


_skips: ContextVar[bool] = ContextVar("skips", default=False)  # the next question of a function is answered with no: see `redispatch_function`


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments has a `__torch_function__` of its own to ask."""
    if _skips.get():
        _skips.set(False)
        return False
    return bool(overloaded(relevant_args))


def has_torch_function_unary(obj: Any) -> bool:
    """`has_torch_function` of one argument."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` of these arguments."""
    return has_torch_function(args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Asks the `__torch_function__` of the arguments in turn, subclasses first.  Raises TypeError when none answers."""
    return ask(public_api, overloaded(relevant_args), args, kwargs)


def redispatch_function(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Calls a function that `__torch_function__` was asked about: itself, not asking once more.  Of a function of Python's, which asks by
    `has_torch_function`, what it calls is asked about again; an operation works on the tensors as they are, and gives plain ones."""
    if hasattr(func, "__operation__") or is_tensor_method_or_property(func):
        with DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))
    before = _skips.set(True)
    try:
        return func(*args, **(kwargs or {}))
    finally:
        _skips.reset(before)


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """A block in which classes are asked again, within one in which they are not."""
    token = enabled.set(True)
    try:
        yield
    finally:
        enabled.reset(token)


def wrap_torch_function(dispatcher: Callable[..., Any]) -> Callable[[Any], Any]:
    """Makes a function overridable: `dispatcher`, called with its arguments, gives those that are asked."""
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(call, relevant, *args, **kwargs)
            return function(*args, **kwargs)
        return call
    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor or has `__torch_function__`."""
    return isinstance(inp, Tensor) or overrides(type(inp))


def get_default_nowrap_functions() -> set[Any]:
    """Functions whose results the default `__torch_function__` leaves as they are."""
    from .interop.overriding import nowrap
    return nowrap()


def get_overridable_functions() -> dict[Any, list[Any]]:
    """The functions that `__torch_function__` can be asked about, by the namespace they are found in."""
    import importlib

    from ._core.ops import table
    package = __name__.rpartition(".")[0]
    found: dict[Any, list[Any]] = {}
    for space in ("torch", "nn.functional", "linalg", "fft", "special"):
        module = importlib.import_module(package if space == "torch" else f"{package}.{space}")
        names = table.namespace(space)
        found[module] = [getattr(module, n) for n in sorted(names) if not n.startswith("_") and hasattr(module, n)]
    found[Tensor] = [value.__get__ if isinstance(value, property) else value for name, value in sorted(Tensor.__dict__.items())
                     if (callable(value) or isinstance(value, property)) and not isinstance(value, type) and name != "__new__"]
    return found


def get_ignored_functions() -> set[Any]:
    """Functions of the top namespace that take no tensors, or look at one without being an operation on it."""
    import importlib
    module = importlib.import_module(__name__.rpartition(".")[0])
    names = """arange as_tensor empty empty_strided eye from_dlpack from_file from_numpy frombuffer full hann_window linspace logspace ones rand
     randint randn randperm range tensor tril_indices triu_indices zeros is_tensor is_grad_enabled set_grad_enabled no_grad enable_grad
     manual_seed seed initial_seed get_rng_state set_rng_state get_default_dtype set_default_dtype finfo iinfo can_cast promote_types
     save load compile""".split()
    return {getattr(module, n) for n in names if hasattr(module, n)}


def get_testing_overrides() -> dict[Any, Callable[..., Any]]:
    """For each overridable function a stand-in of the same signature that gives -1."""
    def stand_in(function: Any) -> Callable[..., Any]:
        def answer(*args: Any, **kwargs: Any) -> int:
            return -1
        try:
            answer.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        except (TypeError, ValueError):
            pass
        return answer
    return {f: stand_in(f) for functions in get_overridable_functions().values() for f in functions}


def resolve_name(f: Any) -> str | None:
    """The public name of an overridable function (`torch.add`, `torch.Tensor.add`); None for another."""
    for space, functions in get_overridable_functions().items():
        if any(f is g or f == g for g in functions):
            where = "torch.Tensor" if space is Tensor else space.__name__.replace(__name__.rpartition(".")[0], "torch", 1)
            name = getattr(f, "__name__", "")
            if name == "__get__":
                owner = f.__self__
                name = next(n for n, v in Tensor.__dict__.items() if v is owner) + ".__get__"
            return f"{where}.{name}"
    return None


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether a function is a Tensor's method, or reads or sets one of its attributes."""
    if getattr(func, "__name__", "") in ("__get__", "__set__"):
        return True
    return any(func is value for value in Tensor.__dict__.values())


class TorchFunctionMode:
    """A `with` block in which every operation, on any arguments, goes to this object's `__torch_function__`.

    Define ``__torch_function__(self, func, types, args=(), kwargs=None)``; inside it the mode is off, so that it may call `func`.
    """

    inner: TorchFunctionMode

    def __init__(self) -> None:
        self._open: list[Any] = []
        self._asking = False

    def __torch_function__(self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __torch_function__")

    def __enter__(self) -> TorchFunctionMode:
        self._open.append(_Seen(self))
        interpreters.push(self._open[-1])
        return self

    def __exit__(self, *exc: object) -> None:
        interpreters.pop(self._open.pop())


class _Seen(interpreters.Interpreter):
    """A mode that is on: its `__torch_function__` answers for every call of an operation, also for those that it makes outside itself."""

    __slots__ = ("mode",)

    def __init__(self, mode: TorchFunctionMode) -> None:
        self.mode = mode

    def call(self, operation: Operation, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mode = self.mode
        if mode._asking or not enabled.get():
            return function(*args, **kwargs)
        mode._asking = True
        try:
            types = tuple(dict.fromkeys(type(x) for x in (*args, *kwargs.values()) if overrides(type(x))))
            return of_program(mode.__torch_function__)(known_as(operation, args), types, args, kwargs)
        finally:
            mode._asking = False
