"""The classes of results with named parts (torch.return_types), for `isinstance` and for trees of values."""

from __future__ import annotations

from typing import Any

from ._core.ops import results

_FIELDS = {
    "aminmax": "min max", "cummax": "values indices", "cummin": "values indices", "frexp": "mantissa exponent", "histogram": "hist bin_edges",
    "histogramdd": "hist bin_edges", "kthvalue": "values indices", "max": "values indices", "median": "values indices", "min": "values indices",
    "mode": "values indices", "nanmedian": "values indices", "sort": "values indices", "topk": "values indices", "geqrf": "a tau",
    "linalg_cholesky_ex": "L info", "linalg_eig": "eigenvalues eigenvectors", "linalg_eigh": "eigenvalues eigenvectors", "linalg_qr": "Q R",
    "linalg_slogdet": "sign logabsdet", "linalg_svd": "U S Vh", "linalg_inv_ex": "inverse info", "linalg_lu": "P L U",
    "linalg_lstsq": "solution residuals rank singular_values", "qr": "Q R", "slogdet": "sign logabsdet", "svd": "U S V",
    "triangular_solve": "solution cloned_coefficient",
}


def __getattr__(name: str) -> Any:
    for (known, _), cls in results._classes.items():
        if known == name:
            return cls
    if name in _FIELDS:
        return results.named(name, _FIELDS[name])
    raise AttributeError(f"module 'flambeau.return_types' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_FIELDS)
