"""`allow_mutation_on_saved_tensors`: what operations keep for their gradients may be written to afterwards.

A write is seen before it happens (an interpreter on the engine's stack); what nodes keep of that memory is copied then, once for all of them. What is
never written to is never copied.
"""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .. import hooks
from ..tensor import Tensor
from . import tape
from .mode import no_grad
from .saved import saved_tensors_hooks

if TYPE_CHECKING:
    from collections.abc import Iterator

_open: ContextVar[Any] = ContextVar("allow_mutation_on_saved_tensors", default=None)


class _Held:
    """What nodes keep of a tensor: itself, or its copy once it was to be written to."""

    __slots__ = ("tensor", "version", "__weakref__")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version = tensor, tensor.store.version


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """Within the block, what operations save for their gradients may be written to afterwards: it is copied before the first write.

    Backward passes must run within the block, else AssertionError; blocks cannot be nested: RuntimeError.
    """

    def __init__(self) -> None:
        self.tid_to_weakhandle: weakref.WeakValueDictionary[tuple[Any, ...], _Held] = weakref.WeakValueDictionary()  # what is not copied yet
        self.cloned: weakref.WeakKeyDictionary[_Held, Tensor] = weakref.WeakKeyDictionary()
        self._watching: Any = None
        super().__init__(self._pack, self._unpack)

    def _pack(self, t: Tensor) -> _Held:
        key = id(t.store), t.ptr, id(t.meta), t.store.version
        held = self.tid_to_weakhandle.get(key)
        if held is None or held.tensor.store is not t.store:
            held = self.tid_to_weakhandle[key] = _Held(t)
        return held

    def _unpack(self, held: _Held) -> Tensor:
        if _open.get() is not self:
            raise AssertionError("Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was originally recorded.")
        if held not in self.cloned and held.tensor.store.version != held.version:
            tape.changed(held.tensor, held.version, tape.leaf())
        return held.tensor

    def _before(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of an operation; what it writes is copied first where nodes keep it."""
        for written in _written(name, args, kwargs):
            for key, held in list(self.tid_to_weakhandle.items()):
                if held.tensor.store is written.store:
                    del self.tid_to_weakhandle[key]
                    with no_grad():
                        held.tensor = self.cloned[held] = held.tensor.clone()
        return function(*args, **kwargs)

    def clear(self) -> None:
        """Forgets what nodes keep."""
        self.tid_to_weakhandle.clear()
        self.cloned.clear()

    def __enter__(self) -> allow_mutation_on_saved_tensors:  # type: ignore[override]
        if _open.get() is not None:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        super().__enter__()
        _open.set(self)
        self._watching = hooks.watch(self._before)
        return self

    def __exit__(self, *exc: object) -> None:
        self._watching.close()
        _open.set(None)
        super().__exit__(*exc)


def _written(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors that a call of an operation may write to, by its name and `out=`."""
    found = [kwargs.get("out")]
    if args and (name == "__setitem__" or kwargs.get("inplace") or (name.endswith("_") and not name.endswith("__"))
                 or (name.startswith("__i") and hasattr(Tensor, "__" + name[3:]))):
        found.append(args[0])
    for each in found:
        for t in each if isinstance(each, (tuple, list)) else (each,):
            if isinstance(t, Tensor) and hasattr(t, "ptr"):
                yield t
