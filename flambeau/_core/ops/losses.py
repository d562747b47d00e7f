"""Losses over classes: negative log-likelihood and cross-entropy."""

from __future__ import annotations

from typing import Any

from .. import layout
from ..autograd import tape
from ..dtypes import int64
from ..kernels import expr as E
from ..kernels.programs import Map, Reduce, Rows
from ..kernels.specs import Check
from ..tensor import Tensor, empty
from . import launch, routines
from .casts import in_float32, to_dtype
from .checks import same_device
from .elementwise import saved_tensor
from .softmax import log_softmax
from .table import op

_programs: dict[Any, Any] = {}


def reduction_of(size_average: Any, reduce: Any, reduction: str) -> str:
    """PyTorch's older flags as a reduction.  Raises ValueError for a name that is none."""
    if size_average is not None or reduce is not None:
        if reduce is False:
            return "none"
        return "sum" if size_average is False else "mean"
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def _check(name: str, x: Tensor, target: Tensor, weight: Tensor | None) -> None:
    same_device(name, x, target, weight)
    if len(x.meta.shape) < 1:
        raise RuntimeError("input tensor should be 1D or 2D")
    batch = x.meta.shape[:1] + x.meta.shape[2:] if len(x.meta.shape) > 1 else ()
    if tuple(target.meta.shape) != tuple(batch):
        if len(x.meta.shape) > 1 and target.meta.shape[:1] != x.meta.shape[:1]:
            raise ValueError(f"Expected input batch_size ({x.meta.shape[0]}) to match target batch_size "
                             f"({target.meta.shape[0] if target.meta.shape else 0}).")
        raise RuntimeError(f"Expected target size {list(batch)}, got {list(target.meta.shape)}")
    if target.meta.dtype.kind not in "ui":
        raise RuntimeError(f"expected scalar type Long but found {target.meta.dtype.name.capitalize()}")
    classes = x.meta.shape[1] if len(x.meta.shape) > 1 else x.meta.shape[0]
    if weight is not None and tuple(weight.meta.shape) != (classes,):
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: "
                           f"{list(weight.meta.shape)}")


def _checked_classes(target: Tensor, classes: int, ignore: int) -> None:
    seen = target.__dict__.get("_classes")
    if seen == (target.store.version, classes, ignore):  # the same targets again: they were in range
        return
    m = target.meta
    if m.numel:
        routines.require(m.device, Check(tuple(m.shape), m.strides, 0, classes, ignore, "Target {} is out of bounds."), (target.ptr,))
    target.__dict__["_classes"] = (target.store.version, classes, ignore)  # only now: wrong ones are wrong again


def _picked(x: Tensor, target: Tensor, ignore: int) -> Tensor:
    """-x at each target's class, 0 where it is ignored; x is (N, C, ...), target (N, ...).  Recorded."""
    out = empty(target.meta.shape, x.meta.dtype, x.meta.device)
    n = len(target.meta.shape)
    key = ("pick", x.meta.dtype, n)
    program = _programs.get(key)
    if program is None:
        t = E.input(1, int64)
        ok = (t != E.scalar(0, int64)) & (t >= 0) & (t < E.scalar(1, int64))
        offset = E.where(ok, t, E.const(0, int64)) * E.scalar(2, int64)
        for i in range(n):
            offset = offset + E.coord(i) * E.scalar(3 + i, int64)
        value = -E.gather(0, offset, x.meta.dtype)
        program = _programs[key] = Map((E.where(ok, value, E.const(0, x.meta.dtype)),), (x.meta.dtype, int64), (int64,) * (3 + n))
    if out.meta.numel:
        steps = (x.meta.strides[0], *x.meta.strides[2:])
        launch.run(program, tuple(target.meta.shape), [out], [x, target], [out.meta.strides, (0,) * n, target.meta.strides],
                   (ignore, x.meta.shape[1], x.meta.strides[1], *steps), "nll_loss")
    return tape.record(out, _picked_back, (x,), (tuple(x.meta.shape), target, ignore), "NllLossBackward0")


def _picked_back(node: Any, g: Tensor) -> Any:
    shape, target, ignore = node[tape.SAVED]
    return (_spread(g, shape, target, ignore),)


