"""`Parameter` and `Buffer`: tensors that a `Module` picks up when they are assigned to it."""

from __future__ import annotations

import functools
from types import MethodWrapperType
from typing import Any

from .._core import dtypes, hooks, ops
from .._core.dtypes import dtype as Dtype
from .._core.engine.operation import KNOWN
from .._core.runtime import provenance
from .._core.tensor import Tensor, _new
from ..interop.covering import disabled_torch_function_impl


def on_storage(cls: type[Tensor], data: Tensor, requires_grad: bool) -> Any:
    """A leaf of class `cls` that shares the storage of `data`."""
    made: Any = _new(cls)
    data = hooks.resolved(data)
    made.meta, made.store, made.ptr, made.node, made.base = data.meta, data.store, data.ptr, None, None
    provenance.note(made)
    if requires_grad:
        made.requires_grad_(True)
    return made


class Parameter(Tensor):
    """A leaf tensor that a module trains.

    Args:
        data: the tensor whose storage the parameter shares (any shape, floating or complex type if it is to have a
            gradient); None gives an empty one.
        requires_grad: whether gradients are recorded for it.
    """

    __torch_function__ = disabled_torch_function_impl

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = ops.empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(f"Parameter: data must be a Tensor or None, got {type(data).__name__}")
        elif (own := getattr(type(data), "_parameter", None)) is not None:  # a class whose members become parameters in a way of their own
            return own(data, requires_grad)  # type: ignore[no-any-return]
        made: Parameter = on_storage(cls, data, requires_grad)
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what a subclass's own `__new__` took; all is done there."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        known = memo.get(id(self))
        if known is not None:
            return known  # type: ignore[no-any-return]
        copy = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.data, self.requires_grad)


class Buffer(Tensor):
    """A tensor that belongs to a module's state and is not trained: assigning it registers it as a buffer.

    Args:
        data: the tensor whose storage the buffer shares; None gives an empty one.
        persistent: whether `state_dict` holds it.
    """

    persistent: bool
    __torch_function__ = disabled_torch_function_impl

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = ops.empty(0)
        made: Buffer = on_storage(cls, data.detach(), data.requires_grad)
        made.persistent = persistent
        return made

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        pass


@functools.cache
def _without_values() -> frozenset[Any]:
    """The methods that tensors without a shape yet have: what tells of them, and casts and moves."""
    names = ("size", "is_complex", "is_floating_point", "get_device", "__hash__", "copy_", "to", "cuda", "cpu", "char", *dtypes.ALIASES)
    return frozenset(getattr(Tensor, name) for name in names if hasattr(Tensor, name))


class UninitializedTensorMixin:
    """What parameters and buffers have whose shape is not known yet: `materialize` gives it, upon which they are of the class `cls_to_become`."""

    __slots__ = ()
    cls_to_become: type[Tensor] = Tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Attributes and what moves or casts it are answered as ever.  Raises ValueError for all else, as there is nothing to compute with yet."""
        if func not in _without_values() and not isinstance(func, MethodWrapperType):
            raise ValueError(f"Attempted to use an uninitialized parameter in {func}. It is of a lazy module, or was made as `UninitializedParameter`: "
                             "call the module once, which gives it its shape, or `materialize`")
        return disabled_torch_function_impl(func, types, args, kwargs)

    def materialize(self: Any, shape: Any, device: Any = None, dtype: Dtype | None = None) -> None:
        """Gives it uninitialised memory of `shape`; it is an ordinary parameter or tensor from then on."""
        data = ops.empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = self.cls_to_become
        self.data = data

    @property
    def shape(self) -> Any:
        """Raises RuntimeError: it has none yet."""
        raise RuntimeError("Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when trying to "
                           "load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters before accessing their "
                           "attributes.")

    def share_memory_(self) -> Any:
        """Raises RuntimeError: there is no memory yet."""
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before calling "
                           "`module.share_memory()`.")

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        known = memo.get(id(self))
        if known is None:
            make, given = self.__reduce_ex__(2)
            known = memo[id(self)] = make(*given)
        return known

    def __reduce_ex__(self: Any, protocol: Any) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, self.device, self.dtype)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<{type(self).__name__}>"

    def _repr_html_(self) -> str:
        return f"&lt;{type(self).__name__}&gt;"


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter whose shape is not known yet: the first call of its lazy module gives it one by `materialize`."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Dtype | None = None) -> Any:
        return _without_shape(cls, requires_grad, device, dtype)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Dtype | None = None) -> None:
        pass


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape the first call of its lazy module gives (see `UninitializedParameter`)."""

    persistent: bool

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Dtype | None = None,
                persistent: bool = True) -> Any:
        made = _without_shape(cls, requires_grad, device, dtype)
        made.persistent = persistent
        return made

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Dtype | None = None,
                 persistent: bool = True) -> None:
        pass

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        make, given = super().__reduce_ex__(protocol)
        return make, (*given, self.persistent)


def _without_shape(cls: Any, requires_grad: bool, device: Any, dtype: Any) -> Any:
    hooks.adopt(cls)  # from now on its `__torch_function__` is asked; not before, as that loads what few programs need
    from ..interop.overriding import DisableTorchFunctionSubclass
    with DisableTorchFunctionSubclass():
        return on_storage(cls, ops.empty(0, device=device, dtype=dtype), requires_grad)


def is_lazy(value: Any) -> bool:
    """Whether `value` is a parameter or buffer that still waits for its shape."""
    return isinstance(value, UninitializedTensorMixin)


def _rebuild(cls: type[Parameter], data: Tensor, requires_grad: bool) -> Parameter:
    return cls(data, requires_grad)


KNOWN.update((Parameter, Buffer))

Parameter.__module__ = f"{Tensor.__module__}.nn.parameter"  # torch's in a program that has Flambeau as torch
_ParameterMeta = type(Parameter)  # torchrl imports it by PyTorch's name
