"""A few extreme eigenpairs of large symmetric matrices: Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block
preconditioned conjugate gradient method" (2001), each step's basis orthonormalized through the eigenvectors of its Gram matrix (Stathopoulos and
Wu, "A block orthogonalization procedure with constant synchronization requirements", 2002)."""

from __future__ import annotations

from typing import Any

from ... import dtypes
from ...autograd import tape
from ...autograd.mode import is_grad_enabled, no_grad
from ...tensor import Tensor
from ..table import op
from . import matrices

_ENDLESS = 1000  # steps where no number is given


@op(method=False, sparse="composite")
def lobpcg(A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: int | None = None, iK: Tensor | None = None,
           niter: int | None = None, tol: float | None = None, largest: bool | None = None, method: str | None = None, tracker: Any = None,
           ortho_iparams: Any = None, ortho_fparams: Any = None, ortho_bparams: Any = None) -> tuple[Tensor, Tensor]:
    """(E, X): the k largest (or smallest) eigenvalues (..., k) and eigenvectors (..., m, k) of A x = e B x, A symmetric and B positive definite,
    both (..., m, m), dense or, without batch, sparse.

    X (..., m, n) is the start, random by default; n is the size of its block, k by default; iK (..., m, m) approximates the inverse of A; at most
    `niter` steps are made, or as many as ask for the relative residual `tol`.  `method` may be "basic" or "ortho", which do the same here; the
    ortho parameters are taken and not needed; a `tracker` is not called.  Gradients are those of the symmetric parts of A and B, at the pairs as they were
    found, and need eigenvalues that differ from all others.  Raises ValueError where m < 3 n, NotImplementedError where a gradient of a sparse
    matrix is asked for.
    """
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"lobpcg: method must be 'basic' or 'ortho', got {method!r}")
    m = A.shape[-1]
    if A.dim() < 2 or A.shape[-2] != m:
        raise ValueError(f"lobpcg: A must be (..., m, m), got {tuple(A.shape)}")
    if A.dtype not in _TOLERANCE:
        raise ValueError(f"lobpcg: A must be float32 or float64, got {A.dtype}")
    recorded = is_grad_enabled() and (A.requires_grad or B is not None and B.requires_grad)
    if recorded and not (A.meta.plain and (B is None or B.meta.plain)):
        raise NotImplementedError("lobpcg: the derivative is not implemented for sparse matrices; that of to_dense() is, and no_grad() leaves it out")
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if X is None else X.shape[-1]) if n is None else n
    if m < 3 * n:
        raise ValueError(f"LPBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number of requested"
                         f" eigenpairs (={n})")
    if n < k:
        raise ValueError(f"lobpcg: n must be at least k ({k}), got {n}")
    if X is None:
        from ..random import randn
        X = randn(*A.shape[:-2], m, n, dtype=A.dtype, device=A.device)
    if X.shape != (*A.shape[:-2], m, n):
        raise ValueError(f"lobpcg: X must be {(*tuple(A.shape[:-2]), m, n)}, got {tuple(X.shape)}")
    asked = _TOLERANCE[A.dtype] if tol is None else tol
    steps = _ENDLESS if niter is None or niter < 0 else niter
    up = largest is None or largest
    if not recorded:
        made: tuple[Tensor, Tensor] = _of_each(A, B, X, iK, k, steps, asked, up)
        return made
    a, b = (A + A.mT) * 0.5, None if B is None else (B + B.mT) * 0.5
    e, v = [t.clone() for t in _of_each(a, b, X, iK, k, steps, asked, up)]
    saved = matrices.keep(a) if b is None else matrices.keep(a, b), matrices.keep_outputs(e, v)
    tape.record_many((e, v), _pairs_back, (a, b), saved, "LOBPCGAutogradFunctionBackward")
    return e, v


@no_grad()
def _of_each(A: Tensor, B: Any, X: Any, iK: Any, k: int, steps: int, tol: float, up: bool) -> tuple[Tensor, Tensor]:
    """The pairs of a matrix, or of each of a batch."""
    if A.dim() == 2:
        return _pairs(A, B, X, iK, k, steps, tol, up)
    lead, m = A.shape[:-2], A.shape[-1]
    count = lead.numel()

    def each(t: Any) -> Any:
        return [None] * count if t is None else t.reshape(count, *t.shape[-2:]).unbind(0)
    made = [_pairs(a, b, x, inverse, k, steps, tol, up) for a, b, x, inverse in zip(each(A), each(B), each(X), each(iK), strict=True)]
    from ..concat import stack
    if not made:
        return A.new_empty((*lead, k)), A.new_empty((*lead, m, k))
    return stack([e for e, _ in made]).reshape(*lead, k), stack([v for _, v in made]).reshape(*lead, m, k)


