"""The sparse forms of operations, by the operation's name; differentiable through the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..engine import fields
from ..layout import Size, wrap_dim
from ..tensor import Tensor
from . import sparse_products
from .compressed import Compressed, Csr, transposed
from .sparse import Coo, Sparse, kind_of, linear, make, named
from .sparse_learning import on_parts
from .table import TABLE
from .unsupported import first, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

FORMS: dict[str, Any] = {}
_FIELD = fields.of("sparse")  # "values": operations of the values, that leave zeros zero


def _ops() -> Any:
    """The operations, by name."""
    return named


def run(name: str, args: Any, kwargs: Any) -> Any:
    """Carries out operation `name`, given sparse tensors.  Raises Unsupported where it has no sparse form."""
    form = form_of(name)
    if form is None:
        raise refusal(name, first((args, kwargs)).layout)
    return form(*args, **kwargs) if kwargs or name[-1] == "_" else on_parts(name, form, args)


def form_of(name: str) -> Any:
    """The sparse form of an operation, or None."""
    return FORMS.get(name) or (_of_values(name) if _FIELD.get(name) == "values" else None)


def into(name: str, out: Any, made: Any) -> Any:
    """`out`, with what an operation gave.  Raises RuntimeError where one is sparse, or of another type, and the other is not."""
    if not isinstance(out, Tensor) or not isinstance(made, Tensor):
        raise refusal(f"{name} with out=", first((out, made)).layout)
    if out.layout is not made.layout or out.meta.dtype is not made.meta.dtype:
        raise RuntimeError(f"{name}(): Expected out tensor to have layout {made.layout} and dtype {made.meta.dtype}, but got {out.layout} and "
                           f"{out.meta.dtype} instead")
    if isinstance(out, Sparse):
        return out._replace(made)
    if out.meta.shape != made.meta.shape:
        out.resize_(tuple(made.meta.shape))
    return out.copy_(made)


def _form(*names: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        for n in names:
            FORMS[n] = function
        return function
    return register


# ------------------------------------------------------------------------------------------------------------ value by value
def _of_values(name: str) -> Any:
    def form(input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        if not isinstance(input, Sparse):
            raise refusal(f"{name} by a tensor", first((args, kwargs)).layout)
        one = input.coalesce() if isinstance(input, Coo) else input
        return one._with(getattr(_ops(), name)(one._value, *args, **kwargs))
    return form


@_form("pow")
def _pow(input: Any, exponent: Any) -> Any:  # noqa: A002
    if not isinstance(exponent, (int, float)) or exponent <= 0:
        raise RuntimeError("pow: a sparse tensor takes a positive number as exponent")
    one = input.coalesce() if isinstance(input, Coo) else input
    return one._with(one._value ** exponent)


def _coo(x: Any) -> Any:
    return x.to_sparse() if isinstance(x, Sparse) else x


def _like(made: Any, *given: Any) -> Any:
    """In the layout of the first that is by compressed rows or columns."""
    like = next((x for x in given if isinstance(x, Compressed)), None)
    return made if like is None else made.to_sparse(layout=like.kind, blocksize=like.blocksize)


@_form("add")
def _add(input: Any, other: Any, alpha: Any = 1) -> Any:  # noqa: A002
    if isinstance(input, Sparse) and isinstance(other, Sparse):
        a, b = _coo(input), _coo(other)
        if a.meta.shape != b.meta.shape:
            raise RuntimeError(f"add: expected sizes of 'self' and 'other' to match, but {list(a.meta.shape)} != {list(b.meta.shape)}")
        va, vb = a._value, b._value if alpha == 1 else b._value * alpha
        d = dtypes.promote_types(va.meta.dtype, vb.meta.dtype)
        joined = make(Coo, (_ops().cat([a._indices(), b._indices()], 1),), _ops().cat([va.to(d), vb.to(d)]), a.meta.shape)
        return _like(joined.coalesce(), input, other)
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        raise refusal("add of a number", kind_of(input if isinstance(input, Sparse) else other))
    second: Any = other
    second = second if alpha == 1 else second * alpha
    return input.to_dense() + second if isinstance(input, Sparse) else input + second.to_dense()


@_form("sub")
def _sub(input: Any, other: Any, alpha: Any = 1) -> Any:  # noqa: A002
    return _add(input, other, -alpha)


@_form("mul")
def _mul(input: Any, other: Any) -> Any:  # noqa: A002
    if not isinstance(input, Sparse):
        input, other = other, input  # noqa: A001
    if not isinstance(other, Tensor) or not other.meta.shape:
        return input._with(input._value * (other.to_dense() if isinstance(other, Sparse) else other))
    a = _coo(input)
    if isinstance(other, Sparse):  # places of both: one picks its value at the other's
        a, b = a.coalesce(), _coo(other).coalesce()
        if a.meta.shape != b.meta.shape:
            raise RuntimeError(f"mul operands have incompatible sizes: {list(a.meta.shape)} and {list(b.meta.shape)}")
        shape = tuple(a.meta.shape)[:a.sparse_dim()]
        at, there = linear(a._indices(), shape), linear(b._indices(), shape)
        if not there.numel():
            return _like(make(Coo, (a._indices()[:, :0],), a._value[:0], a.meta.shape, True), input, other)
        where = _ops().searchsorted(there, at).clamp(max=there.numel() - 1)
        both = (there[where] == at).nonzero().reshape(-1)
        made = make(Coo, (a._indices()[:, both],), a._value[both] * b._value[where[both]], a.meta.shape, True)
        return _like(made, input, other)
    dense: Any = other
    return input._with(input._value * dense.expand(tuple(input.meta.shape)).sparse_mask(input)._value)


@_form("div", "true_divide")
def _div(input: Any, other: Any, *, rounding_mode: Any = None) -> Any:  # noqa: A002
    if not isinstance(input, Sparse) or isinstance(other, Sparse) or isinstance(other, Tensor) and other.meta.shape:
        raise refusal("div by a tensor of several elements", kind_of(input if isinstance(input, Sparse) else other))
    return input._with(_ops().div(input._value, other, rounding_mode=rounding_mode))


def _in_place(name: str) -> Any:
    """The form in place of an operation that has one of its own: the tensor takes over the parts of the result."""
    def form(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = form_of(name)(self, *args, **kwargs)
        if not dtypes.can_cast(made.dtype, self.dtype):
            raise RuntimeError(f"result type {dtypes.title(made.dtype)} can't be cast to the desired output type {dtypes.title(self.dtype)}")
        if not isinstance(self, Sparse):
            return self.copy_(made.to_dense() if isinstance(made, Sparse) else made)
        if not isinstance(made, Sparse):
            raise refusal(f"{name}_ with a strided tensor, which makes a strided one,", kind_of(self))
        return self._replace(made if made.dtype is self.dtype else made.to(self.dtype))
    return form


@_form("copy_")
def _copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    if not isinstance(self, Sparse) or not isinstance(src, Sparse) or type(self) is not type(src):
        raise refusal("copy_ between layouts", kind_of(self if isinstance(self, Sparse) else src))
    return self._replace(src.clone().to(device=self.meta.device, dtype=self.meta.dtype, non_blocking=non_blocking))


@_form("zero_")
def _zero(self: Any) -> Any:
    return self._replace(make(Coo, (self._indices()[:, :0],), self._value.detach()[:0], self.meta.shape, True))


# ------------------------------------------------------------------------------------------------------------- products
def _product(a: Any, b: Any) -> Any:
    """A sparse matrix (m, k) times a strided one (k, n): each entry adds its multiple of a row to its own row."""
    if a.sparse_dim() != 2 or a.dense_dim():
        raise refusal("matmul of other than matrices", kind_of(a))
    m, k = a.meta.shape
    if b.dim() != 2 or b.shape[0] != k:
        raise RuntimeError(f"mm: mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {'x'.join(map(str, b.shape))}): the first of mat2 must be {k}")
    if a.meta.dtype is not b.meta.dtype:
        raise RuntimeError(f"mm: expected mat1 and mat2 to have the same dtype, but got: {a.meta.dtype} != {b.meta.dtype}")
    if isinstance(a, Compressed) and not isinstance(a, Csr):
        a = Csr.of(a.to_sparse())
    if sparse_products.served(a._value):
        one, places = _by_rows(a)
        return sparse_products.product(places, one._value, b)
    rows, columns = _coo(a)._indices().unbind(0)
    parts = a._value.unsqueeze(1) * b.index_select(0, columns)
    return parts.new_zeros((m, b.shape[1])).index_add(0, rows, parts)


def _within(a: Any) -> None:
    """Raises RuntimeError where an entry's place lies outside: the kernel reads there."""
    if isinstance(a, Csr):
        crow = a._index[0]
        wrong = (crow[0] != 0) | (crow[-1] != a._nnz()) | (crow[1:] < crow[:-1]).any()
        if a._nnz():
            wrong = wrong | (a._index[1].min() < 0) | (a._index[1].max() >= a.meta.shape[1])
    elif a._nnz():
        low, high = a._indices().amin(1), a._indices().amax(1)
        wrong = (low < 0).any() | (high[0] >= a.meta.shape[0]) | (high[1] >= a.meta.shape[1])
    else:
        return
    if wrong:
        raise RuntimeError(f"mm: the sparse matrix of shape {list(a.meta.shape)} has indices that lie outside of it; "
                           "torch.sparse.check_sparse_tensor_invariants tells where")


