"""Decorators that TorchScript reads (torch._jit_internal): each gives its function back."""

from __future__ import annotations

from typing import Any

from flambeau.futures import Future
from flambeau.jit import Final, _overload, _overload_method, export, ignore, is_scripting, unused

__all__ = ["Final", "Future", "export", "ignore", "is_scripting", "unused"]


def _copy_to_script_wrapper(fn: Any) -> Any:
    """The function unchanged."""
    return fn


def boolean_dispatch(arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, module_name: str, func_name: str) -> Any:
    """A function that calls `if_true` or `if_false`, by an argument."""
    def chosen(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if flag else if_false)(*args, **kwargs)
    chosen.__name__, chosen.__doc__ = func_name, if_true.__doc__ or if_false.__doc__
    return chosen


def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None:
    """Raises AssertionError, with the name put into the message, for what is neither an int nor two things."""
    assert isinstance(arg, int) or len(arg) == 2, message.format(arg_name)


class _Broadcasting:
    """``BroadcastingList2[int]``: an annotation."""

    def __getitem__(self, item: Any) -> Any:
        return list[item]


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _Broadcasting()


def is_optional(ann: Any) -> bool:
    """Whether an annotation lets None through."""
    import typing
    return type(None) in typing.get_args(ann)


_ = _overload, _overload_method
