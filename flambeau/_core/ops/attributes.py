"""What a Tensor tells about itself: attributes, sizes, values read by the host, and its place in autograd."""

from __future__ import annotations

import copy as _copy
import weakref
from collections.abc import Iterator
from typing import Any

from .. import dtypes, layout
from ..autograd import functions, tape
from ..autograd.handles import RemovableHandle, among, register
from ..engine.fields import has
from ..engine.operation import Operation
from ..engine.plans import CALLS
from ..errors import warn
from ..kernels import native
from ..kernels.calls import APART, Made
from ..kernels.slots import CONSTANT, EQUAL, GRADIENT, LEAF, LENGTH, NUMBER, OBJECT, PRESENT, Slots
from ..runtime import provenance, versions
from ..runtime.device import device as device_class
from ..tensor import NO_FREE, Lazy, Meta, Storage, Tensor, _new, meta
from . import reading
from .lazy_views import address, bits, resolved
from .memory_format import memory_format, strided
from .storages import UntypedStorage, copied, tensor_on
from .typed_storages import TypedStorage, class_of, warn_removal

# what no tensor is: other devices, layouts and libraries
NEVER = ("is_ipu", "is_maia", "is_mkldnn", "is_mps", "is_mtia", "is_nested", "is_quantized", "is_vulkan", "is_xla", "is_xpu")


# ---------------------------------------------------------------------------------------------------------- description
def _requires_grad(t: Tensor) -> bool:
    if t.node is not None:
        return True
    base = t.base  # a view that was made while nothing was recorded says what its base does, and is no part of any graph
    return base is not None and base.node is not None and "_made" in t.__dict__ and t.__dict__["_made"][0] != "several" and t.meta.dtype.kind in "fc"


def is_inference(self: Tensor) -> bool:
    """Whether its memory was made in inference mode."""
    store = getattr(self, "store", None)
    return store is not None and store.version < 0


def _version(t: Tensor) -> int:
    if is_inference(t):
        raise RuntimeError("Inference tensors do not track version counter.")
    return t.store.version


_SIMPLE: dict[str, Any] = {
    "shape": lambda t: t.meta.shape,
    "dtype": lambda t: t.meta.dtype,
    "device": lambda t: t.meta.device,
    "ndim": lambda t: len(t.meta.shape),
    "is_cuda": lambda t: t.meta.device.type == "cuda",
    "is_cpu": lambda t: t.meta.device.type == "cpu",
    "is_sparse": lambda t: False,
    "is_sparse_csr": lambda t: False,
    "is_meta": lambda t: t.meta.device.type == "meta",
    **dict.fromkeys(NEVER, lambda t: False),
    "itemsize": lambda t: t.meta.dtype.itemsize,
    "nbytes": lambda t: t.meta.numel * t.meta.dtype.itemsize,
    "requires_grad": _requires_grad,
    "is_leaf": lambda t: t.node is None or t.node[tape.SEQ] == 0,
    "output_nr": lambda t: t.node[tape.SAVED] if t.node is not None and t.node[tape.BACKWARD] is tape.to_output else 0,
    "_version": _version,
    "_cdata": id,
    "layout": lambda t: strided,
    "name": lambda t: None,
    "names": lambda t: (None,) * len(t.meta.shape),
    "retains_grad": lambda t: bool(t.node is not None and t.node[tape.SEQ] and t.node[tape.EXTRA] and "retain" in t.node[tape.EXTRA]),
}


