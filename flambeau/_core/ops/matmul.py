"""Matrix products.  Two-dimensional and batched products are launches of the CPU's library; everything else is built from them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from .. import dtypes, layout
from ..autograd import tape
from ..autograd.mode import _grad, no_recording
from ..engine import general
from ..engine.fields import has
from ..kernels import expr as E
from ..kernels.programs import Reduce
from ..runtime import dispatch
from ..tensor import Meta, Tensor, alias, empty, meta, new
from . import launch, routines
from .casts import in_float32, to_dtype
from .checks import factor_fits, of_kinds, same_device
from .copies import contiguous
from .elementwise import fit
from .linear_activation import back as _activation_back
from .linear_activation import past as _past_activation
from .table import op

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dtypes import dtype
    from ..kernels.programs import PreparedLaunch
    from ..runtime.device import device

_BY_KERNEL = object()  # a plan: a generated reduction does it


def _product(c: Tensor, a: Tensor, b: Tensor, alpha: complex = 1.0, beta: complex = 0.0) -> None:
    """c = alpha a b + beta c for (m, k) (k, n) or batches of them with equal leading axes of size 1 at most 3 axes; outside
    the tape.  c is contiguous, all of one type."""
    if not c.meta.numel:
        return
    if not a.meta.device is b.meta.device is c.meta.device:
        same_device("matmul", a, b, c)
    call = _plan(c.meta, a.meta, b.meta, alpha, beta)
    if type(call) is _Copied:
        _product(c, contiguous(a) if call.first else a, contiguous(b) if call.second else b, alpha, beta)
    elif call is _BY_KERNEL:
        _by_kernel(c, a, b, alpha, beta)
    else:
        call(c.ptr, a.ptr, b.ptr)


class _Copied:
    """A plan: these operands are copied first, since the backend cannot read their strides."""

    __slots__ = ("first", "second")

    def __init__(self, first: bool, second: bool) -> None:
        self.first, self.second = first, second


@general.kept
def _plan(c: Meta, a: Meta, b: Meta, alpha: complex, beta: complex) -> Any:
    """The launch, `_Copied`, or `_BY_KERNEL` for what the device's backend has no product for."""
    *lead, m, k = a.shape
    n, d = b.shape[-1], a.dtype
    if not k or d.kind == "b":
        return _BY_KERNEL
    for first, second in ((False, False), (True, False), (False, True), (True, True)):
        if first and a.contiguous or second and b.contiguous:
            continue
        x, y = _steps(a, first), _steps(b, second)
        made = dispatch.product(c.device, d, m, n, k, x, y, (n, 1, m * n if lead else 0), lead[0] if lead else 1, alpha, beta)
        if made is not None:
            return _Copied(first, second) if first or second else _bound(c.device, made)
    return _BY_KERNEL


def _bound(dev: device, made: PreparedLaunch) -> Callable[..., None]:
    """What carries out a product, in a workspace of its own where it needs one."""
    bound = routines.bind(dev, made)
    if bound[1] is None:
        return bound[0]
    return lambda *addresses: routines.call(bound, addresses)


def _steps(m: Meta, copied: bool) -> tuple[int, int, int]:
    """From row to row, from column to column and from matrix to matrix."""
    strides = layout.contiguous_strides(m.shape) if copied else m.strides
    return strides[-2], strides[-1], strides[0] if len(strides) > 2 else 0


@cache
def _sums(d: dtype) -> Reduce:
    """A reduction that sums products."""
    x, y = E.input(0, d), E.input(1, d)
    # 0 has no gradient here and no NaN: integers only, or empty sums
    return Reduce((x * y if d.kind != "b" else x & y,), ("sum" if d.kind != "b" else "or",), (E.acc(0, d),), (d, d))


