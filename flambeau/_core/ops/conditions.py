"""Conditions that programs check: `torch._check` and its like, which raise an error whose message is made only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import dtypes, layout
from ..tensor import Tensor


def _check_with(error: type[Exception], cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises `error` with what `message` gives, unless `cond` is True.  Raises TypeError for a condition that is no bool."""
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error("Expected cond to be True, but got False. (Could this error message be improved? If so, please report an enhancement request to "
                    "PyTorch.)")
    if not callable(message):
        raise TypeError(f"message must be a callable, got {type(message).__name__}")
    raise error(str(message()))


def _check(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises RuntimeError unless `cond` is True."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises IndexError unless `cond` is True."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises ValueError unless `cond` is True."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises TypeError unless `cond` is True."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises NotImplementedError unless `cond` is True."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Callable[[], Any] | None = None, *, max: int | None = None) -> None:  # noqa: A002 (PyTorch's name)
    """Raises RuntimeError for a size below 0, or above `max`."""
    _check_with(RuntimeError, bool(i >= 0) and (max is None or bool(i <= max)), message)


def _check_tensor_all_with(error: type[Exception], cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises `error` unless all elements of a bool tensor are True.  Raises TypeError for anything else than such a tensor."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.meta.dtype is not dtypes.bool_:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.meta.dtype}")
    _check_with(error, bool(cond.all()), message)


def _check_tensor_all(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises RuntimeError unless all elements of a bool tensor are True."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _test_check_tensor(cond: Any) -> None:
    """`_check_tensor_all` with a message of its own, by which PyTorch tests that such errors pass through."""
    _check_tensor_all(cond, lambda: "Test message for TORCH_CHECK_TENSOR_ALL")


def _assert_async(input: Tensor, assert_msg: str | None = None) -> None:  # noqa: A002
    """Raises RuntimeError where the one element is zero.  Here the host waits for it."""
    if not bool(input):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _debug_has_internal_overlap(input: Tensor) -> int:  # noqa: A002
    """0: no two elements share memory, 1: some do, 2: PyTorch does not look that closely."""
    m = input.meta
    if any(s == 0 and n > 1 for n, s in zip(m.shape, m.strides, strict=True)):
        return 1
    axes = sorted((s, n) for n, s in zip(m.shape, m.strides, strict=True) if n > 1)
    dense, step = True, 1
    for s, n in axes:
        dense, step = dense and s == step, s * n
    return 0 if dense or not layout.numel(m.shape) else 2