_TOLD = {
    "shape": "The size of each axis.", "dtype": "The type of the elements.", "device": "Where the elements are.", "ndim": "The number of axes.",
    "itemsize": "Bytes of an element.", "nbytes": "Bytes of all elements.",
    "requires_grad": "Whether gradients are recorded for it; of a view made under `no_grad`, for its base.",
    "is_leaf": "Whether it was not computed from tensors that require grad.", "output_nr": "Which result of its function it is.",
    "_version": "How often its memory was written to.", "_cdata": "A number of this tensor object's own while it lives.",
    "layout": "How it is stored: `torch.strided`.", "names": "None for each axis: axes have no names.",
    "name": "None: tensors have no names.",
    "retains_grad": "Whether a computed tensor keeps its gradient.",
    "T": "A view with the axes in reverse order.", "H": "A matrix's conjugate transpose.", "mT": "A view with the last two axes exchanged.",
    "mH": "The conjugate of `mT`.", "grad": "The gradient that backward passes have added up here, or None.",
    "grad_fn": "What a backward pass does at this tensor; None for leaves.", "_base": "The tensor that this one is a view of, or None.",
    "data": "The same memory outside of autograd; assigning gives the tensor another's memory.",
    "element_size": "Bytes of an element.", "is_floating_point": "Whether the type is a floating point one.", "is_complex": "Whether the type is complex.",
    "is_signed": "Whether the type has negative numbers.", "is_same_size": "Whether both have one shape.",
    "is_conj": "Whether it is a view of conjugates, see `conj`.",
    "is_neg": "Whether it is a view of negatives, as `x.conj().imag` is.", "has_names": "False: axes have no names.",
    "is_distributed": "False: a tensor lies on one device.",
    "is_nonzero": "Whether the one element is not 0.  Raises RuntimeError for any other number of elements.",
    "_grad_fn": "`grad_fn`.", "_backward_hooks": "The hooks on its gradient by number, or None.",
    "_is_view": "Whether it is a view of another tensor.", "_fix_weakref": "Nothing: weak references here need no mending.",
}


def _base(t: Tensor) -> Tensor | None:
    return t.base


def _grad_fn(t: Tensor) -> Any:
    from ..autograd.graph import shown
    return None if t.node is None or t.node[tape.SEQ] == 0 else shown(t.node)


