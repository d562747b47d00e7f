"""`device`: where a tensor's bytes live.  One object for each (type, index), so that identity is equality."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from .. import forks

TYPES = ("cpu", "cuda", "meta")
_ELSEWHERE = ("mps", "xpu", "hpu", "mtia", "xla")  # PyTorch's others, which programs name to compare with
_FORMS = "'cpu', 'cuda' or 'cuda:<index>'"


class device:
    """A device: ``device("cpu")``, ``device("cuda")`` (the current GPU), ``device("cuda:1")``, ``device("cuda", 1)`` or
    ``device(1)`` (a GPU).  Naming a device needs no such hardware; using it does: "mps" and PyTorch's other types can be named only.
    Tensors on ``device("meta")`` have shapes, strides and types, and no values: nothing is allocated or computed.

    As a ``with`` block or a decorator it makes factories build on this device by default.

    type: "cpu", "cuda" or "meta".  index: an int, or None when the name had none.
    Raises RuntimeError for a string that names no device and for a negative index, TypeError for other arguments.
    """

    __slots__ = ("type", "index", "__weakref__")
    type: str
    index: int | None

    def __new__(cls, *args: Any, **kwargs: Any) -> device:
        if len(args) == 1 and not kwargs:
            found = _by_argument.get(args[0]) if isinstance(args[0], (str, device)) else None
            if found is not None:
                return found
        return _parse(*_arguments(args, kwargs))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"attribute {name!r} of 'torch.device' objects is not writable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"attribute {name!r} of 'torch.device' objects is not writable")

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (")" if self.index is None else f", index={self.index})")

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        return device, ((self.type,) if self.index is None else (self.type, self.index))

    def __enter__(self) -> device:
        _thread.stack.append(_thread.default)
        set_default(resolve(self))
        return self

    def __exit__(self, *exc: object) -> None:
        set_default(_thread.stack.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorates `function` to run with this device as the default."""
        @functools.wraps(function)
        def on_device(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)
        return on_device


_interned: dict[tuple[str, int | None], device] = {}
_by_argument: dict[Any, device] = {}


def of(kind: str, index: int | None) -> device:
    """The one device object of a known type and a checked index."""
    found = _interned.get((kind, index))
    if found is None:
        found = object.__new__(device)
        object.__setattr__(found, "type", kind)
        object.__setattr__(found, "index", index)
        found = _interned.setdefault((kind, index), found)
        _by_argument[found] = _by_argument[str(found)] = found
    return found


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool]:
    """(type, index, whether an index was given apart) of a call of `device`."""
    given = dict(zip(("type", "index"), args, strict=False))
    for name, value in kwargs.items():
        name = "type" if name == "device" and "type" not in given else name
        if name not in ("type", "index") or name in given or len(args) > 2:
            raise TypeError(f"device() got an unexpected or repeated argument '{name}'; it takes (type, index=None), a "
                            f"string ({_FORMS}), a device or the int index of a GPU")
        given[name] = value
    if len(args) > 2 or "type" not in given:
        raise TypeError(f"device() takes one or two arguments, got {len(args) + len(kwargs)}: (type, index=None), a "
                        f"string ({_FORMS}), a device or the int index of a GPU")
    return given["type"], given.get("index"), "index" in given


def _parse(kind: Any, index: Any, apart: bool) -> device:
    if isinstance(kind, device) and not apart:
        return kind
    if type(kind) is int and not apart:
        if kind < 0:
            raise RuntimeError(f"device: the device index must not be negative, got {kind}")
        return of("cuda", kind)
    if not isinstance(kind, str):
        raise TypeError(f"device(): argument 'type' must be a string ({_FORMS}), a device or the int index of a GPU, "
                        f"not {type(kind).__name__}" + (" beside an index" if apart else ""))
    if apart and index is not None:
        if type(index) is not int:
            raise TypeError(f"device(): argument 'index' must be int or None, not {type(index).__name__}")
        if ":" in kind:
            raise RuntimeError(f"device: type {kind!r} must not include an index because index={index} was passed too")
        if index < 0:
            raise RuntimeError(f"device: the device index must not be negative, got {index}")
        if kind not in TYPES and kind not in _ELSEWHERE:
            _bad(kind)
        return of(kind, index)
    name, colon, digits = kind.partition(":")
    if (name not in TYPES and name not in _ELSEWHERE) or (colon and not (digits.isascii() and digits.isdigit() and str(int(digits)) == digits)):
        _bad(kind)
    return of(name, int(digits) if colon else None)


def _bad(text: str) -> NoReturn:
    if not text:
        raise RuntimeError(f"device: the device string must not be empty; expected {_FORMS}")
    name = text.partition(":")[0]
    if name in TYPES or name in _ELSEWHERE:
        raise RuntimeError(f"Invalid device string: {text!r}; expected {_FORMS}, with an index written in plain digits")
    raise RuntimeError(f"Expected one of {', '.join(TYPES)} device type at start of device string: {text!r}; accepted "
                       f"forms are {_FORMS}")


CPU = of("cpu", None)
META = of("meta", None)
_by_argument["cpu:0"] = of("cpu", 0)


class _Thread(threading.local):
    """Each thread has its own default device, as in PyTorch."""

    def __init__(self) -> None:
        self.default: device = CPU
        self.stack: list[device] = []


class _Chosen:
    """some: how many threads have another default device than the CPU, so that it must be asked for (one that ends so stays counted)."""

    __slots__ = ("some", "lock")

    def __init__(self) -> None:
        self.some, self.lock = 0, forks.lock()


_thread, chosen = _Thread(), _Chosen()


def set_default(dev: device | None) -> None:
    """Makes factories of this thread build on `dev` (None: the CPU) when no device is named."""
    found = CPU if dev is None else dev
    with chosen.lock:
        chosen.some += (found is not CPU) - (_thread.default is not CPU)
        _thread.default = found


def resolve(like: Any = None) -> device:
    """The concrete device of whatever a caller may name one by; None is the default device.

    The CPU has no index; a GPU has one: "cuda" alone is this thread's current GPU.  Raises RuntimeError for a GPU that
    is not there, saying what is.
    """
    if like is None:
        found = _thread.default
    else:
        found = like if type(like) is device else device(like)
    if found is CPU:
        return found
    if found.type == "cpu":
        if found.index:
            raise RuntimeError(f"{found}: there is one CPU device, 'cpu' (or 'cpu:0')")
        return CPU
    if found.type == "meta":
        return META
    if found.type != "cuda":
        raise RuntimeError(f"there are no {found.type!r} devices here: Flambeau works on 'cpu' and 'cuda'")
    from . import gpus
    return gpus.concrete(found)
