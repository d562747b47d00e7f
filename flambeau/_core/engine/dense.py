"""Calls on dense operands of one shape, of which no plan is made while the shape is new.

Most loops over memory whose elements lie one after another need to know of a shape nothing but how many elements it has.  A family says so of a plan
(`Plan.dense`); then one `Dense` carries out calls with any such shape, by the plan's own machine code: nothing is worked out for a shape that does
not come again.  A shape that does is planned as any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import layout
from ..autograd.mode import _grad
from ..kernels import native
from ..kernels.llvm import sequence
from ..kernels.loops.maps import most_alone
from ..runtime.device import CPU
from ..tensor import Meta, meta, new
from .plans import Plan, recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plans import Written


def kind_of(key: tuple[Any, ...], sizes: int = -1) -> tuple[tuple[Any, ...], tuple[int, ...], int] | None:
    """The key of a call without its shape, the shape, and its number of elements, which are several.

    sizes: where a factory's sizes stand in the key; -1 for other operations.  None unless all operands lie densely on the CPU, in one shape.
    """
    parts = list(key)
    if sizes >= 0:
        shape = parts[sizes]
        if shape.__class__ is not tuple or not shape or min(shape) < 1 or (count := layout.numel(shape)) < 2:
            return None
        parts[sizes] = None
        # an operand that is not read (`of`) tells the type and the device, which is the CPU
        return tuple([x.dtype if x.__class__ is Meta and x.device is CPU else x for x in parts]), shape, count
    first: Any = None
    for k, part in enumerate(parts):
        if part.__class__ is Meta:
            if not part.contiguous or (1 in part.shape and part.strides != layout.contiguous_strides(part.shape)):  # which results may follow
                return None
            if first is None:
                if part.sizes is None or part.numel < 2:
                    return None
                first = part
            elif part is not first and (part.shape != first.shape or part.device is not first.device):
                return None
            parts[k] = part.dtype
    return None if first is None else (tuple(parts), first.shape, first.numel)


class Dense:
    """One kind of such calls, which make new tensors.

    most: how many elements a call may have, which the threads do not share.  saving: gives what the tape keeps of a call, by its operands, as
    `Plan.saved`; None where nothing is differentiable.
    """

    __slots__ = ("most", "types", "letters", "numbers", "fixed", "saving", "result", "taped", "_launch", "_several", "_reads")

    def __init__(self, plan: Plan, letters: str, launch: Any) -> None:
        assert plan.dense is not None
        program, self.saving = plan.dense
        self.most = most_alone(program) if launch is not None else 1 << 62
        self.types = tuple([m.dtype for m in plan.outs])
        self.letters, self.numbers, self.fixed, self.result = letters, plan.numbers, plan.fixed, plan.result
        self.taped = self.saving is not None and any(d.kind in "fc8" for d in self.types)
        self._launch, self._several, self._reads = launch, len(plan.outs) > 1, plan.reads

    def __call__(self, shape: tuple[int, ...], count: int, given: Sequence[Any]) -> Any:
        outs = [new(meta(shape, None, d, CPU)) for d in self.types]
        args, numbers, need = [t.ptr for t in outs], [], False
        for x, role in zip(given, self.letters, strict=True):
            if role == "t":
                if self._reads:
                    args.append(x.ptr)
                need = need or x.node is not None
            elif role == "n":
                numbers.append(x)
        if self._launch is not None:
            self._launch(*args, *_converted(numbers, self.numbers), *self.fixed, count)
        made = tuple(outs) if self._several else outs[0]
        if need and self.taped and _grad.get():
            edges = tuple([x.node if role == "t" else None for x, role in zip(given, self.letters, strict=True)])
            recorder(self.saving(given), outs, self.letters, edges)(made, edges, *given)
        return made if self.result is None else self.result(tuple(outs))


class DenseWritten:
    """One kind of such calls, which write over their first operand.  They give NotImplemented for one that is recorded, or whose operands share memory."""

    __slots__ = ("most", "letters", "numbers", "_launch")

    def __init__(self, plan: Written, letters: str, launch: Any) -> None:
        self.most, self.letters, self.numbers, self._launch = most_alone(plan.dense), letters, plan.numbers, launch

    def __call__(self, shape: tuple[int, ...], count: int, given: Sequence[Any]) -> Any:
        t = given[0]
        store, args, numbers, need = t.store, [t.ptr], [], t.base is not None and t.base.node is not None
        for x, role in zip(given, self.letters, strict=True):
            if role == "t":
                if x.store is store and x is not t:
                    return NotImplemented
                args.append(x.ptr)
                need = need or x.node is not None
            elif role == "n":
                numbers.append(x)
        if need and _grad.get():
            return NotImplemented
        self._launch(*args, *_converted(numbers, self.numbers), count)
        store.version += 1
        return t


def _converted(numbers: list[Any], converters: Sequence[Any]) -> list[Any]:
    return [x if c is None else c(x) for x, c in zip(numbers, converters, strict=True)] if numbers else numbers


def of(plan: Plan | Written, letters: str, shape: tuple[int, ...], count: int, sized: bool) -> Dense | DenseWritten | None:
    """What carries out all calls of the kind of one that this plan is of.  None where its launch, if it has one, does not take any number of
    elements.  sized: the shape is not that of operands, which must not be read then."""
    if sized and (type(plan) is not Plan or plan.reads):
        return None
    if len(shape) in (4, 5) and (shape[1] == 1 or max(shape[2:]) == 1):  # here channels innermost are dense too, and elsewhere they are not
        return None
    if plan.dense is None or type(plan) is Plan and (plan.room is not None or any(m.shape != shape or not m.contiguous for m in plan.outs)):
        return None
    launch = None
    if plan.launch is not None:
        head = sequence.header(plan.launch)
        if head is None or (launch := native.over(head, count)) is None:
            return None
    elif plan.outs[0].device is not CPU:
        return None
    return Dense(plan, letters, launch) if type(plan) is Plan else DenseWritten(plan, letters, launch)  # type: ignore[arg-type]