def _set_requires_grad(t: Tensor, value: bool) -> None:
    requires_grad_(t, value)


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Makes a leaf accumulate gradients in `.grad`, or stop doing so.  Raises RuntimeError for integers and non-leaves."""
    n = self.node
    if requires_grad:
        if n is None:
            if self.meta.dtype.kind not in "fc":
                raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
            if is_inference(self) and not versions.inference.get():
                raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
            self.node = tape.leaf(self)
            kept = self.__dict__.pop("_kept_grad", None)
            if kept is not None:
                self.node[tape.GRAD] = kept
    elif n is not None:
        if n[0]:
            raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                               "in a subgraph that doesn't require differentiation use var_no_grad = var.detach().")
        if n[1] is not None:
            self.__dict__["_kept_grad"] = n[1]
        self.node = None
    return self


def _get_grad(t: Tensor) -> Tensor | None:
    n = t.node
    if n is not None and n[0] == 0:
        found: Tensor | None = n[1]
        return found
    kept: Tensor | None = t._kept_grad  # type: ignore[attr-defined] # None of the class, or what is kept of a leaf that requires grad no more
    if kept is None and n is not None and not (n[5] and "retain" in n[5]):
        warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed: backward() does not fill it. Call "
             ".retain_grad() on the tensor before, or look at the leaf it was computed from.")
    return kept


def _set_grad(t: Tensor, g: Tensor | None) -> None:
    if g is not None:
        if not isinstance(g, Tensor):
            raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(g).__name__}")
        if g.meta.shape != t.meta.shape:
            raise RuntimeError(f"assigned grad has data of a different size: expected {list(t.meta.shape)}, got {list(g.meta.shape)}")
        if g.meta.device is not t.meta.device:
            raise RuntimeError(f"assigned grad has data located on a different device: expected {t.meta.device}, got {g.meta.device}")
        if g.meta.dtype is not t.meta.dtype:
            raise RuntimeError(f"assigned grad has data of a different type: expected {t.meta.dtype}, got {g.meta.dtype}")
        g = resolved(g)
    if t.node is not None and t.node[tape.SEQ] == 0:
        t.node[tape.GRAD] = g
    elif g is None:
        t.__dict__.pop("_kept_grad", None)
    else:
        t.__dict__["_kept_grad"] = g


def _get_data(t: Tensor) -> Tensor:
    """The same memory outside the tape, with a version of its own: writes through it go unnoticed."""
    r = _new(Tensor)
    r.meta = t.meta
    if t.meta.__class__ is not Lazy:
        r.ptr = t.ptr
    r.node = r.base = None
    r.store = s = _new(Storage)
    s.keep = store = t.store
    s.meta = store.meta
    s.ptr = store.ptr
    s.version = versions.apart(store.version)
    s.free = NO_FREE
    provenance.note(r)
    return r  # type: ignore[no-any-return]


def _set_data(t: Tensor, new: Tensor) -> None:
    """The tensor object keeps its identity and history and takes over the storage and layout of `new`."""
    if not isinstance(new, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(new).__name__}")
    new = resolved(new)
    if not hasattr(new, "ptr") or not hasattr(t, "ptr"):
        raise RuntimeError(f"Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type: layouts {t.layout} and "
                           f"{new.layout}")
    if t.node is not None and new.meta.dtype.kind not in "fc8":
        raise RuntimeError(f"data set to a tensor that requires gradients must be floating point or complex dtype, got {new.meta.dtype}")
    t.meta, t.store, t.ptr = new.meta, new.store, new.ptr
    if t.node is not None and t.node[tape.EXTRA] and "memory" in t.node[tape.EXTRA]:
        t.node[tape.EXTRA]["memory"] = t.detach()
    provenance.note(t)


def _delete_grad(t: Tensor) -> None:
    _set_grad(t, None)


def _keeps_data(t: Tensor) -> None:
    raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")


def _keeps_history(t: Tensor) -> None:
    raise RuntimeError("a tensor's history cannot be deleted: detach() gives one without")


def _tensor_hooks(t: Tensor) -> Any:
    if t.node is None:
        return t.__dict__.get("_idle_hooks")
    return t.node[tape.EXTRA].get("hooks") if t.node[tape.EXTRA] else None


def _set_hooks(t: Tensor, hooks: Any) -> None:
    """Puts hooks on its gradient in the place of those it has; None for none.  Of a tensor that requires no gradient nobody calls them."""
    if t.node is None:
        t.__dict__["_idle_hooks"] = hooks
    else:
        extra = t.node[tape.EXTRA] = t.node[tape.EXTRA] or {}
        extra["hooks"] = {} if hooks is None else hooks


def _keeps_requires_grad(t: Tensor) -> None:
    raise RuntimeError("requires_grad must be a bool")


def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or the size of one axis."""
    return self.meta.shape if dim is None else self.meta.shape[layout.wrap_dim(dim, len(self.meta.shape), False)]


def stride(self: Tensor, dim: int | None = None) -> Any:
    """The strides in elements, or that of one axis."""
    return self.meta.strides if dim is None else self.meta.strides[layout.wrap_dim(dim, len(self.meta.shape), False)]


def numel(self: Tensor) -> int:
    """The number of elements."""
    return self.meta.numel


def dim(self: Tensor) -> int:
    """The number of axes."""
    return len(self.meta.shape)


def is_contiguous(self: Tensor, memory_format: Any = None) -> bool:
    """Whether the elements lie in row-major order (or in that of `memory_format`) without gaps."""
    if memory_format is None:
        return self.meta.contiguous
    name = getattr(memory_format, "name", "contiguous_format")
    if name in ("channels_last", "channels_last_3d"):
        return len(self.meta.shape) == (4 if name == "channels_last" else 5) and layout.is_channels_last(self.meta.shape, self.meta.strides)
    return self.meta.contiguous


def get_device(self: Tensor) -> int:
    """The GPU's index, -1 on the CPU."""
    return int(self.meta.device.index or 0) if self.meta.device.type == "cuda" else -1


def data_ptr(self: Tensor) -> int:
    """The address of the first element (0 for an empty tensor)."""
    if self.meta.__class__ is Lazy:
        return address(self) if self.meta.numel else 0
    return self.ptr if self.meta.numel else 0