def _by_rows(a: Any) -> tuple[Any, Any]:
    """(the matrix with its entries in the order of rows, their places), which are kept with it."""
    places = a.__dict__.get("_rows")
    if places is None:
        _within(a)
    one = a if isinstance(a, Csr) or a.__dict__["_known"] else a.coalesce()
    if places is None:
        rows, columns = _coo(one)._indices().unbind(0)
        crow = one._index[0].to(dtypes.int64) if isinstance(one, Csr) else sparse_products.begins(rows, a.meta.shape[0])
        places = one.__dict__["_rows"] = sparse_products.Rows(crow.contiguous(), rows.contiguous(), columns.contiguous(), tuple(a.meta.shape))
    return one, places


def reduced(a: Any, b: Any, reduce: str) -> Any:
    """As `_product`, with the mean, the largest or the smallest of what comes to an element; 0 where nothing does."""
    a = _coo(a)
    if a.meta.shape[1] != b.shape[0]:
        raise RuntimeError(f"sparse.mm: mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, a.meta.shape))} and {'x'.join(map(str, b.shape))})")
    rows, columns = a._indices().unbind(0)
    parts = a._value.unsqueeze(1) * b.index_select(0, columns)
    made = parts.new_zeros((a.meta.shape[0], b.shape[1]))
    return made.scatter_reduce(0, rows.unsqueeze(1).expand(parts.shape), parts, reduce, include_self=False)


