"""Hooks of modules: the handles that remove them, the global ones, and backward hooks as identity steps of the tape."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .._core.autograd.function import Function
from .._core.autograd.handles import RemovableHandle
from .._core.errors import warn
from .._core.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from .module import Module

    Hook = Callable[..., Any]
    Grads = tuple[Tensor | None, ...]


class OfModule:
    """A hook that is given its module first, and does not keep the module alive."""

    def __init__(self, hook: Hook, module: Any) -> None:
        self.hook = hook
        self.module: Any = weakref.ref(module)

    def __call__(self, *args: Any) -> Any:
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args)

    def __getstate__(self) -> tuple[Hook, Module]:
        return self.hook, self.module()

    def __setstate__(self, state: tuple[Hook, Module]) -> None:
        self.hook = state[0]
        self.module = weakref.ref(state[1])


def _hook_dict() -> dict[int, Any]:
    from collections import OrderedDict

    return OrderedDict()


# Hooks for every module. `active` is what `Module.__call__` looks at: one dictionary test when there are none.
global_forward_pre: dict[int, Hook] = _hook_dict()
global_forward: dict[int, Hook] = _hook_dict()
global_backward_pre: dict[int, Hook] = _hook_dict()
global_backward: dict[int, Hook] = _hook_dict()
active: dict[int, bool] = _hook_dict()
# Who is given each call of a module while a program is traced (`fx`); see `take_calls`.
caller: Any = None
# Flags of forward hooks: they are called with keyword arguments too, or even though forward raised.
global_with_kwargs: dict[int, bool] = _hook_dict()
global_always_called: dict[int, bool] = _hook_dict()
# Hooks for every buffer, child module and parameter that a module gets.
buffer_registration: dict[int, Hook] = _hook_dict()
module_registration: dict[int, Hook] = _hook_dict()
parameter_registration: dict[int, Hook] = _hook_dict()


class TablesOfHooks(ModuleType):
    """A module that shows the global tables by PyTorch's names; to set one is to have its contents, as programs do that take all hooks away."""


def _table(own: dict[int, Hook]) -> property:
    def put(self: ModuleType, value: dict[int, Hook]) -> None:
        for key in list(own):
            active.pop(key, None)
        new = dict(value)
        own.clear()
        own.update(new)
        active.update(dict.fromkeys(new, True))
    return property(lambda self: own, put)


def _shown(own: dict[int, Hook]) -> property:
    return property(lambda self: own)


for _name, _own in (("forward_pre", global_forward_pre), ("forward", global_forward), ("backward_pre", global_backward_pre), ("backward", global_backward)):
    setattr(TablesOfHooks, f"_global_{_name}_hooks", _table(_own))
for _name, _own in (("buffer", buffer_registration), ("module", module_registration), ("parameter", parameter_registration)):
    setattr(TablesOfHooks, f"_global_{_name}_registration_hooks", _shown(_own))


def take_calls(by: Any) -> Any:
    """Has calls of modules go to `by(module, call, args, kwargs)`, where `call` makes the call; None: to nobody.  Returns who had them before."""
    global caller
    before, caller = caller, by
    if by is None:
        active.pop(-1, None)
    else:
        active[-1] = True
    return before


def registered(hooks: dict[int, Hook], module: Module, name: str, value: Any) -> Any:
    """What a module gets under a name, after the hooks that are told of it; what they return, if not None, takes its place."""
    for hook in list(hooks.values()):
        new = hook(module, name, value)
        if new is not None:
            value = new
    return value


def _register_global(hooks: dict[int, Hook], hook: Hook) -> RemovableHandle:
    handle = RemovableHandle(hooks, extra_dict=active)
    hooks[handle.id] = hook
    active[handle.id] = True
    return handle


def _register_registration(hooks: dict[int, Hook], hook: Hook) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """Calls ``hook(module, name, buffer)`` for every buffer that a module gets; a result that is not None takes its place."""
    return _register_registration(buffer_registration, hook)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """Calls ``hook(module, name, submodule)`` for every child that a module gets; a result that is not None takes its place."""
    return _register_registration(module_registration, hook)


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """Calls ``hook(module, name, parameter)`` for every parameter that a module gets; a result that is not None takes its place."""
    return _register_registration(parameter_registration, hook)


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Calls ``hook(module, args)`` before every module's forward; what it returns, if not None, replaces the args."""
    return _register_global(global_forward_pre, hook)


