"""Gradients of convolutions by hand (torch.nn.grad): in the input, or in the weight, of what `conv1d` ... `conv3d` gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._core import ops as _ops
from .._core.autograd.mode import enable_grad
from ..autograd import grad as _slopes
from .sizes import ntuple

ops: Any = _ops


def _forms(n: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    convolve, back = getattr(ops, f"conv{n}d"), getattr(ops, f"conv_transpose{n}d")
    name = f"conv{n}d"

    def to_input(input_size: Any, weight: Any, grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
        size = tuple(input_size)[-n:]
        if len(input_size) not in (n + 1, n + 2):
            raise ValueError(f"{name}_input: input_size must have {n + 1} or {n + 2} elements, got {len(input_size)}")
        s, p, d = (ntuple(v, n) for v in (stride, padding, dilation))
        # what a transposed convolution adds at the far end: the places of the input that the last step did not reach
        rest = [size[i] - ((grad_output.shape[-n + i] - 1) * s[i] - 2 * p[i] + d[i] * (weight.shape[-n + i] - 1) + 1) for i in range(n)]
        if any(r < 0 or r >= max(s[i], d[i]) for i, r in enumerate(rest)):
            raise ValueError(f"{name}_input: no input of the size {tuple(input_size)} gives an output of the size {tuple(grad_output.shape)}")
        return back(grad_output, weight, None, s, p, rest, groups, d)

    def to_weight(input: Any, weight_size: Any, grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:  # noqa: A002
        with enable_grad():
            weight = input.new_zeros(tuple(weight_size)).requires_grad_()
            made = convolve(input.detach(), weight, None, stride, padding, dilation, groups)
            return _slopes(made, weight, grad_output)[0]
    to_input.__name__, to_weight.__name__ = f"{name}_input", f"{name}_weight"
    to_input.__doc__ = f"The gradient in the input, of the size `input_size`, of a `{name}` whose output has the gradient `grad_output`."
    to_weight.__doc__ = f"The gradient in the weight, of the size `weight_size`, of a `{name}` whose output has the gradient `grad_output`."
    return to_input, to_weight


conv1d_input, conv1d_weight = _forms(1)
conv2d_input, conv2d_weight = _forms(2)
conv3d_input, conv3d_weight = _forms(3)

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]
