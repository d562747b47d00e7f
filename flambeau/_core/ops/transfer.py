"""Moving tensors between devices, recorded on the tape: the gradient travels back the same way.

What crosses is dense, in the narrower of the two types.  On a GPU a kernel packs or unpacks it; in host memory that is
part of staging, in the same pass (`runtime.staging`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .. import hooks, layout
from ..autograd import tape
from ..autograd.mode import _grad
from ..engine.fronts import WORD
from ..engine.plans import Compose, under
from ..runtime import caches, gpus, memory, staging, transfers
from ..runtime.versions import first
from ..tensor import NO_FREE, Storage, Tensor, meta, new
from .async_copy import address, fill_later, pending_copy, waiting
from .copies import cast_program
from .elementwise import Inner, launcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dtypes import dtype
    from ..runtime.device import device
    from ..tensor import Meta

    Carry = Callable[[Tensor, Tensor], None]  # from the second to the first


def plan(t: Tensor, dev: device, non_blocking: bool = False, strides: tuple[int, ...] | None = None, d: dtype | None = None) -> Compose:
    """The plan of a copy of `t` on `dev`: see `to_device`."""
    m = under(t.meta)
    d = m.dtype if d is None else d
    made = meta(m.shape, layout.dense_like(tuple(m.shape), m.strides) if strides is None else strides, d, dev)
    carry = carrier(made, m, non_blocking)
    later = non_blocking and dev.type == "cpu" and m.device.type == "cuda"
    take = memory.takes.get(dev)
    taped = d.kind in "fc8"
    make, grad_on = object.__new__, _grad.get

    def run(t: Tensor) -> Tensor:
        if later:
            out: Tensor = hooks.pinned_empty(made)
        elif take is None:
            out = new(made)
        else:
            out = make(Tensor)
            out.meta, out.node, out.base = made, None, None
            s = out.store = Storage()
            s.version, s.meta, s.ptr, s.free = first(), made, 0, NO_FREE  # a failed allocation leaves a storage that frees nothing
            s.ptr, s.free = take(made.nbytes)
            out.ptr = s.ptr
        carry(out, t)
        node = t.node
        if node is not None and taped and grad_on():
            out.node = tape.node(_back, (node,), m, "ToCopyBackward0")
        return out
    return Compose(run)


@tape.keeps_nothing
def _back(node: Any, g: Tensor) -> Any:
    m = node[tape.SAVED]
    if m.dtype is g.meta.dtype:
        return (to_device(g, m.device),)
    return (hooks.convert(g, m.device, m.dtype),)


# A copy of a tensor on a concrete device, in type `d` if given, with the same dense layout or `strides`.  Differentiable.
# non_blocking: a copy to the host arrives in pinned memory, later; the first to read it waits.
to_device: Callable[..., Any] = Inner("to", plan, planned=True, kinds={"dev": WORD, "non_blocking": WORD, "strides": WORD, "d": WORD}).started().direct


def on_current(make: Callable[[Tensor, device], Any]) -> Compose:
    """The plan of a call that names the current GPU: that of the plan which `make` gives for a tensor and a GPU."""
    runs: dict[int, Callable[[Tensor], Tensor]] = {}
    thread = gpus._thread

    def run(t: Tensor) -> Tensor:
        found = runs.get(thread.index)
        if found is None:
            found = runs[thread.index] = make(t, gpus.resolve()).bind("t")
        return found(t)
    return Compose(run)


def move(out: Tensor, source: Tensor, non_blocking: bool = False) -> None:
    """Carries the elements of `source` to `out` on another device, outside the tape: cast, broadcast and laid out anew as needed.  Raises
    NotImplementedError where the source is on the meta device."""
    carrier(out.meta, source.meta, non_blocking)(out, source)


@caches.kept
def carrier(out: Meta, source: Meta, non_blocking: bool) -> Carry:
    """What `move` does with tensors of these layouts."""
    if not out.numel or out.device.type == "meta":
        return lambda out, source: None
    if source.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
                                  "torch.nn.Module.to() when moving module from meta to a different device.")
    narrow = _Route(out, source, out.dtype if out.dtype.itemsize <= source.dtype.itemsize else source.dtype)
    if out.device.type == "cuda":
        return _up(out, source, narrow, not non_blocking) if source.device.type == "cpu" else _between(out, source, narrow)
    now = _down(out, source, narrow, False)
    if not non_blocking:
        return now
    wide = narrow if narrow.plain_out else _Route(out, source, out.dtype)  # widened on the GPU, as otherwise the host would have to wait and do it
    later = _down(out, source, wide if wide.plain_out else narrow, True)
    return lambda out, source: (later if gpus.is_pinned(out.store.ptr) else now)(out, source)


class _Route:
    """How one layout reaches another on a different device: the type that crosses, what crosses as a tensor on the source's and on the
    target's device (all of the source once, in the order that the target has in memory where it can), and whether either end's bytes
    are just that."""

    __slots__ = ("dtype", "leaving", "landing", "nbytes", "plain_source", "plain_out")

    def __init__(self, out: Meta, source: Meta, d: dtype) -> None:
        strides = out.strides if out.shape == source.shape and layout.is_dense(out.shape, out.strides) else None
        self.dtype = d
        self.leaving, self.landing = meta(source.shape, strides, d, source.device), meta(source.shape, strides, d, out.device)
        self.nbytes = self.leaving.numel * d.itemsize
        self.plain_source, self.plain_out = _same(source, self.leaving), _same(out, self.landing)


def _same(a: Meta, b: Meta) -> bool:
    """Whether the bytes of one are those of the other."""
    return a.dtype is b.dtype and a.shape == b.shape and (a.strides == b.strides or a.contiguous and b.contiguous)


def _kernel(out: Meta, source: Meta, name: str) -> Callable[[int, int], Any]:
    """out = source (broadcast, cast) on one device: a bound launch."""
    return launcher(cast_program(source.dtype, out.dtype), tuple(out.shape), [out, source], out.device, name)


def _in_order(wire: Meta, strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and other strides over it with the axes in the order they have in memory in `wire`."""
    axes = sorted(range(len(wire.shape)), key=lambda i: (-wire.strides[i], i))
    return tuple([wire.shape[i] for i in axes]), tuple([strides[i] for i in axes])


