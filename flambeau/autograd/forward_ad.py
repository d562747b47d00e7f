"""Forward-mode differentiation: dual tensors, which carry a tangent through every operation (torch.autograd.forward_ad).

For a function `f` with Jacobian J, ``unpack_dual(f(make_dual(x, v)))`` is f(x) and J v, without a backward pass::

    with dual_level():
        y, jvp = unpack_dual(f(make_dual(x, v)))

Tangents pass through writes in place and views, whether gradients are recorded or not; what is made of dual tensors that require grad has
gradients with tangents. `func.jvp` is the same as a function, and nests.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core.tensor import Tensor
from ..interop import overriding
from . import pushing
from .duals import Level, attach, lowered, tangents

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UnpackedDualTensor", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual", "dual_level"]

_open: list[Level] = []  # PyTorch allows one
_current_level = -1


class UnpackedDualTensor(NamedTuple):
    """A dual tensor's parts: `primal`, the tensor without its tangent, and `tangent`, None where there is none."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Begins a level, in which dual tensors can be made, and gives its number.  Raises RuntimeError inside another one."""
    global _current_level
    if _open:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _open.append(Level())
    _current_level = len(_open) - 1
    return _current_level


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends the level, and takes the tangents from all its tensors.  Raises RuntimeError for a level that is not the current one."""
    global _current_level
    level = _current_level if level is None else level
    if level != _current_level:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.")
    if not _open:
        raise RuntimeError("Dual level must be a positive number.")
    _open.pop().end()
    _current_level = len(_open) - 1


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """A view of `tensor` with a tangent, for the level that is open.

    The tangent is kept as it is where it is laid out as the tensor, else copied.  Raises RuntimeError outside of a level, for a tangent of
    another size and for a tensor that has one; ValueError for types without derivatives.
    """
    level = _current_level if level is None else level
    if level < 0:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.")
    if level >= len(_open):
        raise RuntimeError("Invalid level given to _make_dual")
    return dual(tensor, tangent, _open[level])


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor without its tangent (a view), and its tangent of the level that is open, or None."""
    level = _current_level if level is None else level
    if level < 0 or level >= len(_open):
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(*parts(tensor, _open[level]))


class dual_level:
    """A block, or a function, within which dual tensors can be made; gives the level's number."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()

    def __call__(self, function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with dual_level():
                return function(*args, **kwargs)
        return run


def _is_fwd_grad_enabled() -> bool:
    """Whether tangents pass through operations."""
    return pushing.enabled.get()


class _set_fwd_grad_enabled:
    """A block in which tangents pass through operations, or do not; it begins when this is made."""

    def __init__(self, mode: bool) -> None:
        self.prev = pushing.enabled.get()
        pushing.enabled.set(bool(mode))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pushing.enabled.set(self.prev)


# --------------------------------------------------------------------------------------------------------------- any level
def dual(tensor: Any, tangent: Any, level: Level) -> Any:
    """`make_dual` for any level, also with examples of a batch."""
    for what, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {t.dtype}")
    for t in (tensor, tangent):
        whole = getattr(type(t), "__dual_of_batch__", None)
        if whole is not None:
            return whole(dual, tensor, tangent, level)
    if tensor.meta.shape != tangent.meta.shape:
        raise RuntimeError(pushing._SIZES.format(list(tensor.meta.shape), list(tangent.meta.shape)))
    if level in tangents(tensor):
        raise RuntimeError("Making a dual Tensor based on a Tensor that already has a forward gradient at the same level "
                           f"{_open.index(level) if level in _open else level.number} is not supported.")
    if level in tangents(tangent):
        raise RuntimeError("Setting a forward grad that itself has a forward gradient at the same level"
                           f"{_open.index(level) if level in _open else level.number} is not supported.")
    made = tensor.view_as(tensor)
    attach(made, level, tangent)
    return made


def parts(tensor: Any, level: Level) -> tuple[Any, Any]:
    """A tensor without its tangent of a level, and the tangent, or None; also of examples of a batch."""
    whole = getattr(type(tensor), "__parts_of_batch__", None)
    if whole is not None:
        return whole(parts, tensor, level)  # type: ignore[no-any-return]
    found = tangents(tensor).get(level)
    if found is None:
        return tensor, None
    base = getattr(tensor, "base", None)
    made = lowered(tensor, level)
    made.base = tensor if base is None else base
    return (overriding.as_subclass(made, type(tensor)) if overriding.overrides(type(tensor)) else made), found