def _pairs_back(node: Any, gs: Any) -> Any:
    """Of A v = e B v with v^T B v = 1: de = v^T (dA - e dB) v, and dv = P (dA - e dB) v - v (v^T dB v) / 2, where P inverts e B - A on all other pairs."""
    from .solving import solve_ex
    inputs, outputs = node[tape.SAVED]
    (a, *rest), (e, v) = matrices.kept(node, inputs), matrices.kept_outputs(node, outputs)
    b = rest[0] if rest else None
    g_e, g_v = gs
    moved = None if g_e is None else v * g_e.unsqueeze(-2)
    if g_v is not None:
        rows, goal = v.mT, g_v.mT  # a pair each
        by_b = rows if b is None else rows @ b
        along = (rows * goal).sum(-1, keepdim=True)
        size = a.detach().abs().sum(-1).amax(-1)  # that of the pair's own eigenvalue, for which e B - A has none
        own = by_b.unsqueeze(-1) * by_b.unsqueeze(-2) * (size + (size == 0)).reshape(*size.shape, 1, 1, 1)
        whole = matrices.identity(a, a.meta.shape[-1]) if b is None else b.unsqueeze(-3)
        shifted = e.reshape(*e.shape, 1, 1) * whole - a.unsqueeze(-3) + own
        turned = solve_ex(shifted, (goal - by_b * along).unsqueeze(-1))[0].squeeze(-1).mT
        moved = turned if moved is None else moved + turned
    g_a = moved @ v.mT
    if b is None:
        return (g_a, None)
    scaled = moved * e.unsqueeze(-2)
    if g_v is not None:
        scaled = scaled + v * (along.mT * 0.5)
    return (g_a, -(scaled @ v.mT))


_TOLERANCE = {dtypes.float32: 2.0 ** -11.5, dtypes.float64: 2.0 ** -26}


def _pairs(a: Any, b: Any, x: Any, inverse: Any, k: int, steps: int, tol: float, largest: bool) -> tuple[Tensor, Tensor]:
    from ..concat import cat
    from .eigen import eigh

    def by_b(t: Tensor) -> Tensor:
        return t if b is None else b @ t

    def orthonormal(t: Tensor) -> Tensor:
        """Of the same span, without directions that rounding made."""
        for _ in range(2):
            size = (t * by_b(t)).sum(0).abs().sqrt()
            t = t[:, size > 0] / size[size > 0]
            w, v = eigh(t.mT @ by_b(t))
            kept = w > w[-1] * (8 * len(w) * dtypes.finfo(t.dtype).eps)
            t = t @ (v[:, kept] / w[kept].sqrt())
        return t

    def ritz(s: Tensor) -> tuple[Tensor, Tensor]:
        """The extreme values of A on the span of s, in order, and their coordinates."""
        t = s.mT @ (a @ s)
        e, z = eigh((t + t.mT) * 0.5)
        return (e.flip(0), z.flip(1)) if largest else (e, z)
    n = x.shape[1]
    x = orthonormal(x)
    e, z = ritz(x)
    x, before = x @ z, None
    size_a, size_b = (a @ x).norm() / x.norm(), by_b(x).norm() / x.norm()
    for _ in range(steps):
        rest = a @ x - by_b(x) * e
        found = rest[:, :k].norm(dim=0) / (x[:, :k].norm(dim=0) * (size_a + e[:k].abs() * size_b))
        if bool((found < tol).all()):
            break
        w = rest if inverse is None else inverse @ rest
        others = w if before is None else cat([w, before], 1)
        for _ in range(2):
            others = others - x @ (x.mT @ by_b(others))
        others = orthonormal(others)
        others = others - x @ (x.mT @ by_b(others))
        s = orthonormal(cat([x, others], 1)) if b is not None else cat([x, others], 1)
        e, z = ritz(s)
        e, z = e[:n], z[:, :n]
        new = s @ z
        before = new - x @ (x.mT @ by_b(new))
        x = orthonormal(new) if new.shape[1] != n else new
    return e[:k], x[:, :k]
