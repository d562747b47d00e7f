"""How this library was put together (torch.__config__)."""

from __future__ import annotations


def show() -> str:
    """Version, Python, NumPy and the machine, one a line."""
    import platform

    import numpy

    from flambeau import __version__
    return (f"Flambeau {__version__}\n  - Python {platform.python_version()}\n  - NumPy {numpy.__version__}\n"
            f"  - {platform.machine()} {platform.system()}\n")


def parallel_info() -> str:
    """The threads operations run on."""
    import os

    from flambeau._core.ops.queries import get_num_threads
    return f"Flambeau parallel info:\n\tget_num_threads() : {get_num_threads()}\n\tprocessors : {os.cpu_count()}\n"


def _cxx_flags() -> str:
    """The flags of a C++ compiler, which was not needed: none."""
    return ""


__all__ = ["parallel_info", "show"]
