"""torch.compiler: what programs say to `compile`, whose functions need to be told nothing."""

from __future__ import annotations

from typing import Any


def compile(*args: Any, **options: Any) -> Any:  # noqa: A001 (PyTorch's name)
    """`flambeau.compile`."""
    from ._core.compile.compiled import compile as compiled
    return compiled(*args, **options)


def is_compiling() -> bool:
    """False: a compiled function is carried out once as it is, and replayed."""
    return False


def is_dynamo_compiling() -> bool:
    """False, as `is_compiling` is."""
    return False


def is_exporting() -> bool:
    """False: programs are not exported."""
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


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that `compile` takes as `backend`; those for debugging only where `exclude_tags` does not name "debug"."""
    from ._core.compile.compiled import BACKENDS
    return sorted(name for name in BACKENDS if "debug" not in (exclude_tags or ()) or "eager" not in name)


_default: list[Any] = ["inductor"]


def get_default_backend() -> Any:
    """What `set_default_backend` was told, "inductor" at first."""
    return _default[0]


def set_default_backend(backend: Any) -> None:
    """The backend of `compile` where a call names none: a name, a function, or None for "inductor"."""
    from ._core.compile import compiled
    _default[0] = "inductor" if backend is None else backend
    compiled.default_backend = backend


# Which guards a compiler keeps, by entries as PyTorch's `guard_filter_fn` gets them.  `flambeau.compile` does not ask: its guards are what makes it right.
def skip_all_guards_unsafe(guard_entries: Any) -> list[bool]:
    """False for each."""
    return [False for _ in guard_entries]


def skip_guard_on_globals_unsafe(guard_entries: Any) -> list[bool]:
    """Whether each is on something else than a global."""
    return [not entry.is_global for entry in guard_entries]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Any) -> list[bool]:
    """Whether each is on something else than a layer of torch.nn."""
    return [not entry.orig_guard.source.is_unspecialized_builtin_nn_module() for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Any) -> list[bool]:
    """Whether each is on something else than a module."""
    return [not entry.orig_guard.source.is_unspecialized_nn_module() for entry in guard_entries]


def keep_tensor_guards_unsafe(guard_entries: Any, keep_parameters: bool = False) -> list[bool]:
    """Whether each is on a tensor; parameters only with `keep_parameters`."""
    from .nn.parameter import Parameter
    return [entry.guard_type == "TENSOR_MATCH" and (keep_parameters or not isinstance(entry.value, Parameter)) for entry in guard_entries]


__all__ = ["get_default_backend", "keep_tensor_guards_unsafe", "list_backends", "set_default_backend", "skip_all_guards_unsafe",
           "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
           "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
           "is_dynamo_compiling", "is_exporting", "reset", "set_stance", "substitute_in_graph"]
