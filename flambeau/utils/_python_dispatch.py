"""Below the tape (torch.utils._python_dispatch): names for `isinstance` and base classes.

What looks on at operations here is `torch.overrides.TorchFunctionMode`, and `flambeau.trace` at launches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..interop import stand_ins

_WHY = "operations are not dispatched once more below the tape; torch.overrides.TorchFunctionMode sees each of them"
globals().update(stand_ins.names(__name__, "TorchDispatchMode BaseTorchDispatchMode transform_subclass() return_and_correct_aliasing()", _WHY))


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor is taken apart by `__tensor_flatten__` where programs are traced."""
    return hasattr(type(t), "__tensor_flatten__") and hasattr(type(t), "__tensor_unflatten__")


def _get_current_dispatch_mode() -> None:
    return None


def _get_current_dispatch_mode_stack() -> list[Any]:
    return []


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """False: there are none."""
    return False


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    yield []