def _by_kernel(c: Tensor, a: Tensor, b: Tensor, alpha: complex, beta: complex) -> None:
    """Integers and half types by a generated reduction over k, or by a product of a wider type where the device has one: half types are summed
    in float32, and what integers of 8 and 16 bits wrap to are the last bits of wider sums."""
    d = a.meta.dtype
    *lead, m, k = a.meta.shape
    n = b.meta.shape[-1]
    more = dtypes.float32 if d.kind == "f" and d.itemsize == 2 else None
    if d.kind in "ui" and d.itemsize < 4 and k and b.meta.strides[-1] != 1:  # whose rows the reduction does not walk
        more = dtypes.int32
    if more is dtypes.int32:
        wc, wa, wb = (meta(t.meta.shape, None, more, t.meta.device) for t in (c, a, b))
        if _plan(wc, wa, wb, alpha, beta) is _BY_KERNEL:
            more = None
    if more is not None:
        wide = empty(c.meta.shape, more, c.meta.device)
        if beta:
            from .copies import copy_into
            copy_into(wide, c)
        with no_recording():
            _product(wide, to_dtype(a, more), to_dtype(b, more), alpha, beta)
            from .copies import copy_into
            copy_into(c, wide)
        return
    domain = (*lead, m, n, k)
    made = c if not beta and alpha == 1 else empty(c.meta.shape, d, c.meta.device)
    a_lead, b_lead = a.meta.strides[:-2], b.meta.strides[:-2]
    launch.run(_sums(d), domain, [made], [a, b], [layout.contiguous_strides((*lead, m, n)), (*a_lead, a.meta.strides[-2], 0, a.meta.strides[-1]),
                                                 (*b_lead, 0, b.meta.strides[-1], b.meta.strides[-2])], name="matmul")
    if made is not c:
        from .copies import copy_into
        with no_recording():
            copy_into(c, made * alpha + (c * beta if beta else 0))


def _type_name(t: Tensor) -> str:
    return {"float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int", "int32": "int",
            "complex64": "c10::complex<float>", "complex128": "c10::complex<double>"}.get(t.meta.dtype.name, t.meta.dtype.name)


def _check_types(name: str, *ts: Any, added: bool = False) -> None:
    """Raises for operands of a product that are no tensors, on several devices, or of types that do not go together.  added: to something else, which
    PyTorch words in another way."""
    for i, t in enumerate(ts):
        if not isinstance(t, Tensor):
            label = "input" if not i else "other" if name == "matmul" else "mat2"
            raise TypeError(f"{name}(): argument '{label}' (position {i + 1}) must be Tensor, not {type(t).__name__}")
    same_device(name, *ts)
    if ts[0].meta.numel and ts[1].meta.numel or name == "dot":  # PyTorch looks at no type where there is nothing to multiply
        of_kinds(name, ts[0], "uifc")
    if ts[0].meta.dtype is not ts[1].meta.dtype:
        if added:
            raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {dtypes.title(ts[0].meta.dtype)} and {dtypes.title(ts[1].meta.dtype)}")
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {_type_name(ts[0])} != {_type_name(ts[1])}")


def adjoint(t: Tensor) -> Tensor:
    """The conjugate transpose of the last two axes."""
    x = t.transpose(-2, -1)
    return x.conj_physical() if t.meta.dtype.is_complex else x


def _turned(t: Tensor) -> Tensor:
    """The conjugate transpose of a matrix; outside the tape a bare alias will do."""
    if _grad.get() or t.meta.dtype.is_complex:
        return adjoint(t)
    return _transposed(t)


def _factors(a: Tensor, b: Tensor) -> tuple[Any, ...]:
    """What the node of a product keeps: each factor that the other's gradient needs, with its version, and how b is laid out."""
    return (*((None, 0) if b.node is None else (a, a.store.version)), *((None, 0) if a.node is None else (b, b.store.version)), b.meta)


def _kept_factors(node: Any) -> Any:
    """The same, after a look at the versions."""
    saved = node[tape.SAVED]
    a, va, b, vb = saved[:4]
    if a is not None and a.store.version != va:
        tape.changed(a, va, node)
    if b is not None and b.store.version != vb:
        tape.changed(b, vb, node)
    return saved


def _mm_back(node: Any, g: Tensor) -> Any:
    a, _, b, _, m = _kept_factors(node)
    gb = None
    if a is not None:
        # laid out as b is: the gradient of a transposed weight is then the weight's without a copy
        gb = _mm(_turned(a), g) if m.contiguous or m.strides[0] != 1 or m.dtype.is_complex else _turned(_mm(_turned(g), a))
    return (_mm(g, _turned(b)) if b is not None else None, gb)


_mm_back.grad_name = "MmBackward0"  # type: ignore[attr-defined]


