"""What a device does itself that is no loop program, on tensors' addresses; bound launches are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import uint8
from ..runtime import door
from ..tensor import meta, on_forget, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..runtime.device import device

_bound: dict[Any, tuple[Callable[..., Any], int] | None] = {}
_MOST = 1 << 12


def forget() -> None:
    _bound.clear()


on_forget(forget)
door.on_change(forget)


def run(dev: device, name: str, what: tuple[Any, ...], addresses: Sequence[int], numbers: Sequence[Any] = ()) -> bool:
    """Carries out the device's routine `name` for `what` (`door.routine`); False where it has none, as the CPU and simulated GPUs."""
    if dev.type == "cpu":
        return False
    key = (dev, name, what)
    found = _bound.get(key, _bound)
    if found is _bound:
        prepared = door.routine(dev, name, *what)
        if len(_bound) > _MOST:
            _bound.clear()
        found = _bound[key] = None if prepared is None else (door.bind(dev, prepared), prepared.workspace)
    if found is None:
        return False
    call, workspace = found
    if workspace:
        # returned to the allocator when this function ends: the device's queue runs in order, so nobody writes it earlier
        scratch = storage(meta((workspace,), None, uint8, dev))
        call(*addresses, scratch.ptr, *numbers)
    else:
        call(*addresses, *numbers)
    return True
