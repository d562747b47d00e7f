"""torch.classes: classes that compiled libraries register. None is loaded here, so none is registered."""

from __future__ import annotations

import types
from typing import Any, NoReturn

from flambeau import library


class _Namespace(types.ModuleType):
    """The classes of one namespace."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"Tried to instantiate class '{self.__name__.removeprefix('torch.classes.')}.{name}', but it does not exist! Flambeau loads no "
                           "libraries that are compiled for PyTorch")


class _Classes(types.ModuleType):
    """`torch.classes`."""

    loaded_libraries = library.loaded_libraries
    load_library = staticmethod(library.load_library)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.classes' has no attribute {name!r}")
        found = self.__dict__[name] = _Namespace(f"torch.classes.{name}")
        return found


classes = _Classes("torch.classes", __doc__)
