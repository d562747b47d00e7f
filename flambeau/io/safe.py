"""What a file may name, call and fill without being trusted: a table, and what the program added to it.

Each entry is code of ours with checked arguments; a name that is not here is refused, and nothing is imported to find it.
"""

from __future__ import annotations

import _codecs
import argparse
import functools
import pickle
from collections import Counter, OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import dtypes, forks
from .._core.errors import FileFormatError
from .._core.layout import Size
from .._core.ops import memory_format
from .._core.ops.storages import UntypedStorage
from .._core.ops.typed_storages import TypedStorage
from .._core.runtime.device import device
from .._core.tensor import Tensor
from ..nn.parameter import Parameter
from . import rebuild
from .names import STORAGES, Named, canonical, names_of
from .rebuild import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .unpickler import Unpickler

TENSOR, PARAMETER = Tensor, Parameter
TUPLES = frozenset({tuple, Size})
KEYS = frozenset({dtypes.dtype, device, memory_format.memory_format, memory_format.layout})  # types whose hash is their identity


class UnsafeFileError(FileFormatError, pickle.UnpicklingError):
    """A file asks for a class or function that is not allowed.  Nothing of it was run."""


def unsafe(what: str) -> UnsafeFileError:
    return UnsafeFileError(f"Weights only load failed: the file is more than data: {what}. If its source is trusted, allow the class with "
                           "torch.serialization.add_safe_globals([...]), or let it run any code with weights_only=False")


# -- what the program allowed
# -------------------------------------------------------------------------------------------------------------
_allowed: list[tuple[Any, str | None]] = []
_lock = forks.lock()


def _rows(safe_globals: Iterable[Any]) -> list[tuple[Any, str | None]]:
    rows: list[tuple[Any, str | None]] = []
    for item in safe_globals:
        if isinstance(item, tuple):
            if len(item) != 2 or not isinstance(item[1], str) or "." not in item[1]:
                raise TypeError(f"add_safe_globals: a pair must be (object, 'module.name'), got {item!r:.100}")
            rows.append((item[0], item[1]))
        elif callable(item):
            rows.append((item, None))
        else:
            raise TypeError(f"add_safe_globals: expected classes and functions, got {type(item).__name__}")
    return rows


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Lets files that are loaded with weights_only=True make objects of these classes and call these functions.

    safe_globals: classes, functions, or pairs (object, "module.name") for one that files know by another name.
    """
    rows = _rows(safe_globals)
    with _lock:
        _allowed.extend(row for row in rows if row not in _allowed)


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` added."""
    return [item if name is None else (item, name) for item, name in _allowed]


def clear_safe_globals() -> None:
    """Takes back all that `add_safe_globals` added."""
    with _lock:
        _allowed.clear()


