"""Parameters computed from others by modules: `register_parametrization` and what belongs to it."""

from __future__ import annotations

import copy
from typing import Any

from ..._core.tensor import Tensor
from ...autograd import no_grad
from ..containers import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
           "transfer_parametrizations_and_params", "type_before_parametrizations"]

_depth = 0
_kept: dict[tuple[int, str], Any] = {}


class cached:
    """A block in which each parametrized tensor is computed once."""

    def __enter__(self) -> None:
        global _depth
        _depth += 1

    def __exit__(self, *exc: object) -> None:
        global _depth
        _depth -= 1
        if not _depth:
            _kept.clear()


def _unchanged(made: Any, shape: Any, dtype: Any, flag: str, before: str, after: str) -> None:
    """Raises ValueError where a parametrization gave no tensor, or one of another type or shape.  before, after: PyTorch's words for what changed."""
    if not isinstance(made, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
    for what, was in (("dtype", dtype), ("shape", shape)):
        now = getattr(made, what)
        if now != was:
            raise ValueError(f"Registering a parametrization may not change the {what} of the tensor, unless {flag} is enabled.\n"
                             f"{before}{what}: {was}\n{after}{what}: {now}")


class ParametrizationList(ModuleList):
    """The modules that compute one tensor, first to last, and what they compute it from: `original` (or `original0`, ...).

    Args:
        modules: the parametrizations.
        original: the tensor until now; with `right_inverse` methods, what they make of it is kept instead.
        unsafe: do not check that shape and type stay as they were.
    """

    original: Any
    unsafe: bool

    def __init__(self, modules: Any, original: Any, unsafe: bool = False) -> None:
        modules = list(modules)
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with no_grad():
            new = original
            for module in reversed(modules):
                inverse = getattr(module, "right_inverse", None)
                if inverse is None:
                    continue
                try:
                    new = inverse(*new) if isinstance(new, tuple) else inverse(new)
                except NotImplementedError:  # one that says that it has none
                    break
                if not hasattr(new, "meta") and not isinstance(new, (list, tuple)):
                    raise ValueError(f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(new).__name__}")
                for i, part in enumerate(() if hasattr(new, "meta") else new):
                    if not isinstance(part, Tensor):
                        raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                                         f"Got element {i} of the sequence with type {type(part).__name__}.")
        self.is_tensor = not isinstance(new, (list, tuple))
        parts = [new] if self.is_tensor else list(new)
        self.ntensors = len(parts)
        if self.is_tensor and new.dtype is not dtype:
            raise ValueError("When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                             f"original.dtype: {dtype}\nright_inverse(original).dtype: {new.dtype}")
        for i, part in enumerate(parts):
            name = "original" if self.is_tensor else f"original{i}"
            if isinstance(original, Parameter):
                if self.is_tensor:
                    original.data = part if part is not original else original.data
                    self.register_parameter(name, original)
                else:
                    self.register_parameter(name, Parameter(part.detach(), requires_grad=original.requires_grad))
            else:
                self.register_buffer(name, part)
        if not unsafe:
            _unchanged(self(), shape, dtype, "`unsafe` flag", "unparametrized ", "parametrized ")

    def _originals(self) -> list[Any]:
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Any) -> None:
        """Sets the originals so that the computed tensor is `value`.  Raises RuntimeError where a module has no right inverse."""
        with no_grad():
            for module in reversed(list(self)):
                inverse = getattr(module, "right_inverse", None)
                if inverse is None:
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = inverse(*value) if isinstance(value, tuple) else inverse(value)
            parts = [value] if self.is_tensor else list(value)
            if len(parts) != self.ntensors:
                raise ValueError(f"'right_inverse' must return a Sequence of {self.ntensors} tensors, got {len(parts)}")
            for old, new in zip(self._originals(), parts, strict=True):
                if old.dtype is not new.dtype:
                    raise ValueError(f"The tensor returned by `right_inverse` has dtype {new.dtype} while `original` has dtype {old.dtype}")
                old.set_(new) if hasattr(old, "set_") and old.shape != new.shape else old.copy_(new)

    def forward(self) -> Any:
        modules = list(self)
        value = modules[0](*self._originals())
        for module in modules[1:]:
            value = module(value)
        return value


def _get(name: str) -> Any:
    def get(self: Any) -> Any:
        parametrization = self.parametrizations[name]
        if not _depth:
            return parametrization()
        key = id(self), name
        if key not in _kept:
            _kept[key] = parametrization()
        return _kept[key]

    def put(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)
    return property(get, put)


