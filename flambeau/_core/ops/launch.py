"""Running loop programs on tensors outside the pointwise engine: the calls every operation family is built from.

Launches are cached by program and operand layouts.  Nothing here is recorded on the tape and versions do not change:
the operation that calls does both.
"""

from __future__ import annotations

from ctypes import c_int64
from functools import cache
from typing import TYPE_CHECKING, Any

from .. import layout
from ..dtypes import int64, number
from ..engine import general
from ..kernels import expr as E
from ..kernels.programs import Map, PreparedLaunch, Program, Reduce
from ..runtime import caches, capture, dispatch
from ..tensor import Tensor
from ..tensor import meta as make_meta
from ..tensor import storage as storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..dtypes import dtype
    from ..kernels.bounds import Room
    from ..runtime.device import device
    from ..tensor import Meta

_bound: dict[Any, tuple[Callable[..., Any], Meta | None]] = caches.cache(globals(), "_bound")
_kinds: dict[Any, Any] = caches.cache(globals(), "_kinds")
_counts: dict[Any, Reduce] = {}


def run(program: Program, domain: tuple[int, ...], outs: Sequence[Tensor], ins: Sequence[Tensor],
        strides: Sequence[tuple[int, ...]] | None = None, numbers: Sequence[Any] = (), name: str = "", rooms: Sequence[Room] | None = None) -> None:
    """Carries out `program` over `domain`.

    strides: per operand (outputs first), in elements over the domain (over its kept axes for a Reduce's outputs); by
    default each operand is broadcast to the domain.  All operands must be on one device.  rooms: see `dispatch.prepare`; by default what each
    operand's layout takes.
    """
    key = (program.key, domain, tuple([t.meta for t in outs]), tuple([t.meta for t in ins]), strides and tuple(strides))
    found = _bound.get(key)
    if found is None:
        since = caches.epoch
        if any(t.meta.device is not outs[0].meta.device for t in (*outs, *ins)):
            # the last line: an operation that did not look itself
            from .device_errors import mismatch
            raise mismatch(name or program.__class__.__name__.lower(), [*outs, *ins])
        if strides is None:
            strides = [layout.expand_strides(t.meta.shape, t.meta.strides, domain) for t in (*outs, *ins)]
        metas = [t.meta for t in (*outs, *ins)]
        found = plan(metas[0].device, within(program, metas[:len(outs)]), domain, strides, rooms or [m.nbytes for m in metas], name)
        caches.keep_since(since, _bound, key, found)
    call, workspace = found
    addresses = [t.ptr for t in outs]
    addresses += [t.ptr for t in ins]
    if workspace is not None:
        # returned to the allocator when this function ends: the device's queue runs in order, so nobody writes it earlier
        scratch = storage(workspace)
        addresses.append(scratch.ptr)
    call(*addresses, *numbers)


def within(program: Program, outs: Sequence[Meta]) -> Program:
    """The program, knowing how far offsets of its own reach."""
    if isinstance(program, Map) and any(t is not None for t in program.targets):
        ends = [layout.extent(m.shape, m.strides) for m, t in zip(outs, program.targets, strict=True) if t is not None]
        if not any(low for low, _ in ends):
            return program.within(1 + max(high for _, high in ends))
    return program


def plan(dev: device, program: Program, domain: tuple[int, ...], strides: Sequence[tuple[int, ...]], rooms: Sequence[Room],
         name: str = "") -> tuple[Callable[..., Any], Meta | None]:
    """What carries out `program` when called with addresses and numbers, and the layout of the workspace whose address it wants
    after the inputs'.  rooms: see `dispatch.prepare`.  For callers that keep it, in a cache of `runtime.caches`."""
    def prepared(dev: device, domain: tuple[int, ...], strides: tuple[tuple[int, ...], ...], rooms: Any, *_: Any) -> tuple[Any, Any]:
        made = dispatch.prepare(dev, program, domain, strides, rooms)
        made.name = name or made.name
        return dispatch.bind(dev, made), make_meta((made.workspace,), None, _uint8(), dev) if made.workspace else None
    if isinstance(program, Map) and program.extent:  # the launch depends on it
        return prepared(dev, domain, tuple(strides), rooms)
    found: tuple[Any, Any] = general.made(_kinds, (dev, domain, tuple(strides), tuple(rooms), program.key, name), 2, prepared, 4)
    return found


def _uint8() -> Any:
    from ..dtypes import uint8
    return uint8


def counter(m: Meta, name: str, test: Callable[[Any], Any], types: tuple[dtype, ...] = (), numbers: tuple[Any, ...] = ()) -> Callable[[int], int]:
    """What counts the elements for which `test` is true, given the address of a tensor that is laid out as m says in memory that the host
    reads; for a cache of `runtime.caches`.  name: the test's, by which its program is kept.  numbers: the test's, of these types.
    """
    key = name, m.dtype
    program = _counts.get(key)
    if program is None:
        one, zero = E.const(1, int64), E.const(0, int64)
        program = _counts[key] = Reduce((E.where(test(E.input(0, m.dtype)), one, zero),), ("sum",), (E.acc(0, int64),), (m.dtype,), types)
    call, workspace = plan(m.device, program, tuple(m.shape), [(), m.strides], [8, m.nbytes], name)
    total, read = make_meta((1,), None, int64, m.device), c_int64.from_address

    def count(address: int) -> int:
        s = storage(total)
        if workspace is None:
            call(s.ptr, address, *numbers)
        else:
            scratch = storage(workspace)
            call(s.ptr, address, scratch.ptr, *numbers)
        value: int = read(s.ptr).value
        if capture.active:
            capture.were_read(s.ptr, 8, check=True)
        return value
    return count


def fill(t: Tensor, value: Any) -> None:
    """Every element of `t` becomes the Python number `value`.  Raises RuntimeError where its type cannot hold that."""
    d = t.meta.dtype
    run(filler(d), tuple(t.meta.shape), [t], [], numbers=fill_numbers(value, d), name="fill")


def filling(m: Meta) -> Callable[..., Any]:
    """What fills a tensor of this meta when called with its address and `fill_numbers`; for a cache of `runtime.caches`."""
    return plan(m.device, filler(m.dtype), tuple(m.shape), [layout.expand_strides(m.shape, m.strides, tuple(m.shape))], [m.nbytes], "fill")[0]


def fill_numbers(value: Any, d: dtype) -> tuple[Any, ...]:
    """A Python number as a fill's launch takes it.  Raises RuntimeError where type `d` cannot hold it."""
    v = number(value, d)
    return (v.real, v.imag) if d.kind == "c" else (v,)


@cache
def filler(d: dtype) -> Map:
    """The program of a fill."""
    if d.kind == "c":
        part = d.to_real()
        return Map((E.complex_(E.scalar(0, part), E.scalar(1, part)),), (), (part, part))
    return Map((E.scalar(0, d),), (), (d,))


def routine(name: str, entry: Callable[..., Any], outs: Sequence[Tensor], ins: Sequence[Tensor], *, nbytes: int = 0, flops: int = 0) -> None:
    """One call of a library routine on the device's queue: `entry` with the addresses of tensors, which must all be there."""
    dev = outs[0].meta.device
    if any(t.meta.device is not dev for t in (*outs, *ins)):
        from .device_errors import mismatch
        raise mismatch(name, [*outs, *ins])
    dispatch.bind(dev, PreparedLaunch(name, entry, outputs=len(outs), nbytes=nbytes, flops=flops))(*[t.ptr for t in (*outs, *ins)])
