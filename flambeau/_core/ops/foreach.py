"""The same small work on many tensors as one launch: the steps of optimizers, the norms of gradients and their scaling.

A launch of a few thousand elements costs less than asking for it.  Where launches are native and nobody observes them, the
CPU runs them as one (`kernels/native.py: join`); a GPU with kernels of its own has one kernel for all (`listed` and what follows);
anywhere else they run one by one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import layout
from ..dtypes import int32, uint8
from ..kernels import expr as E
from ..kernels import native, routines
from ..kernels.specs import JoinedMaps, JoinedReductions
from ..runtime import caches, dispatch
from ..tensor import Meta, Tensor, empty, new
from .binary import MUL
from .checks import may_write
from .launch import fill, plan
from .norms import norm_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..kernels.programs import Map
    from ..runtime.device import device
    from .elementwise import Pointwise

MOST = 1 << 18  # elements: the launch of a bigger tensor gains nothing

_joined: dict[Any, Callable[..., None] | None] = caches.cache(globals(), "_joined")
_scalings: dict[Any, Any] = caches.cache(globals(), "_scalings")
_lists: dict[Any, Any] = caches.cache(globals(), "_lists")  # on GPUs


def run(launches: list[Any], addresses: list[list[int]], numbers: tuple[Any, ...] = ()) -> None:
    """Calls each launch with its addresses and the numbers; no two may write the same memory."""
    if len(launches) > 1:
        key = (len(numbers), *launches)
        try:
            entry = _joined[key]
        except KeyError:
            since, entry = caches.epoch, native.join(launches, len(numbers)) if routines.generated() else None
            caches.keep_since(since, _joined, key, entry, 256)
        if entry is not None:
            entry(*numbers, *[a for each in addresses for a in each])
            return
    for launch, each in zip(launches, addresses, strict=True):
        launch(*each, *numbers)


def takes_lists(dev: device) -> bool:
    """Whether a device has kernels for lists of tensors: see `listed`."""
    return dispatch.serves(dev, JoinedMaps)


def alike(tensors: Sequence[Tensor]) -> bool:
    """Whether the tensors are small enough to gain, on one device that has no kernels for lists, and none of them shares memory with another."""
    if len(tensors) < 2:
        return False
    dev = tensors[0].meta.device
    if takes_lists(dev):
        return False
    for t in tensors:
        m = t.meta
        if type(m) is not Meta or m.numel > MOST or m.device is not dev or not m.numel:
            return False
    return len({t.store for t in tensors}) == len(tensors)


def norms(tensors: Sequence[Tensor], p: float) -> Tensor | None:
    """The p-norm of each as one tensor, outside the tape; None unless they are `alike` and of one type of real numbers."""
    d = tensors[0].meta.dtype
    if listed(tensors):
        return _listed_norms(tensors, p)
    if not alike(tensors) or d.kind != "f" or any(t.meta.dtype is not d for t in tensors):
        return None
    out = empty((len(tensors),), d, tensors[0].meta.device)
    launches, addresses, rooms = [], [], []
    for k, t in enumerate(tensors):
        launch, workspace = _norm(t.meta, p)
        launches.append(launch)
        here = [out.ptr + k * d.itemsize, t.ptr]
        if workspace is not None:
            rooms.append(new(workspace))
            here.append(rooms[-1].ptr)
        addresses.append(here)
    run(launches, addresses)
    return out


@caches.kept
def _norm(m: Meta, p: float) -> tuple[Callable[..., Any], Meta | None]:
    d = m.dtype
    return plan(m.device, norm_program(d, p, d), tuple(m.shape), ((), tuple(m.strides)), (d.itemsize, m.nbytes), "norm")


def scale(tensors: Sequence[Tensor], factor: Tensor) -> bool:
    """Multiplies each tensor by the zero-dim `factor` in place, outside the tape; False, and nothing done, unless they are
    `alike`."""
    if factor.meta.device is tensors[0].meta.device and listed(tensors):
        for t in tensors:
            may_write(t)
        for (t,), _ in update(MUL, [((t,), factor) for t in tensors], shared=True):
            MUL.write((t,), (t, factor))
        return True
    if not alike(tensors) or factor.meta.device is not tensors[0].meta.device:
        return False
    launches = []
    for t in tensors:
        may_write(t)
        launch = _scalings.get((t.meta, factor.meta))
        if launch is None:
            since, (launch, _) = caches.epoch, MUL.writing((t.meta,), (t, factor), (), ())
            caches.keep_since(since, _scalings, (t.meta, factor.meta), launch)
        launches.append(launch)
    run(launches, [[t.ptr, t.ptr, factor.ptr] for t in tensors])
    for t in tensors:
        t.store.version += 1
    return True


# ------------------------------------------------------------------------------------------------------ one kernel on a GPU
_LONGEST = 480  # words of a launch's lists; the kernels say how many they take


def listed(tensors: Sequence[Tensor]) -> bool:
    """Whether the tensors are on one GPU that has a kernel for all, dense, of one type, and apart from each other."""
    first = tensors[0].meta
    if type(first) is not Meta or len(tensors) < 2 or not takes_lists(first.device):
        return False
    for t in tensors:
        m = t.meta
        if m is not first and (type(m) is not Meta or m.dtype is not first.dtype or m.device is not first.device):
            return False
        if not m.numel or not (m.contiguous or layout.is_dense(m.shape, m.strides)):
            return False
    return first.dtype.kind == "f" and len({t.store for t in tensors}) == len(tensors)


def update(formula: Pointwise, items: Sequence[tuple[tuple[Tensor, ...], Tensor]], numbers: tuple[float, ...] = (),
           consts: tuple[tuple[str, Any], ...] = (), shared: bool = False) -> Sequence[tuple[tuple[Tensor, ...], Tensor]]:
    """``outs = formula(*outs, last, *numbers)`` in place for each (outs, last) of the items, outside the tape, by few launches; gives those
    for which there is no such kernel, to be done one by one.

    shared: the last one is the same zero-dim tensor for all.  The first outs are `listed`.
    """
    key = (formula, consts, shared, *[last.meta for _, last in items], *[o.meta for outs, _ in items for o in outs])
    plan = _lists.get(key)
    if plan is None:
        since, plan = caches.epoch, _plan_updates(formula, items, numbers, consts, shared)
        caches.keep_since(since, _lists, key, plan)
    launches, odd = plan
    if not launches:
        return items
    left: Sequence[Any] = ()
    if odd:
        left = [items[i] for i in odd]
        items = [item for i, item in enumerate(items) if i not in odd]
    if shared:
        places = [o.ptr for outs, _ in items for o in outs]
        before: tuple[Any, ...] = (*numbers, items[0][1].ptr)
        each = len(items[0][0])
    else:
        places = [p for outs, last in items for p in (*[o.ptr for o in outs], last.ptr)]
        before, each = numbers, len(items[0][0]) + 1
    for launch, begin, end in launches:
        launch(*before, *places[begin * each:end * each])
    for outs, _ in items:
        for o in outs:
            o.store.version += 1
    return left


def _plan_updates(formula: Pointwise, items: Sequence[tuple[tuple[Tensor, ...], Tensor]], numbers: tuple[float, ...],
                  consts: tuple[tuple[str, Any], ...], shared: bool) -> Any:
    """(launches, which items are laid out in a way of their own)."""
    outs, last = items[0]
    types = [o.meta.dtype for o in outs]
    odd = set()
    for i, (own, other) in enumerate(items):
        m = own[0].meta
        for o, d in zip((*own, *(() if shared else (other,))), (*types, last.meta.dtype)):
            same = o.meta.shape == m.shape and layout.same_places(m.shape, o.meta.strides, m.strides)
            if not same or o.meta.dtype is not d or o.meta.device is not m.device:
                odd.add(i)
    fitting = [own[0] for i, (own, _) in enumerate(items) if i not in odd]
    operands = (*outs, last)
    program, _ = formula.program(operands, numbers, consts, formula.common(operands), tuple(types))
    if len(program.inputs) != len(operands) or any(t is not None for t in program.targets) or len(fitting) < 2:
        return (), odd
    arrays = (*range(len(outs)), -1 if shared else len(outs))
    return _plan_maps(formula.name, program, arrays, tuple(range(len(outs))), fitting), odd


def _plan_maps(name: str, program: Map, arrays: tuple[int, ...], into: tuple[int, ...], firsts: Sequence[Tensor], told: E.Expr | None = None) -> Any:
    """The launches for lists whose first arrays are these: (launch, first list, end)."""
    dev, plan = firsts[0].meta.device, []
    before = len(program.scalars) + (told is not None) + sum(a < 0 for a in arrays)
    most = (_LONGEST - before) // (sum(a >= 0 for a in arrays) + 1)
    for begin in range(0, len(firsts), most):
        part = firsts[begin:begin + most]
        made = dispatch.find(dev, JoinedMaps(name, program, arrays, into, tuple([t.meta.numel for t in part]), told))
        if made is None:
            return ()
        plan.append((dispatch.bind(dev, made), begin, begin + len(part)))
    return plan


def unscale(tensors: Sequence[Tensor], inverse: float) -> Tensor | None:
    """Multiplies each tensor by the number in place, outside the tape, and gives an int32 that is 1 if an element of any was not finite; None,
    and nothing done, unless they are `listed`."""
    if not listed(tensors):
        return None
    key = ("unscale", *[t.meta for t in tensors])
    plan = _lists.get(key)
    if plan is None:
        since, d = caches.epoch, tensors[0].meta.dtype
        operands = (tensors[0], inverse)
        program, _ = MUL.program(operands, (), (), MUL.common(operands), (d,))
        told = ~(abs(E.cast(E.input(0, d), d.opmath)) < math.inf)
        plan = _plan_maps("unscale", program, (0,), (0,), tensors, told)
        caches.keep_since(since, _lists, key, plan)
    if not plan:
        return None
    for t in tensors:
        may_write(t)
    found = empty((), int32, tensors[0].meta.device)
    fill(found, 0)
    places = [t.ptr for t in tensors]
    for launch, begin, end in plan:
        launch(inverse, found.ptr, *places[begin:end])
    for t in tensors:
        t.store.version += 1
    return found


def _listed_norms(tensors: Sequence[Tensor], p: float) -> Tensor | None:
    d, dev = tensors[0].meta.dtype, tensors[0].meta.device
    key = ("norms", p, *[t.meta for t in tensors])
    plan = _lists.get(key)
    if plan is None:
        since, plan, most = caches.epoch, [], _LONGEST // 2
        for begin in range(0, len(tensors), most):
            part = tensors[begin:begin + most]
            made = dispatch.find(dev, JoinedReductions("norm", norm_program(d, p, d), tuple([t.meta.numel for t in part])))
            if made is None:
                plan = []
                break
            plan.append((dispatch.bind(dev, made), begin, begin + len(part), made.workspace))
        caches.keep_since(since, _lists, key, plan)
    if not plan:
        return None
    out = empty((len(tensors),), d, dev)
    places = [t.ptr for t in tensors]
    for launch, begin, end, workspace in plan:
        room = empty((workspace,), uint8, dev)
        launch(out.ptr + begin * d.itemsize, room.ptr, *places[begin:end])
    return out
