"""The CPU's libraries, entered by pointer and split over our own threads."""

from __future__ import annotations


def libraries() -> dict[str, str]:
    """Which library serves what on this machine."""
    from . import blas
    return {"matmul, linear, convolution, attention": f"OpenBLAS {blas.version()} (scipy-openblas64), tiles on our own threads"}
