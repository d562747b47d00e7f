"""What a device's backend does that is no loop program, on tensors' addresses; bound launches are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import uint8
from ..runtime import caches, dispatch
from ..tensor import meta, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..kernels.programs import PreparedLaunch
    from ..kernels.specs import Spec
    from ..runtime.device import device
    from ..tensor import Meta

    Bound = tuple[Callable[..., Any], Meta | None]

_bound: dict[Any, Bound | None] = caches.cache(globals(), "_bound")
_NONE: Any = object()


def bind(dev: device, made: PreparedLaunch) -> Bound:
    """What carries out a launch when called with addresses and numbers, and the layout of the workspace whose address it wants behind the
    other addresses.  For callers that keep it, in a cache of `runtime.caches`."""
    return dispatch.bind(dev, made), meta((made.workspace,), None, uint8, dev) if made.workspace else None


def find(dev: device, spec: Spec) -> Bound | None:
    """The bound launch that the device's own backend has for `spec`; None where it has none."""
    key = (dev, spec)
    try:
        found = _bound.get(key, _NONE)
    except TypeError:  # of unknown sizes
        made = dispatch.find(dev, spec)
        return None if made is None else bind(dev, made)
    if found is _NONE:
        since, made = caches.epoch, dispatch.find(dev, spec)
        if made is not None and not made.lasting:
            return bind(dev, made)
        found = None if made is None else bind(dev, made)
        caches.keep_since(since, _bound, key, found)
    return found  # type: ignore[no-any-return]


def run(dev: device, spec: Spec, addresses: Sequence[int], numbers: Sequence[Any] = ()) -> bool:
    """Carries out `spec` by the device's own backend; False, and nothing was done, where it has none."""
    found = find(dev, spec)
    if found is None:
        return False
    call(found, addresses, numbers)
    return True


def call(bound: Bound, addresses: Sequence[int], numbers: Sequence[Any] = ()) -> None:
    """One call, with its workspace."""
    launch, workspace = bound
    if workspace is None:
        launch(*addresses, *numbers)
    else:
        # returned to the allocator when this function ends: the device's queue runs in order, so nobody writes it earlier
        scratch = storage(workspace)
        launch(*addresses, scratch.ptr, *numbers)


def needed(dev: device, spec: Spec) -> Bound:
    """The bound launch for `spec`: where the device's own backend has none, by the host on copies.  Raises NotImplementedError where that has
    none either."""
    found = find(dev, spec)
    if found is None:
        since = caches.epoch
        found = bind(dev, dispatch.require(dev, spec))
        caches.keep_since(since, _bound, (dev, spec), found)
    return found


def require(dev: device, spec: Spec, addresses: Sequence[int], numbers: Sequence[Any] = ()) -> None:
    """Carries out `spec`, where it can be: see `needed`."""
    call(needed(dev, spec), addresses, numbers)
