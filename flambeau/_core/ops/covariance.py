"""Covariance and correlation of variables whose observations are columns."""

from __future__ import annotations

from typing import Any

from ..engine.fields import has
from ..errors import warn
from ..tensor import Tensor
from .linalg.matrices import adjoint, type_name
from .table import op


def _weights(name: str, w: Tensor, count: int, kinds: str, wanted: str) -> None:
    if len(w.meta.shape) > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {len(w.meta.shape)} dimensions")
    if w.meta.dtype.kind not in kinds:
        raise RuntimeError(f"cov(): expected {name} to have {wanted} dtype but got {name} with {type_name(w)} dtype")
    if w.meta.numel != count:
        raise RuntimeError(f"cov(): expected {name} to have the same numel as there are observations in the input but got {w.meta.numel} != {count}")
    if count and bool((w < 0).any()):
        raise RuntimeError(f"cov(): {name} cannot be negative")


@op()
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:  # noqa: A002
    """The covariances of the rows of `input` (variables, observations), a matrix; the variance of one variable.

    correction: taken off the count of observations.  fweights: how often each observation occurs (integers).  aweights: how much each
    counts (floating point).
    """
    if len(input.meta.shape) > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {len(input.meta.shape)} dimensions")
    if input.meta.dtype.kind == "b":
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input if len(input.meta.shape) == 2 else input.reshape(1, -1)
    count = x.meta.shape[1]
    w = None
    if fweights is not None:
        _weights("fweights", fweights, count, "ui", "integral")
        w = fweights
    if aweights is not None:
        _weights("aweights", aweights, count, "f", "floating point")
        w = aweights if w is None else aweights * w
    mean = (x if w is None else x * w).sum(1)
    total = count if w is None else w.sum()
    if w is not None and (not count or bool(total == 0)):
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    mean = mean / total
    norm: Any
    if w is None:
        norm = count - correction
    elif aweights is None or correction == 0:
        norm = total - correction
    else:
        norm = total - correction * (w * aweights).sum() / total
    if w is None and norm <= 0 or w is not None and bool(norm <= 0):
        warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.")
        norm = 0 if w is None else norm.clamp_min(0)
    if x.meta.dtype.kind in "ui":
        x = x.to(mean.meta.dtype)
    x = x - mean.unsqueeze(1)
    other = x if w is None else (x * w).to(x.meta.dtype)
    found: Tensor = (x @ adjoint(other)) / norm
    return found if len(input.meta.shape) == 2 and input.meta.shape[0] != 1 else found.squeeze()


@op()
def corrcoef(input: Tensor) -> Tensor:  # noqa: A002
    """Pearson's correlation coefficients of the rows of `input` (variables, observations), each part within -1 ... 1."""
    if len(input.meta.shape) > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with {len(input.meta.shape)} dimensions")
    c = cov(input)
    if not c.meta.shape:
        one: Tensor = c / c
        return one
    deviation = c.diagonal()
    deviation = (deviation.real if deviation.meta.dtype.is_complex else deviation).sqrt()
    c = c / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if c.meta.dtype.is_complex:
        from .complexes import complex_, imag, real
        made: Tensor = complex_(real(c).clamp(-1, 1), imag(c).clamp(-1, 1))
        return made
    bounded: Tensor = c.clamp(-1, 1)
    return bounded

has("corrcoef", batch="composite")