def register_module_forward_hook(hook: Hook, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """Calls ``hook(module, args, output)`` after every module's forward; a result that is not None replaces the
    output.  with_kwargs: the hook gets the keyword arguments after the others.  always_call: also where forward raised."""
    handle = RemovableHandle(global_forward, extra_dict=[active, global_with_kwargs, global_always_called])
    global_forward[handle.id] = hook
    active[handle.id] = True
    if with_kwargs:
        global_with_kwargs[handle.id] = True
    if always_call:
        global_always_called[handle.id] = True
    return handle


def watch_calls(begins: Hook, ends: Hook) -> Callable[[], None]:
    """Registers `begins(module, args)` before and `ends(module, args, output)` after every module's forward, as the two functions above; what is
    given takes both away."""
    number = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    global_forward_pre[number], global_forward[number], active[number] = begins, ends, True

    def end() -> None:
        for hooks in (active, global_forward, global_forward_pre):
            hooks.pop(number, None)
    return end


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Calls ``hook(module, grad_output)`` before every module's backward."""
    return _register_global(global_backward_pre, hook)


def register_module_backward_hook(hook: Hook) -> RemovableHandle:
    """`register_module_full_backward_hook`, by the name that PyTorch keeps for older programs."""
    return register_module_full_backward_hook(hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Calls ``hook(module, grad_input, grad_output)`` when the gradients of a module's inputs are known."""
    return _register_global(global_backward, hook)


class _Step(Function):
    """Identity on its tensors; in backward the gradients pass through `callback`, which may replace them."""

    @staticmethod
    def forward(ctx: Any, callback: Callable[[Grads], Grads], *tensors: Tensor) -> Any:
        ctx.callback = callback
        ctx.set_materialize_grads(False)
        given: tuple[Any, ...] = tensors
        out = tuple(t.view(t.shape) for t in given)
        ctx.mark_non_differentiable(*(o for o, t in zip(out, tensors) if not t.requires_grad))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return (None, *ctx.callback(grads))


def _replace(old: Grads, new: Any, what: str) -> Grads:
    """The gradients after a hook that answered `new` to `old`."""
    if new is None:
        return old
    grads: Grads = new if isinstance(new, tuple) else (new,)
    if len(grads) != len(old):
        raise RuntimeError(f"Backward hook returned an invalid number of {what}, got {len(grads)}, but expected "
                           f"{len(old)}")
    return grads


class BackwardHooks:
    """One call of a module with backward hooks: an identity step on its inputs and one on its outputs."""

    def __init__(self, module: Module, hooks: list[Hook], pre_hooks: list[Hook]) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.grad_outputs: Grads | None = None
        self.has_input_step = False
        self.input_count = 0

    def _through(self, callback: Callable[[Grads], Grads], values: tuple[Any, ...]) -> tuple[tuple[Any, ...], bool]:
        where = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
        if not any(values[i].requires_grad for i in where):
            return values, False
        stepped = _Step.apply(callback, *(values[i] for i in where))
        stepped = stepped if isinstance(stepped, tuple) else (stepped,)
        out = list(values)
        for i, new in zip(where, stepped):
            out[i] = new
        return tuple(out), True

    @staticmethod
    def _spread(grads: Grads, values: tuple[Any, ...]) -> Grads:
        """Gradients of the tensors among `values`, with None at the places of the others."""
        rest = iter(grads)
        return tuple(next(rest) if isinstance(v, Tensor) else None for v in values)

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call forward with."""
        self.input_count = len(args)

        def on_grads(grads: Grads) -> Grads:
            # Without a gradient for an output there was no backward through the module's result: nothing to report.
            if self.grad_outputs is None:
                return grads
            full = self._spread(grads, args)
            for hook in self.hooks:
                full = _replace(full, hook(self.module, full, self.grad_outputs), "grad_input")
            self.grad_outputs = None
            return tuple(g for g, v in zip(full, args) if isinstance(v, Tensor))

        out, self.has_input_step = self._through(on_grads, args)
        return out

    def outputs(self, result: Any) -> Any:
        """What the module's call gives back.  Warns where that is neither a tensor nor a tuple, whose gradients no hook sees."""
        if not isinstance(result, (Tensor, tuple)):
            warn(f"For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received {type(result)}")
        values = result if isinstance(result, tuple) else (result,)

        def on_grads(grads: Grads) -> Grads:
            full = self._spread(grads, values)
            for hook in self.pre_hooks:
                full = _replace(full, hook(self.module, full), "grad_output")
            self.grad_outputs = full
            if not self.has_input_step:
                nothing: Grads = (None,) * self.input_count
                for hook in self.hooks:
                    found = hook(self.module, nothing, full)
                    if found is not None and not (isinstance(found, tuple) and all(g is None for g in found)):
                        raise RuntimeError("Backward hook for Modules where no input requires gradient should always "
                                           "return None or None for all gradients.")
                self.grad_outputs = None
            return tuple(g for g, v in zip(full, values) if isinstance(v, Tensor))

        out, _ = self._through(on_grads, values)
        return out if isinstance(result, tuple) else out[0]
