"""Attention on the CPU by generated kernels; the gradients of keys and values, which these make in parts, are summed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernels import expr as E
from ...kernels import routines, target
from ...kernels.programs import PreparedLaunch, Reduce
from ...layout import contiguous_strides, numel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...dtypes import dtype
    from ...kernels.specs import Attention, AttentionGradient, Sizes

_ALIGNED = 64


def forward(spec: Attention) -> PreparedLaunch | None:
    """None for other types than float32 and float64."""
    return routines.attention(spec.dtype, spec.mask, spec.causal, spec.drop, spec.sizes, spec.scale, dict(spec.steps))


def backward(spec: AttentionGradient) -> PreparedLaunch | None:
    """None where `forward` is."""
    d, sizes, steps = spec.dtype, spec.sizes, dict(spec.steps)
    if d.name not in ("float32", "float64") or not routines.generated():
        return None
    batch, heads, group, length, source, depth, value_depth = sizes
    parts = routines.attention_parts(batch, heads, length)
    if parts == 1 and group == 1:
        steps |= {name: (0, *steps[name]) for name in ("dk", "dv")}
        return routines.attention_backward(d, spec.mask, spec.causal, spec.drop, sizes, spec.scale, steps)
    shapes = [(parts, batch, heads, source, width) for width in (depth, value_depth)]
    to = [steps["dk"], steps["dv"]]
    steps |= {name: contiguous_strides(shape)[:4] for name, shape in zip(("dk", "dv"), shapes, strict=True)}
    prepared = routines.attention_backward(d, spec.mask, spec.causal, spec.drop, sizes, spec.scale, steps)
    return _summed(prepared, d, shapes, to, group, 9 + (spec.mask is not None))


def _room(d: dtype, shape: Sizes) -> int:
    return -(-numel(shape) * d.itemsize // _ALIGNED) * _ALIGNED


def _summed(prepared: PreparedLaunch, d: dtype, shapes: Sequence[Sizes], to: Sequence[Sizes], group: int, addresses: int) -> PreparedLaunch:
    """The launch with the parts of both gradients in a workspace, and after it their sums, first over the parts, then over the query heads of a
    key head."""
    sums, starts, room = [], [], 0
    for shape, steps in zip(shapes, to, strict=True):
        starts.append(room)
        sums.append(_sums(d, shape, steps, group))
        room += 2 * _room(d, shape)
    entry = prepared.entry

    def whole(*args: Any) -> None:
        dq, dk, dv, *rest = args[:addresses]
        places = [args[addresses] + start for start in starts]
        entry(dq, *places, *rest, *args[addresses + 1:])
        for add, out, place in zip(sums, (dk, dv), places, strict=True):
            add(out, place)
    return PreparedLaunch(prepared.name, whole, outputs=3, workspace=room, nbytes=prepared.nbytes, flops=prepared.flops, keep=prepared)


def _sums(d: dtype, shape: Sizes, to: Sizes, group: int) -> Callable[[int, int], None]:
    """``f(out, place)``: the sum over the first axis and over groups of heads of (parts, batch, heads, rows, columns) at `place`, behind which
    there is room for as much again."""
    parts, batch, heads, rows, columns = shape
    program = Reduce((E.input(0, d),), ("sum",), (E.acc(0, d),), (d,))
    steps = contiguous_strides(shape)
    between = contiguous_strides(shape[1:])
    after = _room(d, shape)
    first = second = None
    if parts > 1:
        out = (*to, 1) if group == 1 else between
        first = target.prepare(program, (*shape[1:], parts), (out, (*steps[1:], steps[0])))
    if group > 1:
        b, h, *rest = between
        second = target.prepare(program, (batch, heads // group, rows, columns, group), ((*to, 1), (b, h * group, *rest, h)))

    def add(out: int, place: int) -> None:
        if first is not None:
            first.entry(out if second is None else place + after, place)
            place += after
        if second is not None:
            second.entry(out, place)
    return add
