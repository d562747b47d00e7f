"""functorch, the package that became `torch.func`: those functions, and modules as functions of their parameters."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from flambeau.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap


class FunctionalModule:
    """A module without parameters of its own: called with them first."""

    def __init__(self, stateless_model: Any, param_names: tuple[str, ...], buffer_names: tuple[str, ...] = ()) -> None:
        self.stateless_model, self.param_names, self.buffer_names = stateless_model, param_names, buffer_names

    def __call__(self, params: Any, *args: Any, **kwargs: Any) -> Any:
        return functional_call(self.stateless_model, dict(zip(self.param_names, params, strict=True)), args, kwargs)


class FunctionalModuleWithBuffers(FunctionalModule):
    """One called with its parameters and its buffers."""

    def __call__(self, params: Any, buffers: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(self.param_names, params, strict=True)), **dict(zip(self.buffer_names, buffers, strict=True))}
        return functional_call(self.stateless_model, given, args, kwargs)


def _values(named: Any, disable_autograd_tracking: bool) -> tuple[Any, ...]:
    return tuple(v.detach() if disable_autograd_tracking else v for _, v in named)


def make_functional(model: Any, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, tuple[Any, ...]]:
    """``f(params, *args)`` and the parameters of a module, which itself stays as it is.  Raises RuntimeError for one with buffers."""
    if next(iter(model.buffers()), None) is not None:
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.")
    f, params, _ = make_functional_with_buffers(model, disable_autograd_tracking)
    return FunctionalModule(f.stateless_model, f.param_names), params


def make_functional_with_buffers(model: Any, disable_autograd_tracking: bool = False) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """``f(params, buffers, *args)``, the parameters and the buffers of a module, which itself stays as it is."""
    copy = deepcopy(model)
    f = FunctionalModuleWithBuffers(copy, tuple(n for n, _ in model.named_parameters()), tuple(n for n, _ in model.named_buffers()))
    return f, _values(copy.named_parameters(), disable_autograd_tracking), _values(copy.named_buffers(), disable_autograd_tracking)


def combine_state_for_ensemble(models: Any) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """Modules of one make as one function, for `vmap` over their stacked parameters and buffers."""
    params, buffers = stack_module_state(models)
    return FunctionalModuleWithBuffers(deepcopy(models[0]), tuple(params), tuple(buffers)), tuple(params.values()), tuple(buffers.values())


__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd",
           "jacrev", "jvp", "linearize", "make_functional", "make_functional_with_buffers", "stack_module_state", "vjp", "vmap"]
