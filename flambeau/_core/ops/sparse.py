"""Sparse tensors: what all layouts share, and coordinates (COO); those by compressed rows and columns are in `compressed.py`.

A sparse tensor is a Tensor that holds ordinary tensors: its indices and its values.  It has no memory of its own (see
`unsupported`).  Gradients flow through the values, which carry the history; `grad` shows a leaf's in the same layout.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import dtypes, hooks
from ..autograd import functions, tape
from ..engine.fronts import ANY
from ..engine.operation import layouts
from ..engine.plans import Compose, under
from ..layout import Size, contiguous_strides
from ..layout import numel as numel_of
from ..runtime import caches
from ..runtime.device import resolve
from ..tensor import Lazy, Tensor
from . import table
from .memory_format import layout as layout_class
from .memory_format import sparse_coo
from .sparse_checks import check_coo, checking
from .unsupported import SparseMeta, Unsupported, first, refusal

if TYPE_CHECKING:
    from ..engine.operation import Operation
    from ..tensor import Meta


class _Named:
    """The operations of the table, by their names in `torch`."""

    def __getattr__(self, name: str) -> Any:
        found = table.namespace("torch")[name]
        setattr(self, name, found)
        return found


named = _Named()


def _ops() -> Any:
    """The operations, by name."""
    return named


@caches.kept
def _meta(kind: Any, size: Size, v: Meta) -> SparseMeta:
    """What a sparse tensor of this size is, whose values have the meta `v`."""
    m = SparseMeta()
    m.shape, m.dtype, m.device = size, v.dtype, v.device
    m.numel, m.contiguous, m.nbytes, m.sizes, m.layout, m.plain = numel_of(size), False, v.nbytes, None, kind.kind, False
    m.dense_dim = len(v.shape) - 1 - kind.block_dims
    m.sparse_dim = len(size) - m.dense_dim
    return m


def make(kind: Any, indices: tuple[Any, ...], values: Any, size: Any, coalesced: bool = False) -> Any:
    """A sparse tensor of these parts, which fit: COO has one indices tensor, the compressed layouts two."""
    if values.meta.__class__ is Lazy:
        values = hooks.resolved(values)
    return _of(kind, _meta(kind, size if type(size) is Size else Size(size), under(values.meta)), indices, values, coalesced)


def _of(kind: Any, m: SparseMeta, indices: tuple[Any, ...], values: Any, coalesced: bool) -> Any:
    t = object.__new__(kind)
    t.meta, t.store, t.node, t.base = m, values.store, values.node, None
    t._parts, t._known = (indices, values), coalesced
    return t


def kind_of(t: Any) -> Any:
    """The layout of a sparse tensor."""
    return t.__class__.kind


def linear(indices: Any, shape: Any) -> Any:
    """The row-major position of each coordinate of (n, nnz) indices."""
    total = None
    for row, step in zip(indices.unbind(0), contiguous_strides(tuple(shape)), strict=True):
        total = row * step if total is None else total + row * step
    return total if total is not None else _ops().zeros((indices.shape[1],), dtype=dtypes.int64, device=indices.device)


def coordinates(at: Any, shape: Any) -> Any:
    """The inverse of `linear`."""
    rows = [(at // step) % max(size, 1) for step, size in zip(contiguous_strides(tuple(shape)), shape, strict=True)]
    return _ops().stack(rows) if rows else at.new_zeros((0, at.numel()))


_BY_LAYOUT: dict[str, Any] = {}


class Sparse(Tensor):
    """What the layouts share."""

    __slots__ = ()
    meta: SparseMeta
    kind: layout_class = sparse_coo
    names: tuple[str, ...]
    title = "Sparse"  # as messages have it
    block_dims = 0  # how many dimensions of the values are those of blocks of the matrix
    _parts: tuple[tuple[Any, ...], Any]  # indices and values
    _known: bool  # whether the indices are known to be sorted and each there once

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            _BY_LAYOUT[cls.kind.name] = cls

    # ---------------------------------------------------------------------------------------------------- description
    layout = property(lambda self: type(self).kind)
    is_sparse = property(lambda self: type(self).kind is sparse_coo)
    is_sparse_csr = property(lambda self: type(self).kind.name == "sparse_csr")

    def _nnz(self) -> int:
        """How many elements are specified."""
        return int(self._parts[1].meta.shape[0])

    @property
    def _value(self) -> Any:
        return self._parts[1]

    @property
    def _index(self) -> tuple[Any, ...]:
        return self._parts[0]

    def _with(self, values: Any) -> Any:
        """The same places with other values."""
        return make(type(self), self._index, values, (*self.meta.shape[:self.sparse_dim()], *values.shape[1 + self.block_dims:]), self._known)

    def _replace(self, other: Any) -> Any:
        """Takes over the parts of another: what writing in place comes to."""
        self.meta, self.node, self.store = other.meta, other.node, other.store
        self.__dict__.update(_parts=other.__dict__["_parts"], _known=other.__dict__["_known"])
        self.__dict__.pop("_rows", None)
        return self

    def dense_dim(self) -> int:
        """How many of the last dimensions each value has."""
        return self.meta.dense_dim

    def sparse_dim(self) -> int:
        """How many of the dimensions the indices tell."""
        return self.meta.sparse_dim

    # ------------------------------------------------------------------------------------------------------- autograd
    @property
    def grad(self) -> Any:
        """A leaf's gradient, in the same places."""
        g = self._value.grad if self.node is None or self.node[tape.SEQ] == 0 else None
        return None if g is None else self._with(g)

    @grad.setter
    def grad(self, g: Any) -> None:
        self._value.grad = None if g is None else g._value if isinstance(g, Sparse) else g

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None) -> None:
        """`Tensor.backward`; gradient: sparse, or strided with numbers at all places, of which those that are specified here count."""
        functions.backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Makes the values a leaf that accumulates gradients, or stop being one."""
        self._value.requires_grad_(requires_grad)
        self.node = self._value.node
        return self

    def detach(self) -> Any:
        """The same tensor without history."""
        return self._with(self._value.detach())

    def clone(self, *, memory_format: Any = None) -> Any:
        """A copy."""
        return make(type(self), tuple(i.clone() for i in self._index), self._value.clone(), self.meta.shape, self._known)

    # ------------------------------------------------------------------------------------------------ types and devices
    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The tensor in another type or on another device."""
        args = tuple(a._value if isinstance(a, Sparse) else a for a in args)
        value = self._value.to(*args, **kwargs)
        if value is self._value:
            return self
        where = value.device
        return make(type(self), tuple(i.to(where) for i in self._index), value, self.meta.shape, self._known)

    data = property(lambda self: self.detach())

    def cpu(self, memory_format: Any = None) -> Any:
        """The tensor in host memory."""
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        """The tensor on a GPU."""
        return self.to("cuda" if device is None else device, non_blocking=non_blocking)

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """The tensor type's name, or the tensor in another type."""
        if dtype is not None:
            return self.to(dtype)
        name = self._value.type()
        return name.replace("torch.", "torch.sparse.", 1).replace("sparse.cuda.", "cuda.sparse.")

    # ------------------------------------------------------------------------------------------------------ conversions
    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
        """The strided tensor: zeros where nothing is specified, sums where a place is named more than once."""
        made = _on_parts("to_dense", Sparse._dense, (self,))
        return made if dtype is None else made.to(dtype)

    def _dense(self) -> Any:
        coo: Any = self.entries()  # type: ignore[attr-defined] # of each layout
        shape = tuple(self.meta.shape)
        sparse, rest = shape[:coo.sparse_dim()], shape[coo.sparse_dim():]
        values = coo._value
        flat = values.new_zeros((numel_of(sparse), *rest))
        kept = values.to(dtypes.uint8) if values.meta.dtype is dtypes.bool_ else values
        return flat.to(kept.dtype).index_add(0, linear(coo._index[0], sparse), kept).to(values.dtype).reshape(shape)

    def to_sparse(self, *args: Any, **kwargs: Any) -> Any:
        """The tensor in COO layout."""
        raise NotImplementedError

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(f"can't convert {type(self).title} layout tensor to numpy. Use Tensor.to_dense() first.")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self.numpy()

    def data_ptr(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def item(self) -> Any:
        """The one element."""
        return self.to_dense().item()

    def tolist(self) -> Any:
        """The elements as nested lists, zeros included."""
        return self.to_dense().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuilt, (type(self).kind.name, self._index, self._value, tuple(self.meta.shape), self._known)

    def __deepcopy__(self, memo: Any) -> Any:
        if self.node is not None and self.node[tape.SEQ]:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
        made = self.detach().clone().requires_grad_(self.node is not None) if self.meta.dtype.kind in "fc" else self.clone()
        memo[id(self)] = made
        if self.grad is not None:
            made.grad = copy.deepcopy(self.grad, memo)
        return made

    # --------------------------------------------------------------------------------------------------------- operators
    def _run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        from .sparse_ops import run
        return run(name, args, kwargs)

    def __matmul__(self, other: Any) -> Any:
        return self._run("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._run("matmul", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._run("mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self._run("div", self, other)

    def __add__(self, other: Any) -> Any:
        return self._run("add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._run("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._run("sub", other, self)

    def __neg__(self) -> Any:
        return self._run("neg", self)

    def __getitem__(self, key: Any) -> Any:
        return self._run("index", self, key)

    def t(self) -> Any:
        """The transpose of up to two dimensions."""
        return self._run("t", self)

    def transpose(self, dim0: Any, dim1: Any) -> Any:
        """Two dimensions in each other's place."""
        return self._run("transpose", self, dim0, dim1)

    T = property(lambda self: self._run("t", self))
    mT = property(lambda self: self._run("transpose", self, -2, -1))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return shown(self)


def _without(name: str) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise refusal(name, type(self).kind)
    return call


for _name in ("stride", "storage_offset", "__dlpack__"):
    setattr(Sparse, _name, _without(_name))


class Coo(Sparse):
    """A sparse tensor by coordinates: int64 indices (sparse_dim, nnz) and values (nnz, ...).  A place named twice has the sum."""

    __slots__ = ()
    kind = sparse_coo
    names = ("indices",)  # of what is besides the values

    def _indices(self) -> Any:
        """The indices as they are."""
        return self._index[0]

    def _values(self) -> Any:
        """The values as they are."""
        return self._value

    def is_coalesced(self) -> bool:
        """Whether the indices are known to be sorted and each there once."""
        return bool(self._known)

    def _coalesced_(self, coalesced: bool) -> Any:
        self.__dict__["_known"] = coalesced
        return self

    def indices(self) -> Any:
        """The indices of a coalesced tensor.  Raises RuntimeError for another."""
        if not self.is_coalesced():
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._indices()

    def values(self) -> Any:
        """The values of a coalesced tensor.  Raises RuntimeError for another."""
        if not self.is_coalesced():
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return self._values()

    def entries(self) -> Any:
        """Each element that is specified, by coordinates and in the order of the values: this tensor."""
        return self

    def coalesce(self) -> Any:
        """The tensor with its indices sorted and each place named once."""
        if self.is_coalesced():
            return self
        shape = tuple(self.meta.shape)[:self.sparse_dim()]
        if self._nnz() < 2:
            return make(Coo, self._index, self._value, self.meta.shape, True)
        places, which = _ops().unique(linear(self._indices(), shape), return_inverse=True)
        v = self._value
        kept = v.to(dtypes.uint8) if v.meta.dtype is dtypes.bool_ else v
        values = kept.new_zeros((places.numel(), *v.shape[1:])).index_add(0, which, kept).to(v.dtype)
        return make(Coo, (coordinates(places, shape),), values, self.meta.shape, True)

    def to_sparse(self, *args: Any, **kwargs: Any) -> Any:
        """This tensor, or one of the `layout` asked for."""
        return converted(self, kwargs.get("layout"), kwargs.get("blocksize"))

    to_sparse_coo = to_sparse

    def sparse_mask(self, mask: Any) -> Any:
        """The values at the places of another sparse tensor."""
        return self.to_dense().sparse_mask(mask)

    def sparse_resize_(self, size: Any, sparse_dim: int, dense_dim: int) -> Any:
        """Other sizes, in place."""
        if sparse_dim != self.sparse_dim() or dense_dim != self.dense_dim():
            raise RuntimeError("sparse_resize_: the numbers of sparse and dense dimensions cannot be changed")
        return self._replace(make(Coo, self._index, self._value, size, self.is_coalesced()))


def _rebuilt(kind: str, indices: Any, values: Any, size: Any, coalesced: bool) -> Any:
    return make(class_of(kind), tuple(indices), values, size, coalesced)


def class_of(name: str) -> Any:
    """The class of the tensors of a layout, by the layout's name."""
    return _BY_LAYOUT[name]


def converted(t: Any, layout: Any, blocksize: Any = None) -> Any:
    """A tensor by coordinates in another layout; None: as it is."""
    if layout is None or layout is sparse_coo:
        return t
    if getattr(layout, "name", "strided") == "strided":
        return t.to_dense()
    return class_of(layout.name).of(t, blocksize)


def shown(t: Sparse) -> str:
    """The text of `repr(t)`."""
    def part(name: str, x: Any) -> str:
        pad = " " * (len("tensor(") + len(name) + 1)
        text = repr(x.detach())
        for more in (f", dtype={x.meta.dtype})", f", device='{x.meta.device}')", f", device='{x.meta.device}', dtype={x.meta.dtype})"):
            if name == "values" and text.endswith(more):
                text = text[:-len(more)] + ")"  # told once, of the whole
        return f"{name}=" + re.sub("\n(?!\n)", "\n" + pad, text)
    rows = [part(name, x) for name, x in zip(type(t).names, t._index, strict=True)]
    rows.append(part("values", t._value))
    tail = [f"size={tuple(t.meta.shape)}", f"nnz={t._nnz()}"]
    if t.meta.device.type != "cpu":
        tail.insert(0, f"device='{t.meta.device}'")
    if t.meta.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_, dtypes.default_complex()):
        tail.append(f"dtype={t.meta.dtype}")
    tail.append(f"layout={type(t).kind!r}")
    if t.node is not None:
        tail.append("requires_grad=True" if t.node[tape.SEQ] == 0 else f"grad_fn=<{tape.name_of(t.node)}>")
    text = "tensor(" + ",\n       ".join(rows)
    line = len(text) - text.rfind("\n") + 1
    if isinstance(t, Coo):
        line = 1 << 16  # what follows begins a line of its own
    for x in tail:
        if line + len(x) + 2 > 80:
            text += ",\n       " + x
            line = 7 + len(x)
        else:
            text += ", " + x
            line += len(x) + 2
    return text + ")"


# ------------------------------------------------------------------------------------------------------------- creation
def _tensor_of(x: Any, d: Any, dev: Any) -> Any:
    if isinstance(x, Tensor):
        made: Any = x
        return made if (d is None or x.meta.dtype is d) and (dev is None or x.meta.device is resolve(dev)) else made.to(device=dev, dtype=d or x.meta.dtype)
    return _ops().tensor(x, dtype=d, device=dev)


def _plan(kind: Any, values: Meta, shape: Size, coalesced: bool, requires_grad: bool, check: Callable[..., None]) -> Compose:
    """The plan of a sparse tensor of parts that fit: indices of one tensor or two, then values."""
    m, count = _meta(kind, shape, values), 1 if kind is Coo else 2

    def built(*given: Any) -> Any:
        indices, v, checked = given[:count], given[count], given[count + 2]
        if checking() if checked is None else checked:
            check(*indices, shape)
        if requires_grad:
            v = v.detach().requires_grad_()
        elif v.node is not None:
            v = v.view_as(v)
        return _of(kind, m, indices, v, coalesced)
    return Compose(built)


def _fits(d: Any, dev: Any, values: Any, *indices: Any) -> bool:
    """Whether the parts of a sparse tensor of this type and device (None: the values' own) are tensors that it can consist of as they are."""
    m = values.meta if values.__class__ is Tensor else None
    if m is None or not m.plain or (d is not None and m.dtype is not d) or (dev is not None and m.device is not resolve(dev)):
        return False
    return all(i.__class__ is Tensor and i.node is None and i.meta.plain and i.meta.device is m.device for i in indices)


@table.op(method=False, kinds={"values": ANY}, gives="Tensor")
def sparse_coo_tensor(indices: Any, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
                      check_invariants: bool | None = None, is_coalesced: bool | None = None, pin_memory: bool = False) -> Any:
    """A sparse tensor of `values` (nnz, ...) at integer `indices` (sparse_dim, nnz).

    Without a size it is as small as the indices allow.  ``sparse_coo_tensor(size)`` makes one with nothing specified.
    check_invariants: raise RuntimeError for indices outside the size (default: as `torch.sparse.check_sparse_tensor_invariants`
    says).
    """
    if values is None and size is None:  # one of nothing but zeros
        shape = Size(indices)
        made = _ops().zeros((0,), dtype=dtype, device=device)
        return _end(Coo, (_ops().zeros((len(shape), 0), dtype=dtypes.int64, device=made.device),), made, shape, True, requires_grad)
    if size is not None and _fits(dtype, device, values, indices) and indices.meta.dtype is dtypes.int64:  # what most programs say
        shape, places, held = Size(size), indices.meta.shape, values.meta.shape
        n = len(places) and places[0]
        if len(places) == 2 and held and held[0] == places[1] and len(shape) == n + len(held) - 1 and tuple(shape)[n:] == tuple(held)[1:]:
            return _plan(Coo, values.meta, shape, bool(is_coalesced), requires_grad, check_coo)
    v = _tensor_of(values, dtype, device)
    i = _tensor_of(indices, None, v.device)
    checked = checking() if check_invariants is None else check_invariants
    if i.meta.dtype.kind not in "ui" and i.meta.numel:
        if i.meta.dtype.kind == "b" or i.meta.dtype.kind == "c":
            raise TypeError(f"sparse_coo_tensor: indices must be integers, got {i.meta.dtype}")
    i = i.detach().to(dtypes.int64)
    if i.dim() == 1 and not i.numel():
        i = i.reshape(0 if size is None else len(tuple(size)), 0)
    if i.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(i.shape)}")
    if v.dim() < 1:
        v = v.reshape(1).expand(i.shape[1])
    if v.shape[0] != i.shape[1]:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {i.shape[1]}, nnz from values: {v.shape[0]}")
    if size is None:
        if i.numel() and bool((i < 0).any()):
            raise RuntimeError("found negative index in the indices of sparse_coo_tensor")
        highest = [int(n) + 1 for n in i.max(1)[0].tolist()] if i.shape[1] else [0] * i.shape[0]
        size = (*highest, *v.shape[1:])
    shape = Size(size)
    if len(shape) != i.shape[0] + v.dim() - 1:
        raise RuntimeError(f"number of dimensions must be sparse_dim ({i.shape[0]}) + dense_dim ({v.dim() - 1}), but got {len(shape)}")
    if tuple(shape[i.shape[0]:]) != tuple(v.shape[1:]):
        raise RuntimeError(f"values has incorrect size, expected {[v.shape[0], *shape[i.shape[0]:]]}, got {list(v.shape)}")
    if checked:
        check_coo(i, shape)
    return _end(Coo, (i,), v, shape, bool(is_coalesced), requires_grad)


def _end(kind: Any, indices: Any, values: Any, shape: Any, coalesced: bool, requires_grad: bool) -> Any:
    """The new tensor: a leaf if it requires grad, else an operation on its values."""
    if requires_grad:
        values = values.detach().requires_grad_()
    elif values.node is not None:
        values = values.view_as(values)
    return make(kind, indices, values, shape, coalesced)


def _product(name: str, args: tuple[Any, ...], **scales: Any) -> Any:
    from . import sparse_ops
    if first(args) is None:
        raise RuntimeError(f"{name}: one of the tensors must be sparse")
    return sparse_ops.run(name, args, {k: v for k, v in scales.items() if v != 1})


@table.op(method=False, aliases=("dsmm",))
def spmm(input: Tensor, mat2: Tensor) -> Tensor:  # noqa: A002
    """The product of two matrices, one of which may be sparse; `mm` by an older name."""
    made: Tensor = _product("spmm", (input, mat2)) if first((input, mat2)) is not None else _ops().mm(input, mat2)
    return made


@table.op()
def smm(input: Tensor, mat: Tensor) -> Tensor:  # noqa: A002
    """The product of a sparse matrix and a strided one, as a sparse tensor."""
    made: Tensor = _product("smm", (input, mat))
    return made


@table.op(method=False, aliases=("hsmm",))
def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse matrix and a strided one, as a sparse tensor."""
    made: Tensor = _product("hspmm", (mat1, mat2))
    return made


@table.op(aliases=("torch.saddmm",))
def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:  # noqa: A002
    """beta input + alpha (mat1 @ mat2), of sparse input and mat1."""
    made: Tensor = _product("sspaddmm", (input, mat1, mat2), beta=beta, alpha=alpha)
    return made


# -------------------------------------------------------------------------------------------------- methods of all tensors
def to_sparse(self: Any, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None) -> Any:
    """The nonzero elements in COO layout (or the `layout` asked for); the last dimensions dense where `sparse_dim` is fewer."""
    if layout is not None and type(layout) is not layout_class:
        raise TypeError(f"to_sparse(): argument 'layout' must be torch.layout, not {type(layout).__name__}")
    n = self.dim() if sparse_dim is None else int(sparse_dim)
    if not 0 <= n <= self.dim():
        raise RuntimeError(f"to_sparse: sparse_dim argument must be in [0,{self.dim()}] range, but {n} is given")
    if n == 0 and self.dim():
        raise RuntimeError(f"to_sparse: sparse_dim argument must be in >0 when self.dim()>0, which is {self.dim()}")
    if layout is None or layout is sparse_coo or layout.name == "strided":
        return converted(_on_parts("to_sparse", _to_sparse, (self, n)), layout)
    return _on_parts("to_layout", _to_layout, (self, n, layout.name, blocksize))


def _to_layout(self: Any, n: int, name: str, blocksize: Any) -> Any:
    kind = class_of(name)
    if kind.block_dims and tape.recording(self):  # the zeros in a block are its elements too, with a gradient
        return _at_places(self, kind.of(_to_sparse(self.detach(), n), blocksize))
    return kind.of(_to_sparse(self, n), blocksize)


def _to_sparse(self: Any, n: int) -> Any:
    shape = tuple(self.meta.shape)
    flat = self.reshape(numel_of(shape[:n]), *shape[n:])
    seen = (self.detach() != 0).reshape(numel_of(shape[:n]), numel_of(shape[n:])).any(1)
    places = seen.nonzero().reshape(-1)
    return make(Coo, (coordinates(places, shape[:n]),), flat.index_select(0, places), shape, True)


def to_dense(self: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
    """The tensor itself: it is strided."""
    return self if dtype is None else self.to(dtype)


def sparse_mask(self: Any, mask: Any) -> Any:
    """The elements at the places that the sparse tensor `mask` specifies."""
    if not isinstance(mask, Sparse):
        raise TypeError("sparse_mask(): argument 'mask' must be a sparse Tensor")
    if tuple(mask.meta.shape) != tuple(self.meta.shape):
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {list(self.meta.shape)} but mask has size "
                           f"{list(mask.meta.shape)}")
    return _on_parts("sparse_mask", _at_places, (self, mask))


def _at_places(self: Any, mask: Any) -> Any:
    at = mask.entries()
    n = at.sparse_dim()
    shape = tuple(self.meta.shape)
    values = self.reshape(numel_of(shape[:n]), *shape[n:]).index_select(0, linear(at._index[0], shape[:n]))
    return mask._with(values.reshape(mask._value.meta.shape))


def _on_parts(name: str, form: Any, args: Any) -> Any:
    global _on_parts
    from .sparse_learning import on_parts  # which is made of what is here
    _on_parts = on_parts
    return on_parts(name, form, args)


def _only_for(name: str, layout: str) -> Any:
    def method(self: Any, *args: Any) -> Any:
        raise RuntimeError(f"{name} expected sparse {layout} tensor layout but got {type(self).title if isinstance(self, Sparse) else 'Strided'}")
    method.__name__ = name
    method.__doc__ = f"For sparse {layout} tensors.  Raises RuntimeError for others."
    return method


def _no_axes(self: Any) -> int:
    """How many axes have indices: of a strided tensor none."""
    return 0


def _all_axes(self: Any) -> int:
    """How many axes the values have: of a strided tensor all."""
    return len(self.meta.shape)


_no_axes.__name__, _all_axes.__name__ = "sparse_dim", "dense_dim"


def _converter(name: str, d: Any) -> Any:
    def method(self: Any) -> Any:
        return self.to(d)
    method.__name__ = name
    method.__doc__ = f"The tensor in {d}."
    return method


for _name, _d in {"double": dtypes.float64, "float": dtypes.float32, "half": dtypes.float16, "bfloat16": dtypes.bfloat16, "long": dtypes.int64,
                  "int": dtypes.int32, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8, "bool": dtypes.bool_}.items():
    setattr(Sparse, _name, _converter(_name, _d))
for _f in (to_sparse, to_dense, sparse_mask):
    setattr(Tensor, _f.__name__, _f)
Tensor.to_sparse_coo = to_sparse  # type: ignore[method-assign]
for _name in ("indices", "values", "coalesce", "is_coalesced", "_nnz", "_indices", "_values"):
    setattr(Tensor, _name, _only_for(_name, "coordinate"))
setattr(Tensor, "sparse_dim", _no_axes)  # noqa: B010 (typed by the stubs)
setattr(Tensor, "dense_dim", _all_axes)  # noqa: B010
for _name in ("crow_indices", "col_indices"):
    setattr(Tensor, _name, _only_for(_name, "row compressed"))
for _name in ("ccol_indices", "row_indices"):
    setattr(Tensor, _name, _only_for(_name, "column compressed"))
__all__ = ["Coo", "Sparse", "Unsupported", "make", "sparse_coo_tensor"]


def _form(name: str, args: Any, kwargs: Any) -> Any:
    from .sparse_ops import run  # not before a sparse tensor meets an operation
    return run(name, args, kwargs)


def _answer(operation: Operation, values: tuple[Any, ...], out: Any = None) -> Any:
    from .sparse_learning import answer
    return answer(operation, values, out)


def _gradient_of_values(t: Any, g: Any) -> Any:
    """The gradient of a tensor's values, which its history is that of, from the tensor's own: sparse, or strided with numbers at all places."""
    if not isinstance(t, Sparse):
        return g
    if isinstance(g, Sparse):
        if type(g) is type(t) and all(i is j for i, j in zip(g._index, t._index, strict=True)):
            return g._value
        g = g.to_dense()
    return _at_places(g, t)._value


hooks.provide(sparse_form=_form, gradient_of_values=_gradient_of_values)
layouts[SparseMeta] = _answer
