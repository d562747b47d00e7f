"""The operations, by family.  Importing this package fills the op table and gives the Tensor its methods."""

from __future__ import annotations

from ..tensor import Tensor
from . import (  # noqa: F401 (each import registers its family)
    casts,
    copies,
    creation,
    pointwise,
    table,
    views,
)

table.attach(Tensor)
