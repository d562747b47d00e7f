"""The Tensor: a storage (bytes on one device, with a version) seen through a layout.

This module and `autograd.tape` are the whole fast path's data: `Meta`, `Storage`, `Tensor`.  They are plain slots, with no
`__init__`, so that an operation on known shapes costs a fraction of a microsecond.  The user's methods come from the op
table (`ops.table.attach`) and from `ops.methods`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import hooks, layout
from .dtypes import dtype
from .kernels.calls import Metas
from .layout import Size, contiguous_strides
from .runtime import caches, capture, cpu_memory, memory
from .runtime.device import CPU, device
from .runtime.memory import NO_FREE as NO_FREE
from .runtime.versions import entered, first
from .unknowns import FIRST_ROOM, Address, NoTrace, Trace, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

_PACKAGE = __name__.partition(".")[0] + "."
_takes = memory.takes.get
_new: Any = object.__new__


class Meta:
    """Shape, strides, type and device of a tensor.  Interned: compared by identity, and the key of every plan."""

    __slots__ = ("shape", "strides", "dtype", "device", "numel", "contiguous", "nbytes", "sizes", "plain")
    shape: Size
    strides: tuple[int, ...]
    dtype: dtype
    device: device
    numel: int
    contiguous: bool
    nbytes: int
    plain: bool  # of a strided tensor of no class that answers for operations
    sizes: Any  # the CPU allocator's size class when the tensor is on the CPU and of one that has a list of free blocks, else None

    def __repr__(self) -> str:
        return f"Meta({tuple(self.shape)}, {self.strides}, {self.dtype.name}, {self.device})"


_metas: dict[Any, Meta] = {}  # by (shape, strides, dtype, device)
_MOST_METAS = [1 << 16]  # in a list, where machine code reads it


def meta(shape: Sequence[int], strides: tuple[int, ...] | None, d: dtype, dev: device) -> Meta:
    """The one Meta of this description; `strides` None means contiguous."""
    if strides is None:
        # a dense one is kept under None too: its strides need not be counted again to find it
        short = (tuple(shape), None, d, dev) if type(shape) is list else (shape, None, d, dev)
        try:
            found = _metas.get(short)
        except TypeError:  # sizes have a hash, but for unknown ones
            return _of_unknown(Size(shape), contiguous_strides(shape), d, dev)
        if found is None:
            shape = Size(shape)
            if any(x.__class__ is Unknown for x in shape):
                return _of_unknown(shape, contiguous_strides(shape), d, dev)
            found = _metas[short] = meta(shape, contiguous_strides(shape), d, dev)
        return found
    shape = shape if type(shape) is Size else Size(shape)
    key = (shape, strides, d, dev)
    try:
        found = _metas.get(key)
    except TypeError:
        return _of_unknown(shape, tuple(strides), d, dev)
    if found is None:
        if any(x.__class__ is Unknown for x in (*shape, *strides)):
            return _of_unknown(shape, tuple(strides), d, dev)
        found = _metas[key] = _make_meta(shape, strides, d, dev)
        if len(_metas) > _MOST_METAS[0]:
            _start_over()
    return found


def _start_over() -> None:
    # programs whose shapes never repeat; living tensors keep their metas, identity is only a shortcut
    _metas.clear()
    caches.forget()


# what machine code makes metas with, of which it makes none twice either
METAS = Metas(_metas, _MOST_METAS, _start_over, Meta, Size, CPU, cpu_memory.by_64, cpu_memory.size_class, cpu_memory.MIDDLE, cpu_memory.SizeClass)


def described(shape: tuple[int, ...], strides: tuple[int, ...], numel: int, contiguous: bool, nbytes: int, d: dtype, dev: device) -> Meta:
    """`meta` of a layout on the CPU of which all that follows from sizes and strides is known to be so, and within 62 bits."""
    key = (shape, strides, d, dev)
    found = _metas.get(key)
    if found is None:
        m = Meta()
        m.shape = shape = tuple.__new__(Size, shape)
        m.strides, m.dtype, m.device, m.plain = strides, d, dev, True
        m.numel, m.contiguous, m.nbytes = numel, contiguous, nbytes
        m.sizes = cpu_memory.size_class(nbytes) if nbytes <= cpu_memory.MIDDLE else None
        found = _metas[key] = m
        if len(_metas) > _MOST_METAS[0]:
            _start_over()
    return found


class Sketch(Meta):
    """The meta of a tensor of unknown sizes, while a plan is traced.  It has a hash where its numbers have one."""

    __slots__ = ("of",)
    of: Trace

    def __hash__(self) -> int:
        if not self.of.hashes:
            raise TypeError("a meta of unknown sizes has no hash")
        return id(self) >> 4


def _of_unknown(shape: Size, strides: tuple[Any, ...], d: dtype, dev: device) -> Sketch:
    trace = next(x.of for x in (*shape, *strides) if x.__class__ is Unknown)  # type: ignore[attr-defined]
    key = tuple([x.name if x.__class__ is Unknown else x for x in (*shape, None, *strides, d, dev)])
    found: Sketch | None = trace.metas.get(key)
    if found is None:
        found = trace.metas[key] = _sketched(trace, shape, strides, d, dev)
    return found


def _sketched(trace: Trace, shape: Size, strides: tuple[Any, ...], d: dtype, dev: device) -> Sketch:
    m = Sketch()
    m.of = trace
    m.shape, m.strides, m.dtype, m.device, m.plain = shape, strides, d, dev, True
    if len(shape) != len(strides) or any(s < 0 for s in (*shape, *strides)):
        raise NoTrace("no layout")
    m.numel = layout.numel(shape)
    m.contiguous = layout.is_contiguous(shape, strides)
    m.nbytes = (layout.extent(shape, strides)[1] + 1) * d.itemsize
    m.sizes = None
    return m


def _make_meta(shape: Size, strides: tuple[int, ...], d: dtype, dev: device) -> Meta:
    m = Meta()
    m.shape, m.strides, m.dtype, m.device, m.plain = shape, strides, d, dev, True
    # all that reads or writes memory relies on this: elements lie from the first one upwards, within `nbytes`
    if len(shape) != len(strides):
        raise RuntimeError(f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(strides)}): sizes {list(shape)}, "
                           f"strides {list(strides)}")
    if strides and min(strides) < 0:
        raise RuntimeError(f"Negative strides are not supported at the moment, got strides: {list(strides)}")
    if shape and min(shape) < 0:  # two of them have a positive product
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    m.numel = layout.numel(shape)
    if m.numel >> 63 or (shape and max(shape) >> 63):
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}: numel: integer multiplication overflow, they come to "
                           f"{m.numel} elements")
    m.contiguous = layout.is_contiguous(shape, strides)
    m.nbytes = (layout.extent(shape, strides)[1] + 1) * d.itemsize
    if strides and max(strides) >> 63:  # of no elements too: machine code is told them in 64 bits
        raise RuntimeError(f"Stride calculation overflowed with sizes={list(shape)}: strides are {list(strides)}")
    if m.nbytes >> 63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)} and strides={list(strides)}")
    m.sizes = cpu_memory.size_class(m.nbytes) if dev.type == "cpu" and m.nbytes <= cpu_memory.MIDDLE else None
    return m


class Guise(Meta):
    """The meta of a tensor that somebody answers for: as `under`, the plain one, but in the key of no plan."""

    __slots__ = ("under",)
    under: Meta

    @classmethod
    def of(cls, m: Meta) -> Self:
        """A new one over a plain meta."""
        made = cls()
        made.shape, made.strides, made.dtype, made.device = m.shape, m.strides, m.dtype, m.device  # one by one: each conjugate view has one of these
        made.numel, made.contiguous, made.nbytes, made.sizes = m.numel, m.contiguous, m.nbytes, m.sizes
        made.under, made.plain = m, False
        return made


class Lazy(Guise):
    """The meta of a tensor whose elements are the conjugates or negatives of those in its memory.

    Such a tensor has no address of its own (`ptr` is empty), so that nobody reads its memory as if the elements lay there: `address` is where
    they lie. Each has a meta of its own, in the key of no plan; `ops.lazy_views` answers for it.
    """

    __slots__ = ("conj", "neg", "address")
    conj: bool
    neg: bool
    address: int


class Storage:
    """Bytes on one device: address `ptr`, `version` (in-place writes so far), `free` (takes the address back), `meta`, `keep` (an owner)."""

    __slots__ = ("ptr", "version", "free", "meta", "keep", "__weakref__")
    ptr: int
    version: int
    free: Any
    meta: Meta
    keep: Any

    def __del__(self) -> None:
        self.free.append(self.ptr)


class Tensor:
    """An n-dimensional array of one dtype on one device, with automatic differentiation.

    Slots: `meta`; `store`, the Storage (`storage` is a method of PyTorch's); `ptr`, the address of the first element; `node`
    of the tape (None: requires no grad); `base`, the tensor that a view is of (None otherwise).
    """

    __slots__ = ("meta", "store", "ptr", "node", "base", "__weakref__", "__dict__")
    meta: Meta
    store: Storage
    ptr: int
    node: Any
    base: Tensor | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not f"{cls.__module__}.".startswith(_PACKAGE):
            hooks.adopt(cls)


def new(m: Meta) -> Tensor:
    """A fresh, uninitialised tensor of this layout."""
    t = _new(Tensor)
    t.store = s = storage(m)
    t.meta = m
    t.ptr = s.ptr
    t.node = t.base = None
    return t


def storage(m: Meta) -> Storage:
    s = Storage()
    s.version = first() if entered else 0
    s.meta = m
    sizes = m.sizes
    if sizes is not None:
        s.free = free = sizes.free
        try:
            s.ptr = free.pop()
        except IndexError:
            s.ptr = sizes.grow()
    elif m.__class__ is Sketch:
        _trace_room(s, m)
    else:
        s.free = NO_FREE  # so that a failed allocation leaves a storage that frees nothing
        s.ptr = 0
        take = _takes(m.device)
        if take is None:
            s.ptr, s.free = memory.block(m.device, m.nbytes)
        else:
            s.ptr, s.free = take(m.nbytes)
    return s


def _trace_room(s: Storage, m: Meta) -> None:
    """Gives a storage of unknown sizes an address that is nobody's."""
    s.ptr, s.free = NO_FREE, []  # type: ignore[assignment]
    if m.nbytes.__class__ is not Unknown or m.device is not CPU:
        raise NoTrace("memory of a known size")
    rooms = m.nbytes.of.rooms  # type: ignore[attr-defined]
    s.ptr = Address(FIRST_ROOM + len(rooms))  # type: ignore[assignment]
    rooms.append(m)


def empty(shape: Sequence[int], d: dtype, dev: device, strides: tuple[int, ...] | None = None) -> Tensor:
    return new(meta(shape, strides, d, dev))


def alias(t: Tensor, m: Meta, p: int) -> Tensor:
    """Another tensor on the storage of `t`, outside autograd."""
    r = _new(Tensor)
    r.meta = m
    r.store = t.store
    r.ptr = p
    r.node = r.base = None
    return r


def wrap(address: int, m: Meta, keep: Any) -> Tensor:
    """A tensor on memory that `keep` owns."""
    s = Storage()
    s.free = NO_FREE
    s.ptr, s.version, s.meta, s.keep = address, first(), m, keep
    t = _new(Tensor)
    t.meta, t.store, t.ptr, t.node, t.base = m, s, address, None, None
    if capture.active:
        capture.was_wrapped(address, m.nbytes, keep)
    return t
