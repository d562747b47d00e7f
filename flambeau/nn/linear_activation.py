"""Fuses a linear layer with the activation after it (`ops.linear_activation`), where the program cannot see a difference.

Each call checks modules, hooks and parameters again, because they may change between calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core.engine.interpreters import watched
from .._core.ops.linear_activation import linear_with_activation, serves
from .._core.tensor import Tensor
from . import functional as F
from . import hooks as _hooks
from .activation import GELU, ReLU
from .linear import Linear
from .module import Module
from .parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

# where a program has replaced one of these, or an interpreter looks on, they are called
_OWN: tuple[Any, ...] = (F.linear, F.relu, F.gelu)
_CALLS = (Module.__call__, Linear.forward, ReLU.forward, GELU.forward)
_WEIGHTS = (Parameter, Tensor)
_WORTH, _GAINS = 1 << 13, 1 << 15  # elements of an input, and of a result, on the CPU: looking costs a microsecond


def may(x: Any) -> bool:
    """Whether a layer with this input may be fused with its activation."""
    return type(x) is Tensor and x.meta.plain and (x.meta.numel >= _WORTH or x.meta.device.type == "cuda")


def in_turn(modules: Sequence[Any], x: Any) -> Any:
    """The result of `x` passed through the modules in order."""
    i, n = 0, len(modules)
    while i < n:
        module = modules[i]
        if type(module) is Linear and i + 1 < n and type(modules[i + 1]) in (ReLU, GELU):
            made = _pair(module, modules[i + 1], x, i + 2 < n and type(modules[i + 2]) is Linear)
            if made is not None:
                x = made
                i += 2
                continue
        x = module(x)
        i += 1
    return x


def fed_forward(layer: Any, activation: Any, x: Any, followed: bool) -> Any:
    """activation(layer(x)), where the activation may be a function.  followed: another layer reads the result."""
    if may(x):
        made = _pair(layer, activation, x, followed) if type(layer) is Linear else None
        if made is not None:
            return made
    return activation(layer(x))


def _pair(layer: Linear, activation: Any, x: Any, followed: bool) -> Tensor | None:
    """activation(layer(x)) as one operation; None where it must be two."""
    kind = type(activation)
    if activation is _OWN[1] or kind is ReLU:
        name = "relu"
    elif kind is GELU and activation.approximate == "tanh":
        name = "gelu"
    else:
        return None
    on_cpu = x.meta.device.type == "cpu"
    if not may(x) or not serves(name, on_cpu) or _hooks.active:
        return None
    if on_cpu and x.meta.numel // max(layer.in_features, 1) * layer.out_features < _GAINS:
        return None
    if any(watched(f.__operation__) for f in _OWN):
        return None
    if _OWN != (F.linear, F.relu, F.gelu) or _CALLS != (Module.__call__, Linear.forward, ReLU.forward, GELU.forward):
        return None
    own = layer.__dict__
    if not _bare(own) or (activation is not _OWN[1] and not _bare(activation.__dict__)):
        return None
    parameters = own["_parameters"]
    weight, bias = parameters.get("weight"), parameters.get("bias")
    if type(weight) not in _WEIGHTS or type(bias) not in _WEIGHTS or not (weight.meta.plain and bias.meta.plain):
        return None
    return linear_with_activation(x, weight, bias, name, followed)


def _bare(own: dict[str, Any]) -> bool:
    """Whether a module (its attributes) has no hooks and no forward of its own."""
    return not (own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"] or "forward" in own)
