"""Host tensors that an asynchronous copy from a GPU has not filled yet: the first reader waits for the copy.

Every read of a tensor's elements first reads its address, the slot `ptr`.  While a copy is pending, that slot is empty and the tensor has a
class of its own, whose `__getattr__` waits for the copy and then restores the slot and the class.  So no reader can miss the wait, and other
tensors pay nothing for it.  Shapes and types can be read without waiting.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from .. import forks
from ..tensor import Storage, Tensor, alias

if TYPE_CHECKING:
    from ..runtime.transfers import Arrival

_KEY = "_async_copy"
_lock = forks.lock()
_kinds: dict[type, type] = {}
waiting: set[type] = set()  # the classes of tensors that wait
_waits = True


class host_reads_wait:
    """Whether the first read of host memory waits for the ``non_blocking=True`` copy that fills it: a call, or a `with`
    block that puts it back.

    It does by default.  ``host_reads_wait(False)`` gives PyTorch's behaviour for copies from now on: a read before the
    program has synchronised sees whatever the memory held.
    """

    def __init__(self, mode: bool = True) -> None:
        global _waits
        self._before, _waits = _waits, bool(mode)

    def __enter__(self) -> host_reads_wait:
        return self

    def __exit__(self, *exc: object) -> None:
        global _waits
        _waits = self._before

    @staticmethod
    def enabled() -> bool:
        """Whether it does now."""
        return _waits


class AsyncCopy:
    """Copies into one storage: `waits`, the last one's for each place that they come from, and the tensors that show the memory, with their
    class and address."""

    __slots__ = ("waits", "tensors", "failed")

    def __init__(self) -> None:
        self.waits: dict[Any, Arrival] = {}
        self.tensors: list[tuple[Any, type, int]] = []
        self.failed: BaseException | None = None

    def finish(self) -> None:
        """Waits for the copies, and restores the tensors' classes and addresses.  Raises RuntimeError, each time, if a copy failed."""
        if self.failed is not None:
            raise RuntimeError("the copy that was to fill this tensor failed") from self.failed
        over: list[Arrival] = []
        while True:
            with _lock:
                waits = list(self.waits.values())
                if waits == over:  # no other thread has added one meanwhile
                    return self._restore()
            try:
                for wait in waits:
                    wait()
            except BaseException as error:
                self.failed = error
                raise
            over = waits

    def _restore(self) -> None:
        for ref, kind, p in self.tensors:
            t = ref()
            if t is None or t.__dict__.get(_KEY) is not self:
                continue
            try:
                _slot(t)  # set meanwhile: it shows other memory now
            except AttributeError:
                t.ptr = p
            del t.__dict__[_KEY]
            t.__class__ = kind


_slot: Any = Tensor.ptr.__get__  # type: ignore[attr-defined]


def _missing(self: Tensor, name: str) -> Any:
    pending = self.__dict__.get(_KEY)
    if name != "ptr":
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
    if pending is not None:
        pending.finish()
    return _slot(self)  # where no copy is pending, another thread has just put the address back


def _kind(of: type) -> type:
    found = _kinds.get(of)
    if found is None:
        found = _kinds[of] = type(of.__name__, (of,), {"__slots__": (), "__getattr__": _missing, "__module__": of.__module__,
                                                       "__qualname__": of.__qualname__})
        waiting.add(found)
    return found


def pending_copy(t: Tensor) -> AsyncCopy | None:
    """What `t` waits for, if anything."""
    return t.__dict__.get(_KEY) if type(t) in waiting else None


def address(t: Tensor) -> int:
    """The address of the first element, without waiting."""
    pending = pending_copy(t)
    if pending is not None:
        for ref, _, p in pending.tensors:
            if ref() is t:
                return p
    return t.ptr


def _owners(t: Tensor) -> int:
    return sys.getrefcount(t.store)


_own = 0  # what `_owners` gives for a tensor that has its storage to itself


def fill_later(t: Tensor, wait: Arrival) -> None:
    """`t` is being filled by a copy that `wait` waits for.

    Every tensor that shows its memory must wait: its base and the base's views are known.  Where something else shares
    the memory (views of views that nobody noted, a NumPy array), this waits at once.
    """
    global _own
    if not _waits:
        return
    with _lock:
        before = pending_copy(t)
        if before is not None and before.failed is None:  # whatever shows the memory is told of there: it could not be shown anew without a wait
            before.waits[wait.place] = wait
            return
    if not _own:
        one = alias(t, t.meta, 0)
        one.store = Storage()
        one.store.ptr, one.store.free = 0, []
        _own = _owners(one)
    base = t.base
    base = t if base is None else base
    those = {id(x): x for x in (t, base, *(r() for r in base.__dict__.get("_views", ()))) if x is not None and x.store is t.store}
    # a storage with an owner of its own is a second one on the same memory: of `.data`, of a NumPy array
    if _owners(t) - _own > len(those) - 1 or getattr(t.store, "keep", None) is not None:
        wait()
        return
    pending = AsyncCopy()
    with _lock:
        for x in those.values():
            before = pending_copy(x)
            if before is None:
                kind, p = type(x), x.ptr
                x.__class__ = _kind(kind)
            else:
                ref, kind, p = next(entry for entry in before.tensors if entry[0]() is x)
                pending.waits |= before.waits
            pending.tensors.append((weakref.ref(x), kind, p))
            x.__dict__[_KEY] = pending
            if before is None:
                del x.ptr
        pending.waits[wait.place] = wait
