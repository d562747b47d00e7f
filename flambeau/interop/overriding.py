"""`__torch_function__`: classes that answer for operations on them, at no cost to plain tensors.

A user's subclass of Tensor gets `Overridable` among its bases. Its tensors have metas of their own (`Foreign`), which are in the key of no
plan and are not plain, so that an operation notices them where it looks at its operands anyway, and asks (`answer`). Objects that are no
tensors at all are found where a function trips over them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextvars import ContextVar
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .._core import hooks
from .._core.engine.operation import silent
from .._core.runtime import caches
from .._core.runtime.asking import of_program
from .._core.tensor import Guise, Meta, Tensor, _new
from .covering import disabled_torch_function_impl

if TYPE_CHECKING:
    from .._core.engine.operation import Operation

enabled: ContextVar[bool] = ContextVar("torch_function", default=True)
_slot: Any = Tensor.__dict__["meta"]
_PACKAGE = __name__.rpartition(".interop")[0]


class Foreign(Guise):
    """The meta of a tensor of a class that answers for operations."""

    __slots__ = ()


silent[Foreign] = lambda: not enabled.get()
_foreign: dict[Meta, Foreign] = caches.cache(globals(), "_foreign")


def _dressed(m: Meta) -> Meta:
    """The foreign meta of a plain one; another as it is."""
    if not m.plain:
        return m
    found = _foreign.get(m)
    if found is None:
        since, found = caches.epoch, Foreign.of(m)
        caches.keep_since(since, _foreign, m, found)
    return found


class DisableTorchFunctionSubclass:
    """A block in which subclasses are treated as the tensors they are."""

    def __enter__(self) -> None:
        self._token = enabled.set(False)

    def __exit__(self, *exc: object) -> None:
        enabled.reset(self._token)


def torch_function(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The default: `func` on the tensors as they are, its tensor results as members of the class."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        made = func(*args, **(kwargs or {}))
        return made if func in nowrap() else _converted(made, cls)


def nowrap() -> set[Any]:
    """Functions whose results keep their class."""
    if not _nowrap:
        _nowrap.update(getattr(Tensor, name).__get__ for name in ("grad", "_base"))
    return _nowrap


_nowrap: set[Any] = set()


def _converted(made: Any, cls: type) -> Any:
    if cls is Tensor:
        return made
    if isinstance(made, Tensor) and not isinstance(made, cls):
        return as_subclass(made, cls)
    if isinstance(made, (tuple, list)) and type(made).__name__ != "Size":
        parts = [_converted(x, cls) for x in made]
        return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)
    return made


def as_subclass(self: Tensor, cls: type[Tensor]) -> Any:
    """The same tensor (memory and history) as a member of `cls`.  Raises TypeError when that is no subclass of Tensor."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"as_subclass(): argument 'cls' must be a subclass of Tensor, not {cls!r}")
    self = hooks.resolved(self)
    made: Any = _new(cls)
    m = self.meta
    made.meta, made.store, made.ptr, made.node, made.base = getattr(m, "under", m), self.store, self.ptr, self.node, self.base
    if not m.plain and "_tangents" in self.__dict__:
        hooks.keep_tangents(self, made)
    return made


def make_subclass(cls: type[Tensor], data: Tensor, require_grad: bool = False) -> Any:
    """`Tensor._make_subclass`: a leaf of `cls` on the storage of `data`."""
    made = as_subclass(data.detach(), cls)
    with DisableTorchFunctionSubclass():
        if require_grad:
            Tensor.requires_grad_(made, True)
    return made


# -------------------------------------------------------------------------------------------------------------- asking
def overrides(kind: type) -> bool:
    """Whether instances of a class answer for operations on them."""
    if issubclass(kind, Tensor):
        return Overridable in kind.__mro__
    return getattr(kind, "__torch_function__", None) is not None and not issubclass(kind, type)


def overloaded(found: Iterable[Any]) -> list[Any]:
    """One argument of each overriding class, subclasses before what they derive from."""
    kinds: list[type] = []
    chosen: list[Any] = []
    for x in found:
        kind = type(x)
        if kind is Tensor or kind in kinds or not overrides(kind) or (issubclass(kind, Tensor) and not enabled.get()):
            continue
        place = next((i for i, k in enumerate(kinds) if issubclass(kind, k)), len(kinds))
        kinds.insert(place, kind)
        chosen.insert(place, x)
    return chosen


def _spread(args: Iterable[Any], depth: int = 2) -> Iterable[Any]:
    for x in args:
        if isinstance(x, (tuple, list)) and depth:
            yield from _spread(x, depth - 1)
        else:
            yield x


