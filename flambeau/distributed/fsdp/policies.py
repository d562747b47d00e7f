"""How sharded modules compute and where their pieces lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """param_dtype: the type in which parameters are gathered and used.  reduce_dtype: that in which gradients are reduced (param_dtype without).
    output_dtype: that of the module's floating outputs.  cast_forward_inputs: floating inputs are cast to param_dtype."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Pieces lie where the module was."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Pieces, their gradients and the optimizer's state lie in the host's memory; they are copied when they are gathered."""

    pin_memory: bool = True