def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The axes in the order in which they lie in memory, the outermost first.

    ambiguity_check: True or a list of memory formats raises RuntimeError where another order would be as true, as with an axis of one element,
    unless the tensor is of exactly one of the formats.  Raises TypeError for anything else, AttributeError for a sparse tensor.
    """
    if self.meta.__class__ is not Lazy and not hasattr(self, "ptr"):
        raise AttributeError(f"Can't get dim order on sparse type: {self.type()}. Use Tensor.to_dense() to convert to a dense tensor first.")
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not (isinstance(ambiguity_check, (bool, list)) and all(type(f) is memory_format for f in formats)):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    shape, strides = tuple(self.meta.shape), tuple(self.meta.strides)
    several = 1 in shape or any(a == b for a, b in zip(strides, strides[1:]))
    if ambiguity_check is not False and several and sum(is_contiguous(self, f) for f in formats) != 1:
        raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given memory formats.")
    order, told = layout.dim_order(shape, strides)
    if ambiguity_check and not told:
        raise RuntimeError("The tensor does not have unique dim order.")
    return order


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What stands for this parameter or buffer after a state dict with `other` was loaded: `other`'s memory with `assign`, else this one's, with
    other's values in it; detached either way."""
    made: Any = other if assign else self.copy_(other)
    return made.detach()  # type: ignore[no-any-return]


def storage_offset(self: Tensor) -> int:
    """How many elements into its storage the tensor begins."""
    try:
        first, begin = self.ptr, self.store.ptr
        return 0 if first is begin else (first - begin) // self.meta.dtype.itemsize
    except AttributeError:  # a view of conjugates
        return (address(self) - self.store.ptr) // self.meta.dtype.itemsize


def untyped_storage(self: Tensor) -> Any:
    """The bytes under the tensor and its views."""
    try:
        self.ptr  # noqa: B018 (waits for bytes that are still on their way)
        kept = self._untyped  # type: ignore[attr-defined]
        if kept._storage is self.store:
            return kept
    except AttributeError:  # there is none yet, or it is a view of conjugates
        kept = self._untyped  # type: ignore[attr-defined]
    if kept is None or kept._storage is not self.store:
        kept = self._untyped = UntypedStorage._of(self.store)  # type: ignore[attr-defined]
    return kept


def storage(self: Tensor) -> Any:
    """The storage under the tensor as elements of its type."""
    warn_removal()
    return TypedStorage._of(untyped_storage(self), self.meta.dtype)


def _typed_storage(self: Tensor) -> Any:
    """`storage`, which does not say that it is deprecated."""
    return TypedStorage._of(untyped_storage(self), self.meta.dtype)


def storage_type(self: Tensor) -> Any:
    """The legacy class of the storage under the tensor."""
    return class_of(self.meta.dtype, self.meta.device.type)


# ------------------------------------------------------------------------------------------------------------ as a container
def _len(self: Tensor) -> int:
    if not self.meta.shape:
        raise TypeError("len() of a 0-d tensor")
    return self.meta.shape[0]


def _iter(self: Tensor) -> Iterator[Any]:
    if not self.meta.shape:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def _reversed(self: Tensor) -> Tensor:
    return self.flip(0) if self.meta.shape else self


def _delete_item(self: Tensor, index: Any) -> None:
    raise TypeError("Tensor does not support deleting items")


def _contains(self: Tensor, element: Any) -> bool:
    if not isinstance(element, (Tensor, int, float, complex, bool)):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element).any())


def _format(self: Tensor, spec: str) -> str:
    if (not self.meta.shape and type(self) is Tensor or spec and not self.meta.shape) and self.meta.device.type != "meta":
        return format(reading.item(self), spec)
    return object.__format__(self, spec)


# ---------------------------------------------------------------------------------------------------------------- autograd
def backward(self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
             inputs: Any = None) -> None:
    """Accumulates d self / d leaf into `.grad` of every leaf (or of `inputs`) that self was computed from."""
    if gradient is None and inputs is None and not create_graph and functions.begin(self, bool(retain_graph)):
        return
    functions.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def _extra(t: Tensor) -> dict[str, Any]:
    extra: dict[str, Any] | None = t.node[tape.EXTRA]
    if extra is None:
        extra = t.node[tape.EXTRA] = {}
    return extra


