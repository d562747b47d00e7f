"""Calls through ctypes, each held against the prototype that the library's header gives it.

A Python int goes as a C int, an array or `byref` as a pointer, and so on: where the header wants another kind, or a descriptor of
another type, the call is refused before it is made.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

_INTS = {1: "int8", 4: "int32", 8: "int64"}
_FLOATS = {ctypes.c_float: "float", ctypes.c_double: "double"}
_simple: Any = ctypes.c_int.__mro__[1]


class Watch:
    """The prototypes, and what was seen: names called, and where each kind of descriptor was put."""

    def __init__(self, prototypes: dict[str, list[tuple[str, str]]]) -> None:
        self.prototypes = prototypes
        self.called: set[str] = set()
        # what a function makes: a pointer to a pointer to the library's own type
        self.made = {kind[:-1] for name, parameters in prototypes.items() if "Create" in name for _, kind in parameters
                     if kind.endswith("**") and kind != "void**"}
        self.places: dict[int, str] = {}

    def check(self, name: str, types: Any, args: tuple[Any, ...]) -> None:
        assert name in self.prototypes, f"{name} is not in the headers"
        self.called.add(name)
        wanted = self.prototypes[name]
        assert len(args) == len(wanted), f"{name} takes {len(wanted)} arguments, {len(args)} were given"
        assert types is None or len(types) == len(wanted), f"{name} takes {len(wanted)} arguments, {len(types)} are declared"
        for i, (arg, (kind, of)) in enumerate(zip(args, wanted, strict=True)):
            given = _kind(arg if types is None else types[i], types is None)
            assert given == kind or (given, kind) == ("int32", "int8"), f"{name}, argument {i}: {of} is wanted, {given} ({arg!r}) is given"
            if types is None and type(arg) is int:
                assert -(1 << 31) <= arg < 1 << 31, f"{name}, argument {i}: {arg} is cut to 32 bits"
            if of in self.made:
                at = arg if type(arg) is int else getattr(arg, "value", None)
                assert self.places.get(at or 0) == of, f"{name}, argument {i}: {of} is wanted, {self.places.get(at or 0)} is given"

    def note(self, name: str, args: tuple[Any, ...]) -> None:
        """What a call has made."""
        for arg, (_, of) in zip(args, self.prototypes[name], strict=True):
            if of[:-1] in self.made and of.endswith("**"):
                self.places[arg._obj.value] = of[:-1]

    def over(self, lib: ctypes.CDLL) -> ctypes.CDLL:
        """The library, whose functions are watched."""
        watch, plain = self, lib._FuncPtr

        class Watched(plain):  # type: ignore[misc, valid-type]
            _flags_, _restype_ = plain._flags_, plain._restype_

            def __call__(self, *args: Any) -> Any:
                name = self.__name__
                if name.startswith("fake_"):
                    return super().__call__(*args)
                watch.check(name, self.argtypes, args)
                code = super().__call__(*args)
                if not code:
                    watch.note(name, args)
                return code
        lib._FuncPtr = Watched  # type: ignore[misc]
        return lib


def _kind(arg: Any, value: bool) -> str:
    """How an argument, or one declared as such a type, goes."""
    if value:
        if isinstance(arg, int):
            return "int32"
        if arg is None or isinstance(arg, bytes | ctypes.Array) or type(arg) is type(ctypes.byref(ctypes.c_int())):
            return "pointer"
        arg = type(arg)
    if arg is ctypes.c_void_p or issubclass(arg, ctypes.Array | ctypes._Pointer):
        return "pointer"
    if arg in _FLOATS:
        return _FLOATS[arg]
    return _INTS[ctypes.sizeof(arg)] if issubclass(arg, _simple) else "other"


def start(path: str) -> Watch:
    """The watch over all of NVIDIA's libraries, by prototypes in a file."""
    from flambeau._core.drivers.nvidia import libraries
    watch = Watch(json.loads(Path(path).read_text()))
    plain, loaded = libraries.load, {}

    def load(name: str) -> ctypes.CDLL:
        path = libraries.find(name)
        if path not in loaded:
            loaded[path] = watch.over(plain(name))
        return loaded[path]
    libraries.load = load
    return watch
