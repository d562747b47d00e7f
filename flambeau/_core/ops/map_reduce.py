"""A pointwise formula summed or averaged over all its elements: one kernel forward, one back.

What the losses are: ``fold(op, (x, t), "mean")`` is ``op((x, t)).mean()`` without the tensor in between.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .. import layout
from ..autograd import tape
from ..autograd.mode import _grad
from ..kernels import expr as E
from ..kernels.programs import Map, Reduce
from ..runtime import caches, dispatch
from ..tensor import Meta, Tensor, meta, new
from . import checks, launch
from .elementwise import Info, Pointwise, fit


class Plan:
    """What a fold on operands of some layouts needs: the kernel, the result's meta, and by which operands require grad how
    to go back (None where the formula's own result would be needed, which a fold does not keep)."""

    __slots__ = ("program", "domain", "strides", "out", "scale", "call", "infos", "spread")
    __caches__: ClassVar[dict[str, Any]] = {"infos": dict, "call": lambda: None}

    def __init__(self, program: Reduce, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], out: Meta, scale: float, full: Meta) -> None:
        self.program, self.domain, self.strides, self.out, self.scale = program, domain, strides, out, scale
        self.call: Any = None  # the bound launch, once it is known to need no workspace
        self.infos: dict[tuple[bool, ...], Info | None] = {}
        self.spread = full  # a gradient over the whole domain


_plans: dict[Any, Plan | None] = caches.cache(globals(), "_plans")


def fold(op: Pointwise, operands: tuple[Tensor, ...], how: str, numbers: tuple[float, ...] = ()) -> Tensor:
    """The "sum" or "mean" of a formula over the operands' broadcast shape: a 0-dim tensor.  Differentiable, twice too."""
    key = (op, how, *[x.meta for x in operands], *[type(x) for x in numbers])
    try:
        plan = _plans[key]
    except KeyError:
        since, plan = caches.epoch, _plan(op, operands, how, numbers)
        caches.keep_since(since, _plans, key, plan)
    recording = False
    if _grad.get():
        for x in operands:
            if x.node is not None:
                recording = True
                break
    info = None
    if plan is not None and recording:
        needs = tuple([x.node is not None for x in operands])
        try:
            info = plan.infos[needs]
        except KeyError:
            found = op._info(needs, tuple([x.meta for x in operands]), ())
            info = plan.infos[needs] = None if found.tape.save_out else found
    if plan is None or (recording and info is None):
        made = op(operands, numbers)
        whole: Tensor = made.mean() if how == "mean" else made.sum()
        return whole
    out = new(plan.out)
    tail = (*numbers, plan.scale) if how == "mean" else numbers
    if plan.call is not None:
        plan.call(out.ptr, *[x.ptr for x in operands], *tail)
    else:
        launch.run(plan.program, plan.domain, [out], operands, plan.strides, tail, op.name)
    if info is not None:
        kept = [operands[i] for i in info.tape.saved]
        out.node = tape.node(_back, tuple([x.node for x in operands]), (info, kept, [x.store.version for x in kept], numbers, plan, how))
    return out


def _plan(op: Pointwise, operands: tuple[Any, ...], how: str, numbers: tuple[float, ...]) -> Plan | None:
    """None for what goes by two kernels: half and complex types, operands of several devices or no elements."""
    if not all(isinstance(x, Tensor) and x.meta.plain for x in operands) or checks.to_one_device(op.name, operands) is not operands:
        return None
    common = op.common(operands)
    shape = layout.broadcast_shapes(*[x.meta.shape for x in operands])
    if common.kind != "f" or common is not common.opmath or not layout.numel(shape) or any(x.meta.dtype is not common for x in operands):
        return None
    elements: Map = op.program(operands, numbers, (), common, None)[0]
    total, d = E.acc(0, common), common
    scalars = elements.scalars
    if how == "mean":
        total, scalars = total / E.scalar(len(scalars), d), (*scalars, d)
    program = Reduce(elements.outs, ("sum",), (total,), elements.inputs, scalars)
    dev = operands[0].meta.device
    domain = tuple(shape)
    strides = ((), *[layout.expand_strides(x.meta.shape, x.meta.strides, domain) for x in operands])
    plan = Plan(program, domain, strides, meta((), (), d, dev), layout.numel(shape) * 1.0, meta(shape, None, d, dev))
    prepared = dispatch.prepare(dev, program, domain, strides, [plan.out.nbytes, *[x.meta.nbytes for x in operands]])
    if not prepared.workspace:
        prepared.name = op.name
        plan.call = dispatch.bind(dev, prepared)
    return plan


def _back(node: tape.Node, g: Tensor) -> list[Tensor | None]:
    info, kept, versions, numbers, plan, how = node[tape.SAVED]
    for x, v in zip(kept, versions, strict=True):
        if x.store.version != v:
            tape.changed(x, v, node)
    if how == "mean":
        g = g * (1.0 / plan.scale)
    t = info.tape
    made: Any = ()
    if t.op is not None:
        made = t.op((g, *kept), numbers)
        if type(made) is not tuple:
            made = (made,)
    found: list[Tensor | None] = []
    for gr, m in zip(t.grads, info.metas, strict=True):
        if gr is None:
            found.append(None)
            continue
        x = g if gr == "same" else made[gr]
        if x.meta is not m:
            if x.meta.shape != plan.spread.shape:  # the formula is linear in this operand: every element's gradient is the same
                x = x.expand(plan.spread.shape)
            x = fit(x, m)
        found.append(x)
    return found
