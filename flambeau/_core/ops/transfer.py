"""Moving tensors between devices, recorded on the tape: the gradient travels back the same way.

What crosses is dense, in the narrower of the two types.  On a GPU a kernel packs or unpacks it; in host memory that is
part of staging, in the same pass (`runtime.staging`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import hooks, layout
from ..autograd import tape
from ..runtime import caches, gpus, staging, transfers
from ..tensor import Tensor, meta, new
from . import launch
from .async_copy import address, arrival_of, fill_later

if TYPE_CHECKING:
    from ..dtypes import dtype
    from ..runtime.device import device
    from ..tensor import Meta


def to_device(t: Tensor, dev: device, non_blocking: bool = False, strides: tuple[int, ...] | None = None,
              d: dtype | None = None) -> Tensor:
    """A copy of `t` on `dev` (a concrete device), in type `d` if given, with the same dense layout or `strides`.

    Differentiable.  non_blocking: a copy to the host arrives in pinned memory, later; the first to read it waits.
    """
    m = t.meta
    d = m.dtype if d is None else d
    if strides is None:
        strides = layout.dense_like(tuple(m.shape), m.strides)
    made = meta(m.shape, strides, d, dev)
    if non_blocking and dev.type == "cpu" and m.device.type != "cpu":
        out = hooks.pinned_empty(made)
    else:
        out = new(made)
    move(out, t, non_blocking)
    return tape.record(out, _back, (t,), m, "ToCopyBackward0") if d.kind in "fc" else out


def _back(node: Any, g: Tensor) -> Any:
    m = node[tape.SAVED]
    if m.dtype is g.meta.dtype:
        return (to_device(g, m.device),)
    return (hooks.convert(g, m.device, m.dtype),)


def copy_across(out: Tensor, source: Tensor, non_blocking: bool = False) -> None:
    """out = source (broadcast), from another device; outside the tape."""
    move(out, source, non_blocking)


def move(out: Tensor, source: Tensor, non_blocking: bool = False) -> None:
    """Carries the elements of `source` to `out` on another device: cast, broadcast and laid out anew as needed.  Raises
    NotImplementedError where the source is on the meta device."""
    if not out.meta.numel or out.meta.device.type == "meta":
        return
    if source.meta.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
                                  "torch.nn.Module.to() when moving module from meta to a different device.")
    if out.meta.device.type == "cpu":
        _down(out, source, non_blocking)
    elif source.meta.device.type == "cpu":
        _up(out, source, not non_blocking)
    else:
        _between(out, source)


class _Route:
    """How one layout reaches another on a different device, worked out once: the type that crosses (the narrower), what
    crosses as a tensor on the source's and on the target's device (all of the source once, in the order that the target
    has in memory where it can), and whether either end's bytes are just that."""

    __slots__ = ("dtype", "leaving", "landing", "nbytes", "plain_source", "plain_out")

    def __init__(self, out: Meta, source: Meta, d: dtype) -> None:
        strides = out.strides if out.shape == source.shape and layout.is_dense(out.shape, out.strides) else None
        self.dtype = d
        self.leaving, self.landing = meta(source.shape, strides, d, source.device), meta(source.shape, strides, d, out.device)
        self.nbytes = self.leaving.numel * d.itemsize
        self.plain_source, self.plain_out = _same(source, self.leaving), _same(out, self.landing)


_routes: dict[tuple[Meta, Meta, dtype], _Route] = caches.cache(globals(), "_routes")
_MOST_ROUTES = 1 << 12


def _route(out: Meta, source: Meta, d: dtype | None = None) -> _Route:
    if d is None:
        d = out.dtype if out.dtype.itemsize <= source.dtype.itemsize else source.dtype
    found = _routes.get((out, source, d))
    if found is None:
        if len(_routes) >= _MOST_ROUTES:
            _routes.clear()
        found = _routes[out, source, d] = _Route(out, source, d)
    return found


