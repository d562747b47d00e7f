"""`__torch_function__`: classes that answer for operations on them, at no cost to plain tensors.

A user's subclass of Tensor gets `Overridable` among its bases, whose methods ask `__torch_function__` first.  Functions
look straight into their tensors and check nothing; so the layout `meta` of an overridable tensor is a property that stops the
function on its first look (`Overridden`), and the outermost public function that was called hears of it and asks.
Objects that are no tensors at all are found where a function trips over them.  Which functions can hear is told by the code
of the frames (`ops.arguments.HANDLERS`), so nothing has to be noted while they run.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .._core.ops.arguments import FIRST, HANDLERS, Overridden, covered
from .._core.tensor import Tensor, _new
from .covering import cover, disabled_torch_function_impl

if TYPE_CHECKING:
    from collections.abc import Iterable

enabled: ContextVar[bool] = ContextVar("torch_function", default=True)
_layout: Any = Tensor.__dict__["meta"]  # the slot
_PACKAGE = __name__.rpartition(".interop")[0]
_WITHIN = tuple(f"{_PACKAGE}.{part}" for part in ("_core.ops", "_core.tensor", "_core.layout", "_core.autograd.inplace", "_core.autograd.mode",
                                                   "interop", "nn.functional"))
_ENGINE = f"{_PACKAGE}._core.autograd", f"{_PACKAGE}.autograd"
_MAKERS = f"{_PACKAGE}.autograd.functional"  # calls operations as a program does
_regions: dict[Any, str] = {}  # of code objects: "within" an operation, the "engine" of gradients, or "" (anything else)


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
    made: Any = _new(cls)
    made.meta, made.store, made.ptr, made.node = _layout.__get__(self), self.store, self.ptr, self.node
    base = getattr(self, "base", None)
    if base is not None:
        made.base = base
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
        made = type(x).__torch_function__(func, types, args, kwargs)
        if made is not NotImplemented:
            return made
    names = ", ".join(t.__name__ for t in types)
    raise TypeError(f"no implementation found for '{_shown(func)}' on types that implement __torch_function__: [{names}]")


def _shown(func: Any) -> str:
    space = getattr(func, "__module__", None) or ""
    name = getattr(func, "__qualname__", repr(func))
    return f"torch.{name}" if space.startswith(_PACKAGE) else f"{space}.{name}"


def hearing(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any], frame: Any) -> list[Any]:
    """Whom a public function that met `error` asks: the arguments of overriding classes.  The error goes on where a function
    further out is to ask; frame: that of this one."""
    outermost = _hears(frame)
    if outermost is not None and outermost is not frame:
        raise error
    return overloaded(_spread((*args, *kwargs.values())))


# -------------------------------------------------------------------------------------------------------------- stopping
def _region(code: Any, module: str) -> str:
    found = _regions.get(code)
    if found is None:
        found = "within" if module.startswith(_WITHIN) else "engine" if module.startswith(_ENGINE) and module != _MAKERS else ""
        if len(_regions) > 1 << 14:
            _regions.clear()
        _regions[code] = found
    return found


def _hears(frame: Any) -> Any:
    """The frame of the outermost public function at work around `frame`, which can ask; None outside of operations."""
    hears = None
    while frame is not None:
        code = frame.f_code
        region = _region(code, frame.f_globals.get("__name__", ""))
        if region != "within":
            return None if region else hears  # gradients are computed on what was saved, as it is
        if code in HANDLERS:
            hears = frame
        frame = frame.f_back
    return hears


def _get_layout(self: Tensor) -> Any:
    """The layout; or, where a public function of ours is at work that could ask, the stop for it."""
    if enabled.get():
        frame = sys._getframe(1)
        if frame.f_code in FIRST or _hears(frame) is not None:
            raise Overridden
    return _layout.__get__(self)


class Overridable(Tensor):
    """What users' subclasses of Tensor have between them and it: each method and attribute asks `__torch_function__`."""

    __slots__ = ()
    meta = property(_get_layout, lambda self, m: _layout.__set__(self, m))


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


def _method(name: str) -> Any:
    operator = _OPERATORS.get(name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        func = getattr(Tensor, name)
        if not enabled.get():
            return func(self, *args, **kwargs)
        if _hears(sys._getframe(1)) is not None:
            raise Overridden
        if name in _PLAIN and _is_default(type(self)):
            with DisableTorchFunctionSubclass():
                return func(self, *args, **kwargs)
        if operator is not None and all(isinstance(x, (Tensor, int, float, complex)) for x in args):
            func = getattr(Tensor, operator)
        return ask(func, overloaded(_spread((self, *args, *kwargs.values()))), (self, *args), kwargs)
    call.__name__ = name
    call.__qualname__ = f"Tensor.{name}"
    return call


def _attribute(name: str, found: Any) -> Any:
    def get(self: Any) -> Any:
        if not enabled.get() or (name in _PLAIN and _is_default(type(self))):
            with DisableTorchFunctionSubclass():
                return found.fget(self)
        if _hears(sys._getframe(1)) is not None:
            raise Overridden
        return ask(found.__get__, [self], (self,), {})

    def put(self: Any, value: Any) -> None:
        if not enabled.get():
            found.fset(self, value)
            return
        ask(found.__set__, overloaded((self, value)), (self, value), {})
    return property(get, put if found.fset is not None else None)


def _fill() -> None:
    for name, value in Tensor.__dict__.items():
        if name in _OWN:
            continue
        if isinstance(value, property):
            setattr(Overridable, name, _attribute(name, value))
        elif callable(value):
            setattr(Overridable, name, _method(name))


def prepare() -> None:
    """Makes the methods of `Overridable`, and lets public functions hear; once, when the first class is made."""
    if "add" not in Overridable.__dict__:
        _fill()
        cover()
        for name in ("__getitem__", "__setitem__"):
            setattr(Tensor, name, covered(name, Tensor.__dict__[name]))


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