def _up(to: Meta, of: Meta, route: _Route, blocking: bool) -> Carry:
    plain = route.plain_source
    parts = None if plain else partial(staging.elements_out, cast_program(of.dtype, route.dtype), *_in_order(route.landing, of.strides))
    send = transfers.bind(to.device, of.device, route.nbytes, blocking, parts)
    unpack = None if route.plain_out else _kernel(to, route.landing, "unpack")

    def up(out: Tensor, source: Tensor) -> None:
        there = out if unpack is None else new(route.landing)
        p = _arriving(source, to.device) if plain and source.__class__ in waiting else source.ptr
        send(there.ptr, p, source.store, out.store)
        if unpack is not None:
            unpack(out.ptr, there.ptr)
    return up


def _arriving(source: Tensor, dev: device) -> int:
    """The address of a host tensor that a GPU may still be filling: a copy from it to `dev` waits for that, the host does not."""
    pending, p = pending_copy(source), address(source)
    if pending is None or not gpus.is_pinned(p):
        return source.ptr
    for wait in list(pending.waits.values()):
        wait(gpus.current_stream(dev))
    return p


def _down(to: Meta, of: Meta, route: _Route, later: bool) -> Carry:
    pack = None if route.plain_source else _kernel(route.leaving, of, "pack")
    across = not route.plain_out and to.shape != route.landing.shape
    parts, spread = None, _kernel(to, route.landing, "copy") if across else None
    if not route.plain_out and not across:
        parts = partial(staging.elements_in, cast_program(route.dtype, to.dtype), *_in_order(route.landing, to.strides))
    plain = route.plain_out
    fetch = transfers.bind(to.device, of.device, route.nbytes, not (later and plain), parts)

    def down(out: Tensor, there: Tensor, here: Tensor, source: Tensor) -> None:
        wait = fetch(address(out) if later and plain else there.ptr, here.ptr, source.store, out.store, None, pack and (source.ptr, pack))
        if wait is not None:
            fill_later(out, wait)
    return _packed(route, pack, down, spread)


def _between(to: Meta, of: Meta, route: _Route) -> Carry:
    pack = None if route.plain_source else _kernel(route.leaving, of, "pack")
    unpack = None if route.plain_out else _kernel(to, route.landing, "unpack")
    carry = transfers.bind(to.device, of.device, route.nbytes, False)

    def between(out: Tensor, there: Tensor, here: Tensor, source: Tensor) -> None:
        carry(there.ptr, here.ptr, source.store, out.store, here.store, pack and (source.ptr, pack))
    return _packed(route, pack, between, unpack)


def _packed(route: _Route, pack: Callable[[int, int], Any] | None, cross: Callable[[Tensor, Tensor, Tensor, Tensor], None],
            unpack: Callable[[int, int], Any] | None) -> Carry:
    """A copy in up to three launches: `pack` into a dense tensor on the source's device, `cross` to the other device, `unpack` into the result."""
    def carried(out: Tensor, source: Tensor) -> None:
        here = source
        if pack is not None:
            here = new(route.leaving)
            pack(here.ptr, source.ptr)
        there = out if unpack is None else new(route.landing)
        cross(out, there, here, source)
        if unpack is not None:
            unpack(out.ptr, there.ptr)
    return carried
