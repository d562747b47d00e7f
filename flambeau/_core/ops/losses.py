"""Losses over classes: negative log-likelihood and cross-entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..autograd import tape
from ..dtypes import int64, title
from ..kernels import expr as E
from ..kernels import formulas as F
from ..kernels.programs import Map
from ..kernels.specs import Check
from ..runtime import capture
from ..tensor import Tensor, empty
from . import launch, routines
from .casts import in_float32, to_dtype
from .checks import of_kinds, same_device, without_gradient
from .row_places import Places, along
from .rowwise import Rowwise
from .table import op

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        raise ValueError("Expected 1 or more dimensions (got 0): input is of shape (C,), (N, C) or (N, C, d1, ...)")
    batch = x.meta.shape[:1] + x.meta.shape[2:] if len(x.meta.shape) > 1 else ()
    if tuple(target.meta.shape) != tuple(batch):
        if len(x.meta.shape) > 1 and target.meta.shape[:1] != x.meta.shape[:1]:
            raise ValueError(f"Expected input batch_size ({x.meta.shape[0]}) to match target batch_size "
                             f"({target.meta.shape[0] if target.meta.shape else 0}).")
        if len(x.meta.shape) == 2:
            raise RuntimeError(f"0D or 1D target tensor expected, multi-target not supported: got {list(target.meta.shape)} for an input of "
                               f"{list(x.meta.shape)}")
        raise RuntimeError(f"Expected target size {list(batch)}, got {list(target.meta.shape)}")
    of_kinds("log_softmax_lastdim_kernel_impl" if name == "cross_entropy" else name, x, "f")
    if target.meta.dtype.name not in ("int64", "uint8"):
        raise RuntimeError(f"{name}: expected target dtype to be Long or Byte, but got {title(target.meta.dtype)}")
    classes = x.meta.shape[1] if len(x.meta.shape) > 1 else x.meta.shape[0]
    if weight is not None and tuple(weight.meta.shape) != (classes,):
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: "
                           f"{list(weight.meta.shape)}")


def _checked_classes(target: Tensor, classes: int, ignore: int) -> None:
    seen = target.__dict__.get("_classes")
    if seen == (target.store.version, classes, ignore) and not capture.active:  # the same targets again: they were in range
        return
    m = target.meta
    if m.numel:
        routines.require(m.device, Check(tuple(m.shape), m.strides, 0, classes, ignore, "Target {} is out of bounds.", name="target check"), (target.ptr,))
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
    return tape.record(out, _picked_back, (x,), (tuple(x.meta.shape), tape.keep(target), ignore), "NllLossBackward0")


def _picked_back(node: Any, g: Tensor) -> Any:
    shape, held, ignore = node[tape.SAVED]
    (target,) = tape.kept(node, held)
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
        from .ranges import arange
        classes = arange(shape[1], device=g.meta.device)
        over = [out.meta.strides, _with_classes(g.meta.strides), _with_classes(target.meta.strides), (0, 1) + (0,) * (len(shape) - 2)]
        launch.run(program, shape, [out], [g, target, classes], over, (ignore,), "nll_loss_backward")
    return tape.record(out, lambda node, gg: (_picked(gg, tape.kept(node, node[tape.SAVED])[0], ignore),), (g,), tape.keep(target), "NllLossBackwardBackward0")


def _with_classes(strides: tuple[int, ...]) -> tuple[int, ...]:
    return (strides[0], 0, *strides[1:])


@op(method=False, spaces=("nn.functional",), autocast="full", batch="class loss")
def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,  # noqa: A002
             reduce: Any = None, reduction: str = "mean") -> Tensor:
    """-weight[target] * input[target] for log-probabilities (N, C, ...) or (C,); "mean" divides by the weights used."""
    reduction = reduction_of(size_average, reduce, reduction)
    _check("nll_loss", input, target, weight)
    without_gradient("nll_loss_forward", weight=weight)
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
        return losses.sum() / (target != ignore_index).sum()
    used = target != ignore_index
    w = weight[to_dtype(target.masked_fill(~used, 0), int64)] * used
    losses = losses * w
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / w.sum()


@op(method=False, spaces=("nn.functional",), autocast="full", batch="class loss")
def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,  # noqa: A002
                  reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """The cross-entropy of logits (N, C, ...) or (C,) with class indices (N, ...) or class probabilities (the input's shape).

    label_smoothing mixes the targets with the uniform distribution (C. Szegedy et al., "Rethinking the Inception
    architecture", 2015).
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    smooth = (("smooth", bool(label_smoothing)), ("how", reduction))
    if target.meta.shape == input.meta.shape and target.meta.dtype.is_floating_point:
        same_device("cross_entropy", input, target, weight)
        _has_logits(input)
        return _OF_PROBABILITIES((input, target, weight), (float(label_smoothing),), (reduction,), smooth)[0]
    _check("cross_entropy", input, target, weight)
    without_gradient("nll_loss_forward", weight=weight)
    _has_logits(input)
    target = to_dtype(target, int64)
    _checked_classes(target, input.meta.shape[0 if len(input.meta.shape) == 1 else 1], ignore_index)
    return _OF_CLASSES((input, target, weight), (ignore_index, float(label_smoothing)), (reduction,), smooth)[0]


def _has_logits(x: Tensor) -> None:
    if x.meta.dtype.kind != "f":
        raise NotImplementedError(f'"log_softmax_lastdim_kernel_impl" not implemented for \'{dtypes.title(x.meta.dtype)}\'')


def _logits(x: E.Expr) -> E.Expr:
    """log(sum(exp(x))) of a row's logits."""
    top = F.fixed(F.fold("max", x, "c"))
    return E.log(F.total(E.exp(x - top), "c")) + top


def _of_classes(x: E.Expr, target: E.Expr, w: E.Expr | None, ignore: E.Expr, smoothing: E.Expr, smooth: bool, how: str) -> Any:
    """A row's loss is -log softmax(x)[target], weighed by the class; the targets mixed with all classes alike where `smooth`."""
    lse, zero = _logits(x), E.const(0, x.dtype)
    hit, used = F.index("c") == target, target != ignore
    loss = lse - F.total(E.where(hit, x, zero), "c")
    own = None if w is None else F.total(E.where(hit, w, zero), "c")
    if own is not None:
        loss = loss * own
    if smooth:
        each = lse - x if w is None else (lse - x) * w
        loss = loss * (1.0 - smoothing) + F.total(each, "c") * (smoothing / F.extent("c", x.dtype))
    loss = E.where(used, loss, zero)
    if how != "mean":
        return (loss if how == "none" else F.total(loss, "r"),), (lse,)
    count = E.cast(F.total(E.cast(used, int64), "r"), x.dtype) if own is None else F.total(E.where(used, own, zero), "r")
    return (F.total(loss, "r") / count,), (lse, count)


def _of_probabilities(x: E.Expr, target: E.Expr, w: E.Expr | None, smoothing: E.Expr, smooth: bool, how: str) -> Any:
    lse = _logits(x)
    if smooth:
        target = target * (1.0 - smoothing) + smoothing / F.extent("c", x.dtype)
    each = (lse - x) * target
    loss = F.total(each if w is None else each * w, "c")
    return (loss if how == "none" else F.total(loss, "r") if how == "sum" else F.mean(loss, "r"),), (lse,)


def _classes_of(metas: Any, how: str) -> Places:
    """The input is (N, C, ...) or (C,); classes are "c", and a loss belongs to each place of the others."""
    sizes, whole, short = along(metas[0].shape, (0 if len(metas[0].shape) == 1 else 1,))
    target = whole if metas[1] is not None and metas[1].dtype.is_floating_point else short
    return Places(sizes, (whole, target, ((("c", 0),),)), (short if how == "none" else (),))


class _Loss:
    """A loss of rows for each reduction, which says along which axes its result varies."""

    def __init__(self, name: str, axes: str, formula: Any, **more: Any) -> None:
        self.forms = {how: Rowwise(name, f"{axes} -> {'r' if how == 'none' else ''}", formula, _classes_of, grad_name="CrossEntropyBackward0", **more)
                      for how in ("none", "sum", "mean")}

    def __call__(self, operands: Any, numbers: Any, where: Any, consts: Any) -> list[Tensor]:
        return self.forms[where[0]](operands, numbers, where, consts)


_OF_CLASSES = _Loss("cross_entropy", "rc, r, c", _of_classes, numbers="if", apart=(1,))
_OF_PROBABILITIES = _Loss("cross_entropy", "rc, rc, c", _of_probabilities, numbers="f")


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


def _excess(own: E.Expr, other: E.Expr, counted: E.Expr) -> Any:
    zero = E.const(0, own.dtype)
    over = 1 - own + other
    summed = F.total(E.where((over > zero) & (counted > zero), over, zero), "i")
    return (summed,), ()


def _rows_of_two(metas: Sequence[Any]) -> Places:
    """Rows r of targets j and classes i."""
    r, j, i = ((("r", 0),), (("j", 0),), (("i", 0),))
    rows, targets = metas[0].shape
    return Places({"r": (rows,), "j": (targets,), "i": (metas[1].shape[1],)}, ((r, j), (r, i), (r, i)), ((r, j),))


# Σ over i of max(0, 1 - own[r, j] + other[r, i]), where counted[r, i] is above 0
MARGIN_SUMS = Rowwise("multilabel_margin_loss", "rj, ri, ri -> rj", _excess, _rows_of_two, fused="")
