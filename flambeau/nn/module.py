"""`Module`: the base class of every layer and model, with PyTorch's rules.

A module keeps four tables: `_parameters`, `_buffers`, `_modules` and the set of buffers that are not saved. Everything
here is a walk over them. Saving and loading are in `state`, hooks in `hooks`.
"""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from .._core import ops
from .._core.autograd.handles import RemovableHandle
from .._core.errors import warn
from .._core.hooks import provide
from .._core.runtime.device import device as Device
from .._core.tensor import Tensor
from . import hooks as _hooks
from .conversion import apply_to_tensors, parse_to
from .hooks import (
    BackwardHooks,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from .parameter import Buffer, Parameter
from .state import Stateful

T = TypeVar("T", bound="Module")

_HOOK_TABLES = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs",
                "_forward_hooks_always_called", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
                "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


def _typename(value: Any) -> str:
    """The name errors use for a value's type."""
    if isinstance(value, Tensor):
        return str(value.type())
    kind: Any = type(value)
    if inspect.isroutine(value) or inspect.isclass(value):  # by its own name
        kind = value
        ours, _, inside = f"{kind.__module__}.{kind.__qualname__}".partition(".")
        if ours == "flambeau":
            return f"torch.{inside}"
    return kind.__qualname__ if kind.__module__ in ("builtins", None) else f"{kind.__module__}.{kind.__qualname__}"


def _no_module(value: Any) -> str:
    """What an error says of something that was given for a module."""
    cure = f": it is a class, and {value.__name__}(...) makes a module" if inspect.isclass(value) and issubclass(value, Module) else ""
    return f"{_typename(value)} is not a Module subclass{cure}"


def _addindent(text: str, spaces: int) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


def _parameters_of(module: Module) -> Iterable[tuple[str, Any]]:
    members: Iterable[tuple[str, Any]] = module.__dict__["_parameters"].items()
    return members


def _buffers_of(module: Module) -> Iterable[tuple[str, Any]]:
    members: Iterable[tuple[str, Any]] = module.__dict__["_buffers"].items()
    return members


class Module(Stateful):
    """Base class of layers and models: subclasses assign parameters and modules in `__init__` and define `forward`.

    ``module.device`` is the device of its parameters and buffers where they all are on one, unless the subclass uses
    the name itself.
    """

    training: bool
    dump_patches: bool = False
    call_super_init: bool = False
    _compiled_call_impl: Callable[..., Any] | None = None
    _forward_hooks: dict[int, Any]
    _forward_pre_hooks: dict[int, Any]
    _forward_hooks_with_kwargs: dict[int, bool]
    _forward_hooks_always_called: dict[int, bool]
    _forward_pre_hooks_with_kwargs: dict[int, bool]
    _backward_hooks: dict[int, Any]
    _backward_pre_hooks: dict[int, Any]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # PyTorch's functions that are builtins do not become methods of a class that keeps them: `conv = torch.conv2d`, then `self.conv(x, weight)`
        for name, value in tuple(vars(cls).items()):
            operation = getattr(value, "__operation__", None)
            if operation is not None and operation.renames and operation.function is value:
                setattr(cls, name, staticmethod(value))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            given = f"{len(args)} positional and {len(kwargs)} keyword arguments"
            raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but got {given}")
        # Straight into __dict__: __setattr__ below needs these tables to exist.
        slots = self.__dict__
        slots["training"] = True
        slots["_parameters"] = {}
        slots["_buffers"] = {}
        slots["_non_persistent_buffers_set"] = set()
        slots["_modules"] = {}
        for name in _HOOK_TABLES:
            slots[name] = OrderedDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation of every call; subclasses define it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # -- calling -----------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks
                or self._compiled_call_impl or _hooks.active):
            return (self._compiled_call_impl or self._call_impl)(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def _wrapped_call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """A call by the name that libraries take it by."""
        return (self._compiled_call_impl or self._call_impl)(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """A call that `compile` has no part in."""
        if (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks
                or _hooks.active):
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _hooks.caller is not None:
            return _hooks.caller(self, self._hooked_call, args, kwargs)
        return self._hooked_call(*args, **kwargs)

    def _hooked_call(self, *args: Any, **kwargs: Any) -> Any:
        always = [(k, h) for table, flags in ((_hooks.global_forward, _hooks.global_always_called), (self._forward_hooks,
                  self._forward_hooks_always_called)) for k, h in table.items() if k in flags]
        ran: set[int] = set()
        result = None
        try:
            result = self._hooked_forward(args, kwargs, ran)
            return result
        except Exception:
            # Hooks that asked for it see the call even though it failed; what fails in them must not hide why.

            for key, hook in always:
                if key not in ran:
                    try:
                        if key in self._forward_hooks_with_kwargs or key in _hooks.global_with_kwargs:
                            hook(self, args, kwargs, result)
                        else:
                            hook(self, args, result)
                    except Exception as error:
                        warn(f"module forward hook with ``always_call=True`` raised an exception that was "
                             f"silenced as another error was raised in forward: {error}")
            raise

    def _hooked_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any], ran: set[int]) -> Any:
        for table in (_hooks.global_forward_pre, self._forward_pre_hooks):
            for key, hook in list(table.items()):
                if key in self._forward_pre_hooks_with_kwargs:
                    new = hook(self, args, kwargs)
                    if new is not None:
                        if not (isinstance(new, tuple) and len(new) == 2):
                            raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, "
                                               f"new_kwargs), but got {new}.")
                        args, kwargs = new
                else:
                    new = hook(self, args)
                    if new is not None:
                        args = new if isinstance(new, tuple) else (new,)
        backward = None
        after = [*_hooks.global_backward.values(), *self._backward_hooks.values()]
        before = [*_hooks.global_backward_pre.values(), *self._backward_pre_hooks.values()]
        if after or before:
            backward = BackwardHooks(self, after, before)
            args = backward.inputs(args)
        result = self.forward(*args, **kwargs)
        for table in (_hooks.global_forward, self._forward_hooks):
            for key, hook in list(table.items()):
                ran.add(key)
                if key in self._forward_hooks_with_kwargs or key in _hooks.global_with_kwargs:
                    new = hook(self, args, kwargs, result)
                else:
                    new = hook(self, args, result)
                if new is not None:
                    result = new
        return result if backward is None else backward.outputs(result)

    # -- attributes --------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Only called for what is neither in __dict__ nor on the class; written out, as every use of a parameter comes
        # here.
        slots = self.__dict__
        if "_parameters" in slots:
            values = slots["_parameters"]
            if name in values:
                return values[name]
            values = slots["_buffers"]
            if name in values:
                return values[name]
            values = slots["_modules"]
            if name in values:
                return values[name]
        if name == "device":
            return self._one_device()
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _one_device(self) -> Device:
        where = {t.device for t in [*self.parameters(), *self.buffers()]} if "_parameters" in self.__dict__ else set()
        if len(where) == 1:
            return where.pop()
        found = " and ".join(sorted(str(d) for d in where)) or "no device, as it has no parameters or buffers"
        raise AttributeError(f"'{type(self).__name__}' object has no attribute 'device': it is on {found}")

    def __setattr__(self, name: str, value: Any) -> None:
        slots = self.__dict__
        parameters = slots.get("_parameters")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
            return
        if parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as parameter '{name}' "
                                "(torch.nn.Parameter or None expected)")
            self.register_parameter(name, None)
            return
        modules = slots.get("_modules")
        if isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_parameters", "_buffers")
            modules[name] = _hooks.registered(_hooks.module_registration, self, name, value) if _hooks.module_registration else value
            return
        if modules is not None and name in modules:
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as child module '{name}' "
                                "(torch.nn.Module or None expected)")
            modules[name] = None
            return
        buffers = slots.get("_buffers")
        if isinstance(value, Buffer):
            if buffers is None:
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            self._forget(name, "_parameters", "_modules", "_buffers")
            self.register_buffer(name, value, value.persistent)
            return
        if buffers is not None and name in buffers:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{_typename(value)}' as buffer '{name}' "
                                "(torch.nn.Buffer, torch.Tensor or None expected)")
            buffers[name] = _hooks.registered(_hooks.buffer_registration, self, name, value) if _hooks.buffer_registration else value
            return
        object.__setattr__(self, name, value)

    def _forget(self, name: str, *tables: str) -> None:
        """Takes `name` out of __dict__ and the named tables, because it is about to be something else."""
        self.__dict__.pop(name, None)
        for table in tables:
            self.__dict__[table].pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_compiled_call_impl"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _HOOK_TABLES:
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers}
        return sorted(n for n in names if not n[0].isdigit())

    # -- registering -------------------------------------------------------------------------------------------------

    def _check_name(self, kind: str, name: Any, own: Mapping[str, Any]) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: "{name}"')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        taken = hasattr(self, name) if name != "device" else name in self.__dict__ or hasattr(type(self), name)
        if taken and name not in own:
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is part of the state but not trained; `persistent` says whether `state_dict` holds it."""
        self._check_name("buffer", name, self.__dict__.get("_buffers", {}))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_typename(tensor)}' object to buffer '{name}' "
                            "(torch Tensor or None required)")
        if _hooks.buffer_registration:
            tensor = _hooks.registered(_hooks.buffer_registration, self, name, tensor)
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter under `name`; None keeps the name and has no tensor."""
        self._check_name("parameter", name, self.__dict__.get("_parameters", {}))
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(f"cannot assign '{_typename(param)}' object to parameter '{name}' "
                                "(torch.nn.Parameter or None required)")
            if param.grad_fn is not None:
                raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                                 "created explicitly. To express 'x' as a function of another Tensor, compute the "
                                 "value in the forward() method.")
        if _hooks.parameter_registration:
            param = _hooks.registered(_hooks.parameter_registration, self, name, param)
        self._parameters[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a child module under `name`."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(_no_module(module))
        self._check_name("module", name, self.__dict__.get("_modules", {}))
        if _hooks.module_registration:
            module = _hooks.registered(_hooks.module_registration, self, name, module)
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as `add_module`."""
        self.add_module(name, module)

    # -- walking -----------------------------------------------------------------------------------------------------

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; "" is the module itself. Raises AttributeError if there is none."""
        found = self
        for name in target.split(".") if target else ():
            if not hasattr(found, name):
                raise AttributeError(f"{type(found).__name__} has no attribute `{name}`")
            found = getattr(found, name)
            if not isinstance(found, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return found

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts `module` at a dotted path, whose parents must exist; with `strict`, the path itself must exist too."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path. Raises AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        found = getattr(module, name)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path. Raises AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return getattr(module, name)  # type: ignore[no-any-return]

    def _named_members(self, get_members_fn: Callable[[Module], Iterable[tuple[str, Any]]], prefix: str = "", recurse: bool = True,
                       remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """Pairs of dotted name and value of what a function names of each module; libraries call it for tables of their own."""
        seen: dict[int, Any] = {}  # with the values, whose ids are theirs only while they live
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen[id(value)] = value
                yield f"{path}.{name}" if path else name, value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Each parameter once, in the order of registration."""
        for _, parameter in self._named_members(_parameters_of, "", recurse):
            yield parameter

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Pairs of dotted name and parameter."""
        return self._named_members(_parameters_of, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Each buffer once."""
        for _, buffer in self._named_members(_buffers_of, "", recurse):
            yield buffer

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Pairs of dotted name and buffer."""
        return self._named_members(_buffers_of, prefix, recurse, remove_duplicate)

    def children(self) -> Iterator[Module]:
        """Each direct child once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Pairs of name and direct child, each child once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once unless duplicates are asked for."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(self, memo: set[Module] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """Pairs of dotted name and module, from this module (named `prefix`) down."""
        if memo is None:
            memo = set()
        if self not in memo:
            if remove_duplicate:
                memo.add(self)
            yield prefix, self
            for name, module in self._modules.items():
                if module is not None:
                    below = f"{prefix}.{name}" if prefix else name
                    yield from module.named_modules(memo, below, remove_duplicate)

    def apply(self: T, fn: Callable[[Module], Any]) -> T:
        """Calls `fn` on every module below and then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # -- modes -------------------------------------------------------------------------------------------------------

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles this Module's calls, in place: it stays what it is, and its calls do what they did, as those of ``flambeau.compile(module)``.

        args, kwargs: as `flambeau.compile`'s after the function; the same errors.  A copy of the Module, or one that is loaded, is not compiled.
        """
        from .._core.compile.compiled import compile as compiled
        self.__dict__["_compiled_call_impl"] = compiled(self._call_impl, *args, **kwargs)

    def train(self: T, mode: bool = True) -> T:
        """Sets training mode here and below: dropout drops and batch norm uses the batch's statistics."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Sets evaluation mode: the same as ``train(False)``."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Sets `requires_grad` of every parameter."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops every parameter's gradient, or sets it to zeros if `set_to_none` is false."""
        for parameter in self.parameters():
            grad = parameter.grad
            if grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    # -- moving and casting ------------------------------------------------------------------------------------------

    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        """Puts every parameter, its gradient and every buffer through `fn`, in place: a `Parameter` stays the object
        it was, so optimizers and tied weights hold on to it."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        apply_to_tensors(self._parameters, self._buffers, fn)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Moves and casts the module in place and returns it.

        ``to(device)``, ``to(dtype)``, ``to(device, dtype)``, ``to(tensor)``, each with `non_blocking` and
        `memory_format`. A dtype must be floating or complex and touches only such tensors: TypeError otherwise.
        """
        device, dtype, non_blocking, memory_format = parse_to(*args, **kwargs)

        def convert(t: Tensor) -> Tensor:
            kind = dtype if t.is_floating_point() or t.is_complex() else None
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device, kind, non_blocking, memory_format=memory_format)
            return t.to(device, kind, non_blocking)

        return self._apply(convert)

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """Moves the module to `device` without its values: the memory there is not initialised."""
        return self._apply(lambda t: ops.empty_like(t, device=device), recurse=recurse)

    def cuda(self: T, device: Any = None) -> T:
        """Moves the module to a GPU (the current one if `device` is None), in place."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self: T) -> T:
        """Moves the module to the CPU, in place."""
        return self._apply(lambda t: t.cpu())

    def type(self: T, dst_type: Any) -> T:
        """Casts every parameter and buffer to `dst_type`, in place."""
        return self._apply(lambda t: t.type(dst_type))

    def _float_to(self: T, cast: str) -> T:
        return self._apply(lambda t: getattr(t, cast)() if t.is_floating_point() else t)

    def float(self: T) -> T:
        """Casts floating parameters and buffers to float32, in place."""
        return self._float_to("float")

    def double(self: T) -> T:
        """Casts floating parameters and buffers to float64, in place."""
        return self._float_to("double")

    def half(self: T) -> T:
        """Casts floating parameters and buffers to float16, in place."""
        return self._float_to("half")

    def bfloat16(self: T) -> T:
        """Casts floating parameters and buffers to bfloat16, in place."""
        return self._float_to("bfloat16")

    def _replicate_for_data_parallel(self: T) -> T:
        """A copy of the module alone, with tables of its own and no parameters: their copies become plain attributes of it."""
        copy = self.__new__(type(self))
        copy.__dict__.update(self.__getstate__())
        copy.__dict__.update(_parameters={}, _buffers=dict(self._buffers), _modules=dict(self._modules), _former_parameters={})
        return copy

    def share_memory(self: T) -> T:
        """Moves the tensors to memory that several processes share."""
        def share(t: Any) -> Any:
            return t.share_memory_()

        return self._apply(share)

    # -- hooks -------------------------------------------------------------------------------------------------------

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False,
                                  with_kwargs: bool = False) -> RemovableHandle:
        """Calls ``hook(module, args)`` (or ``hook(module, args, kwargs)``) before forward; what it returns, if not
        None, replaces the arguments."""
        return self._register("_forward_pre_hooks", hook, prepend, _forward_pre_hooks_with_kwargs=with_kwargs)

    def register_forward_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """Calls ``hook(module, args, output)`` (or ``hook(module, args, kwargs, output)``) after forward; what it
        returns, if not None, replaces the output. With `always_call` it is called even if forward raised."""
        return self._register("_forward_hooks", hook, prepend, _forward_hooks_with_kwargs=with_kwargs,
                              _forward_hooks_always_called=always_call)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_output)`` before the module's backward; what it returns replaces grad_output."""
        return self._register("_backward_pre_hooks", hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_input, grad_output)`` once the gradients of the module's inputs are known; what it
        returns replaces grad_input. The two are tuples, with None for what is no tensor."""
        return self._register("_backward_hooks", hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The old name; the hook is a full backward hook."""
        return self.register_full_backward_hook(hook)

    def _register(self, table: str, hook: Callable[..., Any], prepend: bool, **flags: bool) -> RemovableHandle:
        hooks: Any = self.__dict__[table]
        handle = RemovableHandle(hooks, extra_dict=[self.__dict__[name] for name in flags])
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        for name, wanted in flags.items():
            if wanted:
                self.__dict__[name][handle.id] = True
        return handle

    # -- printing ----------------------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """The text between the brackets of the module's line; subclasses override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({extra})"
        if not lines and not children:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"

    def _repr_html_(self) -> str:
        from ..interop import html
        return html.module(self)


__all__ = ["Module", "register_module_backward_hook", "register_module_buffer_registration_hook", "register_module_forward_hook",
           "register_module_forward_pre_hook", "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
           "register_module_module_registration_hook", "register_module_parameter_registration_hook"]

sys.modules[__name__].__class__ = _hooks.TablesOfHooks


def _optimized(model: Any) -> Any:
    """A Module with compiled calls; anything else itself."""
    if not isinstance(model, Module):
        return model
    from .optimized_module import OptimizedModule
    return model if isinstance(model, OptimizedModule) else OptimizedModule(model)


provide(optimized=_optimized)
