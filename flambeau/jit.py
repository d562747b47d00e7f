"""torch.jit, which Flambeau leaves out: its decorators give the function or module back, with one warning.

What would save or load a scripted program raises NotImplementedError.
"""

from __future__ import annotations

import builtins
import contextlib
import typing
from collections.abc import Iterator
from typing import Any

from . import futures
from ._core.errors import warn
from .interop import stand_ins
from .nn.module import Module

_warned = False


class _Enabled:
    """Whether TorchScript compiles: never here; for programs that ask or switch."""

    enabled = False

    def __bool__(self) -> bool:
        return False

    def enable(self) -> None:
        """Nothing: there is no TorchScript."""

    disable = enable


_enabled = _Enabled()


def _once(name: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warn(f"jit.{name}: there is no TorchScript in Flambeau; the code runs as the Python it is")


def script(obj: Any = None, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """The function, class or module unchanged."""
    _once("script")
    return (lambda o: o) if obj is None else obj


def trace(func: Any = None, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
          check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
          _compilation_unit: Any = None, example_kwarg_inputs: Any = None, _store_inputs: bool = True) -> Any:
    """The function or module unchanged; it is not run."""
    _once("trace")
    return (lambda f: f) if func is None else func


def trace_module(mod: Any, inputs: Any, *args: Any, **options: Any) -> Any:
    """The module unchanged."""
    _once("trace_module")
    return mod


def ignore(drop: Any = False, **options: Any) -> Any:
    """The function unchanged; also a decorator with arguments."""
    return drop if callable(drop) else lambda f: f


def unused(fn: Any) -> Any:
    """The function unchanged."""
    return fn


def export(fn: Any) -> Any:
    """The function unchanged."""
    return fn


def interface(obj: Any) -> Any:
    """The class unchanged."""
    return obj


def script_if_tracing(fn: Any) -> Any:
    """The function unchanged."""
    return fn


def script_method(fn: Any) -> Any:
    """The method unchanged."""
    return fn


def is_scripting() -> bool:
    """False: there is no TorchScript."""
    return False


def is_tracing() -> bool:
    """False: `jit.trace` gives the function as it is."""
    return False


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:  # noqa: A001 (PyTorch's name)
    """Python's own, for classes and tuples of them."""
    return builtins.isinstance(obj, target_type)


def freeze(mod: Any, *args: Any, **options: Any) -> Any:
    """The module unchanged."""
    return mod


def optimize_for_inference(mod: Any, *args: Any, **options: Any) -> Any:
    """The module unchanged."""
    return mod


def fork(func: Any, *args: Any, **kwargs: Any) -> Any:
    """A future of what the function gives, which is done: it runs at once, and what it raises is raised here."""
    made: futures.Future[Any] = futures.Future()
    made.set_result(func(*args, **kwargs))
    return made


def wait(future: Any) -> Any:
    """The value of what `fork` gave; anything else as it is."""
    return future.wait() if builtins.isinstance(future, futures.Future) else future


_fork, _wait = fork, wait  # by the names of PyTorch's own tests and libraries

@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A block that changes nothing."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """A block that changes nothing."""
    yield


def _left_out(name: str) -> Any:
    raise NotImplementedError(f"jit.{name}: there is no TorchScript in Flambeau; save the state dict with flambeau.save and make the "
                              "module from its Python code")


def save(m: Any, f: Any, **options: Any) -> Any:
    """Raises NotImplementedError."""
    return _left_out("save")


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """Raises NotImplementedError."""
    return _left_out("load")


class ScriptObject:
    """An object of a scripted class: nothing is one, and programs may ask."""


class ScriptModule(Module):
    """A Module, so that code that inherits from it runs."""


class ScriptFunction:
    """No function is one: for ``isinstance``."""


RecursiveScriptModule = ScriptModule
Final = typing.Final


def _overload(func: Any) -> Any:
    """The function unchanged: a signature that TorchScript would read."""
    return func


_overload_method = _overload


def _get_trace_graph(*args: Any, **kwargs: Any) -> Any:
    """Raises NotImplementedError: no graph is traced here."""
    raise NotImplementedError("torch.jit._get_trace_graph: no graph of a script is traced here; flambeau.trace() and utils.flop_counter count what runs")


class TracerWarning(Warning):
    """What a tracer would warn of."""


Future = futures.Future
Attribute = annotate

stand_ins.module(f"{__name__}.annotations", {name: getattr(typing, name) for name in "Any Dict List Optional Tuple Union".split()},
                 "Names for annotations.")

__all__ = ["Attribute", "Final", "Future", "TracerWarning", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "annotate", "export", "fork", "freeze",
           "fuser", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load", "optimize_for_inference",
           "optimized_execution", "save", "script", "script_if_tracing", "script_method", "trace", "trace_module", "unused", "wait"]
