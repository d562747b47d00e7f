"""A line for each public operation, as `make bench-ops` has them, and what their results are compared by."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import flambeau as torch
from flambeau import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks" / "ops"))
import ops_lines
import ops_timing as ops_timing
import ops_values as ops_values


def bits(x: Any) -> Any:
    """A result as what can be compared exactly."""
    if isinstance(x, Tensor):
        if x.layout is not torch.strided:
            return str(x.layout), bits(x.to_dense())
        x = x.detach().resolve_conj().contiguous()
        return str(x.dtype), tuple(x.shape), bytes(x.view(torch.uint8).numpy().tobytes()) if x.numel() and x.dim() else repr(x.tolist())
    if isinstance(x, (tuple, list)):
        return [bits(y) for y in x]
    return repr(x) if isinstance(x, (int, float, complex, str, bool, type(None))) else type(x).__name__


@functools.cache
def lines() -> list[ops_lines.Line]:
    return ops_lines.all_lines(torch)[0]


# memory that nobody has written, and where it lies
ANYTHING = frozenset(("Tensor.data_ptr", "empty", "empty_like", "empty_strided", "Tensor.new_empty", "Tensor.new_empty_strided", "empty_permuted",
                      "Tensor.new"))
