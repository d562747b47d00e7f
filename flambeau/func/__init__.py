"""Functions of functions (torch.func): gradients, Jacobians, Hessians, batches, modules as functions of their parameters."""

from __future__ import annotations

import functools
from typing import Any

from .._core.tensor import Tensor
from ..nn.utils.stateless import _functional_call
from .derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from .mapping import vmap

_vmap = vmap  # by the name of torch._vmap_internals

__all__ = ["debug_unwrap", "functional_call", "functionalize",
           "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "replace_all_batch_norm_modules_",
           "stack_module_state", "vjp", "vmap"]


def functional_call(module: Any, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: Any = None, *, tie_weights: bool = True,
                    strict: bool = False) -> Any:
    """``module(*args, **kwargs)`` with the named tensors in the place of its parameters and buffers.

    Args:
        parameter_and_buffer_dicts: a dict from dotted names to tensors, or a tuple or list of such dicts, which share no name.
        args: the arguments, a tuple or a single one.
        tie_weights: give a value to every name that shares one parameter.
        strict: raise RuntimeError unless exactly the module's names are given.

    The module is as before afterwards, and what the call assigns to its names is in the dict, where one is given.  Raises ValueError for what
    is no dict, for a name in two dicts, and for different values of tied names.
    """
    parts = parameter_and_buffer_dicts if isinstance(parameter_and_buffer_dicts, (tuple, list)) else (parameter_and_buffer_dicts,)
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {[type(part) for part in parts]}")
    given: dict[str, Any] = parts[0] if len(parts) == 1 else {}  # a single one is told what the call assigns
    for part in parts if len(parts) != 1 else ():
        twice = sorted(given.keys() & part.keys())
        if twice:
            raise ValueError(f"{twice} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given.update(part)
    return _functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """`root`, whose layers of batch normalization keep no running statistics from now on: under `vmap` nothing may be changed in place."""
    from ..nn.norm import _BatchNorm
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of modules of one make, each stacked along a new first axis, for `vmap` over an ensemble.

    Raises RuntimeError for no models, or for models that differ in class or mode.
    """
    from .._core import ops
    stack: Any = ops.stack
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    stacked = {}
    for name in parameters[0]:
        each = [p[name] for p in parameters]
        made = stack(each).detach()
        stacked[name] = made.requires_grad_(any(p.requires_grad for p in each)) if made.meta.dtype.kind in "fc" else made
    return stacked, {name: stack([b[name] for b in buffers]) for name in buffers[0]}


def functionalize(func: Any, *, remove: str = "mutations") -> Any:
    """The function itself, as far as callers can tell: what writes in place is carried out as it is, and what it gives and changes is the same.

    Raises RuntimeError for another `remove` than "mutations" and "mutations_and_views".
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n     "
                           "remove='mutations': all inplace and out= operators will be removed from the program.\n     "
                           "remove='mutations_and_views': In addition to the above, all aliasing operators will be removed from the program.")

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)
    return call


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """The whole batch that a tensor under `vmap` is an example of, within several the outermost, or one level up without `recurse`: for a debugger to
    show.  Any other tensor is given back.  Raises TypeError for what is no tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"debug_unwrap(): expected a Tensor, got {type(tensor).__name__}")
    from .batching import Batched
    found: Any = tensor
    while isinstance(found, Batched):
        found = found.value
        if not recurse:
            break
    return found
