"""A module's call whose backward pass gives each sample's gradient (torch.nn.utils._per_sample_grad).

Each sample is called with parameters of its own, which share the module's memory: a batch of calls by `vmap`, so any module serves whose samples
do not ask about one another.
"""

from __future__ import annotations

import functools
from typing import Any

from ..._core.tensor import Tensor
from ...utils import _pytree
from ..module import Module


def _samples(values: list[Any], dim: int) -> int:
    """How many samples the tensors have.  Raises RuntimeError where they do not agree, or there are none."""
    found: int | None = None
    for value in values:
        if isinstance(value, Tensor):
            if found is not None and found != value.shape[dim]:
                raise RuntimeError(f"When computing batch size, found at least one input with batch size {found} and one with batch size "
                                   f"{value.shape[dim]}. Please specify it explicitly using the batch size kwarg in call_for_per_sample_grads")
            found = value.shape[dim]
    if found is None:
        raise RuntimeError("Unable to find a tensor in the passed args and kwargs. They may not be pytree-able and so ExpandedWeights cannot compute "
                           "the batch size from the inputs. Please specify it explicitly")
    return found


def _of_each(parameter: Any, count: int, scale: int) -> Any:
    """A leaf (count, *shape) that shares the parameter's memory and hands its gradient to `parameter.grad_sample`."""
    leaf = parameter.detach().expand(count, *parameter.shape).requires_grad_()

    def hand_over(leaf: Any) -> None:
        found = leaf.grad * scale if scale != 1 else leaf.grad
        leaf.grad = None
        before = getattr(parameter, "grad_sample", None)
        parameter.grad_sample = found if before is None else before + found
    leaf.register_post_accumulate_grad_hook(hand_over)
    return leaf


def call_for_per_sample_grads(module: Any, *, batch_size: int | None = None, loss_reduction: str = "sum", batch_first: bool = True) -> Any:
    """A function like ``module.forward`` after whose backward pass each parameter has `grad_sample`, (samples, *its shape), and no `grad`.

    Args:
        batch_size: the number of samples; None: that of all tensors among the arguments.
        loss_reduction: "sum" or "mean", how the loss joins the samples; gradients by a mean are multiplied by the number of samples.
        batch_first: whether samples lie along the first dimension, or the second.

    Raises RuntimeError for arguments that do not fit, and for a parameter that has a `grad_sample` already.
    """
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}")
    if not isinstance(module, Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if not (batch_size is None or isinstance(batch_size, int)):
        raise RuntimeError(f"Batch size passed must be None or an integer, got {type(batch_size).__name__}")
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}")
    for weight in module.parameters():
        if getattr(weight, "grad_sample", None) is not None:
            raise RuntimeError("Current Expanded Weights accumulates the gradients, which will be incorrect for multiple calls without clearing gradients. "
                               f"Please clear out the grad_sample parameter of {weight} first")
    dim = 0 if batch_first else 1

    @functools.wraps(module.forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        from ...func import functional_call, vmap
        values, form = _pytree.tree_flatten((args, kwargs))
        count = batch_size if batch_size is not None else _samples(values, dim)
        each = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.dim() > dim and v.shape[dim] == count]
        named = dict(module.named_parameters())
        own = {name: _of_each(p, count, count if loss_reduction == "mean" else 1) for name, p in named.items() if p.requires_grad}

        def one(own: dict[str, Any], *samples: Any) -> Any:
            given = list(values)
            for i, sample in zip(each, samples):
                given[i] = sample.unsqueeze(dim)
            some, named = _pytree.tree_unflatten(given, form)
            return _pytree.tree_map(lambda y: y.squeeze(dim) if isinstance(y, Tensor) else y, functional_call(module, own, some, named))
        return vmap(one, in_dims=(0, *[dim] * len(each)), out_dims=dim, randomness="different")(own, *[values[i] for i in each])

    return call


__all__ = ["call_for_per_sample_grads"]
