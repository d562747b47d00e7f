"""The namespace of the Python array API standard, 2024.12 (data-apis.org/array-api/2024.12), over these tensors."""

from __future__ import annotations

from typing import Any

__array_api_version__ = "2024.12"


def answer(api_version: str | None = None) -> Any:
    """The namespace for `__array_namespace__`.  Raises ValueError for a version that is not covered."""
    if api_version is not None and api_version not in ("2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"__array_namespace__: api_version={api_version!r} is not covered; up to {__array_api_version__!r} is")
    import sys
    return sys.modules[__name__]
