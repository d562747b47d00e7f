"""Functions of functions (torch.func): gradients, Jacobians, Hessians, batches, modules as functions of their parameters."""

from __future__ import annotations

from typing import Any

from ..nn.utils.stateless import functional_call
from .derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from .mapping import vmap

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "stack_module_state", "vjp", "vmap"]


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
