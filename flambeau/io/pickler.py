"""Objects as the pickles of PyTorch's files: tensors by the names of PyTorch's functions, storages by number, each once."""

from __future__ import annotations

import copyreg
import io
import pickle
from collections import OrderedDict
from typing import Any

from .._core import dtypes, hooks
from .._core.ops.memory_format import layout as Layout
from .._core.ops.storages import UntypedStorage, root
from .._core.ops.typed_storages import TypedStorage
from .._core.runtime.device import device
from .._core.tensor import Storage, Tensor
from ..nn.parameter import Buffer, Parameter, is_lazy
from .map_location import location_tag
from .names import STORAGE_OF, Named, torch_name

_V2 = Named("torch._utils", "_rebuild_tensor_v2")
_V3 = Named("torch._utils", "_rebuild_tensor_v3")
_PARAMETER = Named("torch._utils", "_rebuild_parameter")
_PARAMETER_STATE = Named("torch._utils", "_rebuild_parameter_with_state")
_FROM_TYPE = Named("torch._tensor", "_rebuild_from_type_v2")
_ON_META = Named("torch._utils", "_rebuild_meta_tensor_no_storage")
_SPARSE = Named("torch._utils", "_rebuild_sparse_tensor")
_LAYOUT = Named("torch.serialization", "_get_layout")
_DEVICE = Named("torch", "device")
_UNTYPED = Named("torch.storage", "UntypedStorage")
_KINDS = {d: Named("torch", name) for d, name in STORAGE_OF.items()}


class _Bytes:
    """A storage that goes into the file beside the pickle, and the element type it is seen as (None: bytes)."""

    __slots__ = ("storage", "dtype")

    def __init__(self, storage: Storage, dtype: Any) -> None:
        self.storage, self.dtype = root(storage), dtype


class Storages:
    """The storages that a pickle named, in their order: `kept`, of which the numbers are the records' names."""

    def __init__(self) -> None:
        self.kept: list[Storage] = []
        self._numbers: dict[Any, int] = {}
        self._types: list[Any] = []

    def place(self, found: _Bytes) -> tuple[Any, ...]:
        """What PyTorch's files write for a storage.  Raises RuntimeError when it was seen as another element type before."""
        s, d = found.storage, found.dtype
        key = (s.ptr, s.meta.nbytes, s.meta.device) if s.meta.nbytes else id(s)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.kept)
            self.kept.append(s)
            self._types.append(d)
        elif d is not None and self._types[number] is None:
            self._types[number] = d
        elif d is not None and self._types[number] is not d:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types: "
                               f"{self._types[number]} and {d}")
        kind = _UNTYPED if d is None else _KINDS[d]
        return "storage", kind, str(number), location_tag(UntypedStorage._of(s)), s.meta.nbytes // (1 if d is None else d.itemsize)


def _tensor(t: Tensor) -> Any:
    """(function, arguments) of a tensor without what its class adds."""
    if t.meta.device.type == "meta":  # only a shape and a type
        return _ON_META, (t.meta.dtype, tuple(t.meta.shape), t.meta.strides, t.requires_grad)
    t = hooks.resolved(t)
    at = t.ptr  # waits for one that is still being filled
    if (at - t.store.ptr) % t.meta.dtype.itemsize:  # a view of bytes that no offset in elements reaches
        fresh = t.detach().clone()
        return _plain(fresh, fresh.ptr, t.requires_grad)
    return _plain(t, at, t.requires_grad)


def _plain(t: Tensor, at: int, grad: bool) -> Any:
    m = t.meta
    offset = (at - t.store.ptr) // m.dtype.itemsize
    if m.dtype in STORAGE_OF:
        return _V2, (_Bytes(t.store, m.dtype), offset, tuple(m.shape), m.strides, grad, OrderedDict())
    return _V3, (_Bytes(t.store, None), offset, tuple(m.shape), m.strides, grad, OrderedDict(), m.dtype)


def _sparse(kind: Any) -> bool:
    """Whether a class of tensors is one of the sparse layouts, each of which is a class here."""
    return isinstance(getattr(kind, "kind", None), Layout)