def _spread(g: Tensor, shape: tuple[int, ...], target: Tensor, ignore: int) -> Tensor:
    """-g at each target's class, 0 elsewhere, in one pass over (N, C, ...).  Recorded."""
    out = empty(shape, g.meta.dtype, g.meta.device)
    key = ("spread", g.meta.dtype)
    program = _programs.get(key)
    if program is None:
        t = E.input(1, int64)
        hit = (t == E.input(2, int64)) & (t != E.scalar(0, int64))
        program = _programs[key] = Map((E.where(hit, -E.input(0, g.meta.dtype), E.const(0, g.meta.dtype)),), (g.meta.dtype, int64, int64), (int64,))
    if out.meta.numel:
        from .creation import arange
        classes = arange(shape[1], device=g.meta.device)
        over = [out.meta.strides, _with_classes(g.meta.strides), _with_classes(target.meta.strides), (0, 1) + (0,) * (len(shape) - 2)]
        launch.run(program, shape, [out], [g, target, classes], over, (ignore,), "nll_loss_backward")
    return tape.record(out, lambda node, gg: (_picked(gg, *node[tape.SAVED]),), (g,), (target, ignore), "NllLossBackwardBackward0")


def _with_classes(strides: tuple[int, ...]) -> tuple[int, ...]:
    return (strides[0], 0, *strides[1:])


@op(method=False, spaces=("nn.functional",))
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,  # noqa: A002
             reduce: Any = None, reduction: str = "mean") -> Tensor:
    """-weight[target] * input[target] for log-probabilities (N, C, ...) or (C,); "mean" divides by the weights used."""
    reduction = reduction_of(size_average, reduce, reduction)
    _check("nll_loss", input, target, weight)
    if len(input.meta.shape) == 1:
        out = nll_loss(input.unsqueeze(0), target.reshape(1), weight, ignore_index=ignore_index, reduction=reduction)
        return out.reshape(()) if reduction == "none" else out
    target = to_dtype(target, int64)
    _checked_classes(target, input.meta.shape[1], ignore_index)
    losses = _picked(input, target, ignore_index)
    if weight is None:
        if reduction == "none":
            return losses
        if reduction == "sum":
            return losses.sum()
        if _uses_all(target, ignore_index):
            return losses.mean()
        return losses.sum() / (target != ignore_index).sum()
    used = target != ignore_index
    w = weight[to_dtype(target.masked_fill(~used, 0), int64)] * used
    losses = losses * w
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / w.sum()


def _uses_all(target: Tensor, ignore: int) -> bool:
    """Whether surely no target is ignored: a negative mark can only be told from the values, which the CPU has at hand."""
    if target.meta.device.type != "cpu" or not target.meta.numel:
        return False
    seen = target.__dict__.get("_used")
    if seen is None or seen[:2] != (target.store.version, ignore):
        from .attributes import host_array
        seen = target.__dict__["_used"] = (target.store.version, ignore, not bool((host_array(target) == ignore).any()))
    return bool(seen[2])


