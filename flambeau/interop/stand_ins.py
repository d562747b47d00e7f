"""Names of PyTorch's that libraries import for `isinstance`, annotations and base classes, and whose work is not here.

Each exists in its place, is never an instance of anything, and says so when it is called.  A row of names is a text: ``DTensor`` is a
class, ``distribute_tensor()`` a function, ``StateDictType[FULL_STATE_DICT,LOCAL_STATE_DICT]`` an enumeration of these members.
"""

from __future__ import annotations

import abc
import enum
import importlib
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any


class LeftOut(AttributeError, NotImplementedError):
    """A use of what Flambeau leaves out."""


class NotHere(NotImplementedError):
    """A call of what is here by its name only."""


class NeverMade(abc.ABCMeta):
    """The type of classes without instances."""

    _why: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotHere(f"{cls._called()}: {cls._why}")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise LeftOut(f"{cls._called()}.{name}: {cls._why}")

    def _called(cls) -> str:
        return f"{cls.__module__.replace('flambeau', 'torch', 1)}.{cls.__qualname__}"

    def __getitem__(cls, item: Any) -> Any:
        return cls  # of a generic: an annotation


def kind(module: str, name: str, why: str) -> type:
    """A class that nothing is an instance of; `why` is what a call says after its name."""
    return NeverMade(name, (), {"__module__": module, "__doc__": f"Nothing is one: {why}.", "_why": why})


def function(module: str, name: str, why: str) -> Any:
    """A function that raises NotImplementedError."""
    called = f"{module.replace('flambeau', 'torch', 1)}.{name}"

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        raise NotHere(f"{called}: {why}")

    stand_in._stands_in = True  # type: ignore[attr-defined]
    stand_in.__name__, stand_in.__qualname__, stand_in.__module__, stand_in.__doc__ = name, name, module, f"Raises NotImplementedError: {why}."
    return stand_in


def is_one(value: Any) -> bool:
    """Whether a value is here by its name only."""
    return isinstance(value, NeverMade) or "_stands_in" in getattr(value, "__dict__", ())


def names(module: str, row: str, why: str) -> dict[str, Any]:
    """What a row of names stands for."""
    made: dict[str, Any] = {}
    for word in row.split():
        name, opened, rest = word.partition("[")
        if opened:
            made[name] = enum.Enum(name, rest.rstrip("]").split(","), module=module)
        elif word.endswith("()"):
            made[word[:-2]] = function(module, word[:-2], why)
        else:
            made[word] = kind(module, word, why)
    return made


def module(name: str, content: dict[str, Any], doc: str) -> ModuleType:
    """A module without a file, found by `import` and as an attribute of the one it lies in."""
    made = ModuleType(name, doc)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="flambeau", is_package=True)
    made.__path__ = []
    vars(made).update(content)
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, made)
    return made


class Other(ModuleType):
    """A module that lies elsewhere, which is loaded when something is asked of it."""

    _where: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(self._where), name)
        setattr(self, name, found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if not _named_as_its_content(name, value):  # `import` binds a module's name in the one it lies in
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(self._where))


def _named_as_its_content(last: str, value: Any) -> bool:
    """Whether a module lies where the module's own function or class of that name is: the name means that."""
    return isinstance(value, Other) and str(vars(value).get("_where", "")).endswith("." + last)


def other(name: str, where: str) -> None:
    """Another name of the module `where`, for `import`; not set on the package it would lie in, which need not be loaded."""
    made = Other(name, f"`{where}`.")
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="flambeau", is_package=True)
    made.__path__ = []
    vars(made)["_where"] = where
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent in sys.modules and not (isinstance(sys.modules[parent], Other) and _named_as_its_content(last, made)):
        vars(sys.modules[parent]).setdefault(last, made)


def modules(package: str, rows: dict[str, str], why: str) -> None:
    """The modules of a table, name below `package` and row of names each; those between are made too.  A name met before is the same object:
    the first row that has it says where it is.  A module that has a file of its own gets the names that it does not have."""
    known: dict[str, Any] = {}
    folder = os.path.dirname(str(sys.modules[package].__file__))
    for below, row in rows.items():
        parts = below.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join([package, *parts[:end]])
            if name not in sys.modules:
                path = os.path.join(folder, *parts[:end])
                if os.path.exists(path + ".py") or os.path.exists(os.path.join(path, "__init__.py")):
                    importlib.import_module(name)
                else:
                    module(name, {}, f"Names that are not here: {why}.")
        for word, value in names(f"{package}.{below}", row, why).items():
            vars(sys.modules[f"{package}.{below}"]).setdefault(word, known.setdefault(word, value))
