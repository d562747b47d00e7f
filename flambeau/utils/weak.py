"""Dictionaries whose keys are held weakly and told apart by identity, not by `==` (torch.utils.weak): for tables of tensors."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class WeakIdRef(weakref.ref[Any]):
    """A weak reference equal to those of the very same object, whatever `==` of the objects says."""

    __slots__ = ("_id",)
    _id: int

    def __init__(self, key: Any, callback: Callable[[Any], Any] | None = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __call__(self) -> Any:
        return super().__call__()

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeakIdRef):
            return NotImplemented
        mine = self()
        return self is other if mine is None else mine is other()

    def __ne__(self, other: object) -> bool:  # a weak reference's own asks the objects
        return not self == other


class TensorWeakRef:
    """A weak reference to a tensor: call it for the tensor, or None when it is gone."""

    ref: WeakIdRef

    def __init__(self, tensor: Any) -> None:
        from .._core.tensor import Tensor
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}")
        self.ref = WeakIdRef(tensor)

    def __call__(self) -> Any:
        return self.ref()


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """Values by objects, each gone with its object."""

    def __init__(self, dict: Any = None, ref_type: type[WeakIdRef] = WeakIdRef) -> None:  # noqa: A002 (PyTorch's name)
        self.data: Any = {}
        self.ref_type = ref_type
        data = weakref.ref(self)

        def remove(ref: Any) -> None:
            found = data()
            if found is not None:
                found.data.pop(ref, None)
        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: Any) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # an object of which there are no weak references
            return False

    def __iter__(self) -> Iterator[Any]:
        for ref in list(self.data):
            key = ref()
            if key is not None:
                yield key

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def __eq__(self, other: object) -> bool:
        return {id(k): v for k, v in self.items()} == {id(k): v for k, v in other.items()} if isinstance(other, MutableMapping) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def keyrefs(self) -> list[WeakIdRef]:
        """The references themselves; an object may be gone by the time its reference is called."""
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        """Another of the same keys and values."""
        return type(self)(self, self.ref_type)

    __copy__ = copy


WeakTensorKeyDictionary = WeakIdKeyDictionary

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]