def register_hook(self: Tensor, hook: Any) -> RemovableHandle:
    """Calls `hook(grad)` whenever this tensor's gradient is computed; what it returns (if not None) replaces it."""
    if self.node is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return register(among(_extra(self), "hooks"), hook)


def register_post_accumulate_grad_hook(self: Tensor, hook: Any) -> RemovableHandle:
    """Calls `hook(tensor)` after a leaf's gradient has been accumulated."""
    if self.node is None or self.node[tape.SEQ]:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    extra = _extra(self)
    extra["owner"], extra["memory"] = weakref.ref(self), self.detach()
    return register(among(extra, "accumulated"), hook)


def retain_grad(self: Tensor) -> None:
    """Keeps the gradient of a computed tensor in `.grad` too."""
    if self.node is None:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if self.node[tape.SEQ]:
        _extra(self)["retain"] = weakref.ref(self)


def detach_(self: Tensor) -> Tensor:
    """Takes the tensor off the tape, in place.  Raises RuntimeError for a view."""
    if self.base is not None:
        raise RuntimeError("Can't detach views in-place. Use detach() instead.")
    self.node = None
    return self


# ----------------------------------------------------------------------------------------------------- copies and pickling
def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if id(self) in memo:
        found: Tensor = memo[id(self)]
        return found
    if self.node is not None and self.node[tape.SEQ]:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
                           "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage.")
    if self.meta.__class__ is Lazy:
        memo[id(self)] = out = resolved(self).detach()
        return out.requires_grad_(self.requires_grad)
    at = self.ptr  # of a tensor still being filled, when it is there
    fresh = copied(self.store, memo)
    out = _new(type(self))
    out.meta, out.store, out.ptr, out.node, out.base = self.meta, fresh, fresh.ptr + (at - self.store.ptr), None, None
    memo[id(self)] = out
    if self.node is not None:
        out.node = tape.leaf(out)
        if self.node[tape.GRAD] is not None:
            out.node[tape.GRAD] = _copy.deepcopy(self.node[tape.GRAD], memo)
    for k, v in self.__dict__.items():
        if not k.startswith("_"):
            out.__dict__[k] = _copy.deepcopy(v, memo)
    return out  # type: ignore[no-any-return]


def _rebuild(kind: type, s: Storage, place: tuple[int, tuple[int, ...], tuple[int, ...]], d: dtypes.dtype, requires_grad: bool,
             extra: dict[str, Any]) -> Tensor:
    """A pickled tensor again: (bytes from the storage's start, shape, strides)."""
    offset, shape, strides = place
    out = tensor_on(s, meta(shape, strides, d, s.meta.device), s.ptr + offset)
    out.node = tape.leaf(out) if requires_grad else None
    if kind is not Tensor:
        out.__class__ = kind
        out.meta = out.meta  # a class that answers for operations has metas of its own
    out.__dict__.update(extra)
    return out


def _rebuild_bare(kind: type, shape: tuple[int, ...], strides: tuple[int, ...], d: dtypes.dtype, requires_grad: bool, extra: dict[str, Any]) -> Tensor:
    """A pickled tensor of the meta device again."""
    from ..tensor import empty
    out = empty(shape, d, device_class("meta"), strides)
    out.node = tape.leaf(out) if requires_grad else None
    if kind is not Tensor:
        out.__class__ = kind
        out.meta = out.meta  # a class that answers for operations has metas of its own
    out.__dict__.update(extra)
    return out


