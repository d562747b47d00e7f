"""A record held against the function it was captured from: which launch is the first that differs."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ..kernels.interpret import memory
from ..runtime import capture, dispatch
from ..tensor import Storage, storage
from .record import Launch, Recording, Slot
from .replay import Planned, Spot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..kernels.programs import PreparedLaunch
    from ..tensor import Tensor


def written(prepared: PreparedLaunch, args: Sequence[Any]) -> tuple[bytes, ...]:
    """What a loop program has written, by output.  Of a library's routine, and of values that go to places of their own choice, nothing is known."""
    p = prepared.program
    if p is None:
        return ()
    targets = getattr(p, "targets", None) or (None,) * prepared.outputs
    found = []
    for d, strides, at, target in zip(p.out_types, prepared.strides, args, targets, strict=False):
        if target is None:
            steps = (*strides, *(0,) * (len(prepared.domain) - len(strides)))  # what is folded has no place among the results
            found.append(memory(at, tuple([n if s else min(n, 1) for n, s in zip(prepared.domain, steps, strict=True)]), steps, d).tobytes())
    return tuple(found)


class Watched(Recording):
    """A recording that notes what each launch has written: `seen`, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bytes, ...]] = []

    def _launched(self, dev: Any, stream: Any, prepared: PreparedLaunch, args: tuple[Any, ...]) -> Any:
        before = len(self.steps)
        super()._launched(dev, stream, prepared, args)
        if len(self.steps) > before:
            return lambda: self.seen.append(written(prepared, args))
        return None


class State:
    """The contents of memory that a step touches: of storages, and of streams of random numbers."""

    def __init__(self, plan: Planned, operands: Sequence[Tensor]) -> None:
        stores: dict[int, Storage] = dict(plan.kept) | {id(t.store): t.store for t in operands}
        self.stores = [(s, _copied(s)) for s in stores.values()]
        self.left = plan.left
        self.streams = [(g, g.block.copy()) for g in plan.streams.values()]

    def restore(self) -> None:
        for s, held in self.stores:
            _move(s, held)
        for g, block in self.streams:
            g.block.set_state(block.state())

    def differs(self) -> Storage | None:
        """A storage that holds something else now, and that the step did not make itself: the function has made others by now."""
        return next((s for s, held in self.stores if id(s) not in self.left and ctypes.string_at(s.ptr, s.meta.nbytes) != held), None)


def _copied(s: Storage) -> Any:
    """A storage's contents: of the CPU as bytes, as no block may be taken that a record is yet to claim; of a GPU in memory of their own there."""
    if s.meta.device.type == "cpu":
        return ctypes.string_at(s.ptr, s.meta.nbytes)
    made = storage(s.meta)
    dispatch.copy(s.meta.device, made.ptr, s.meta.device, s.ptr, s.meta.nbytes, blocking=False)
    return made


def _move(to: Storage, held: Any) -> None:
    if isinstance(held, bytes):
        ctypes.memmove(to.ptr, held, len(held))
    else:
        dispatch.copy(to.meta.device, to.ptr, to.meta.device, held.ptr, to.meta.nbytes, blocking=False)


def _text(i: int, s: Launch) -> str:
    return f"launch {i} ({s.prepared.name}" + (f", at {s.line}" if s.line else "") + ")"


def compare(plan: Planned, recording: Watched, operands: Sequence[Tensor]) -> None:
    """Carries a record out launch by launch, with the numbers that the function was given now. Raises RuntimeError that names the first launch that
    differs from those of the function's run, which `recording` has."""
    fresh = [storage(m) for m in plan.metas]
    now, at = recording.launches(), 0

    def value(x: Any) -> Any:
        if isinstance(x, Spot):
            return (operands[x.number].ptr if x.of == "a" else fresh[x.number].ptr) + x.offset
        return recording.sources[x.source].values[x.part] if isinstance(x, Slot) else x
    for s in plan.steps:
        if isinstance(s, capture.Write):
            ctypes.memmove(value(s.address), s.data, len(s.data))
        if not isinstance(s, Launch):
            continue
        if at == len(now):
            raise RuntimeError(f"capture: the function makes {len(now)} launches now; the record's {_text(at, s)} is not among them")
        other = now[at]
        kind, same = (s.prepared.name, s.prepared.domain, s.prepared.strides), (other.prepared.name, other.prepared.domain, other.prepared.strides)
        if kind != same:
            raise RuntimeError(f"capture: {_text(at, s)} was captured, and the function makes {_text(at, other)} there now")
        for k, (x, y) in enumerate(zip(s.args[s.addressed:], other.args[other.addressed:], strict=False)):
            if not isinstance(x, Slot) and not isinstance(y, Slot) and x != y and (x == x or y == y):
                raise RuntimeError(f"capture: {_text(at, s)} was given {x} as number {k} when it was captured, and is given {y} now")
        args = [value(x) for x in s.args]
        dispatch.bind(s.device, s.prepared)(*args)
        if written(s.prepared, args) != recording.seen[at]:
            raise RuntimeError(f"capture: {_text(at, s)} is the first that gives other values than the function: it reads something that was replaced in "
                               "Python, and not changed in place")
        at += 1
    if at < len(now):
        raise RuntimeError(f"capture: {len(now) - at} launches more are made now than were captured; the first is {_text(at, now[at])}")