def _make_class(module: Module) -> None:
    """Gives the module a class of its own, which can hold properties."""
    cls = type(module)

    def reduce(self: Any, protocol: Any) -> Any:
        raise RuntimeError("Serialization of parametrized modules is only supported through state_dict(). See the documentation of saving and "
                           "loading a general checkpoint.")

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        made = cls.__new__(cls)
        memo[id(self)] = made
        for key, value in self.__dict__.items():
            made.__dict__[key] = copy.deepcopy(value, memo)
        made.__class__ = type("Parametrized" + cls.__name__, (cls,), {k: v for k, v in vars(type(self)).items() if not k.startswith("__weakref")
                                                                      and k != "__dict__"})
        return made
    module.__class__ = type("Parametrized" + cls.__name__, (cls,), {"__reduce_ex__": reduce, "__deepcopy__": deepcopy})


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Computes the parameter or buffer `tensor_name` of `module` by `parametrization` from now on, after those it already has.

    The tensor becomes ``module.parametrizations[tensor_name].original``; assigning to it calls the modules' `right_inverse`.
    Raises ValueError where there is no such tensor, or the parametrization changes shape or type (unless `unsafe`).
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        parts: Any = module.parametrizations[tensor_name]
        if not unsafe:
            old = getattr(module, tensor_name)
            new = parametrization(old)
            _unchanged(new, old.shape, old.dtype, "the `unsafe` flag", f"module.{tensor_name}.", f"parametrization(module.{tensor_name}).")
            if hasattr(parametrization, "right_inverse"):
                try:
                    back = parametrization.right_inverse(new)
                except NotImplementedError:  # one that says that it has none
                    back = old
                if not isinstance(back, Tensor):
                    raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
                if back.dtype is not old.dtype:
                    raise ValueError("The tensor returned by parametrization.right_inverse must have the same dtype as "
                                     f"module.{tensor_name}, unless the `unsafe` flag is enabled: {back.dtype} instead of {old.dtype}")
                if back.shape != old.shape:
                    raise ValueError("The tensor returned by parametrization.right_inverse must have the same shape as "
                                     f"module.{tensor_name}, unless the `unsafe` flag is enabled: {tuple(back.shape)} instead of {tuple(old.shape)}")
        parts.append(parametrization)
        parts.unsafe |= unsafe
        return module
    store: Any = module._parameters if tensor_name in module._parameters else module._buffers
    if store.get(tensor_name) is None:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    made = ParametrizationList([parametrization], store[tensor_name], unsafe)
    del store[tensor_name]
    if not is_parametrized(module):
        _make_class(module)
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _get(tensor_name))
    module.parametrizations[tensor_name] = made
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has a parametrized tensor, or one of this name."""
    parts = module._modules.get("parametrizations")
    if not isinstance(parts, ModuleDict):
        return False
    return len(parts) > 0 if tensor_name is None else tensor_name in parts


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes the tensor an ordinary one again: with its value of now, or (`leave_parametrized` False) the original.

    Raises ValueError where it is not parametrized, or has several originals and shall have one back.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parts: Any = module.parametrizations
    mine = parts[tensor_name]
    if mine.is_tensor:
        original = mine.original
        if leave_parametrized:
            with no_grad():
                value = getattr(module, tensor_name)
            if isinstance(original, Parameter):
                original.data = value.detach()
            else:
                original = value
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        firsts = mine._originals()
        trained = isinstance(firsts[0], Parameter)
        original = Parameter(value.detach(), requires_grad=any(p.requires_grad for p in firsts)) if trained else value
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of tensors.")
    delattr(type(module), tensor_name)
    del parts[tensor_name]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    if not len(parts):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class without what parametrizations made of it."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Gives `to_module` the parametrizations of `from_module` (of one tensor, or of all), with their originals."""
    if not is_parametrized(from_module):
        return to_module
    parts: Any = from_module.parametrizations
    for name in [tensor_name] if tensor_name is not None else list(parts):
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for p in parts[name]:
            register_parametrization(to_module, name, copy.deepcopy(p), unsafe=True)
        mine: Any = to_module.parametrizations[name]
        with no_grad():
            for a, b in zip(mine._originals(), parts[name]._originals(), strict=True):
                a.copy_(b)
    return to_module