@general.kept
def _mm_plan(a: Meta, b: Meta) -> Any:
    """The layout of a product of matrices and what makes it in one launch; None where there is no such launch, or no product."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0] or a.dtype is not b.dtype or a.device is not b.device:
        return None
    out = meta((a.shape[0], b.shape[1]), None, a.dtype, a.device)
    call = _plan(out, a, b, 1.0, 0.0) if out.numel else _BY_KERNEL
    return None if call is _BY_KERNEL or type(call) is _Copied else (out, call)


def _mm(a: Tensor, b: Tensor) -> Tensor:
    """(m, k) @ (k, n), recorded."""
    plan = _mm_plan(a.meta, b.meta) if isinstance(a, Tensor) and isinstance(b, Tensor) else None
    if plan is not None:
        out = new(plan[0])
        plan[1](out.ptr, a.ptr, b.ptr)
    else:
        _check_types("mm", a, b)
        if len(a.meta.shape) != 2 or len(b.meta.shape) != 2:
            raise RuntimeError(f"{'self' if len(a.meta.shape) != 2 else 'mat2'} must be a matrix")
        if a.meta.shape[1] != b.meta.shape[0]:
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.meta.shape[0]}x{a.meta.shape[1]} and {b.meta.shape[0]}x{b.meta.shape[1]})")
        out = empty((a.meta.shape[0], b.meta.shape[1]), a.meta.dtype, a.meta.device)
        _product(out, a, b)
    if (a.node is not None or b.node is not None) and _grad.get():
        out.node = tape.node(_mm_back, (a.node, b.node), _factors(a, b))
    return out


def _bmm_back(node: Any, g: Tensor) -> Any:
    a, _, b, _, _ = _kept_factors(node)
    return (_bmm(g, adjoint(b)) if b is not None else None, _bmm(adjoint(a), g) if a is not None else None)


_bmm_back.grad_name = "BmmBackward0"  # type: ignore[attr-defined]


def _bmm(a: Tensor, b: Tensor) -> Tensor:
    """(p, m, k) @ (p, k, n), recorded."""
    out = empty((a.meta.shape[0], a.meta.shape[1], b.meta.shape[2]), a.meta.dtype, a.meta.device)
    _product(out, a, b)
    return tape.record(out, _bmm_back, (a, b), _factors(a, b))


# --------------------------------------------------------------------------------------------------------------- products
@op(out=True, autocast="lower", tangent="product", batch="product")
def mm(input: Tensor, mat2: Tensor) -> Tensor:  # noqa: A002
    """The product of matrices (n, m) and (m, p)."""
    return _mm(input, mat2)


@op(out=True, autocast="lower", tangent="product", batch="product")
def bmm(input: Tensor, mat2: Tensor) -> Tensor:  # noqa: A002
    """The products of batches (b, n, m) and (b, m, p)."""
    return _bmm(*_batches(input, mat2))


def _batches(input: Tensor, mat2: Tensor) -> tuple[Tensor, Tensor]:  # noqa: A002
    """Both, looked at."""
    _check_types("bmm", input, mat2)
    if len(input.meta.shape) != 3 or len(mat2.meta.shape) != 3:
        raise RuntimeError("batch1 must be a 3D tensor" if len(input.meta.shape) != 3 else "batch2 must be a 3D tensor")
    b, n, m = input.meta.shape
    if mat2.meta.shape[:2] != (b, m):
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {m}] but got: [{mat2.meta.shape[0]}, "
                           f"{mat2.meta.shape[1]}].")
    return input, mat2


@op(out=True, aliases=("linalg.matmul",), autocast="lower", tangent="product", batch="product")
def matmul(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """The matrix product, batch axes broadcast; vectors are rows on the left and columns on the right."""
    if isinstance(input, Tensor) and isinstance(other, Tensor) and len(input.meta.shape) == 2 and len(other.meta.shape) == 2:
        return _mm(input, other)
    _check_types("matmul", input, other)
    a, b = input, other
    na, nb = len(a.meta.shape), len(b.meta.shape)
    if na == 0 or nb == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {na}D and {nb}D")
    if na == 1 and nb == 1:
        return dot(a, b)
    if na == 1:
        return matmul(a.unsqueeze(0), b).squeeze(-2)
    if nb == 1:
        return matmul(a, b.unsqueeze(1)).squeeze(-1)
    m, k, n = a.meta.shape[-2], a.meta.shape[-1], b.meta.shape[-1]
    if k != b.meta.shape[-2]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({layout.numel(a.meta.shape[:-1])}x{k} and {b.meta.shape[-2]}x{n})")
    if nb == 2:  # one matrix for the whole batch: one product of all rows
        return _mm(a.reshape(layout.numel(a.meta.shape[:-1]), k), b).reshape(*a.meta.shape[:-1], n)
    lead = layout.broadcast_shapes(a.meta.shape[:-2], b.meta.shape[:-2])
    p = layout.numel(lead)
    a3 = a.expand(*lead, m, k).reshape(p, m, k)
    b3 = b.expand(*lead, k, n).reshape(p, k, n)
    return _bmm(a3, b3).reshape(*lead, m, n)


def _vector_back(node: Any, g: Tensor) -> Any:
    a, _, b, _, _ = _kept_factors(node)
    return (g * b.conj_physical() if b is not None else None, g * a.conj_physical() if a is not None else None)


@op(out=True, autocast="cuda widest", tangent="product", batch="product")
def dot(input: Tensor, tensor: Tensor) -> Tensor:  # noqa: A002
    """The sum of products of two vectors."""
    a, b = input, tensor
    same_device("dot", a, b)
    of_kinds("dot", a, "uifc")
    if len(a.meta.shape) != 1 or len(b.meta.shape) != 1:
        raise RuntimeError(f"1D tensors expected, but got {len(a.meta.shape)}D and {len(b.meta.shape)}D tensors")
    if a.meta.dtype is not b.meta.dtype:
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {dtypes.title(a.meta.dtype)} and "
                           f"{dtypes.title(b.meta.dtype)}")
    if a.meta.shape != b.meta.shape:
        raise RuntimeError(f"inconsistent tensor size, expected tensor [{a.meta.shape[0]}] and src [{b.meta.shape[0]}] to have the same number "
                           f"of elements, but got {a.meta.shape[0]} and {b.meta.shape[0]} elements respectively")
    out = empty((1, 1), a.meta.dtype, a.meta.device)
    row, column = _shaped(a, (1, a.meta.shape[0]), (a.meta.shape[0] * a.meta.strides[0], a.meta.strides[0])), _shaped(
        b, (b.meta.shape[0], 1), (b.meta.strides[0], 1))
    _product(out, row, column)
    if not a.meta.numel:
        launch.fill(out, 0)
    r = alias(out, meta((), None, a.meta.dtype, a.meta.device), out.ptr)
    return tape.record(r, _vector_back, (a, b), _factors(a, b), "DotBackward0")


def _shaped(t: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    return alias(t, meta(shape, strides, t.meta.dtype, t.meta.device), t.ptr)


@op(out=True, autocast="cuda widest", tangent="product")
def vdot(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """The dot product with the first vector conjugated."""
    return dot(input.conj_physical(), other)


@op(out=True, autocast="cuda lower", tangent="product", batch="product")
def mv(input: Tensor, vec: Tensor) -> Tensor:  # noqa: A002
    """A matrix times a vector."""
    if len(input.meta.shape) != 2 or len(vec.meta.shape) != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {len(vec.meta.shape)}, {len(input.meta.shape)}, {len(vec.meta.shape)}")
    if input.meta.shape[1] != vec.meta.shape[0]:
        raise RuntimeError(f"size mismatch, got input ({input.meta.shape[0]}), mat ({input.meta.shape[0]}x{input.meta.shape[1]}), vec "
                           f"({vec.meta.shape[0]})")
    return _mm(input, vec.unsqueeze(1)).squeeze(1)


@op(out=True, aliases=("ger",), tangent="product", out_type="castable", batch="product and sum")
def outer(input: Tensor, vec2: Tensor) -> Tensor:  # noqa: A002
    """The matrix of products of two vectors' elements."""
    if len(input.meta.shape) != 1 or len(vec2.meta.shape) != 1:
        raise RuntimeError(f"outer: Expected 1-D argument {'self' if len(input.meta.shape) != 1 else 'vec2'}, but got "
                           f"{len(input.meta.shape) if len(input.meta.shape) != 1 else len(vec2.meta.shape)}-D")
    return input.unsqueeze(1) * vec2


