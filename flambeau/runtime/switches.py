"""What the program lets the libraries of GPUs do.  Asked when a launch is prepared; a change makes bound launches stale."""

from __future__ import annotations

from . import door

values: dict[str, bool | int] = {
    "cudnn.enabled": True, "cudnn.benchmark": False, "cudnn.benchmark_limit": 10, "cudnn.deterministic": False, "cudnn.allow_tf32": True,
    "deterministic": False, "attention.fused": True,
}


def put(name: str, value: bool | int) -> None:
    """Sets the switch `name`."""
    if values[name] != value:
        values[name] = value
        door.changed()