def sampled(input: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:  # noqa: A002
    """alpha (mat1 @ mat2) + beta input, at the places of a sparse `input` only."""
    a = _coo(input)
    if mat1.dim() != 2 or mat2.dim() != 2 or mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, mat1.shape))} and "
                           f"{'x'.join(map(str, mat2.shape))})")
    if (mat1.shape[0], mat2.shape[1]) != tuple(a.meta.shape):
        raise RuntimeError(f"sampled_addmm: self has shape {list(a.meta.shape)}, the product {[mat1.shape[0], mat2.shape[1]]}")
    rows, columns = a._indices().unbind(0)
    product = sparse_products.at_places(mat1, mat2, rows, columns)
    return input._with(product * alpha + a._value * beta if beta else product * alpha)


@_form("mm", "matmul", "spmm", "mv", "bmm")
def matmul(input: Any, mat2: Any = None, **named: Any) -> Any:  # noqa: A002
    """sparse @ strided and strided @ sparse give strided tensors, sparse @ sparse a sparse one."""
    other = mat2 if mat2 is not None else next(iter(named.values()))
    if isinstance(input, Sparse) and isinstance(other, Sparse):
        made = _sparse_sparse(_coo(input).coalesce(), _coo(other).coalesce())
        return made.to_sparse_csr() if isinstance(input, Compressed) or isinstance(other, Compressed) else made
    if isinstance(input, Sparse):
        return _product(input, other.unsqueeze(1)).squeeze(1) if other.dim() == 1 else _product(input, other)
    if input.dim() == 1:
        return _product(other.t(), input.unsqueeze(1)).squeeze(1)
    return _product(other.t(), input.t()).t()


def _sparse_sparse(a: Any, b: Any) -> Any:
    """Pairs of entries (i, j) and (j, k), made from b's rows, summed at (i, k)."""
    if a.meta.shape[1] != b.meta.shape[0]:
        raise RuntimeError(f"mm: mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, a.meta.shape))} and {'x'.join(map(str, b.meta.shape))})")
    ops = _ops()
    crow = b.to_sparse_csr().crow_indices()
    rows, inner = a._indices().unbind(0)
    counts = crow[inner + 1] - crow[inner]
    which = ops.repeat_interleave(ops.arange(rows.numel(), device=rows.device), counts)
    begins = counts.cumsum(0) - counts
    at = ops.arange(which.numel(), device=rows.device) - begins[which] + crow[inner][which]
    made = make(Coo, (ops.stack([rows[which], b._indices()[1][at]]),), a._value[which] * b._value[at], (a.meta.shape[0], b.meta.shape[1]))
    return made.coalesce()


@_form("sspaddmm")
def _sspaddmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:  # noqa: A002
    product = matmul(mat1, mat2)
    if isinstance(input, Coo) and not isinstance(product, Sparse):
        product = product.to_sparse()
    return _scaled(input, beta) + _scaled(product, alpha)


