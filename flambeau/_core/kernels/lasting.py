"""What must be there until the process is gone.

At its end the interpreter clears the modules, and with them whatever only they hold.  Threads that run machine code without the interpreter
lock do not notice, and objects that are freed later than the module still look at what it held.
"""

from __future__ import annotations

import ctypes
from typing import TypeVar

T = TypeVar("T")


def keep(x: T) -> T:
    """The same object, which is never freed from now on: neither the memory behind machine code nor a name that C code points to may be."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))
    return x
