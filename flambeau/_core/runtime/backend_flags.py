"""Flags that choose among algorithms of GPU libraries.  They are read when a launch is prepared; changing one ends the epoch of plans.

Flags of attention, which programs change for a `with` block, do not end it: they are part of the keys of attention's plans.
"""

from __future__ import annotations

from . import capture, dispatch

values: dict[str, bool | int] = {
    "cudnn.enabled": True, "cudnn.benchmark": False, "cudnn.benchmark_limit": 10, "cudnn.deterministic": False, "cudnn.allow_tf32": True,
    "deterministic": False, "deterministic.warn_only": False, "deterministic.fill": True, "matmul.activations": 1,
    # ways of attention by PyTorch's names, and whether those of our own kernels (flash, efficient) come before cuDNN's
    "attention.math": True, "attention.flash": True, "attention.efficient": True, "attention.cudnn": True, "attention.overrideable": True,
    "attention.own_first": False,
}

_usual = dict(values)
turn = 0  # how often flags were changed


def put(name: str, value: bool | int) -> None:
    """Sets the switch `name`."""
    global turn
    if values[name] != value:
        if name.startswith("attention."):
            capture.now.hold((value != _usual[name]) - (values[name] != _usual[name]))
        values[name] = value
        turn += 1
        dispatch.set_timed(bool(values["cudnn.benchmark"] and not values["cudnn.deterministic"] and not values["deterministic"]))
        if not name.startswith("attention."):
            dispatch.changed()