@op(method=False, spaces=("nn.functional",))
def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,  # noqa: A002
                  reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """The cross-entropy of logits (N, C, ...) or (C,) with class indices (N, ...) or class probabilities (the input's shape).

    label_smoothing mixes the targets with the uniform distribution (C. Szegedy et al., "Rethinking the Inception
    architecture", 2015).
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    axis = 0 if len(input.meta.shape) == 1 else 1
    if target.meta.shape == input.meta.shape and target.meta.dtype.is_floating_point:
        return _with_probabilities(input, target, weight, reduction, label_smoothing, axis)
    _check("cross_entropy", input, target, weight)
    if (len(input.meta.shape) == 2 and weight is None and not label_smoothing and input.meta.dtype.kind == "f" and input.meta.numel
            and not (input.node is not None and tape.anomaly.on)):
        return _fused(input, to_dtype(target, int64), ignore_index, reduction)
    logs = log_softmax(input, axis)
    if not label_smoothing:
        return nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    return _smoothed(logs, to_dtype(target, int64), weight, ignore_index, reduction, label_smoothing, axis)


@op(method=False, spaces=("nn.functional",))
def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None,  # noqa: A002
                         reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0, options: Any = None) -> Tensor:
    """`cross_entropy` of input (in,) or (N, in) times linear_weight (C, ..., in) transposed, plus linear_bias (C, ...).

    The target holds class indices (N, ...) or probabilities (N, C, ...).  With `options` (nn.LinearCrossEntropyOptions) the
    logits of a few rows exist at a time, made again for the backward pass.
    """
    same_device("linear_cross_entropy", input, linear_weight, target, linear_bias, weight)
    if ignore_index is not None and target.meta.dtype.is_floating_point:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    outer = tuple(linear_weight.meta.shape[:-1])
    if len(outer) > 1 and len(input.meta.shape) < 2:
        raise RuntimeError(f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.meta.shape)} requires batched input, (N, "
                           f"{linear_weight.meta.shape[-1]}), got unbatched input with shape {tuple(input.meta.shape)}")
    rest = (weight, -100 if ignore_index is None else ignore_index, reduction, label_smoothing)
    if options is None:
        return _of_rows(input, target, linear_weight, linear_bias, *rest)
    if not hasattr(options, "in_pieces"):
        raise TypeError(f"linear_cross_entropy(): argument 'options' must be nn.LinearCrossEntropyOptions or None, not {type(options).__name__}")
    made: Tensor = in_float32(options.in_pieces)(input, target, linear_weight, linear_bias, *rest, _of_rows)
    return made


def _of_rows(rows: Tensor, target: Tensor, linear_weight: Tensor, bias: Tensor | None, weight: Tensor | None, ignore: int, reduction: str,
             smoothing: float) -> Tensor:
    logits: Any = rows @ linear_weight.reshape(-1, linear_weight.meta.shape[-1]).t()
    if bias is not None:
        logits = logits + bias.reshape(-1)
    made: Tensor = cross_entropy(logits.reshape(*rows.meta.shape[:-1], *linear_weight.meta.shape[:-1]), target, weight, ignore_index=ignore,
                                 reduction=reduction, label_smoothing=smoothing)
    return made


def _fused(x: Tensor, target: Tensor, ignore: int, reduction: str) -> Tensor:
    """Logits (N, C) in one kernel: each row's loss and log-sum-exp; the gradient in another."""
    _checked_classes(target, x.meta.shape[1], ignore)
    n = x.meta.shape[0]
    d, wide = x.meta.dtype, x.meta.dtype.opmath
    program = _programs.get(("rows", d))
    if program is None:
        v, t = E.cast(E.input(0, d), wide), E.input(1, int64)
        top, total, own = (E.acc(i, wide) for i in range(3))
        zero = E.const(0, wide)
        lse = E.log(total) + top
        program = _programs["rows", d] = Rows((
            ("reduce", "max", v), ("reduce", "sum", E.exp(v - top)), ("reduce", "sum", E.where(E.coord(-1) == t, v, zero)),
            ("row", 0, E.cast(E.where(t == E.scalar(0, int64), zero, lse - own), d)), ("row", 1, lse)), (d, int64), (int64,))
    losses, lse = empty((n,), d, x.meta.device), empty((n,), wide, x.meta.device)  # type: ignore[assignment]
    launch.run(program, tuple(x.meta.shape), [losses, lse], [x, target], [(1, 0), (1, 0), x.meta.strides, (target.meta.strides[0], 0)], (ignore,),  # type: ignore[list-item]
               "cross_entropy")
    if reduction == "mean" and x.meta.device.type != "cpu":
        mean, count = _mean_of(losses, target, ignore)
        return tape.record(mean, _mean_back, (x,), (x, x.store.version, target, lse, ignore, count), "CrossEntropyBackward0")
    tape.record(losses, _fused_back, (x,), (x, x.store.version, target, lse, ignore), "CrossEntropyBackward0")
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if _uses_all(target, ignore) else losses.sum() / (target != ignore).sum()