@_form("addmm")
def _addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:  # noqa: A002
    made = _scaled(matmul(mat1, mat2), alpha) + _scaled(input, beta)
    return made if isinstance(made, Sparse) else made.contiguous()


def _scaled(x: Any, by: Any) -> Any:
    return x if by == 1 else x * by


@_form("addmv")
def _addmv(input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:  # noqa: A002
    return _addmm(input, mat, vec, beta=beta, alpha=alpha)


@_form("smm", "hspmm")
def _smm(input: Any, mat: Any) -> Any:  # noqa: A002
    return matmul(input, mat).to_sparse()


# ------------------------------------------------------------------------------------------------------------ arrangement
@_form("t")
def _t(input: Any) -> Any:  # noqa: A002
    if len(input.meta.shape) > 2 or input.dense_dim():
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {input.sparse_dim()} sparse and "
                           f"{input.dense_dim()} dense dimensions")
    return input if len(input.meta.shape) < 2 else _transpose(input, 0, 1)


@_form("transpose", "swapaxes", "swapdims")
def _transpose(input: Any, dim0: int, dim1: int) -> Any:  # noqa: A002
    a = _coo(input)
    n = len(a.meta.shape)
    d0, d1 = wrap_dim(dim0, n), wrap_dim(dim1, n)
    if isinstance(input, Compressed):
        return input if d0 == d1 else transposed(input)
    if max(d0, d1) >= a.sparse_dim():
        raise refusal("transpose of dense dimensions", kind_of(a))
    order = list(range(a.sparse_dim()))
    order[d0], order[d1] = order[d1], order[d0]
    shape = list(a.meta.shape)
    shape[d0], shape[d1] = shape[d1], shape[d0]
    return make(Coo, (_ops().stack([a._indices()[d] for d in order]),), a._value, shape, d0 == d1 and a.is_coalesced())


@_form("index_select")
def _index_select(input: Any, dim: int, index: Any) -> Any:  # noqa: A002
    parts = [_select(_coo(input), dim, int(i), True) for i in index.tolist()]
    return _ops().stack([]) if not parts else _like(_join(parts, wrap_dim(dim, len(input.meta.shape))), input)


def _join(parts: list[Any], dim: int) -> Any:
    """Sparse tensors one after the other along a sparse dimension."""
    indices, start = [], 0
    for p in parts:
        moved = p._indices().clone()
        moved[dim] += start
        indices.append(moved)
        start += p.meta.shape[dim]
    shape = list(parts[0].meta.shape)
    shape[dim] = start
    return make(Coo, (_ops().cat(indices, 1),), _ops().cat([p._value for p in parts]), shape)


@_form("cat")
def _cat(tensors: Any, dim: int = 0) -> Any:
    if not all(isinstance(t, Sparse) for t in tensors):
        raise RuntimeError("Concatenating sparse tensors, but a dense tensor was found")
    return _like(_join([_coo(t) for t in tensors], wrap_dim(dim, len(tensors[0].meta.shape))), *tensors)


def _select(a: Any, dim: int, i: int, keep: bool = False) -> Any:
    d = wrap_dim(dim, len(a.meta.shape))
    if d >= a.sparse_dim():
        raise refusal("select of a dense dimension", kind_of(a))
    size = a.meta.shape[d]
    if not -size <= i < size:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(a.meta.shape)} at dimension {dim}")
    here = (a._indices()[d] == i % size).nonzero().reshape(-1)
    picked = a._indices()[:, here]
    if keep:
        picked = picked.clone()
        picked[d] = 0
        return make(Coo, (picked,), a._value[here], (*a.meta.shape[:d], 1, *a.meta.shape[d + 1:]), a.is_coalesced())
    rest = _ops().cat([picked[:d], picked[d + 1:]])
    shape = Size((*a.meta.shape[:d], *a.meta.shape[d + 1:]))
    if not rest.shape[0]:
        return a._value[here].sum(0)
    return make(Coo, (rest,), a._value[here], shape, a.is_coalesced())


@_form("index", "select")
def _index(input: Any, key: Any, *more: Any) -> Any:  # noqa: A002
    if more:
        return _select(_coo(input), key, int(more[0]))
    found = _coo(input)
    for k in key if isinstance(key, tuple) else (key,):
        if not isinstance(k, int) or isinstance(k, bool):
            raise refusal("indexing by other than ints", kind_of(input))
        found = found[k] if not isinstance(found, Sparse) else _select(found, 0, k)
    return found


