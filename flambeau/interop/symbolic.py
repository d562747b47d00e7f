"""Numbers that a compiler knows by name only (torch.SymInt), of which there are none here, and checks that programs write for it.

`sym_int` and the others are Python's own functions on Python's numbers, as they are in PyTorch outside of a compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from .stand_ins import kind

__all__ = ["SymBool", "SymFloat", "SymInt", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum"]

_WHY = "sizes are Python's ints here; there is no compiler that knows them by name"
SymInt, SymFloat, SymBool = (kind("flambeau", name, _WHY) for name in ("SymInt", "SymFloat", "SymBool"))


def sym_int(a: Any) -> int:
    """a as an int, cut toward zero."""
    return int(math.floor(a) if a >= 0 else math.ceil(a))


def sym_float(a: Any) -> float:
    """a as a float."""
    return float(a)


def sym_max(a: Any, b: Any) -> Any:
    """The larger; a float if one is."""
    larger = max(a, b)
    return float(larger) if isinstance(a, float) or isinstance(b, float) else larger


def sym_min(a: Any, b: Any) -> Any:
    """The smaller; a float if one is."""
    smaller = min(a, b)
    return float(smaller) if isinstance(a, float) or isinstance(b, float) else smaller


def sym_not(a: Any) -> bool:
    """not a."""
    return not a


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b, else f."""
    return t if b else f


def sym_sum(args: Iterable[Any]) -> Any:
    """The sum."""
    return sum(args)


def sym_sqrt(a: Any) -> float:
    """The square root."""
    return math.sqrt(a)


def _raise(kind: type[Exception], holds: Any, message: Callable[[], object] | None) -> None:
    if isinstance(holds, bool) or not hasattr(holds, "dtype"):
        if holds:
            return
    elif bool(holds):
        return
    if message is not None and not callable(message):
        raise TypeError(f"message must be a callable, got {type(message).__name__}")
    raise kind("Expected cond to be True, but got False. (Could this error message be improved? If so, please report an enhancement request to "
               "PyTorch.)" if message is None else str(message()))


def _check(cond: Any, message: Any = None) -> None:
    """Raises RuntimeError unless `cond`; message: a function that gives the text."""
    _raise(RuntimeError, cond, message)


def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:  # noqa: A002 (PyTorch's name)
    """Raises RuntimeError for a number that no axis has as its size."""
    _raise(RuntimeError, i >= 0 and (max is None or i <= max), message)


def _check_index(cond: Any, message: Any = None) -> None:
    """Raises IndexError unless `cond`."""
    _raise(IndexError, cond, message)


def _check_value(cond: Any, message: Any = None) -> None:
    """Raises ValueError unless `cond`."""
    _raise(ValueError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    """Raises TypeError unless `cond`."""
    _raise(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    """Raises NotImplementedError unless `cond`."""
    _raise(NotImplementedError, cond, message)


def _check_tensor_all(cond: Any, message: Any = None) -> None:
    """Raises RuntimeError unless all elements of a tensor of bool are true."""
    _raise(RuntimeError, bool(cond.all()), message)


def _assert(condition: Any, message: str) -> None:
    """``assert condition, message``, which tracers see as a call."""
    if not condition:
        raise AssertionError(message)


def _assert_async(input: Any, assert_msg: str | None = None) -> None:  # noqa: A002
    """Raises RuntimeError unless a tensor's one element is not zero; here at once."""
    if input.numel() != 1:
        raise RuntimeError(f"Expected a tensor of one element, got one of shape {list(input.shape)}")
    if not bool(input):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _shape_as_tensor(self: Any) -> Any:
    """The sizes, as a tensor of int64."""
    from .._core import ops
    return ops.tensor(list(self.shape))  # type: ignore[attr-defined,unused-ignore]
