"""What NVIDIA GPUs do that is no loop program, by name: kernels of our own and libraries.

Each name's function is given the driver's launches, the device and what the caller says, and gives a prepared launch, or None
where the caller must do otherwise (a type the library does not take, a library that is not installed and can be done without).
A module is imported when one of its routines is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...kernels.programs import Prepared
    from .launches import Launches

# name: (module of this folder, function)
_WHERE = {
    "sort": ("ordering", "sort"),
    "element": ("ordering", "element"),
    "nonzero count": ("ordering", "nonzero_count"),
    "nonzero write": ("ordering", "nonzero_write"),
    "spread": ("ordering", "spread"),
    "put": ("ordering", "put"),
    "search": ("ordering", "search"),
    "occurrences": ("ordering", "occurrences"),
    "check": ("ordering", "check"),
    "joined maps": ("joined", "maps"),
    "joined reductions": ("joined", "reductions"),
    "product": ("blaslt", "product"),
    "fft": ("cufft", "transform"),
    "lapack": ("cusolver", "lapack"),
    "convolution": ("cudnn", "convolution"),
    "attention": ("attention", "forward"),
    "attention_backward": ("attention", "backward"),
}


def prepare(launches: Launches, device: int, name: str, *what: Any) -> Prepared | None:
    """The launch, or None where there is no routine of this name for such operands."""
    where = _WHERE.get(name)
    if where is None:
        return None
    module, function = where
    made: Prepared | None = getattr(import_module("." + module, __package__), function)(launches, device, *what)
    return made