def _reduce(self: Tensor, protocol: int) -> Any:
    """What a pickle or a shallow copy makes of the tensor: a leaf, as a history stays where it is."""
    extra = {k: v for k, v in self.__dict__.items() if not k.startswith("_")}
    if self.meta.device.type == "meta":
        return _rebuild_bare, (type(self), tuple(self.meta.shape), self.meta.strides, self.meta.dtype, self.node is not None, extra)
    self = resolved(self)
    at = self.ptr  # a tensor still being filled takes another class until then
    return _rebuild, (type(self), self.store, (at - self.store.ptr, tuple(self.meta.shape), self.meta.strides), self.meta.dtype, self.node is not None, extra)


def _names(self: Tensor) -> list[str]:
    """Its attributes; what only tensors on a GPU have is none of another's."""
    found = list(object.__dir__(self))
    return found if self.meta.device.type == "cuda" else [name for name in found if name != "__cuda_array_interface__"]


def _dir_name(self: Tensor) -> str:
    from .printing import show
    return show(self)


def _new_tensor_type(self: Tensor) -> bool:
    return self.meta.dtype.is_floating_point


_META: Any = (Tensor, "meta")
_DEVICE: Any = (_META, (Meta, "device"))
# the attributes that machine code reads: the kind, the path of slots, and a constant (see `kernels.slots`)
_READ: dict[str, Any] = {
    "shape": (OBJECT, (_META, (Meta, "shape"))), "dtype": (OBJECT, (_META, (Meta, "dtype"))), "device": (OBJECT, _DEVICE),
    "itemsize": (OBJECT, (_META, (Meta, "dtype"), (dtypes.dtype, "itemsize"))), "_version": (NUMBER, ((Tensor, "store"), (Storage, "version"))),
    "_base": (OBJECT, ((Tensor, "base"),)), "ndim": (LENGTH, (_META, (Meta, "shape"))), "layout": (CONSTANT, (), strided),
    **{f"is_{kind}": (EQUAL, (*_DEVICE, (device_class, "type")), kind) for kind in ("cuda", "cpu", "meta")},
    **dict.fromkeys(("is_sparse", "is_sparse_csr", *NEVER), (CONSTANT, (), False)),
    "requires_grad": (PRESENT, ((Tensor, "node"),), None, (Tensor, "base")),
    "is_leaf": (LEAF, ((Tensor, "node"),)), "grad": (GRADIENT, ((Tensor, "node"),), "_kept_grad"),
}


def _quicken(target: type) -> None:
    """Has machine code read attributes and free storages."""
    code = Slots(Storage, "free", "ptr", NO_FREE)
    finalizer = code.finalizer()
    if finalizer is not None:
        setattr(Storage, "__del__", finalizer)  # noqa: B010 (types do not say that classes have one)
    for name, (kind, path, *constant) in _READ.items():
        found = target.__dict__[name]
        # the same property with another getter: subclasses, `torch.overrides` and the rules of vmap hold on to it and know it again
        found.__init__(code.getter(kind, path, found.fget, *constant), found.fset, found.fdel, found.__doc__)
        setattr(target, name, found)  # what Python has kept of the attribute is old
    provenance.on_switch(lambda on: _quicken_data(target))
    _quicken_data(target)


def _quicken_data(target: type) -> None:
    """Has machine code make `data`, unless its lines are remembered."""
    found = target.__dict__["data"]
    quick = _get_data if provenance.enabled() else CALLS.builtin("t", (), (), [Made(APART, None)], None, _get_data, False)
    found.__init__(quick, found.fset, found.fdel, found.__doc__)
    target.data = found  # type: ignore[attr-defined]


