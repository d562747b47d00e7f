"""Row formulas and their derivatives in CUDA C, carried out on the CPU, give what the NumPy interpreter gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flambeau._core.dtypes import float32
from flambeau._core.kernels import interpret
from flambeau._core.kernels.schedule import schedule
from tests._core.kernels.cuda_c import host
from tests._core.kernels.cuda_c.cases import Case, Operand, check_all
from tests._core.kernels.row_formulas import FORMULAS, FUSED, SIZES, run
from tests._core.kernels.test_derive_rows import Case as Derivative
from tests._core.kernels.test_derive_rows import sorted_place

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")


@pytest.mark.parametrize("fused", [False, True], ids=["apart", "fused"])
def test_formulas(fused: bool) -> None:
    rng, cases = np.random.default_rng(1), []
    for name in FORMULAS:
        for order in (0, 1, 2):
            made = Derivative(name, float32, order)
            axes = [sorted_place(e, made.domain) for e in made.outs]
            steps = schedule(made.outs, axes, made.domain, FUSED.get(name, "c") if fused else "", dict.fromkeys(made.domain, 1))
            seen: list[Any] = []
            run(steps, axes, [e.dtype for e in made.outs], interpret.prepare, made.values(rng, np.float32),
                {n: e.value[1] for n, e in made.leaves.items()}, made.numbers(), SIZES, seen)
            for one, arrays, numbers in seen:
                outs = [Operand(a) for a in arrays[:len(one.step.outs)]]
                ins = [Operand(a) for a in arrays[len(outs):]]
                passed = [float(v) if d.kind == "f" else int(v) for v, (_, _, d) in zip(numbers, one.step.numbers, strict=True)]
                cases.append(Case(one.program, one.domain, outs, ins, passed, 2e-3, 2e-3, dict(enumerate(one.strides))))
    check_all(cases, (0, 7))