@_form("unbind")
def _unbind(input: Any, dim: int = 0, *, axis: int | None = None) -> tuple[Any, ...]:  # noqa: A002
    at = wrap_dim(dim if axis is None else axis, len(input.meta.shape))
    a = _coo(input)
    return tuple([_select(a, at, i) for i in range(input.meta.shape[at])])


# --------------------------------------------------------------------------------------------------------------- reductions
@_form("sum")
def total(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:  # noqa: A002
    """The sum of all values, or over some dimensions: sparse as long as a sparse dimension is left."""
    a = _coo(input)
    if dtype is not None:
        a = a.to(dtype)
    if dim is None or dim == ():
        return a._value.sum()
    dims = sorted({wrap_dim(d, len(a.meta.shape)) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))})
    n = a.sparse_dim()
    values = a._value
    inside = [d - n + 1 for d in dims if d >= n]
    if inside:
        values = values.sum(inside, keepdim)
    left = [d for d in range(n) if d not in dims]
    tail = tuple(values.shape[1:])
    if not left:
        made = values.sum(0)
        return made.reshape(tuple(1 for _ in range(n)) + tail) if keepdim else made
    if keepdim:
        picked = a._indices().clone()
        for d in dims:
            if d < n:
                picked[d] = 0
        shape = [1 if d in dims else s for d, s in enumerate(a.meta.shape[:n])]
    else:
        picked, shape = a._indices()[_ops().tensor(left, device=a.device)], [a.meta.shape[d] for d in left]
    return make(Coo, (picked,), values, (*shape, *tail)).coalesce()


def softmax(input: Any, dim: int, log: bool) -> Any:  # noqa: A002
    """The softmax over the specified elements only, those of other places counting as -inf."""
    a = _coo(input).coalesce()
    ops = _ops()
    d = wrap_dim(dim, len(a.meta.shape))
    if d >= a.sparse_dim():
        k = d - a.sparse_dim() + 1
        return a._with(a._value.log_softmax(k) if log else a._value.softmax(k))
    others = [i for i in range(a.sparse_dim()) if i != d]
    shape = [a.meta.shape[i] for i in others]
    if not others:
        group = ops.zeros((a._nnz(),), dtype=dtypes.int64, device=a.device)
        count = 1
    else:
        places, group = ops.unique(linear(ops.stack([a._indices()[i] for i in others]), shape), return_inverse=True)
        count = places.numel()
    v = a._value
    wide = group.reshape(-1, *[1] * (v.dim() - 1)).expand(v.shape)
    top = v.detach().new_full((count, *v.shape[1:]), -float("inf")).scatter_reduce(0, wide, v.detach(), "amax")
    away = v - top.index_select(0, group)
    e = away.exp()
    sums = e.new_zeros((count, *v.shape[1:])).index_add(0, group, e).index_select(0, group)
    return a._with(away - sums.log() if log else e / sums)


# ------------------------------------------------------------------------------------------------- as methods of sparse tensors
_VALUES = [n for n, form in _FIELD.items() if form == "values"]
for _name in (*FORMS, *_VALUES):
    if _name in TABLE and TABLE[_name].inplace is not None:
        FORMS.setdefault(_name + "_", _in_place(_name))
for _name in (*FORMS, *_VALUES):
    if _name in Tensor.__dict__ and _name not in Sparse.__dict__:
        setattr(Sparse, _name, form_of(_name))


# ------------------------------------------------------------------------------------------------------------------- others
def _without_format(name: str, memory_format: Any) -> None:
    if memory_format is not None:
        raise RuntimeError(f"{name}(): memory format option is only supported by strided tensors, got {memory_format}")


@_form("zeros_like")
def _zeros_like(input: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> Any:  # noqa: A002
    """Nothing is specified."""
    _without_format("zeros_like", memory_format)
    values = _ops().zeros((0, *input._value.meta.shape[1:]), dtype=dtype or input.meta.dtype, device=input.meta.device)
    indices = [i[:, :0] if isinstance(input, Coo) else i[:0] for i in input._index]
    if isinstance(input, Compressed):
        indices[0] = _ops().zeros_like(input._index[0])
    return make(type(input), tuple(indices), values, input.meta.shape, True)


def _alike(name: str) -> None:
    @_form(name)
    def form(input: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> Any:  # noqa: A002
        _without_format(name, memory_format)
        if isinstance(input, Coo):
            if name == "empty_like":
                return _zeros_like(input, dtype=dtype)
            raise refusal(name, kind_of(input))
        return input._with(getattr(_ops(), name)(input._value, dtype=dtype))


_alike("empty_like")
_alike("ones_like")
