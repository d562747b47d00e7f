"""Attention's kernels compile for every architecture, within the registers of a thread and with few spills or none; no GPU needed."""

from __future__ import annotations

import pytest

from flambeau._core.dtypes import bfloat16, bool_, dtype, float16, float32
from flambeau._core.kernels.cuda_c.handwritten.attention import Attention
from flambeau._core.kernels.cuda_c.nvrtc import build
from tests._core.kernels.cuda_c.test_compile import ARCHITECTURES, compiler, usage  # noqa: F401 (compiler: a fixture of every test)

SPILT = 96  # bytes that ptxas may put away around a tile's product
SHARED = {"sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10}


def attention(d: dtype, depth: int, causal: bool = True, mask: dtype | None = None, drop: bool = False, shared: int = 227 << 10) -> Attention:
    steps = dict.fromkeys(("q", "k", "v", "o", "g", "dq", "dk", "dv"), (4 * 512 * depth, 512 * depth, depth)) | {"mask": (0, 0, 512)}
    return Attention(d, mask, causal, drop, (2, 4, 1, 512, 512, depth, depth), depth ** -0.5, steps, shared)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("d, depth, causal, mask, drop", [
    (bfloat16, 64, True, None, False), (bfloat16, 128, False, None, False), (float16, 128, True, bool_, False), (float16, 64, False, bfloat16, True),
    (float16, 256, True, None, False), (float32, 64, True, None, False), (float32, 128, False, bool_, False)])
def test_registers(d: dtype, depth: int, causal: bool, mask: dtype | None, drop: bool, arch: str) -> None:
    plan = attention(d, depth, causal, mask if mask is not bfloat16 else d, drop, SHARED[arch])
    for kernel in [plan.forward(), *([plan.backward()] if depth <= 128 else [])]:
        _, log = build(kernel.source, arch, ("--ptxas-options=-v",))
        found = usage(log)
        assert set(found) == {name for name, *_ in kernel.launches}
        for name, _, block, shared in kernel.launches:
            registers, spilt = found[name]
            assert spilt <= SPILT and registers * block[0] <= 65536, f"{name}: {registers} registers, {spilt} bytes spilt"
            assert shared <= SHARED[arch]


def test_every_depth_fits_every_architecture() -> None:
    """The least shared memory that a block of compute capability 8.0 and up has is 99 KiB."""
    for d in (float32, float16):
        for depth in range(1, 257):
            for mask in (None, bool_):
                plan = attention(d, depth, mask=mask, shared=99 << 10)
                kernels = [plan.forward(), *([plan.backward()] if depth <= 128 else [])]
                assert all(launch[3] <= 99 << 10 for k in kernels for launch in k.launches)