def _ours(kind: type) -> bool:
    """Whether a class of tensors is pickled as Flambeau does it: no class of the program's says otherwise."""
    first = next(k for k in kind.__mro__ if "__reduce_ex__" in vars(k) or "__reduce__" in vars(k))
    return first in (Tensor, Parameter) or first.__module__.partition(".")[0] == __name__.partition(".")[0]


def _reduce_tensor(t: Tensor) -> Any:
    if is_lazy(t):
        return t.__reduce_ex__(2)
    if _sparse(type(t)):
        whole: Any = t.detach()
        if whole.is_sparse:
            return _SPARSE, (whole.layout, (whole._indices(), whole._values(), tuple(whole.shape), whole.is_coalesced()))
        return _SPARSE, (whole.layout, (*whole._index, whole.values(), tuple(whole.shape)))
    state = {k: v for k, v in t.__dict__.items() if not k.startswith("_")}
    if isinstance(t, Parameter):
        data = t.detach()
        if state and type(t) is Parameter:
            return _PARAMETER_STATE, (data, t.requires_grad, OrderedDict(), state)
        made: Any = _PARAMETER, (data, t.requires_grad, OrderedDict())
        return made if type(t) is Parameter else (_FROM_TYPE, (made[0], type(t), made[1], state))
    made = _tensor(t)
    if isinstance(t, Buffer):
        return made  # which tensors of a module are buffers, the module knows
    kind = type(t)  # after the wait
    return (_FROM_TYPE, (made[0], kind, made[1], state)) if state or kind is not Tensor else made


class _Reducers(dict[type, Any]):
    """`dispatch_table`: tensors of every class that has no pickling of its own."""

    def get(self, kind: Any, default: Any = None) -> Any:
        found = dict.get(self, kind)
        if found is None and issubclass(kind, Tensor) and _ours(kind):
            return _reduce_tensor
        return copyreg.dispatch_table.get(kind, default) if found is None else found


_reducers = _Reducers({
    device: lambda d: (_DEVICE, (str(d),)),
    Layout: lambda found: (_LAYOUT, (repr(found),)),
})


def _pickler(base: Any) -> Any:
    """The pickler over one written in Python, which the standard library has and whose `save_global` can be changed."""

    class Pickler(base):  # type: ignore[misc]
        dispatch_table = _reducers

        def __init__(self, stream: Any, protocol: int, storages: Storages) -> None:
            super().__init__(stream, protocol)
            self.storages = storages

        def persistent_id(self, obj: Any) -> Any:
            kind = type(obj)
            if kind is _Bytes:
                return self.storages.place(obj)
            if kind is UntypedStorage:
                return self.storages.place(_Bytes(obj._storage, None))
            if kind is TypedStorage:
                return self.storages.place(_Bytes(obj._untyped_storage._storage, obj.dtype))
            return None

        def save_global(self, obj: Any, name: str | None = None) -> None:
            found = (obj.module, obj.name) if type(obj) is Named else torch_name(obj)
            if found is None:
                super().save_global(obj, name)
                return
            module, name = found
            if self.proto >= 4:
                self.save(module)
                self.save(name)
                self.write(pickle.STACK_GLOBAL)
            else:
                self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
            self.memoize(obj)

        dispatch = dict(base.dispatch)
        dispatch[Named] = dispatch[dtypes.dtype] = save_global

    # functions and classes are written by name too
    for kind, saver in list(Pickler.dispatch.items()):
        if saver is base.save_global:
            Pickler.dispatch[kind] = Pickler.save_global
    return Pickler


_Plain: Any = None


def dumps(obj: Any, pickle_module: Any, protocol: int) -> tuple[bytes, list[Storage]]:
    """The pickle of `obj` and the storages that it names by number."""
    global _Plain
    if pickle_module is None or pickle_module is pickle:
        if _Plain is None:
            _Plain = _pickler(pickle._Pickler)
        kind = _Plain
    else:
        theirs = getattr(pickle_module, "Pickler", None)
        if not (isinstance(theirs, type) and issubclass(theirs, pickle._Pickler)):
            raise TypeError(f"save: pickle_module must be pickle or one whose Pickler is written in Python, got {pickle_module!r:.100}")
        kind = _pickler(theirs)
    stream = io.BytesIO()
    storages = Storages()
    kind(stream, protocol, storages).dump(obj)
    return stream.getvalue(), storages.kept
