"""The launches that serve many arrays compile for every architecture, within few registers; no GPU needed."""

from __future__ import annotations

import pytest

from flambeau._core.dtypes import bfloat16, float16, float32, float64
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.cuda_c import foreach
from flambeau._core.kernels.cuda_c.nvrtc import build
from flambeau._core.kernels.programs import Map
from flambeau._core.ops.norms import norm_program
from flambeau.optim.adam import _adam
from tests._core.kernels.cuda_c.test_compile import ARCHITECTURES, compiler, usage  # noqa: F401 (compiler: a fixture of every test)

TYPES = (float32, float64, float16, bfloat16)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_registers(arch: str) -> None:
    kernels = []
    for d in TYPES:
        wide, xs = d.opmath, [E.cast(E.input(k, d), d.opmath) for k in range(4)]
        outs = _adam(*xs, *[E.scalar(k, wide) for k in range(7)], maximize=False, decoupled=True)
        adam = Map(tuple(E.cast(e, d) for e in outs), (d,) * 4, (wide,) * 7)
        kernels.append(foreach.maps(adam, (0, 1, 2, 3), (0, 1, 2), [100] * 90))
        told = ~(abs(xs[0]) < float("inf"))
        kernels.append(foreach.maps(Map((E.cast(xs[0] * E.scalar(0, wide), d),), (d,), (wide,)), (0,), (0,), [5] * 9, told))
        kernels.append(foreach.reductions(norm_program(d, 2.0, d), [7] * 200)[0])
    for k in kernels:
        source, log = build(k.source, arch, ("--ptxas-options=-v",))
        for name, (registers, spilt) in usage(log).items():
            assert registers <= 64 and spilt <= 16, f"{name}: {registers} registers, {spilt} bytes spilt"
        assert ".local" not in log and "stack frame, " not in log.replace("0 bytes stack frame, ", ""), log
