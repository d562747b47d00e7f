"""Calls of operations shown to an onlooker, by whatever name the user's program reaches them.

While somebody looks on, every place that holds an operation (the op table, the Tensor's methods, the globals of
modules, the user's too) holds a stand-in that goes past the onlookers.  Otherwise nothing is in the way: the places are
put back when the last onlooker leaves.  A function that was kept elsewhere (in a closure, a default, a list) before is
not seen.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

from ..tensor import Tensor
from . import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # hook(name, function, args, kwargs) carries out the call and gives its result
    Hook = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

# what the table does not name: the host reads values, a backward pass
_METHODS = ("item", "tolist", "numpy", "__array__", "__bool__", "__float__", "__int__", "__complex__", "__index__", "__contains__",
            "__repr__", "__format__", "__getitem__", "__setitem__", "backward")
_OPERATORS = """add sub mul truediv floordiv mod pow matmul and or xor lshift rshift radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul
 rand ror rxor rlshift rrshift iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift lt le gt ge eq ne neg pos abs
 invert""".split()
_READABLE = {"truediv": "div", "rtruediv": "div", "itruediv": "div_", "floordiv": "floor_divide", "rfloordiv": "floor_divide",
             "ifloordiv": "floor_divide_", "mod": "remainder", "rmod": "remainder", "imod": "remainder_", "and": "bitwise_and",
             "or": "bitwise_or", "xor": "bitwise_xor", "invert": "bitwise_not", "getitem": "index", "setitem": "index_put_",
             "repr": "print", "format": "print", "array": "numpy"}
_hooks: tuple[Any, ...] = ()
_stand_ins: dict[int, tuple[Any, Any]] = {}  # id of an operation's function -> (function, stand-in)
_methods: dict[str, Any] = {}  # Tensor's attributes as they were
_lock = threading.RLock()


class wrap:
    """Shows `hook` every call of an operation until `close()`, or in a ``with`` block.

    `hook(name, function, args, kwargs)` must make the call and return its result; calls that operations make of each
    other come too.
    """

    def __init__(self, hook: Hook) -> None:
        global _hooks
        self._hook: Hook | None = hook
        with _lock:
            _hooks += (hook,)
            if len(_hooks) == 1:
                _install()

    def close(self) -> None:
        """Stops.  Doing it again does nothing."""
        global _hooks
        with _lock:
            hook, self._hook = self._hook, None
            if hook is None:
                return
            at = max(i for i, h in enumerate(_hooks) if h is hook)
            _hooks = _hooks[:at] + _hooks[at + 1:]
            if not _hooks:
                _remove()

    def __enter__(self) -> wrap:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def readable(name: str) -> str:
    """The operation behind a method's name: `__radd__` is add, `__iadd__` is add_."""
    if not (name.startswith("__") and name.endswith("__")):
        return name
    plain = name[2:-2]
    if plain in _READABLE:
        return _READABLE[plain]
    if plain in _OPERATORS:
        if plain[0] == "r" and plain[1:] in _OPERATORS:
            return readable(f"__{plain[1:]}__")
        if plain[0] == "i" and plain[1:] in _OPERATORS:
            return readable(f"__{plain[1:]}__") + "_"
    return plain


def _stand_in(name: str, function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        run = function
        for hook in _hooks:
            run = functools.partial(_through, hook, name, run)
        return run(*args, **kwargs)
    return call


def _through(hook: Hook, name: str, run: Any, *args: Any, **kwargs: Any) -> Any:
    return hook(name, run, args, kwargs)


def _functions() -> Iterator[tuple[str, Any]]:
    for row in table.TABLE.values():
        yield row.name, row.function
        if row.inplace is not None:
            yield row.name + "_", row.inplace
    from ..autograd import functions
    yield "backward", functions.backward
    yield "grad", functions.grad


def _install() -> None:
    for name, function in _functions():
        if id(function) not in _stand_ins:
            _stand_ins[id(function)] = function, _stand_in(name, function)
    for name in (*_METHODS, *(f"__{o}__" for o in _OPERATORS)):
        function = Tensor.__dict__.get(name)
        if isinstance(function, types.FunctionType) and id(function) not in _stand_ins:
            _stand_ins[id(function)] = function, _stand_in(readable(name), function)
    for name, value in list(Tensor.__dict__.items()):
        found = _stand_ins.get(id(value))
        if found is not None and found[0] is value:
            _methods[name] = value
            setattr(Tensor, name, found[1])
    _swap({key: pair[1] for key, pair in _stand_ins.items()}, {key: pair[0] for key, pair in _stand_ins.items()})


def _remove() -> None:
    for name, value in _methods.items():
        setattr(Tensor, name, value)
    # stand-ins are looked for everywhere again: modules loaded meanwhile have taken them from the table
    _swap({id(new): old for old, new in _stand_ins.values()}, {id(new): new for _, new in _stand_ins.values()})
    _methods.clear()
    _stand_ins.clear()


def _swap(by_id: dict[int, Any], check: dict[int, Any]) -> None:
    """Puts `by_id[id(x)]` in the place of each x of `check`, in the table and in modules' globals."""
    for row in table.TABLE.values():
        if check.get(id(row.function)) is row.function:
            row.function = by_id[id(row.function)]
        if row.inplace is not None and check.get(id(row.inplace)) is row.inplace:
            row.inplace = by_id[id(row.inplace)]
    own = sys.modules[__name__].__dict__
    for module in list(sys.modules.values()):
        space = getattr(module, "__dict__", None)
        if type(space) is not dict or space is own:
            continue
        for name, value in list(space.items()):
            key = id(value)
            if key in check and check[key] is value:
                space[name] = by_id[key]