def _mean_of(losses: Tensor, target: Tensor, ignore: int) -> tuple[Tensor, Tensor]:
    """The mean of the losses that are not ignored, and how many those are, by one launch; outside the tape."""
    d, wide = losses.meta.dtype, losses.meta.dtype.opmath
    program = _programs.get(("mean", d))
    if program is None:
        used = E.cast(E.input(1, int64) != E.scalar(0, int64), int64)
        total, count = E.acc(0, wide), E.acc(1, int64)
        program = _programs["mean", d] = Reduce((E.cast(E.input(0, d), wide), used), ("sum", "sum"),
                                                (E.cast(total / E.cast(count, wide), d), count), (d, int64), (int64,))
    mean, many = empty((), d, losses.meta.device), empty((), int64, losses.meta.device)
    launch.run(program, tuple(losses.meta.shape), [mean, many], [losses, target], [(), (), losses.meta.strides, target.meta.strides], (ignore,), "mean")
    return mean, many


def _fused_back(node: Any, g: Tensor) -> Any:
    x, version, target, lse, ignore = node[tape.SAVED]
    saved_tensor(x, version, node)
    return (_slopes(x, target, lse, ignore, g, None),)


def _mean_back(node: Any, g: Tensor) -> Any:
    x, version, target, lse, ignore, count = node[tape.SAVED]
    saved_tensor(x, version, node)
    return (_slopes(x, target, lse, ignore, g, count),)


def _slopes(x: Tensor, target: Tensor, lse: Tensor, ignore: int, g: Tensor, count: Tensor | None) -> Tensor:
    """The logits' gradient; g belongs to each row's loss, or, where `count` says of how many, to their mean."""
    if tape.recording(g, x):
        hot = (target.unsqueeze(1) == _classes(x)) & (target != ignore).unsqueeze(1)
        each = g if count is None else (g / count).expand(target.meta.shape)
        return (x.softmax(1) - hot) * (each * (target != ignore)).unsqueeze(1)
    d, wide = x.meta.dtype, x.meta.dtype.opmath
    key = ("rows back" if count is None else "mean back", d)
    program = _programs.get(key)
    if program is None:
        v, t, s = E.cast(E.input(0, d), wide), E.input(1, int64), E.input(2, wide)
        hit = E.where(E.coord(-1) == t, E.const(1, wide), E.const(0, wide))
        factor = E.cast(E.input(3, d), wide)
        if count is not None:
            factor = factor / E.cast(E.input(4, int64), wide)
        slope = E.where(t == E.scalar(0, int64), E.const(0, wide), (E.exp(v - s) - hit) * factor)
        program = _programs[key] = Map((E.cast(slope, d),), (d, int64, wide, d, *([int64] if count is not None else [])), (int64,))
    out = empty(x.meta.shape, d, x.meta.device)
    ins, over = [x, target, lse, g], [out.meta.strides, x.meta.strides, (target.meta.strides[0], 0), (1, 0), (g.meta.strides[0] if count is None else 0, 0)]
    if count is not None:
        ins.append(count)
        over.append((0, 0))
    launch.run(program, tuple(x.meta.shape), [out], ins, over, (ignore,), "cross_entropy_backward")
    return out


def _classes(x: Tensor) -> Tensor:
    from .creation import arange
    made: Tensor = arange(x.meta.shape[1], device=x.meta.device)
    return made


def _smoothed(logs: Tensor, target: Tensor, weight: Tensor | None, ignore: int, reduction: str, smoothing: float, axis: int) -> Tensor:
    hard = nll_loss(logs, target, weight, ignore_index=ignore, reduction="none")
    used = target != ignore
    classes = logs.meta.shape[axis]
    if weight is None:
        even = -logs.sum(axis)
    else:
        even = -(logs * weight.reshape([-1 if i == axis else 1 for i in range(len(logs.meta.shape))])).sum(axis)
    even = even * used
    losses = hard * (1.0 - smoothing) + even * (smoothing / classes)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if weight is None:
        return losses.sum() / used.sum()
    return losses.sum() / (weight[target.masked_fill(~used, 0)] * used).sum()


def _with_probabilities(x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float, axis: int) -> Tensor:
    same_device("cross_entropy", x, target, weight)
    classes = x.meta.shape[axis]
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / classes
    products = log_softmax(x, axis) * target
    if weight is not None:
        products = products * weight.reshape([-1 if i == axis else 1 for i in range(len(x.meta.shape))])
    losses = -products.sum(axis)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.sum() / max(1, layout.numel(x.meta.shape) // max(classes, 1))


