"""Which functions a class that overrides hears of: a module's own, as a whole; and the answer of a class that wants to hear of none."""

from __future__ import annotations

from typing import Any

_spaces: list[dict[str, Any]] = []  # of modules whose functions are made of operations
_covered = False


def cover(space: dict[str, Any] | None = None) -> None:
    """Lets a module's own functions be overridden as a whole, from the first class on that overrides: None says there is one."""
    global _covered
    if space is None:
        if _covered:
            return
        _covered = True
    else:
        _spaces.append(space)
    if _covered:
        from .._core.ops.arguments import covered
        for names in _spaces:
            package = names["__name__"]
            for name, value in list(names.items()):
                if not name.startswith("_") and hasattr(value, "__code__") and value.__module__.startswith(package):
                    names[name] = covered(name, value)
        _spaces.clear()


def disabled_torch_function_impl(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of a class that wants none: `func` as on plain tensors."""
    from .overriding import DisableTorchFunctionSubclass
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))
