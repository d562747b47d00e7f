"""`use_deterministic_algorithms`: its switches, and the values of memory that nothing has filled yet.

Every kernel of ours gives the same bits each time: nothing is summed by atomics, and of several writes to one element the last wins.  So no
operation refuses the mode, nor warns.  The mode forbids GPU libraries' algorithms that differ from run to run (`runtime.backend_flags`, asked when a
launch is prepared), and fills what the operations with the field "unfilled" give, and what `resize_` adds.
"""

from __future__ import annotations

import math

from .. import dtypes
from ..dtypes import dtype
from ..runtime import backend_flags
from ..tensor import Tensor
from . import launch

_MODES = ("default", "warn", "error")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Whether GPU libraries may only take algorithms that give the same result each time, and `empty` gives NaN (of integers the largest number,
    of bools True) as long as `utils.deterministic.fill_uninitialized_memory` is True.  Our own kernels are deterministic always.

    warn_only: remembered; no operation here is refused.  Raises TypeError for a mode that is no bool.
    """
    if not isinstance(mode, bool):
        raise TypeError(f"_set_deterministic_algorithms(): argument 'mode' (position 1) must be bool, not {type(mode).__name__}")
    if not isinstance(warn_only, bool):
        raise TypeError(f"_set_deterministic_algorithms(): argument 'warn_only' must be bool, not {type(warn_only).__name__}")
    backend_flags.put("deterministic.warn_only", warn_only)
    backend_flags.put("deterministic", mode)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` was turned on."""
    return bool(backend_flags.values["deterministic"])


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether `use_deterministic_algorithms` was last called with `warn_only`."""
    return bool(backend_flags.values["deterministic.warn_only"])


def get_deterministic_debug_mode() -> int:
    """0 where `use_deterministic_algorithms` is off, 1 where it is on with `warn_only`, else 2."""
    if not are_deterministic_algorithms_enabled():
        return 0
    return 1 if is_deterministic_algorithms_warn_only_enabled() else 2


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a word or number: "default" (0, off), "warn" (1) or "error" (2).

    Raises TypeError for anything but an int or a str, RuntimeError for another word or number.
    """
    if not isinstance(debug_mode, int | str):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, or `error`, but got {debug_mode}")
        debug_mode = _MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode != 0, warn_only=debug_mode == 1)


def unfilled(d: dtype) -> float | None:
    """The value of elements that nothing has filled; None where that is left open."""
    if not (backend_flags.values["deterministic"] and backend_flags.values["deterministic.fill"]):
        return None
    return math.nan if d.kind in "fc" else True if d.kind == "b" else dtypes.iinfo(d).max


def fill_unfilled(t: Tensor) -> Tensor:
    """A tensor whose elements nothing has filled, with `unfilled` in them."""
    value = unfilled(t.meta.dtype)
    if value is not None and t.meta.numel:
        launch.fill(t, value)
    return t
