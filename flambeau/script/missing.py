"""What a script is told about a name that Flambeau does not have."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING, Any

from ..interop.stand_ins import LeftOut, NotHere
from .places import OWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class MissingAttribute(AttributeError):
    """A name of PyTorch's that is not here, at the line that uses it; what is near is looked for when the message is read."""

    def __init__(self, what: str, wanted: str, names: Callable[[], Iterable[str]], line: str) -> None:
        super().__init__(what)
        self._near: Any = (wanted, names, line)

    def __str__(self) -> str:
        wanted, names, line = self._near
        return f"{self.args[0]}{nearest(wanted, names())} ({line})"

    def __reduce__(self) -> Any:
        return AttributeError, (str(self),)


def _line() -> str:
    """The innermost line outside Flambeau and the import system."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.split(".")[0] not in ("flambeau", "importlib", "_frozen_importlib", "_frozen_importlib_external", "runpy"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown line"


def nearest(name: str, names: Iterable[str]) -> str:
    """What to try instead, as the end of a message."""
    close = difflib.get_close_matches(name, [n for n in names if not n.startswith("_")], 3, 0.7)
    return f"; the nearest that exists: {', '.join(close)}" if close else ""


def no_attribute(module: str, name: str, names: Callable[[], Iterable[str]]) -> MissingAttribute:
    """For an attribute a module lacks."""
    return MissingAttribute(f"module '{module}' has no attribute '{name}': Flambeau does not have {module}.{name}", name, names, _line())


def no_module(name: str) -> ModuleNotFoundError:
    """For a submodule that is not here."""
    import importlib
    import pkgutil
    parent, _, last = name.rpartition(".")
    names: list[str] = []
    try:
        package = importlib.import_module(parent) if parent else None
        hidden = OWN.get(getattr(package, "__name__", "").replace("torch", "flambeau", 1), ())
        names = [m.name for m in pkgutil.iter_modules(getattr(package, "__path__", [])) if m.name not in hidden]
    except ImportError:
        pass
    return ModuleNotFoundError(f"No module named '{name}': Flambeau does not have it{nearest(last, names)} ({_line()})", name=name)


def explain(error: BaseException) -> str | None:
    """What to add to an error about a missing name: a sentence with the nearest ones; None where there is nothing to add.

    For an ImportError of `from torch... import name`, and for an AttributeError of Flambeau's own classes and objects.  Where a library raised
    another error for it, the name that was missing first, and the line that asked for it.
    """
    first = _first(error)
    if first is not error and first is not None:
        return f"the first cause: {_said(first)}"
    return _own(error)


def _first(error: BaseException) -> BaseException | None:
    """The innermost error in a chain that is about a name of PyTorch's; None where there is none."""
    found, seen, link = None, set(), error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, (MissingAttribute, LeftOut, NotHere)) or (isinstance(link, ImportError) and (link.name or "").split(".")[0] in _OURS) or _own(link):
            found = link
        link = link.__cause__ or link.__context__  # type: ignore[assignment]
    return found


def _said(error: BaseException) -> str:
    """An error in one line, with the line of the program where it arose and what is near."""
    import traceback
    text = "; ".join(filter(None, (str(error), _own(error))))
    if text.endswith(")") and ".py:" in text:
        return text
    outside = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    return f"{text} ({outside[-1].filename}:{outside[-1].lineno})" if outside else text


_OURS = ("torch", "torchvision", "flambeau")


def _own(error: BaseException) -> str | None:
    if isinstance(error, AttributeError):
        return _explain_attribute(error)
    if not isinstance(error, ImportError) or isinstance(error, ModuleNotFoundError):
        return None
    import importlib
    import re
    name, found = error.name or "", re.match(r"cannot import name '(\w+)'", str(error))
    wanted = found.group(1) if found else None
    if wanted is None or name.split(".")[0] not in _OURS:
        return None
    try:
        names = dir(importlib.import_module(name))
    except ImportError:
        return None
    return f"Flambeau's {name.replace('flambeau', 'torch', 1)} does not have '{wanted}'{nearest(wanted, names)}"


def _explain_attribute(error: AttributeError) -> str | None:
    owner, wanted = error.obj, error.name
    if isinstance(error, MissingAttribute) or owner is None or not wanted or hasattr(type(owner), "__file__"):
        return None
    kind = owner if isinstance(owner, type) else type(owner)
    if kind.__module__.split(".")[0] not in ("flambeau", "torch"):
        return None  # a class of the script's own
    near = nearest(wanted, dir(owner))
    return f"Flambeau's {kind.__name__} does not have '{wanted}'{near}"
