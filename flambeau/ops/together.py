"""The same small work on many tensors as one launch: the steps of optimizers, the norms of gradients and their scaling.

A launch of a few thousand elements costs less than asking for it.  Where launches are native and nobody observes them, the
CPU runs them as one (`kernels/native.py: join`); anywhere else they run one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import uint8
from ..kernels import native, routines
from ..runtime import door
from ..tensor import Meta, Tensor, empty, on_forget
from .binary import MUL
from .checks import may_write
from .reductions import norm_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST = 1 << 18  # elements: the launch of a bigger tensor gains nothing

_joined: dict[Any, Callable[..., None] | None] = {}
_norms: dict[Any, Any] = {}
_scalings: dict[Any, Any] = {}
for _plans in (_joined, _norms, _scalings):
    on_forget(_plans.clear)
    door.on_change(_plans.clear)


def run(launches: list[Any], addresses: list[list[int]], numbers: tuple[Any, ...] = ()) -> None:
    """Calls each launch with its addresses and the numbers; no two may write the same memory."""
    if len(launches) > 1:
        key = (len(numbers), *launches)
        try:
            entry = _joined[key]
        except KeyError:
            if len(_joined) > 256:
                _joined.clear()
            entry = _joined[key] = native.join(launches, len(numbers)) if routines.generated() else None
        if entry is not None:
            entry(*numbers, *[a for each in addresses for a in each])
            return
    for launch, each in zip(launches, addresses, strict=True):
        launch(*each, *numbers)


def alike(tensors: Sequence[Tensor]) -> bool:
    """Whether the tensors are small enough to gain, on the CPU, and none of them shares memory with another."""
    if len(tensors) < 2:
        return False
    for t in tensors:
        m = t.m
        if type(m) is not Meta or m.numel > MOST or m.device.type != "cpu" or not m.numel:
            return False
    return len({t.s for t in tensors}) == len(tensors)


def norms(tensors: Sequence[Tensor], p: float) -> Tensor | None:
    """The p-norm of each as one tensor, outside the tape; None unless they are `alike` and of one type of real numbers."""
    d = tensors[0].m.dtype
    if not alike(tensors) or d.kind != "f" or any(t.m.dtype is not d for t in tensors):
        return None
    out = empty((len(tensors),), d, tensors[0].m.device)
    launches, addresses, rooms = [], [], []
    for k, t in enumerate(tensors):
        found = _norms.get((p, t.m))
        if found is None:
            m = t.m
            prepared = door.prepare(m.device, norm_program(d, p, d), tuple(m.shape), ((), tuple(m.strides)))
            prepared.name = "norm"
            found = _norms[p, m] = (door.bind(m.device, prepared), prepared.workspace)
        launch, workspace = found
        launches.append(launch)
        here = [out.p + k * d.itemsize, t.p]
        if workspace:
            rooms.append(empty((workspace,), uint8, out.m.device))
            here.append(rooms[-1].p)
        addresses.append(here)
    run(launches, addresses)
    return out


def scale(tensors: Sequence[Tensor], factor: Tensor) -> bool:
    """Multiplies each tensor by the zero-dim `factor` in place, outside the tape; False, and nothing done, unless they are
    `alike`."""
    if not alike(tensors) or factor.m.device is not tensors[0].m.device:
        return False
    launches = []
    for t in tensors:
        may_write(t)
        launch = _scalings.get((t.m, factor.m))
        if launch is None:
            launch = _scalings[t.m, factor.m] = MUL.plan((t, factor), (), (), (t.m,)).launch
        launches.append(launch)
    run(launches, [[t.p, t.p, factor.p] for t in tensors])
    for t in tensors:
        t.s.v += 1
    return True
