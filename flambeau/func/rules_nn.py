"""Rules of `vmap` for layers and losses: the batch becomes rows, channels or groups of one call."""

from __future__ import annotations

from typing import Any

from .._core import ops as _ops
from .._core.tensor import Tensor
from ..nn import functional as F
from .batching import Level, members
from .rules import bound, kind, name_of

ops: Any = _ops


@kind("layer")
def _linear(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or given.get("out") is not None:
        return NotImplemented
    x, weight, bias = given["input"], given["weight"], given.get("bias")
    if not level.has(weight) and not level.has(bias):
        return level.wrap(level.run(func, x.value, weight, bias))
    made = x @ (weight.transpose(-2, -1) if weight.ndim == 2 else weight)
    return made if bias is None else made + bias


@kind("similarity")
def _cosine(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or not isinstance(given.get("dim", 1), int):
        return NotImplemented
    rank = max(given["x1"].ndim, given["x2"].ndim)
    d = given.get("dim", 1)
    made = level.run(func, level.whole(given["x1"], rank), level.whole(given["x2"], rank), d if d < 0 else d + 1, given.get("eps", 1e-8))
    return level.wrap(made)


@kind("convolution 1d", 1)
@kind("convolution 2d", 2)
@kind("convolution 3d", 3)
def _convolved(axes: int, level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    """Images in the batch are more images; filters of each example are groups."""
    given = bound(func, args, kwargs)
    if given is None:
        return NotImplemented
    x, weight, bias = given.pop("input"), given.pop("weight"), given.pop("bias", None)
    size = level.size
    alone = x.ndim == axes + 1
    if not level.has(weight):
        made = level.spread(x)
        made = made if alone else made.flatten(0, 1)
        made = level.run(func, made, weight, None, **given)
        made = made if alone else made.unflatten(0, (size, -1))
    else:
        made = level.spread(x)
        made = made.unsqueeze(1) if alone else made  # (B, N, C, ...)
        groups = given.pop("groups", 1)
        made = made.transpose(0, 1).flatten(1, 2)  # (N, B C, ...)
        made = level.run(func, made, weight.value.flatten(0, 1), None, groups=groups * size, **given)
        made = made.unflatten(1, (size, -1)).transpose(0, 1)
        made = made.squeeze(1) if alone else made
    if bias is not None:
        shift: Any = level.whole(bias)
        made = made + shift.reshape((*shift.shape, *(1,) * axes) if not level.has(bias) or alone else (size, 1, -1, *(1,) * axes))
    return level.wrap(made)


@kind("lookup")
def _embedded(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or given.get("max_norm") is not None:
        return NotImplemented
    if not level.has(given["weight"]):
        index = given.pop("input").value
        return level.wrap(level.run(func, index, **given))
    if given.get("padding_idx") is not None:
        return NotImplemented
    index, weight = level.spread(given["input"]), given["weight"].value
    start = ops.arange(level.size, device=index.device).reshape(-1, *(1,) * (index.ndim - 1)) * weight.shape[1]
    return level.wrap(level.run(func, index + start, weight.flatten(0, 1)))


@kind("row norm")
def _normed(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None:
        return NotImplemented
    x, weight, bias = given.pop("input"), given.pop("weight", None), given.pop("bias", None)
    if not level.has(x):
        return NotImplemented
    if not level.has(weight) and not level.has(bias):
        extra = {"weight": weight} | ({"bias": bias} if name_of(func) == "layer_norm" else {})
        return level.wrap(level.run(func, x.value, **given, **extra))
    made = level.wrap(level.run(func, x.value, **given))
    made = made if weight is None else made * weight
    return made if bias is None else made + bias


@kind("group norm")
def _grouped(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or any(given.get(k) is not None for k in ("running_mean", "running_var")):
        return NotImplemented
    x, weight, bias = given.pop("input"), given.pop("weight", None), given.pop("bias", None)
    if not level.has(x):
        return NotImplemented
    made = level.wrap(level.run(func, x.value.flatten(0, 1), **given).unflatten(0, (level.size, -1)))
    shape = (1, -1, *(1,) * (x.ndim - 2))
    made = made if weight is None else made * weight.reshape(shape)
    return made if bias is None else made + bias.reshape(shape)


@kind("batch norm")
def _batch_normed(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None:
        return NotImplemented
    x = given["input"]
    mean: Any = given.get("running_mean")
    var: Any = given.get("running_var")
    eps = given.get("eps", 1e-5)
    shape = (1, -1, *(1,) * (x.ndim - 2))
    if given.get("training", False):
        if mean is not None:
            if not (level.has(mean) and level.has(var)):
                raise RuntimeError("vmap: batch_norm with running statistics that all examples share would write each example's into them: use "
                                   "track_running_stats=False, stack the modules' buffers, or another norm")
            return NotImplemented
        axes = tuple(i for i in range(x.ndim) if i != 1)
        var, mean = ops.var_mean(x, axes, correction=0)
    made = (x - mean.reshape(shape)) * (var.reshape(shape) + eps).rsqrt()
    weight, bias = given.get("weight"), given.get("bias")
    made = made if weight is None else made * weight.reshape(shape)
    return made if bias is None else made + bias.reshape(shape)


@kind("images 1d", 1)
@kind("images 2d", 2)
@kind("images 3d", 3)
def _pooled(axes: int, level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    """Functions of (C, ...) or (N, C, ...) with this many axes of sizes: the batch is more images."""
    x: Any = args[0] if args else None
    if not level.has(x):
        return NotImplemented
    if x.ndim == axes + 1:
        return level.wrap(level.run(func, x.value, *args[1:], **kwargs))
    made = level.run(func, x.value.flatten(0, 1), *args[1:], **kwargs)
    if isinstance(made, tuple):
        return level.wrap(tuple(t.unflatten(0, (level.size, -1)) for t in made))
    return level.wrap(made.unflatten(0, (level.size, -1)))


@kind("batches of images")
def _folded(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    """Functions of (N, ...) images: the batch is more of them."""
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    if not all(level.has(t) and t.ndim >= 3 for t in tensors):
        return NotImplemented

    def flat(x: Any) -> Any:
        return x.value.flatten(0, 1) if level.has(x) else x
    return level.wrap(level.run(func, *[flat(x) for x in args], **{k: flat(v) for k, v in kwargs.items()}).unflatten(0, (level.size, -1)))


@kind("pad")
def _padded(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None:
        return NotImplemented
    x = given.pop("input")
    if given.get("mode", "constant") == "constant":
        return level.wrap(level.run(func, x.value, **given)) if len(given["pad"]) <= 2 * x.ndim else NotImplemented
    if x.ndim == len(given["pad"]) // 2 + 1:
        return level.wrap(level.run(func, x.value, **given))
    return level.wrap(level.run(func, x.value.flatten(0, 1), **given).unflatten(0, (level.size, -1)))


@kind("attention")
def _attended(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or given.get("dropout_p", 0.0) or given.get("enable_gqa"):
        return NotImplemented
    q, k, v = (level.spread(given.pop(n)) for n in ("query", "key", "value"))
    mask = given.pop("attn_mask", None)
    if isinstance(mask, Tensor):
        mask = level.whole(mask, q.ndim - 1)
    return level.wrap(level.run(func, q, k, v, mask, **given))


@kind("class loss")
def _classified(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    """Each element's loss for all examples together; then each example's mean or sum."""
    given = bound(func, args, kwargs)
    if given is None or any(given.get(k) is not None for k in ("weight", "size_average", "reduce")):
        return NotImplemented
    x, target = given.pop("input"), given.pop("target")
    reduction = given.pop("reduction", "mean")
    alone = x.ndim == 1
    values, targets = level.spread(x), level.spread(target)
    each = level.run(func, values if alone else values.flatten(0, 1), targets if alone else targets.flatten(0, 1), reduction="none", **given)
    each = level.wrap(each if alone else each.unflatten(0, (level.size, -1)))
    if reduction == "none" or alone and reduction == "sum":
        return each
    if reduction == "sum":
        return each.sum()
    if target.meta.dtype.kind == "f":
        return each.sum() / (x.shape[0] if not alone else 1) if alone or x.ndim == 2 else each.sum() / (each.numel())
    counted = (target != given.get("ignore_index", -100)).sum()
    return each.sum() / counted


@kind("loss")
def _measured(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    """Losses element by element: those of all examples, then each example's mean or sum."""
    given = bound(func, args, kwargs)
    if given is None or given.get("size_average") is not None or given.get("reduce") is not None:
        return NotImplemented
    reduction = given.pop("reduction", "mean")
    tensors = [x for x in given.values() if isinstance(x, Tensor)]
    rank = max(t.ndim for t in tensors)
    each = level.wrap(level.run(func, **{k: level.whole(v, rank) for k, v in given.items()}, reduction="none"))
    if reduction == "none":
        return each
    if reduction == "batchmean":
        return each.sum() / (each.shape[0] if each.ndim else 1)
    return each.sum() if reduction == "sum" else each.mean()


@kind("one hot")
def _hot(level: Level, func: Any, args: Any, kwargs: Any) -> Any:
    given = bound(func, args, kwargs)
    if given is None or any(True for _ in members(given.get("num_classes"))):
        return NotImplemented
    if given.get("num_classes", -1) == -1:
        from .batching import DataDependent
        raise DataDependent("vmap: one_hot needs num_classes: what it would find in the values differs between examples")
    return level.wrap(F.one_hot(given["input"].value, given["num_classes"]))
