"""Softmax and its logarithm: one pass over a row for the maximum, one for the sum, one for the result, in one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import layout
from ..autograd import tape
from ..kernels import expr as E
from ..kernels.programs import Rows
from ..runtime import door
from ..tensor import Tensor, alias, meta, new, on_forget
from . import launch
from .casts import to_dtype
from .table import op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..tensor import Meta

_programs: dict[Any, Rows] = {}


def rows_over(t: Tensor, axis: int) -> tuple[tuple[int, ...], list[int]]:
    """The domain with `axis` innermost, and the order of axes that gives it."""
    order = [i for i in range(len(t.meta.shape)) if i != axis] + [axis]
    return tuple(t.meta.shape[i] for i in order), order


def run_rows(program: Rows, axis: int, outs: Sequence[Tensor], ins: Sequence[Tensor], name: str, numbers: Sequence[Any] = ()) -> None:
    """A Rows program along `axis` of tensors of one shape."""
    t = ins[0]
    if not t.meta.numel:
        return
    if not t.meta.shape:
        launch.run(program, (1,), outs, ins, [(1,)] * (len(outs) + len(ins)), numbers, name)
        return
    domain, order = rows_over(t, axis)
    launch.run(program, domain, outs, ins, [tuple(x.meta.strides[i] for i in order) for x in (*outs, *ins)], numbers, name)


_plans: dict[Any, tuple[Meta, Callable[..., Any], Meta | None]] = {}
on_forget(_plans.clear)
door.on_change(_plans.clear)


def _like(t: Tensor) -> Meta:
    """The layout of a result of t's sizes."""
    return meta(t.meta.shape, layout.dense_like(tuple(t.meta.shape), t.meta.strides), t.meta.dtype, t.meta.device)


def _forward(t: Tensor, axis: int, log: bool) -> Tensor:
    plan = _plans.get((t.meta, axis, log))
    if plan is not None:
        made = new(plan[0])
        if plan[2] is None:
            plan[1](made.ptr, t.ptr)
        else:
            scratch = launch.storage(plan[2])  # held until the launch is queued
            plan[1](made.ptr, t.ptr, scratch.ptr)
        return made
    d, wide = t.meta.dtype, t.meta.dtype.opmath
    program = _programs.get((d, log))
    if program is None:
        x = E.cast(E.input(0, d), wide)
        top, total = E.acc(0, wide), E.acc(1, wide)
        out = x - top - E.log(total) if log else E.exp(x - top) / total
        program = _programs[d, log] = Rows((("reduce", "max", x), ("reduce", "sum", E.exp(x - top)), ("map", 0, E.cast(out, d))), (d,))
    if not t.meta.shape or not t.meta.numel:
        made = new(_like(t))
        run_rows(program, axis, [made], [t], "log_softmax" if log else "softmax")
        return made
    om = _like(t)
    domain, order = rows_over(t, axis)
    call, workspace = launch.plan(t.meta.device, program, domain, [tuple(m.strides[i] for i in order) for m in (om, t.meta)],
                                  "log_softmax" if log else "softmax")
    if len(_plans) > 1 << 12:
        _plans.clear()
    _plans[t.meta, axis, log] = om, call, workspace
    return _forward(t, axis, log)


def _prepared(input: Tensor, dtype: Any, name: str) -> Tensor:  # noqa: A002
    t = input if dtype is None else to_dtype(input, dtype)
    if t.meta.dtype.kind != "f":
        raise NotImplementedError(f'"{name}_lastdim_kernel_impl" not implemented for \'{t.meta.dtype.name.capitalize()}\'')
    return t


def _default_dim(t: Tensor) -> int:
    return 0 if len(t.meta.shape) in (0, 1, 3) else 1


@op(spaces=("torch", "nn.functional", "special"), out=True)
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:  # noqa: A002
    """exp(input) / sum(exp(input)) along `dim`, computed from input - max(input)."""
    t = _prepared(input, dtype, "softmax")
    axis = layout.wrap_dim(_default_dim(t) if dim is None else dim, len(t.meta.shape))
    out = _forward(t, axis, False)
    return tape.record(out, _softmax_back, (t,), (alias(out, out.meta, out.ptr), out.store.version, axis), "SoftmaxBackward0")


@op(spaces=("torch", "nn.functional", "special"), out=True)
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:  # noqa: A002
    """The logarithm of softmax, computed without its rounding."""
    t = _prepared(input, dtype, "log_softmax")
    axis = layout.wrap_dim(_default_dim(t) if dim is None else dim, len(t.meta.shape))
    out = _forward(t, axis, True)
    return tape.record(out, _log_softmax_back, (t,), (alias(out, out.meta, out.ptr), out.store.version, axis), "LogSoftmaxBackward0")


@op(method=False, spaces=("nn.functional",))
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:  # noqa: A002
    """softmax of -input."""
    return softmax(-input, dim, dtype=dtype)


def _saved_output(node: Any) -> tuple[Tensor, int]:
    y, version, axis = node[tape.SAVED]
    if y.store.version != version:
        tape.changed(y, version, node)
    y = alias(y, y.meta, y.ptr)
    y.node = node
    return y, axis


def _softmax_back(node: Any, g: Tensor) -> Any:
    y, axis = _saved_output(node)
    if tape.recording(g, y):
        return (y * (g - (g * y).sum(axis, True)),) if y.meta.shape else (g * 0,)
    return (_backward(g, y, axis, False),)


def _log_softmax_back(node: Any, g: Tensor) -> Any:
    y, axis = _saved_output(node)
    if tape.recording(g, y):
        return (g - y.exp() * g.sum(axis, True),) if y.meta.shape else (g * 0,)
    return (_backward(g, y, axis, True),)


def _backward(g: Tensor, y: Tensor, axis: int, log: bool) -> Tensor:
    """The gradient in one kernel: a sum along the row, then the row."""
    d, wide = y.meta.dtype, y.meta.dtype.opmath
    program = _programs.get(("back", d, log))
    if program is None:
        gx, yx = E.cast(E.input(0, d), wide), E.cast(E.input(1, d), wide)
        total = E.acc(0, wide)
        out = gx - E.exp(yx) * total if log else yx * (gx - total)
        program = _programs["back", d, log] = Rows((("reduce", "sum", gx if log else gx * yx), ("map", 0, E.cast(out, d))), (d, d))
    made = new(_like(y))
    run_rows(program, axis, [made], [g, y], "softmax_backward")
    return made