def install(target: type) -> None:
    """Gives the Tensor its attributes and these methods."""
    target._kept_grad = target._untyped = None  # type: ignore[attr-defined] # what single tensors keep: see `_get_grad`, `untyped_storage`
    native.when_loaded(lambda: _quicken(target))
    for name, read in _SIMPLE.items():
        setattr(target, name, property(read, doc=_TOLD.get(name) or f"Whether the tensor is {name[3:].replace('_', ' ')}."))
    for name, (get, put, delete) in {"requires_grad": (_SIMPLE["requires_grad"], _set_requires_grad, _keeps_requires_grad),
                                     "grad": (_get_grad, _set_grad, _delete_grad), "data": (_get_data, _set_data, _keeps_data)}.items():
        setattr(target, name, property(get, put, delete, doc=_TOLD[name]))  # type: ignore[arg-type]
    target._grad = target.grad  # type: ignore[attr-defined] # PyTorch's other name, which must not be written past the gradient
    for name, get in (("_grad_fn", _grad_fn), ("_backward_hooks", _tensor_hooks)):
        setattr(target, name, property(get, _set_hooks if get is _tensor_hooks else None, _keeps_history, doc=_TOLD[name]))
    for name, get in (("grad_fn", _grad_fn), ("_base", _base)):
        setattr(target, name, property(get, doc=_TOLD[name]))
    methods: dict[str, Any] = {
        "requires_grad_": requires_grad_, "size": size, "stride": stride, "numel": numel, "nelement": numel, "dim": dim,
        "ndimension": dim, "is_contiguous": is_contiguous, "get_device": get_device, "data_ptr": data_ptr,
        "const_data_ptr": data_ptr, "dim_order": dim_order, "module_load": module_load, "is_distributed": lambda self: False,
        "storage_offset": storage_offset, "untyped_storage": untyped_storage, "storage": storage,
        "_typed_storage": _typed_storage, "storage_type": storage_type,
        "__len__": _len, "__iter__": _iter, "__reversed__": _reversed, "__delitem__": _delete_item, "__contains__": _contains,
        "__format__": _format, "__repr__": _dir_name, "__dir__": _names, "__deepcopy__": _deepcopy, "__reduce_ex__": _reduce, "backward": backward,
        "register_hook": register_hook, "retain_grad": retain_grad, "detach_": detach_,
        "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
        "element_size": lambda self: self.meta.dtype.itemsize, "is_floating_point": _new_tensor_type,
        "is_complex": lambda self: self.meta.dtype.is_complex, "is_signed": lambda self: self.meta.dtype.is_signed,
        "is_same_size": lambda self, other: self.meta.shape == other.meta.shape,
        "is_inference": is_inference, "is_conj": lambda self: bits(self)[0], "is_neg": lambda self: bits(self)[1],
        "has_names": lambda self: False, "apply_": reading.apply_, "map_": reading.map_, "map2_": reading.map2_,
        "_is_view": lambda self: self.base is not None, "_fix_weakref": lambda self: None,
    }
    for name, method in methods.items():
        if getattr(method, "__name__", "") == "<lambda>":
            method.__name__ = name
        if not method.__doc__:
            method.__doc__ = _TOLD.get(name)
        if name in _READS:
            shown = Operation(_READS[name], method, shown=name, learns=False)
            method = shown.function
        setattr(target, name, method)
    for name, method in reading.methods.items():
        method.__doc__ = method.__doc__ or _TOLD.get(name)
        setattr(target, name, method)


# what reads values for the host, or goes back through the tape: methods that onlookers see, under these names
_READS = {"__contains__": "contains", "__repr__": "print", "__format__": "print", "backward": "backward"}

has("""__hash__ __len__ _is_view _new_tensor_type dim element_size get_device has_names is_complex is_conj is_contiguous is_floating_point
 is_distributed is_inference is_neg is_same_size is_signed numel size storage_offset stride""", batch="asks")
has("""_cdata _version device dtype grad_fn is_cpu is_cuda is_leaf is_meta is_sparse is_sparse_csr itemsize layout
 output_nr requires_grad retains_grad """ + " ".join(NEVER), batch="attribute")
has("backward", memory="none", moves="hooks")
has("print", sparse="composite")
has("__contains__ backward const_data_ptr data_ptr storage untyped_storage", batch="reads")
has("detach_ register_hook requires_grad_ retain_grad", batch="same")
has("__contains__ __format__ backward", tangent="none")
has("shape", batch="shape")
has("ndim", batch="ndim")
has("nbytes", batch="nbytes")
has("data grad names _base", batch="part")
has("__repr__ __format__ _repr_html", batch="text")
has("__iter__", batch="iterator")
has("__deepcopy__", batch="copy")