def _same(a: Meta, b: Meta) -> bool:
    """Whether the bytes of one are those of the other."""
    return a.dtype is b.dtype and a.shape == b.shape and (a.strides == b.strides or a.contiguous and b.contiguous)


def _kernel(out: Tensor, source: Tensor, name: str) -> None:
    """out = source (broadcast, cast) on one device."""
    from .copies import cast_program
    shape = tuple(out.meta.shape)
    strides = [out.meta.strides, layout.expand_strides(source.meta.shape, source.meta.strides, shape)]
    launch.run(cast_program(source.meta.dtype, out.meta.dtype), shape, [out], [source], strides, name=name)


def _in_order(wire: Meta, strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape and other strides over it with the axes in the order they have in memory in `wire`."""
    axes = sorted(range(len(wire.shape)), key=lambda i: (-wire.strides[i], i))
    return tuple([wire.shape[i] for i in axes]), tuple([strides[i] for i in axes])


def _up(out: Tensor, source: Tensor, blocking: bool) -> None:
    dev, host = out.meta.device, source.meta.device
    route = _route(out.meta, source.meta)
    there = out if route.plain_out else new(route.landing)
    owners = source.store, out.store
    if route.plain_source:
        arrival = arrival_of(source)
        p = source.ptr if arrival is None else address(source)
        if arrival is not None:
            if gpus.is_pinned(p):
                # the source is being filled by a GPU: this copy waits for that one, the host does not
                for wait in arrival.waits:
                    wait(gpus.current_stream(dev))
            else:
                p = source.ptr
        transfers.up(dev, there.ptr, host, route.nbytes, blocking, p, owners=owners)
    else:
        from .copies import cast_program
        program = cast_program(source.meta.dtype, route.dtype)
        shape, strides = _in_order(route.landing, source.meta.strides)
        p = source.ptr
        transfers.up(dev, there.ptr, host, route.nbytes, blocking, owners=owners,
                     parts=lambda most: staging.elements_out(program, shape, p, strides, most))
    if there is not out:
        _kernel(out, there, "unpack")


def _down(out: Tensor, source: Tensor, non_blocking: bool) -> None:
    dev, host = source.meta.device, out.meta.device
    later = non_blocking and gpus.is_pinned(out.store.ptr)
    route = _route(out.meta, source.meta)
    if later and not route.plain_out:
        wide = _route(out.meta, source.meta, out.meta.dtype)
        if wide.plain_out:
            route = wide  # widened on the GPU, as otherwise the host would have to wait and do it
    here = source
    if not route.plain_source:
        here = new(route.leaving)
        _kernel(here, source, "pack")
    if route.plain_out:
        p = address(out) if later else out.ptr
        wait = transfers.down(host, p, dev, here.ptr, route.nbytes, not later, owners=(source.store, out.store))
        if wait is not None:
            fill_later(out, wait)
    elif out.meta.shape == route.landing.shape:
        from .copies import cast_program
        program = cast_program(route.dtype, out.meta.dtype)
        shape, strides = _in_order(route.landing, out.meta.strides)
        p = out.ptr
        transfers.down(host, p, dev, here.ptr, route.nbytes, True, owners=(source.store, out.store),
                       parts=lambda most: staging.elements_in(program, shape, p, strides, most))
    else:
        landed = new(route.landing)
        transfers.down(host, landed.ptr, dev, here.ptr, route.nbytes, True, owners=(source.store, out.store))
        _kernel(out, landed, "copy")


def _between(out: Tensor, source: Tensor) -> None:
    route = _route(out.meta, source.meta)
    here = source
    if not route.plain_source:
        here = new(route.leaving)
        _kernel(here, source, "pack")
    there = out if route.plain_out else new(route.landing)
    transfers.between(out.meta.device, there.ptr, source.meta.device, here.ptr, route.nbytes, here.store, (source.store, out.store))
    if there is not out:
        _kernel(out, there, "unpack")