# ------------------------------------------------------------------------------------------------------- sums of products
def _added(name: str, product: Callable[[Tensor, Tensor], Tensor], shapes: Callable[[Tensor, Tensor, Tensor], None],
           matrices: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None) -> Any:
    """The sum of a base and a product, and its form in place.  shapes: looks at what comes before the types; matrices: the matrices or batches that
    `product` multiplies, where it is one product."""
    def inplace(self: Tensor, first: Tensor, second: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        from .copies import assign
        made = compute(self, first, second, beta, alpha)
        if made.meta.shape != self.meta.shape:
            raise RuntimeError(f"{name}_: the result has shape {list(made.meta.shape)}, which does not fit into {list(self.meta.shape)} in place")
        return assign(self, made)

    def compute(base: Tensor, first: Tensor, second: Tensor, beta: Any, alpha: Any) -> Tensor:
        same_device(name, base, first, second)
        shapes(base, first, second)
        for t in (first, second):
            if t.meta.dtype is not base.meta.dtype:
                raise RuntimeError(f"expected {name} operands to have the same dtype, but got: {_type_name(base)}, {_type_name(first)} and "
                                   f"{_type_name(second)}")
        if base.meta.dtype.kind in "bui":  # numbers of another kind are first made of this one
            alpha, beta = (int(x) if base.meta.dtype.kind != "b" else bool(x) for x in (alpha, beta))
        if matrices is not None and alpha == beta == 1 and base.meta.dtype.kind == "f" and base.meta.dtype.itemsize == 2:
            made = _onto(name, base, *matrices(first, second))
            if made is not None:
                return made
        return added(base, first, second, beta, alpha)

    @in_float32
    def added(base: Tensor, first: Tensor, second: Tensor, beta: Any, alpha: Any) -> Tensor:
        made = product(first, second)
        if layout.broadcast_shapes(base.meta.shape, made.meta.shape) != tuple(made.meta.shape):
            raise RuntimeError(f"The expanded size of the tensor ({list(made.meta.shape)}) must match the existing size "
                               f"({list(base.meta.shape)})")
        if alpha != 1:
            made = made * alpha
        if beta == 0:  # NaN and infinities of the base do not count then
            return made
        return made + (base if beta == 1 else base * beta)
    inplace.__name__ = name + "_"
    return compute, inplace


def _has_axes(*needed: tuple[Tensor, int]) -> None:
    """Raises IndexError where an axis is missing that the result has."""
    for t, axis in needed:
        layout.wrap_dim(axis, len(t.meta.shape), False)


def _are_matrices(base: Tensor, mat1: Tensor, mat2: Tensor) -> None:
    for name, t in (("self", base), ("mat1", mat1)):
        if t.meta.dtype is not mat2.meta.dtype:
            raise RuntimeError(f"{name} and mat2 must have the same dtype, but got {dtypes.title(t.meta.dtype)} and {dtypes.title(mat2.meta.dtype)}")
    for name, t in (("mat1", mat1), ("mat2", mat2)):
        if len(t.meta.shape) != 2:
            raise RuntimeError(f"{name} must be a matrix, got {len(t.meta.shape)}-D tensor")


def _matrix_and_vectors(base: Tensor, mat: Tensor, vec: Tensor) -> None:
    axes = len(base.meta.shape), len(mat.meta.shape), len(vec.meta.shape)
    if axes[0] > 1 or axes[1:] != (2, 1):
        raise RuntimeError(f"vector + matrix @ vector expected, got {axes[0]}, {axes[1]}, {axes[2]}")


def _two_vectors(base: Tensor, vec1: Tensor, vec2: Tensor) -> None:
    for name, t in (("vec1", vec1), ("vec2", vec2)):
        if len(t.meta.shape) != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {len(t.meta.shape)}-D")


def _onto(name: str, base: Tensor, a: Tensor, b: Tensor) -> Tensor | None:
    """base + a b for 16-bit floats, rounded once, by a product that adds to what is there; None where the device has none, or sizes do not fit."""
    shape = (*a.meta.shape[:-1], b.meta.shape[-1])
    if len(shape) not in (2, 3) or len(b.meta.shape) != len(shape) or a.meta.shape[-1] != b.meta.shape[-2] or not layout.numel(shape):
        return None
    m = meta(shape, None, base.meta.dtype, base.meta.device)
    if layout.broadcast_shapes(base.meta.shape, shape) != shape or _plan(m, a.meta, b.meta, 1.0, 1.0) is _BY_KERNEL:
        return None
    from .copies import copy_into
    out = new(m)
    with no_recording():
        copy_into(out, base.expand(shape))
        _product(out, a, b, 1.0, 1.0)
    return tape.record(out, _onto_back, (base, a, b), (*_factors(a, b), base.meta), name=f"{name.capitalize()}Backward0")


def _onto_back(node: Any, g: Tensor) -> Any:
    a, _, b, _, _, base = _kept_factors(node)
    product = _mm if len(g.meta.shape) == 2 else _bmm
    return (fit(g, base) if node[tape.EDGES][0] is not None else None, product(g, adjoint(b)) if b is not None else None,
            product(adjoint(a), g) if a is not None else None)


def _side_by_side(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Batches whose products are summed as matrices of one product."""
    a, b = _batches(a, b)
    p, n, m = a.meta.shape
    return a.permute(1, 0, 2).reshape(n, p * m), b.reshape(p * m, b.meta.shape[2])


_addmm, _addmm_ = _added("addmm", _mm, _are_matrices, matrices=lambda a, b: (a, b))
_baddbmm, _baddbmm_ = _added("baddbmm", lambda a, b: bmm(a, b), lambda base, a, b: _has_axes((a, 0), (a, 1), (b, 2)),
                                matrices=lambda a, b: _batches(a, b))
_addmv, _addmv_ = _added("addmv", lambda a, b: mv(a, b), _matrix_and_vectors)
_addbmm, _addbmm_ = _added("addbmm", lambda a, b: bmm(a, b).sum(0), lambda base, a, b: _has_axes((a, 1), (b, 2)), matrices=_side_by_side)


@op(out=True, inplace=_addmm_, autocast="lower", batch="product and sum")
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:  # noqa: A002
    """beta input + alpha mat1 @ mat2."""
    made: Tensor = _addmm(input, mat1, mat2, beta, alpha)
    return made


@op(out=True, inplace=_baddbmm_, autocast="lower", batch="product and sum")
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:  # noqa: A002
    """beta input + alpha batch1 @ batch2, batch by batch."""
    made: Tensor = _baddbmm(input, batch1, batch2, beta, alpha)
    return made


@op(out=True, inplace=_addmv_, autocast="cuda lower", batch="product and sum")
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:  # noqa: A002
    """beta input + alpha mat @ vec."""
    made: Tensor = _addmv(input, mat, vec, beta, alpha)
    return made


_addr, _ = _added("addr", lambda a, b: outer(a, b), _two_vectors)


def _addr_inplace(self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    from .copies import assign
    from .outputs import castable
    if _outer_added(self, vec1, vec2) and tuple(self.meta.shape) == (vec1.meta.numel, vec2.meta.numel) and beta == 1 and not tape.recording(self, vec1, vec2):
        made: Tensor = self.addcmul_(vec1.unsqueeze(1), vec2, value=alpha)
        return made
    made = addr(self, vec1, vec2, beta=beta, alpha=alpha)
    if made.meta.shape != self.meta.shape:
        raise RuntimeError(f"addr_: the result has shape {list(made.meta.shape)}, which does not fit into {list(self.meta.shape)} in place")
    castable("addr_", made.meta.dtype, self.meta.dtype)
    return assign(self, made)


def _outer_added(base: Tensor, a: Tensor, b: Tensor) -> bool:
    """Whether `addcmul` does it: of one type that is not rounded on the way."""
    d = base.meta.dtype
    return d.kind in "fc" and d is d.opmath and a.meta.dtype is b.meta.dtype is d and len(a.meta.shape) == len(b.meta.shape) == 1


@op(out=True, inplace=_addr_inplace, autocast="cuda lower", out_type="castable", batch="product and sum")
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:  # noqa: A002
    """beta input + alpha outer(vec1, vec2)."""
    if beta == 1 and _outer_added(input, vec1, vec2) and tuple(input.meta.shape) == (vec1.meta.numel, vec2.meta.numel):
        same_device("addr", input, vec1, vec2)
        whole: Tensor = input.addcmul(vec1.unsqueeze(1), vec2, value=alpha)
        return whole
    common = dtypes.promote_types(dtypes.promote_types(input.meta.dtype, vec1.meta.dtype), vec2.meta.dtype)
    factor_fits(common, beta, "beta")
    factor_fits(common, alpha)
    made: Tensor = _addr(*(to_dtype(t, common) for t in (input, vec1, vec2)), beta, alpha)
    return made


@op(out=True, inplace=_addbmm_, autocast="lower")
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:  # noqa: A002
    """beta input + alpha times the sum of batch1 @ batch2 over the batch."""
    made: Tensor = _addbmm(input, batch1, batch2, beta, alpha)
    return made


def _linear_back(node: Any, g: Tensor) -> Any:
    x, _, w, _, _, bias, shape = _kept_factors(node)
    edges = node[tape.EDGES]
    ex, ew, eb = edges[:3]
    if not g.meta.contiguous and 0 in g.meta.strides:  # a sum's gradient: few products read expanded axes, and g is in two
        g = contiguous(g)
    if len(shape.shape) > 2:
        g, x = _as_rows(g), None if x is None else _as_rows(x)
    past = _past_activation(node, g, w) if len(edges) > 3 else None
    gx = _mm(g, w if not w.meta.dtype.is_complex else w.conj_physical()) if ex is not None and past is None else None
    both = _weight_and_bias(g, x, bias) if ew is not None and eb is not None and not _grad.get() else None
    if gx is not None and gx.meta.shape != shape.shape:
        gx = gx.reshape(shape.shape) if _grad.get() else alias(gx, meta(shape.shape, None, gx.meta.dtype, gx.meta.device), gx.ptr)
    if both is not None:
        return (gx, *both, past)
    gw = None if ew is None else _mm(*[t.conj_physical() if t.meta.dtype.is_complex else t for t in (_turned(g), x)])
    return (gx, gw, fit(g, bias) if eb is not None else None, past)


def recorded_layer(input: Tensor, weight: Tensor, bias: Tensor | None) -> tape.Node:  # noqa: A002
    """The node of a layer.  Its fourth edge, where it has one, leads past the activation that `input` comes from (`linear_with_activation`)."""
    n, edges = input.node, (input.node, weight.node, None if bias is None else bias.node)
    if n is not None and n[2] is _activation_back and not tape.anomaly.on:
        edges = (*edges, n[tape.EDGES][0])  # type: ignore[assignment]
    return tape.node(_linear_back if bias is not None else _plain_back, edges, (*_factors(input, weight), None if bias is None else bias.meta, input.meta))


def _as_rows(t: Tensor) -> Tensor:
    """All axes but the last as one; outside the tape a bare alias will do."""
    m = t.meta
    if _grad.get() or not m.contiguous:
        made: Tensor = t.reshape(layout.numel(m.shape[:-1]), m.shape[-1])
        return made
    return alias(t, _rows(m), t.ptr)


@general.kept
def _rows(m: Meta) -> Meta:
    return meta((layout.numel(m.shape[:-1]), m.shape[-1]), None, m.dtype, m.device)


_linear_back.grad_name = "AddmmBackward0"  # type: ignore[attr-defined]
_linear_back.inputs = 3  # type: ignore[attr-defined]


def _weight_and_bias(g: Tensor, x: Tensor, bias: Meta) -> tuple[Tensor, Tensor] | None:
    """(g^T x, the sums of g's columns) by one product that reads g once; None where the device has none of this kind."""
    plan = _with_sums(g.meta, x.meta, bias)
    if plan is None or (g.ptr | x.ptr) & plan[3]:
        return None
    weights, sums, product, _ = plan
    gw, gb = new(weights), new(sums)
    product(gw.ptr, g.ptr, x.ptr, gb.ptr)
    return gw, gb


@general.kept
def _with_sums(g: Meta, x: Meta, bias: Meta) -> Any:
    """(the layouts of the product and of the sums, the launch, bits that addresses may not have); None where there is none."""
    (m, n), k, d = g.shape, x.shape[1], g.dtype
    if d.kind != "f" or not d is x.dtype is bias.dtype or bias.shape != (n,) or not (m and n and k):
        return None
    made = dispatch.product(g.device, d, n, k, m, (g.strides[1], g.strides[0], 0), (x.strides[0], x.strides[1], 0), (k, 1, 0), epilogue="row sums")
    return None if made is None else (meta((n, k), None, d, g.device), meta((n,), None, d, g.device), dispatch.bind(g.device, made), made.aligned)


@general.kept
def _linear_plan(x: Meta, w: Meta, bias: Meta) -> Any:
    """The launches of x w^T + bias: one product, where the device's library adds a row; rows of bias and the product added to them
    otherwise.  None for what does not fit, or goes by other operations."""
    from .copies import cast_program
    whole = x
    if not (x.dtype is w.dtype is bias.dtype and x.device is w.device is bias.device) or x.shape[-1] != w.shape[1] or tuple(bias.shape) != (w.shape[0],):
        return None
    if len(whole.shape) > 2:
        if not whole.contiguous or not whole.numel:
            return None
        x = _rows(whole)
    m, k = x.shape
    n = w.shape[0]
    om = meta((m, n), None, x.dtype, x.device)
    d = om.dtype
    if d.kind not in "fc" or not om.numel or not k:
        return None
    steps = (x.strides[0], x.strides[1], 0), (w.strides[1], w.strides[0], 0), (n, 1, 0)
    product = dispatch.product(om.device, d, m, n, k, *steps, beta=1.0)
    if product is None:
        return None
    rows, _ = launch.plan(om.device, cast_program(bias.dtype, d), (m, n), ((n, 1), (0, bias.strides[0])), (om.nbytes, bias.nbytes), "bias")
    fused = dispatch.product(om.device, d, m, n, k, *steps, epilogue="bias") if bias.strides[0] == 1 else None
    if whole is not x:
        om = meta((*whole.shape[:-1], n), None, d, whole.device)
    return om, rows, dispatch.bind(om.device, product), fused and dispatch.bind(om.device, fused), fused.aligned if fused else 0


def _unfit(x: Meta, w: Meta) -> None:
    """Raises the error of a layer whose weight has another width than its input."""
    raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({layout.numel(x.shape[:-1])}x{x.shape[-1]} and {w.shape[1]}x{w.shape[0]})")


@op(method=False, out=True, spaces=("nn.functional",), autocast="lower", tangent="product and bias", batch="layer")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    """input @ weight.T + bias for input (..., in), weight (out, in) or (in,), bias (out,)."""
    if bias is not None and len(input.meta.shape) >= 2 and len(weight.meta.shape) == 2:
        plan = _linear_plan(input.meta, weight.meta, bias.meta)
        if plan is None:
            _check_types("linear", input, weight, added=True)
            same_device("linear", input, weight, bias)
            if input.meta.shape[-1] != weight.meta.shape[1]:
                _unfit(input.meta, weight.meta)
            fits = bias.meta.dtype is input.meta.dtype and tuple(bias.meta.shape) == (weight.meta.shape[0],)
            if fits and len(input.meta.shape) > 2 and not input.meta.contiguous:
                return linear(contiguous(input), weight, bias)
        else:
            om, rows, product, fused, unaligned = plan
            r = new(om)
            if fused is not None and not (unaligned and (input.ptr | weight.ptr | bias.ptr) & unaligned):
                fused(r.ptr, input.ptr, weight.ptr, bias.ptr)
            else:
                rows(r.ptr, bias.ptr)
                product(r.ptr, input.ptr, weight.ptr)
            if (input.node is not None or weight.node is not None or bias.node is not None) and _grad.get():
                r.node = recorded_layer(input, weight, bias)
            return r
    elif bias is None and input.meta.plain and weight.meta.plain and len(input.meta.shape) >= 2 and len(weight.meta.shape) == 2:
        return _linear_plain(input, weight)
    if bias is None:
        return _linear_any(input, weight, None)
    _check_types("linear", input, weight, added=True)
    if bias.meta.dtype is not weight.meta.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got {dtypes.title(bias.meta.dtype)} and {dtypes.title(weight.meta.dtype)}: those "
                           "of bias and weight")
    return _linear_narrow(input, weight, bias)


def _linear_plain(x: Tensor, w: Tensor) -> Tensor:
    """x w^T, as one node of the tape: its gradients need no other layouts of w."""
    if x.meta.shape[-1] != w.meta.shape[1]:
        _unfit(x.meta, w.meta)
    m = x.meta
    if len(m.shape) == 2:
        r = _mm(alias(x, m, x.ptr), _transposed(w))
    else:
        if not m.contiguous:
            x = contiguous(x)
            m = x.meta
        r = _mm(alias(x, _rows(m), x.ptr), _transposed(w))
        r = alias(r, meta((*m.shape[:-1], w.meta.shape[0]), None, m.dtype, m.device), r.ptr)
    if (x.node is not None or w.node is not None) and _grad.get():
        r.node = recorded_layer(x, w, None)
    return r


def _transposed(t: Tensor) -> Tensor:
    """The transpose of a matrix, outside the tape."""
    return alias(t, _swapped(t.meta), t.ptr)


@general.kept
def _swapped(m: Meta) -> Meta:
    return meta((m.shape[1], m.shape[0]), (m.strides[1], m.strides[0]), m.dtype, m.device)


def _plain_back(node: Any, g: Tensor) -> Any:
    return _linear_back(node, g)


_plain_back.grad_name = "MmBackward0"  # type: ignore[attr-defined]
_plain_back.inputs = 3  # type: ignore[attr-defined]


def _linear_any(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
    if not input.meta.shape or not weight.meta.shape:
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {len(input.meta.shape)}D and {len(weight.meta.shape)}D")
    if len(weight.meta.shape) == 1:
        out = matmul(input, weight)
    else:
        if input.meta.shape and input.meta.shape[-1] != weight.meta.shape[-1]:
            _unfit(input.meta, weight.meta)
        out = matmul(input, weight.t())
    return out if bias is None else out + bias


# a 16-bit product is rounded once, after the bias was added
_linear_narrow = in_float32(_linear_any)

has("addbmm vdot", batch="composite")
has("linear", sparse="composite")
