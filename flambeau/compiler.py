"""torch.compiler: what programs say to `compile`, whose functions need to be told nothing."""

from __future__ import annotations

from typing import Any


def compile(*args: Any, **options: Any) -> Any:  # noqa: A001 (PyTorch's name)
    """`flambeau.compile`."""
    from ._core.compile.compiled import compile as compiled
    return compiled(*args, **options)


def is_compiling() -> bool:
    return False


def is_dynamo_compiling() -> bool:
    return False


def is_exporting() -> bool:
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function unchanged; also a decorator."""
    return (lambda f: f) if fn is None else fn


def allow_in_graph(fn: Any) -> Any:
    """The function unchanged."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function unchanged."""
    return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Any:
    """A decorator that gives its function back."""
    return lambda f: f


def reset() -> None:
    """There is nothing to forget."""


def cudagraph_mark_step_begin() -> None:
    """There is nothing to mark."""


def set_stance(stance: str = "default", **options: Any) -> Any:
    """Accepted: also a ``with`` block."""
    import contextlib
    return contextlib.nullcontext()


__all__ = ["allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
           "is_dynamo_compiling", "is_exporting", "reset", "set_stance", "substitute_in_graph"]