def ask(func: Any, relevant: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer of the first class that has one.  Raises TypeError when none has."""
    types = tuple(type(x) for x in relevant)
    for x in relevant:
        made = of_program(type(x).__torch_function__)(func, types, args, kwargs)
        if made is not NotImplemented:
            return made
    names = ", ".join(t.__name__ for t in types)
    raise TypeError(f"no implementation found for '{_shown(func)}' on types that implement __torch_function__: [{names}]")


def _shown(func: Any) -> str:
    space = getattr(func, "__module__", None) or ""
    name = getattr(func, "__qualname__", repr(func))
    return f"torch.{name}" if space.startswith(_PACKAGE) else f"{space}.{name}"


def answer(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer of the arguments' classes to a call of an operation; NotImplemented where none is asked."""
    if not enabled.get():
        return NotImplemented
    relevant = overloaded(_spread((*args, *kwargs.values())))
    if not relevant:
        return NotImplemented
    known = known_as(operation, args)
    first = _FIRST.get(operation.function.__name__)
    if first is not None and known is operation.function:
        given = inspect.signature(known).bind(*args, **kwargs)
        given.apply_defaults()
        names = list(given.arguments)
        args, kwargs = tuple(given.arguments[n] for n in names[:first]), {n: given.arguments[n] for n in names[first:]}
    return ask(known, relevant, _one_by_one(operation, args), kwargs)


# functions that are Python's in PyTorch and hand on so many arguments by place, all others by keyword
_FIRST = {"tensordot": 2, "cdist": 2, "stft": 2, "norm": 1, "unique": 1, "unique_consecutive": 1}


def _one_by_one(operation: Operation, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a function of any number of tensors (`einsum`), which may have been given as one list."""
    code = getattr(operation.body, "__code__", None)
    if code is None or not code.co_flags & inspect.CO_VARARGS or len(args) != code.co_argcount + 1 or not isinstance(args[-1], (list, tuple)):
        return args
    return (*args[:-1], *args[-1]) if all(isinstance(x, Tensor) or overrides(type(x)) for x in args[-1]) else args


def known_as(operation: Operation, args: tuple[Any, ...]) -> Any:
    """What a program knows an operation as: a function, or for an operator between tensors and numbers the method behind it."""
    name = _OPERATORS.get(operation.function.__name__)
    if name is not None and all(isinstance(x, (Tensor, int, float, complex)) for x in args):
        return getattr(Tensor, name)
    return operation.function


class Overridable(Tensor):
    """What users' subclasses of Tensor have between them and it: each method and attribute asks `__torch_function__`."""

    __slots__ = ()
    meta = property(_slot.__get__, lambda self, m: _slot.__set__(self, _dressed(m)))


# what Python's operators are called as functions, where the other side is a tensor or a number
_OPERATORS = {"__add__": "add", "__radd__": "add", "__mul__": "mul", "__rmul__": "mul", "__sub__": "sub", "__truediv__": "div",
              "__matmul__": "matmul", "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
              "__neg__": "neg", "__abs__": "abs", "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
              "__invert__": "bitwise_not", "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_"}
_OWN = frozenset("""__new__ __init__ __init_subclass__ __class__ __getattribute__ __torch_function__ __dict__ __weakref__ __hash__ __slots__
 __module__ __doc__ __array_priority__ __annotations__ __iter__ as_subclass _make_subclass meta store ptr node base __dlpack_device__""".split())
# told without asking a class that has the default answer: its answer would be the same
_PLAIN = frozenset("""shape dtype device ndim is_cuda is_cpu is_sparse is_sparse_csr is_quantized is_meta is_mps is_xpu is_nested itemsize nbytes
 requires_grad is_leaf output_nr _version layout names retains_grad grad_fn size stride dim numel nelement ndimension is_contiguous
 storage_offset data_ptr element_size is_floating_point is_complex is_signed get_device __len__ __bool__ __float__ __int__ __index__ item
 tolist numpy __array__ __format__ requires_grad_""".split())


_default_method: Any = Tensor.__dict__["__torch_function__"].__func__


def _is_default(kind: Any) -> bool:
    return getattr(kind.__torch_function__, "__func__", None) is _default_method


def _programs(value: Any) -> bool:
    """Whether a program has put it on Tensor: a function of its own, or a property of one, asks nobody."""
    function = value.fget if isinstance(value, property) else value
    return isinstance(function, FunctionType) and not (function.__module__ or "").startswith(_PACKAGE)


def _method(name: str, value: Any) -> Any:
    operator = _OPERATORS.get(name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        func = getattr(Tensor, name)
        if func is not value and _programs(func):
            return func(self, *args, **kwargs)
        if operator is not None and all(isinstance(x, (Tensor, int, float, complex)) for x in args):
            func = getattr(Tensor, operator)
        if not enabled.get():
            return func(self, *args, **kwargs)
        if name in _PLAIN and _is_default(type(self)):
            with DisableTorchFunctionSubclass():
                return func(self, *args, **kwargs)
        return ask(func, overloaded(_spread((self, *args, *kwargs.values()))), (self, *args), kwargs)
    call.__name__ = name
    call.__qualname__ = f"Tensor.{name}"
    return call


def _attribute(name: str, found: Any) -> Any:
    def get(self: Any) -> Any:
        if not enabled.get() or (name in _PLAIN and _is_default(type(self))):
            with DisableTorchFunctionSubclass():
                return found.fget(self)
        return ask(found.__get__, [self], (self,), {})

    def put(self: Any, value: Any) -> None:
        if not enabled.get():
            found.fset(self, value)
            return
        ask(found.__set__, overloaded((self, value)), (self, value), {})
    return property(get, put if found.fset is not None else None)


def _fill() -> None:
    for name, value in Tensor.__dict__.items():
        if name in _OWN or (hasattr(value, "__operation__") and name not in _PLAIN) or _programs(value):
            continue
        if isinstance(value, property):
            setattr(Overridable, name, _attribute(name, value))
        elif callable(value):
            setattr(Overridable, name, _method(name, value))


def prepare() -> None:
    """Makes the methods of `Overridable`; once, when the first class is made."""
    if "size" not in Overridable.__dict__:
        _fill()


def adopt(cls: type) -> None:
    """Gives a new subclass `Overridable` among its bases, unless it wants no overriding or has it from one of them."""
    if Overridable in cls.__mro__ or getattr(cls, "__torch_function__", None) is disabled_torch_function_impl:
        return
    prepare()
    bases = list(cls.__bases__)
    if Tensor in bases:
        bases[bases.index(Tensor)] = Overridable
    else:
        last = max(i for i, b in enumerate(bases) if issubclass(b, Tensor))
        bases.insert(last + 1, Overridable)
    cls.__bases__ = tuple(bases)
