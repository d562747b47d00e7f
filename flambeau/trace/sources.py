"""Which stage wrote what a stage reads, and what is in memory meanwhile: both by storage, without keeping any alive."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .._core import forks
from .._core.runtime import gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .stages import Stage

_LOWEST = 1 << 16  # a launch's arguments are addresses and numbers: nothing lies below


class Sources:
    """The last writer of each storage that the traced program has met, and when storages came and went.

    `storages` are (device, bytes, the stage that made it or None); `events` say in their order when one came, (seconds, its place, 1), or went,
    (seconds, its place, -1); one that never went outlived the trace.  `levels` map a GPU to (seconds, bytes that its allocator had in use, how
    many events there had been).
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: dict[int, tuple[weakref.ref[Any], Stage | None]] = {}  # by the storage's identity, as long as it lives
        self._last: dict[int, Stage] = {}  # by the address that was written
        self._lock = forks.lock()
        self.storages: list[tuple[str, int, Stage | None]] = []
        self.events: list[tuple[float, int, int]] = []
        self.levels: dict[str, list[tuple[float, int, int]]] = {}
        self.open = True

    def of(self, stores: Iterable[Any]) -> tuple[Stage, ...]:
        """The stages that wrote these storages last, each once, in the order of the arguments."""
        found: dict[int, Stage] = {}
        for s in stores:
            entry = self._known.get(id(s))
            stage = entry[1] if entry is not None else self._last.get(s.ptr)
            if entry is None:
                self.wrote(s, stage)
            if stage is not None:
                found[id(stage)] = stage
        return tuple(found.values())

    def launched(self, stage: Stage, args: tuple[Any, ...], outputs: int) -> tuple[Stage, ...]:
        """A launch of `stage` whose first `outputs` arguments are the addresses that it writes; gives the stages that wrote at the others."""
        at, found = self._last, {}
        for a in args[outputs:]:
            if type(a) is int and a > _LOWEST and (last := at.get(a)) is not None:
                found[id(last)] = last
        for a in args[:outputs]:
            if type(a) is int:
                at[a] = stage
        return tuple(found.values())

    def wrote(self, store: Any, stage: Stage | None) -> None:
        """`stage` has written the storage; None: it was there when it was first read."""
        key, address = id(store), store.ptr
        if stage is not None:
            self._last[address] = stage
        with self._lock:
            entry = self._known.get(key)
            if entry is not None:
                self._known[key] = entry[0], stage
                return
            serial = len(self.storages)
            self._known[key] = weakref.ref(store, lambda _: self._gone(key, serial, address)), stage
            self.storages.append((str(store.meta.device), store.meta.nbytes, stage))
            self.events.append((self._now(), serial, 1))

    def _gone(self, key: int, serial: int, address: int) -> None:
        # called wherever a tensor dies, perhaps under this very lock: each step is one operation on a list or a dictionary
        if self.open:
            self.events.append((self._now(), serial, -1))
        self._known.pop(key, None)
        self._last.pop(address, None)

    def level(self, stage: Stage) -> None:
        """Notes what the allocators of the GPUs of a stage have in use."""
        for d in {w.lane[0] for w in stage.works if w.lane[0] != "cpu"} or {o[2] for o in stage.outputs if o[2].startswith("cuda")}:
            index = int(d.partition(":")[2] or 0)
            used = gpus.gpu(index).pool.current("allocated_bytes")
            levels = self.levels.setdefault(d, [])
            if not levels or levels[-1][1] != used:
                levels.append((stage.end, used, len(self.events)))

    def living(self, device: str) -> list[tuple[float, int, int]]:
        """The bytes on `device` after each storage that came or went there: levels, as of a GPU."""
        found, now = [], 0
        for k, (t, serial, sign) in enumerate(self.events):
            where, nbytes, _ = self.storages[serial]
            if where == device:
                now += sign * nbytes
                found.append((t, now, k + 1))
        return found

    def alive(self, device: str, events: int) -> list[int]:
        """The places of the storages on `device` that are there after so many events."""
        found = dict.fromkeys(i for _, i, sign in self.events[:events] if sign > 0 and self.storages[i][0] == device)
        for _, i, sign in self.events[:events]:
            if sign < 0:
                found.pop(i, None)
        return list(found)
