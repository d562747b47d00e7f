"""torch._dynamo: what scripts say to the compiler before `compile`; there is none, so functions run as they are."""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

from flambeau.compiler import allow_in_graph, assume_constant_result, disable, is_compiling, reset, substitute_in_graph
from flambeau.interop import stand_ins
from flambeau.nn.optimized_module import OptimizedModule


class Settings(ModuleType):
    """A module of settings that are remembered and change nothing; one that was never set is False."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "Settings, without effect.")
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="flambeau")
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return False

    def patch(self, *names: Any, **values: Any) -> Any:
        """A ``with`` block or decorator; nothing is changed."""
        return contextlib.nullcontext() if not (names and callable(names[0])) else names[0]


config: Any = Settings(f"{__name__}.config")


class TransformGetItemToIndex(contextlib.nullcontext[None]):
    """A block in which ``x[i]`` with a tensor of no dimensions does not leave `vmap`; here it never does."""


def optimize(*args: Any, **options: Any) -> Any:
    """A decorator that gives its function back."""
    return lambda f: f


def run(fn: Any = None) -> Any:
    """The function unchanged; also a decorator."""
    return (lambda f: f) if fn is None else fn


def graph_break(msg: str = "") -> None:
    """There is no graph to break."""


def mark_dynamic(t: Any, index: Any = None, **options: Any) -> None:
    """There is nothing to mark."""


maybe_mark_dynamic = mark_static = mark_static_address = mark_dynamic


def list_backends(*args: Any, **options: Any) -> list[str]:
    """The back ends of `compile`: "eager" alone."""
    return ["eager"]


stand_ins.module(f"{__name__}.eval_frame", {"OptimizedModule": OptimizedModule}, "Modules that were compiled.")
stand_ins.module(f"{__name__}._trace_wrapped_higher_order_op", {"TransformGetItemToIndex": TransformGetItemToIndex}, "Help for `vmap` in a compiler.")


class TorchDynamoException(RuntimeError):
    """What a compiler's errors have in common: programs catch them, nothing here raises them."""


def _error(name: str, base: type = TorchDynamoException) -> type:
    return type(name, (base,), {"__module__": f"{__name__}.exc", "__doc__": "An error of a compiler that is not here: never raised."})


TorchDynamoException.__module__ = f"{__name__}.exc"
_short, _restart = _error("ShortenTraceback"), _error("RestartAnalysis")
_errors = (TorchDynamoException, _short, _restart, _error("BackendCompilerFailed", _short), _error("SpeculationRestartAnalysis", _restart),
           *map(_error, """Unsupported InternalTorchDynamoError TorchRuntimeError UserError ResetRequired InvalidBackend SkipFrame RecompileError
 CondOpArgsMismatchError UncapturedHigherOrderOpError""".split()), _error("FailOnRecompileLimitHit", Exception))
stand_ins.module(f"{__name__}.exc", {error.__name__: error for error in _errors}, "A compiler's errors.")

__all__ = ["OptimizedModule", "Settings", "allow_in_graph", "assume_constant_result", "config", "disable", "graph_break", "is_compiling", "list_backends",
           "mark_dynamic", "mark_static", "maybe_mark_dynamic", "optimize", "reset", "run", "substitute_in_graph"]
