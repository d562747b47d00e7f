"""Pseudoinverses, ranks and least squares.

Gradient of the pseudoinverse: Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose
variables separate" (1973), eq. 4.12.
"""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd import tape
from ...autograd.mode import no_recording
from ...tensor import Tensor, alias, empty
from ..checks import same_device
from ..table import op
from . import matrices
from .eigen import hermitian_factors, hermitian_values
from .matrices import adjoint
from .singular import recorded, values_of
from .solving import broadcast


def _tolerances(name: str, a: Tensor, atol: Any, rtol: Any, like: Tensor) -> tuple[Any, Any]:
    """atol and rtol, numbers or tensors ready to be compared with singular values."""
    if rtol is None:
        default = dtypes.finfo(a.meta.dtype).eps * max(a.meta.shape[-2:])
        if isinstance(atol, Tensor):
            rtol = (atol <= 0).to(like.meta.dtype) * default
        else:
            rtol = default if atol is None or atol <= 0 else 0.0
    atol = 0.0 if atol is None else atol
    ready = []
    for what, v in (("atol", atol), ("rtol", rtol)):
        if isinstance(v, Tensor):
            if v.meta.dtype.is_complex:
                raise RuntimeError(f"{name}: {what} tensor of complex type is not supported. Got {what}.dtype = {v.meta.dtype}")
            if v.meta.shape or v.meta.device.type != "cpu":
                same_device(name, a, v)
            v = v.to(device=like.meta.device, dtype=like.meta.dtype)
        ready.append(v)
    return ready[0], ready[1]


def _kept(name: str, a: Tensor, s: Tensor, atol: Any, rtol: Any) -> Tensor:
    """Which singular values count."""
    atol, rtol = _tolerances(name, a, atol, rtol, s)
    largest = s.amax(-1) if s.meta.shape[-1] else s.sum(-1)
    limit = largest * rtol
    if isinstance(atol, Tensor):
        limit = limit.maximum(atol)
    elif atol:
        limit = limit.clamp_min(atol)
    made: Tensor = s > limit.unsqueeze(-1)
    return made


