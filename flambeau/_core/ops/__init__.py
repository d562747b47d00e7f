"""The operations, by family.  Importing this package fills the op table and gives the Tensor its methods."""

from __future__ import annotations

import sys
from typing import Any

from .. import hooks
from ..tensor import Tensor
from . import (  # noqa: F401 (each import registers its family)
    arguments,
    aten_compat,
    attention,
    attributes,
    axis_views,
    binary,
    casts,
    complexes,
    compressed,
    concat,
    contractions,
    convolution,
    copies,
    covariance,
    creation,
    differences,
    distances,
    elementwise,
    fft,
    fractional,
    indexing,
    launch,
    lazy_views,
    legacy,
    linalg,
    linear_activation,
    losses,
    matmul,
    minmax,
    moments,
    normalization,
    norms,
    pinning,
    pointwise,
    pooling,
    random,
    ranges,
    rearrange,
    reductions,
    removed,
    row_norms,
    sampling,
    scans,
    searching,
    shared_tensors,
    softmax,
    sorting,
    sparse,
    special,
    stft,
    table,
    unique_histogram,
    views,
)

hooks.provide(fit=elementwise.fit, launch_plan=launch.plan, operations=lambda: table.TABLE)
attributes.install(Tensor)
removed.install(Tensor)
table.attach(Tensor)
_rows = table.namespace("torch")
binary.operators(Tensor, _rows)


def __getattr__(name: str) -> Any:
    """An operation by its name in `torch`, for the layers above; it becomes an ordinary attribute at its first use."""
    found = table.find("torch", name)
    if found is None and name in ("aten", "_c10d_functional", "torch_attn", "load_library", "loaded_libraries", "import_module"):
        found = hooks.aten(name)
    if found is None and not name.startswith("__") and "flambeau.library" in sys.modules:
        found = sys.modules["flambeau.library"].space(name)  # `torch.ops.<namespace>` of custom operations
        if found is not None:
            return found
    if found is None:
        raise AttributeError(f"module 'flambeau.ops' has no operation {name!r}")
    globals()[name] = found
    return found
