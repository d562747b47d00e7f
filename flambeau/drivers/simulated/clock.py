"""What work costs on a simulated GPU, in seconds.

The roofline: a kernel takes the longer of moving its bytes and doing its arithmetic at the model's peak rates, and
never less than a kernel's fixed time.  Streams do not slow each other down: kernels that overlap are predicted too
fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...kernels.programs import Prepared
    from .models import Model

LAUNCH = 4e-6  # the host's time for one call that queues work: a few microseconds through any runtime
KERNEL = 2e-6  # an empty kernel, from start to end, on data-centre GPUs
COPY = 8e-6  # set-up of a copy over a link
PAGEABLE = 8e9  # bytes a second through the driver's own staging buffer, reported for H100 hosts; pinned gets the link
_LIBRARY = ("matmul", "mm", "linear", "conv", "attention", "gemm", "dot")
_HALF = ("float16", "bfloat16", "f16", "bf16", "half")
_DOUBLE = ("float64", "complex128", "f64", "double")


def arithmetic_rate(model: Model, prepared: Prepared) -> float:
    """Operations a second for the element type of a launch.  Library products of halves run on the tensor cores;
    float32 ones do not, as PyTorch leaves TF32 off by default."""
    program = prepared.program
    words = prepared.name.lower().replace(".", "_").split("_")
    if program is not None:
        types = program.inputs or program.out_types
        if any(d.name in _DOUBLE for d in types):
            return model.float64 * 1e12
        return model.float32 * 1e12  # pointwise arithmetic on halves is done in float32
    if any(w in _DOUBLE for w in words):
        return model.float64 * 1e12
    if any(w in _HALF for w in words) and any(w.startswith(_LIBRARY) for w in words):
        return model.half * 1e12
    return model.float32 * 1e12


def kernel_seconds(model: Model, prepared: Prepared) -> float:
    """The predicted time of one launch."""
    moving = prepared.nbytes / (model.bandwidth * 1e9)
    computing = prepared.flops / arithmetic_rate(model, prepared) if prepared.flops else 0.0
    return max(moving, computing, KERNEL)


def copy_seconds(model: Model, path: str, nbytes: int, pinned: bool, peer: Model | None = None) -> float:
    """The predicted time of a copy; path: "h2d", "d2h", "d2d", "peer" (direct) or "host" (between GPUs by the host)."""
    if path == "d2d":
        return max(KERNEL, 2 * nbytes / (model.bandwidth * 1e9))
    if path in ("h2d", "d2h"):
        rate = model.pcie * 1e9
        return COPY + nbytes / (rate if pinned else min(rate, PAGEABLE))
    other = peer or model
    if path == "peer":
        link = min(model.nvlink, other.nvlink) or min(model.pcie, other.pcie)
        return COPY + nbytes / (link * 1e9)
    return 2 * COPY + nbytes / (model.pcie * 1e9) + nbytes / (other.pcie * 1e9)