def _pinv(name: str, a: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    matrices.matrix(name, a, "A")
    m, n = a.meta.shape[-2:]
    if hermitian:
        matrices.square(name, a, "A")
    if not a.meta.numel:
        return adjoint(a) * 1
    with no_recording():
        if hermitian:
            w, v = hermitian_factors(name, a, True)
            keep = _kept(name, a, w.abs(), atol, rtol)
            left, right, s = v, adjoint(v), w
        else:
            u, s, vh = recorded(name, a, False)
            keep = _kept(name, a, s, atol, rtol)
            left, right = adjoint(vh), adjoint(u)
        inverse = keep.to(s.meta.dtype) / s.masked_fill(keep.logical_not(), 1.0)
        out = (left * inverse.unsqueeze(-2)) @ right
    out = alias(out, out.meta, out.ptr)
    return tape.record(out, _pinv_back, (a,), (matrices.keep(a), matrices.keep_outputs(out)), "LinalgPinvBackward0")


def _pinv_back(node: Any, g: Tensor) -> Any:
    inputs, outputs = node[tape.SAVED]
    (a,), (p,) = matrices.kept(node, inputs), matrices.kept_outputs(node, outputs)
    return (through_pinv(a, p, g),)


def through_pinv(a: Tensor, p: Tensor, g: Tensor) -> Tensor:
    """The gradient at A from that at its pseudoinverse P."""
    ph, gh = adjoint(p), adjoint(g)
    m, n = a.meta.shape[-2:]
    found = -(ph @ g @ ph)
    if m <= n:
        first, second = gh @ p, p @ gh
        return found + (first - a @ (p @ first)) @ ph + ph @ (second - (second @ p) @ a)
    first, second = p @ ph, ph @ p
    return found + (gh - a @ (p @ gh)) @ first + second @ (gh - (gh @ p) @ a)


@op(method=False, out=True, spaces=("linalg",), batch="trailing", out_type="castable")
def pinv(input: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:  # noqa: A002
    """The pseudoinverse (..., n, m) of A = `input` (..., m, n) (Moore and Penrose).

    Singular values up to max(atol, rtol * the largest) count as zero; rtol is max(m, n) times the type's eps by default, 0 when
    atol > 0 is given; `rcond` is rtol's older name.  hermitian: A is taken to be, and eigenvalues are used.  Differentiable where
    the rank does not change.
    """
    return _pinv("linalg.pinv", input, atol, rtol if rcond is None else rcond, hermitian)


@op(autocast="cpu full", batch="trailing")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:  # noqa: A002 (PyTorch's name)
    """`linalg.pinv` under its older name."""
    return _pinv("linalg.pinv", input, None, rcond, False)


@op(method=False, out=True, spaces=("linalg",), batch="trailing", out_type="castable")
def matrix_rank(input: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:  # noqa: A002
    """How many singular values of A = `input` (..., m, n) are above max(atol, rtol * the largest) (int64); defaults as `pinv`'s; `tol` is an
    absolute limit."""
    matrices.matrix("linalg.matrix_rank", input)
    if tol is not None:
        atol, rtol = tol, 0.0
    if hermitian:
        matrices.square("linalg.matrix_rank", input)
    lead = tuple(input.meta.shape[:-2])
    with no_recording():
        if not input.meta.numel:
            return input.new_zeros(lead, dtype=dtypes.int64)
        s = hermitian_values("linalg.matrix_rank", input).abs() if hermitian else values_of("linalg.matrix_rank", input)
        return _kept("linalg.matrix_rank", input, s, atol, rtol).sum(-1)


# ------------------------------------------------------------------------------------------------------- least squares
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


@op(method=False, out=True, spaces=("linalg",))
def lstsq(input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:  # noqa: A002
    """The X that makes |A X - B| least for A = `input` (..., m, n) and B (..., m, k), or (..., m): (solution, residuals, rank, singular_values).

    driver: "gelsy" (default on the CPU; rank from a pivoted QR), "gelsd", "gelss" (from the SVD) or "gels" (full rank; the only one on
    GPUs).  residuals: squared, (..., k), when m > n, the rank is full and the driver is not gelsy, else empty.  rank: empty for
    gels.  singular_values: of gelsd and gelss, else empty.  Singular values up to rcond times the largest count as zero.
    Gradients are those of the full-rank case.
    """
    name = "torch.linalg.lstsq"
    matrices.matrix(name, input, "input")
    matrices.alike(name, input, b, "input", "other")
    on_gpu = input.meta.device.type == "cuda"
    driver = driver or ("gels" if on_gpu else "gelsy")
    if not on_gpu and driver not in _DRIVERS:
        raise RuntimeError(f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    if on_gpu and driver != "gels":
        raise RuntimeError(f"{name}: `driver` other than `gels` is not supported on CUDA")
    vector = len(b.meta.shape) == len(input.meta.shape) - 1 and tuple(b.meta.shape) == tuple(input.meta.shape[:-1])
    b = b.unsqueeze(-1) if vector else b
    if len(b.meta.shape) < 2 or b.meta.shape[-2] != input.meta.shape[-2]:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size({'-1' if vector else '-2'})")
    a, b = broadcast(input, b)
    if rcond is None:
        rcond = dtypes.finfo(a.meta.dtype).eps * max(a.meta.shape[-2:])
    x, residuals, rank, s = _solved(a, b, driver, rcond)
    if vector:
        x = x.squeeze(-1)
    return matrices.result("linalg_lstsq", "solution residuals rank singular_values", x, residuals, rank, s)


def _solved(a: Tensor, b: Tensor, driver: str, rcond: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    m, n = a.meta.shape[-2:]
    k = b.meta.shape[-1]
    batch, d, dev = matrices.batch_of(a), a.meta.dtype, a.meta.device
    lead, tall, least = tuple(a.meta.shape[:-2]), max(m, n), min(m, n)
    real = d.to_real()
    full = matrices.columns(b, tall)
    rank, s = empty(lead, dtypes.int64, dev), empty((*lead, least), real, dev)
    info = empty(lead, dtypes.int32, dev)
    if batch:
        matrices.job("lstsq", a, (m, n, k, driver, float(rcond)), full, rank, s, info, lost=a)
        matrices.require("torch.linalg.lstsq", "lstsq", info)
    with no_recording():
        x = full.narrow(-2, 0, n)
        x = alias(x, x.meta, x.ptr)
        residuals = empty((0,), real, dev)
        if m > n and driver != "gelsy" and (driver == "gels" or bool((rank == n).all())):
            residuals = full.narrow(-2, n, m - n).abs().square().sum(-2)
    if driver == "gels":
        rank = empty((0,), dtypes.int64, dev)
    if driver not in ("gelsd", "gelss"):
        s = empty((0,), real, dev)
    saved = (matrices.keep(a, b), matrices.keep_outputs(x, residuals))
    tape.record_many((x, residuals), _solved_back, (a, b), saved, "LinalgLstsqBackward0")
    return x, residuals, rank, s


def _solved_back(node: Any, gs: Any) -> Any:
    inputs, outputs = node[tape.SAVED]
    (a, b), (x, _) = matrices.kept(node, inputs), matrices.kept_outputs(node, outputs)
    g_x, g_r = gs
    to_a = to_b = None
    if g_x is not None:
        # X = pinv(A) B
        p = _pinv("torch.linalg.lstsq", a, None, None, False)
        to_b = adjoint(p) @ g_x
        if node[tape.EDGES][0] is not None:
            to_a = through_pinv(a, p, g_x @ adjoint(b))
    if g_r is not None and g_r.meta.numel:
        # |A X - B|^2 by columns: X is where it is least, so only A and B move it
        more = (a @ x - b) * g_r.unsqueeze(-2) * 2
        to_b = -more if to_b is None else to_b - more
        to_a = more @ adjoint(x) if to_a is None else to_a + more @ adjoint(x)
    return (to_a, to_b)
