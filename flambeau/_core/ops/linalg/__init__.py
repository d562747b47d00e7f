"""Linear algebra: factorizations, equations, eigenvalues, norms, and what is built from them.

A device's backend does whole jobs (`specs.Lapack`); `matrices` holds what the operations share; the other modules are the families.
"""

from __future__ import annotations

from . import cholesky, determinants, eigen, functions, householder, indefinite, lobpcg, lu, norms, products, pseudoinverse, singular, solving

__all__ = ["cholesky", "determinants", "eigen", "functions", "householder", "indefinite", "lobpcg", "lu", "norms", "products", "pseudoinverse",
           "singular", "solving"]