class safe_globals:
    """`add_safe_globals` for the length of a `with` block."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self._rows = _rows(safe_globals)

    def __enter__(self) -> None:
        with _lock:
            self._before = list(_allowed)
            _allowed.extend(row for row in self._rows if row not in _allowed)

    def __exit__(self, *exc: object) -> None:
        with _lock:
            _allowed[:] = self._before


def allowed_now() -> dict[tuple[str, str], Any]:
    """What the program allowed, by the names that a file may say."""
    found: dict[tuple[str, str], Any] = {}
    for item, name in list(_allowed):
        if name is None:
            found.update(dict.fromkeys(names_of(item), item))
        else:
            module, _, last = name.rpartition(".")
            found[canonical(module, last)] = item
    return found


# -- what files may always do
# -------------------------------------------------------------------------------------------------------------
def _items(u: Unpickler, args: tuple[Any, ...]) -> Any:
    """The elements of the one list, tuple, set or dictionary that a container is made of."""
    if not args:
        return ()
    if len(args) > 1 or type(args[0]) not in (list, tuple, set, frozenset, dict, OrderedDict):
        raise u.fail("a container is made of something else than elements")
    u.spend(len(args[0]))
    return args[0]


def _ordered(u: Unpickler, *args: Any) -> Any:
    made: OrderedDict[Any, Any] = OrderedDict()
    items = _items(u, args)
    for pair in items.items() if isinstance(items, dict) else items:
        if type(pair) not in (tuple, list) or len(pair) != 2:
            raise u.fail("a dictionary is made of something else than pairs")
        made[u.key(pair[0])] = pair[1]
    return made


def _counter(u: Unpickler, *args: Any) -> Any:
    items = _items(u, args)
    if args and type(items) is not dict:
        raise u.fail("a Counter is made of something else than counts")
    made: Counter[Any] = Counter()
    for key, value in items.items() if args else ():
        dict.__setitem__(made, key, value)
    return made


def _default(u: Unpickler, *args: Any) -> Any:
    if len(args) > 1 or (args and args[0] is not None and not any(args[0] is kind for kind in (list, dict, set, int, float, str, bool, tuple))):
        raise unsafe("a defaultdict has a factory that is not allowed")
    return defaultdict(*args)


def _set(kind: Any, u: Unpickler, *args: Any) -> Any:
    return kind(u.key(v) for v in _items(u, args))


def _bytearray(u: Unpickler, *args: Any) -> Any:
    if not args:
        return bytearray()
    if type(args[0]) is bytes and len(args) == 1:
        u.spend(len(args[0]))
        return bytearray(args[0])
    return bytearray(_encode(u, *args))


def _encode(u: Unpickler, *args: Any) -> bytes:
    if len(args) != 2 or type(args[0]) is not str or type(args[1]) is not str or args[1] not in ("latin1", "latin-1"):
        raise u.fail("bytes are described as something else than Latin-1 text")
    u.spend(len(args[0]))
    return args[0].encode("latin-1")


def _bytes(u: Unpickler, *args: Any) -> bytes:
    if args:
        raise u.fail("bytes are made of something else")
    return b""


def _plain(kind: Any, types: tuple[type, ...], u: Unpickler, *args: Any) -> Any:
    if len(args) > 3 or not all(type(a) in types for a in args):
        raise u.fail(f"a {kind.__name__} is made of something else than numbers")
    return kind(*args)


def _size(u: Unpickler, *args: Any) -> Any:
    sizes = _items(u, args)
    if not all(type(n) is int for n in sizes):
        raise u.fail("a Size is made of something else than integers")
    return Size(sizes)


def _device(u: Unpickler, *args: Any) -> Any:
    if not 1 <= len(args) <= 2 or type(args[0]) is not str or not all(type(a) in (int, type(None)) for a in args[1:]):
        raise u.fail("a device has no name")
    return device(*args)


def _from_type(u: Unpickler, *args: Any) -> Any:
    if len(args) != 4:
        raise u.fail("a tensor of a class of its own is not described as one")
    function, kind, values, state = args
    if kind is not Tensor and kind is not Parameter and id(kind) not in u.allowed_ids:
        raise unsafe(f"it holds a tensor of the class {getattr(kind, '__name__', brief(kind))}, which is not allowed")
    if isinstance(state, dict):
        u.spend(len(state))
    return rebuild.from_type(functools.partial(u.call, function), kind, (values,), state)


def _checked(function: Callable[..., Any], u: Unpickler, *args: Any) -> Any:
    return function(*args)


def _sparse(u: Unpickler, *args: Any) -> Any:
    for part in args[1] if len(args) == 2 and type(args[1]) is tuple else ():
        u.spend(min(part.meta.numel, part.store.meta.nbytes) if isinstance(part, Tensor) else 0)  # its indices are looked through
    return rebuild.sparse(*args)


def _parameter(u: Unpickler, *args: Any) -> Any:
    return rebuild.parameter(*args)


def _namespace(u: Unpickler, *args: Any) -> Any:
    if args:
        raise u.fail("a Namespace is made of something")
    return argparse.Namespace()


def _attributes(u: Unpickler, found: Any, state: Any) -> None:
    if type(state) is not dict or not all(type(k) is str for k in state):
        raise u.fail(f"the attributes of a {type(found).__name__} have no names")
    u.spend(len(state))
    found.__dict__.update(state)


def _tensor_state(u: Unpickler, found: Any, state: Any) -> None:
    for part in state if type(state) is tuple else (state,):
        u.spend(len(part) if isinstance(part, dict) else 0)
    rebuild.set_state(found, state)


def set_state(u: Unpickler, found: Any, state: Any) -> None:
    """The state of an object whose class the program allowed, as pickle gives it."""
    put = getattr(found, "__setstate__", None)
    if put is not None:
        put(state)
        return
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    for part in (state, slots):
        if part is not None and (not isinstance(part, dict) or not all(type(k) is str for k in part)):
            raise u.fail(f"the attributes of a {type(found).__name__} have no names")
    if state:
        u.spend(len(state))
        found.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(found, name, value)


# -- NumPy's arrays and numbers
# -------------------------------------------------------------------------------------------------------------
def _np_dtype(u: Unpickler, *args: Any) -> Any:
    if not args or type(args[0]) is not str or len(args[0]) > 8:
        raise u.fail("a NumPy type has no name")
    found = np.dtype(args[0])
    if found.kind not in "biufc" or found.names:
        raise unsafe(f"it holds NumPy values of type {args[0]!r}; numbers are allowed")
    return found


def _np_dtype_state(u: Unpickler, found: Any, state: Any) -> None:
    if type(state) is not tuple or len(state) < 2 or type(state[1]) is not str or state[1] not in ("<", "|", "="):
        raise u.fail("a NumPy type has another byte order than this machine")


def _np_scalar(u: Unpickler, *args: Any) -> Any:
    if len(args) != 2 or not isinstance(args[0], np.dtype) or type(args[1]) is not bytes or len(args[1]) != args[0].itemsize:
        raise u.fail("a NumPy number does not fill its type")
    return np.frombuffer(args[1], args[0])[0]


def _np_reconstruct(u: Unpickler, *args: Any) -> Any:
    if len(args) != 3 or args[0] is not np.ndarray or type(args[1]) is not tuple or len(args[1]) != 1:
        raise u.fail("an array is of a class that is not allowed")
    return np.empty(0, np.int8)


def _np_state(u: Unpickler, found: Any, state: Any) -> None:
    if type(state) is not tuple or len(state) != 5:
        raise u.fail("an array has no state")
    _, shape, kind, fortran, raw = state
    if not isinstance(kind, np.dtype) or type(raw) is not bytes or type(shape) is not tuple or len(shape) > 32 or type(fortran) is not bool:
        raise u.fail("an array is not described as one")
    count = 1
    for n in shape:
        if type(n) is not int or n < 0:
            raise u.fail("an array has sizes that are none")
        count *= n
    if count * kind.itemsize != len(raw) or max(shape, default=0) >= 1 << 62:
        raise u.fail(f"an array has {len(raw)} bytes where its type and sizes want {brief(count * kind.itemsize)}")
    u.spend(len(raw))
    found.__setstate__((1, shape, kind, fortran, raw))


# -- the table
# -------------------------------------------------------------------------------------------------------------
_KINDS = {name: Named("torch", name) for name in STORAGES}


def _globals() -> dict[tuple[str, str], Any]:
    table: dict[tuple[str, str], Any] = dict(rebuild.TRUSTED)
    table.update({("torch", name): d for name, d in dtypes.BY_NAME.items()})
    for name, kind in _KINDS.items():
        table["torch", name] = table["torch.cuda", name] = kind
    for name in ("preserve_format", "contiguous_format", "channels_last", "channels_last_3d"):
        table["torch", name] = getattr(memory_format, name)
    table.update({("torch", "Size"): Size, ("torch", "device"): device, ("torch", "Tensor"): Tensor, ("torch.nn.parameter", "Parameter"): Parameter,
                  ("torch", "UntypedStorage"): UntypedStorage, ("_codecs", "encode"): _codecs.encode, ("argparse", "Namespace"): argparse.Namespace})
    table.update({("collections", k.__name__): k for k in (OrderedDict, Counter, defaultdict)})
    for builtin in (set, frozenset, bytearray, bytes, complex, slice, range, list, dict, int, float, str, bool, tuple):
        table["builtins", builtin.__name__] = table["__builtin__", builtin.__name__] = builtin
    table["__builtin__", "xrange"] = range
    for home in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray"):
        table.update({(home, "dtype"): np.dtype, (home, "ndarray"): np.ndarray, (home, "scalar"): _np_scalar, (home, "_reconstruct"): _np_reconstruct})
    return table


GLOBALS = _globals()
CALLS: dict[int, Callable[..., Any]] = {
    id(OrderedDict): _ordered, id(Counter): _counter, id(defaultdict): _default, id(set): functools.partial(_set, set),
    id(frozenset): functools.partial(_set, frozenset), id(bytearray): _bytearray, id(bytes): _bytes, id(_codecs.encode): _encode,
    id(complex): functools.partial(_plain, complex, (float, int)), id(slice): functools.partial(_plain, slice, (int, type(None))),
    id(range): functools.partial(_plain, range, (int,)), id(Size): _size, id(device): _device, id(Parameter): _parameter,
    id(argparse.Namespace): _namespace, id(np.dtype): _np_dtype, id(_np_scalar): _np_scalar, id(_np_reconstruct): _np_reconstruct,
    **{id(f): functools.partial(_checked, f) for f in rebuild.TRUSTED.values() if f not in (UntypedStorage, TypedStorage, OrderedDict)},
    id(rebuild.from_type): _from_type, id(rebuild.sparse): _sparse,
}
BUILDS: dict[type, Callable[[Unpickler, Any, Any], None]] = {
    OrderedDict: _attributes, Counter: _attributes, argparse.Namespace: _attributes, Tensor: _tensor_state, Parameter: _tensor_state,
    type(np.dtype("i4")): _np_dtype_state, np.ndarray: _np_state, **{type(np.dtype(c)): _np_dtype_state for c in "?bBhHiIlLqQefdFD"},
}


def lookup(module: str, name: str, allowed: dict[tuple[str, str], Any]) -> Any:
    """What a global of a file means.  Raises UnsafeFileError for all but the table and what was allowed."""
    found = GLOBALS.get((module, name))
    if found is None:
        found = allowed.get(canonical(module, name))
    if found is None:
        raise unsafe(f"Unsupported global: GLOBAL {brief(module)[1:-1]}.{brief(name)[1:-1]} was not an allowed global by default")
    return found
