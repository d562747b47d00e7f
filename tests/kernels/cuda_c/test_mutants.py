"""Kernels broken on purpose are caught by the checks that all kernels pass: what those checks are worth."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from flambeau.dtypes import float32, int64
from flambeau.kernels import expr as E
from flambeau.kernels.cuda_c import Kernel
from flambeau.kernels.programs import Map, Reduce, Rows, Scan
from tests.kernels.cuda_c import host
from tests.kernels.cuda_c.cases import Case, Operand, values

pytestmark = pytest.mark.skipif(bool(host.missing()), reason=host.missing() or "-")
RNG = np.random.default_rng(1)
X = E.input(0, float32)


def total(n: int, rows: int = 2) -> Case:
    return Case(Reduce((X,), ("sum",), (E.acc(0, float32),), (float32,)), (rows, n), [Operand(np.zeros(rows, np.float32))],
                [Operand(values(float32, (rows, n), RNG, False))], (), 1e-4, 1e-4)


def columns() -> Case:
    a = Operand(values(float32, (70, 40), RNG, False))
    a.view = a.view.T
    return Case(Reduce((X,), ("sum",), (E.acc(0, float32),), (float32,)), (40, 70), [Operand(np.zeros(40, np.float32))], [a], (), 1e-4, 1e-4)


def softmax(n: int) -> Case:
    e = E.exp(X - E.acc(0, float32))
    program = Rows((("reduce", "max", X), ("reduce", "sum", e), ("map", 0, e / E.acc(1, float32))), (float32,))
    return Case(program, (3, n), [Operand(np.zeros((3, n), np.float32))], [Operand(values(float32, (3, n), RNG, False))], (), 1e-4, 1e-6)


def running(n: int) -> Case:
    program = Scan(X, "max", (E.acc(0, float32), E.acc(1, int64)), (float32,))
    return Case(program, (2, n), [Operand(np.zeros((2, n), np.float32)), Operand(np.zeros((2, n), np.int64))],
                [Operand(values(float32, (2, n), RNG, False))])


def doubled(n: int, how: int = 0) -> Case:
    return Case(Map((X + X,), (float32,)), (n,), [Operand(np.zeros(n, np.float32), how)], [Operand(values(float32, (n,), RNG, False), how)])


def changed(c: Case, pattern: str, new: str, count: int = 1) -> Case:
    """The case with its kernel's text changed."""
    k = c.kernel
    text, found = re.subn(pattern, new, k.source, count=count)
    assert found, f"nothing like {pattern} in\n{k.source}"
    c.kernel = Kernel(text, k.launches, k.arguments, k.block, k.workspace, k.nbytes, k.flops, k.program)
    return c


BARRIER = r"__syncthreads\(\);"
MUTANTS = {
    "no barrier before the warps' sums are read": lambda: changed(total(3000), BARRIER, ""),
    "no barrier before columns are added": lambda: changed(columns(), BARRIER, ""),
    "no barrier before a row's maximum is read": lambda: changed(softmax(3000), BARRIER, ""),
    "no barrier before a row's sum is read": lambda: changed(softmax(3000), r"(?s)(__syncthreads\(\);.*?)__syncthreads\(\);", r"\1"),
    "no barrier before the next tile": lambda: changed(running(5000), r"(?s)(__syncthreads\(\);.*)__syncthreads\(\);", r"\1"),
    "no barrier before the warps' totals are read": lambda: changed(running(5000), BARRIER, ""),
    "a barrier that only some threads reach": lambda: changed(total(3000), BARRIER, "if (threadIdx.x < 128) { __syncthreads(); }"),
    "one element too many": lambda: changed(doubled(1001), r"(const int left\d+ = .*?) : 4;", r"\1 + 1 : 4;"),
    "one element too many in a strided map": lambda: changed(doubled(250, 1), r"if \((i\d+) >= (n\d+)\) return;", r"if (\1 > \2) return;"),
    "one element too many in a row": lambda: changed(softmax(999), r"if \((i\d+) < (n\d+)\)", r"if (\1 <= \2)", 0),
    "the last elements left out": lambda: changed(total(3001), r"if \((end\d+|n\d+) - (r\d+) > k\)", r"if (\1 - \2 > k + 1)"),
    "the wrong mask": lambda: changed(total(3000), "0xffffffffu", "0x0000ffffu", 0),
    "a shuffle that half the warp skips": lambda: changed(total(100), r"const float (x\d+) = shuffle\((s\d+), 16\);",
                                                         r"float \1 = 0; if (threadIdx.x < 16) \1 = shuffle(\2, 16);"),
    "a shuffle that goes too far": lambda: changed(total(100), r"shuffle\((s\d+), 16\)", r"shuffle(\1, 48)"),
    "accumulated by all without atomics": lambda: changed(total(100), r"if \(true && \(int\)threadIdx.x == 0\)", "if (true)"),
    "blocks that add to one place": lambda: changed(total(40000, 1), r"(a\d+)\[at\d+\] = (s\d+);", r"\1[0] += \2;"),
    "too little shared memory": lambda: changed(total(3000), r"__shared__ float (\w+)\[8\]", r"__shared__ float \1[7]"),
    "too little shared memory for columns": lambda: changed(columns(), r"__shared__ float (\w+)\[(\d+)\]", r"__shared__ float \1[\2 - 32]"),
    "shared memory that not all have written": lambda: changed(total(3000), r"if \(\(threadIdx.x & 31\) == 0\)", "if (threadIdx.x == 0)"),
    "more lanes than warps": lambda: changed(total(3000), r"(lane\d+) < 8 \?", r"\1 < 9 ?"),
    "an aligned access where nothing is aligned": lambda: changed(doubled(1000, 4), r"const bool (whole\d+) = .*;", r"const bool \1 = true;"),
    "threads that leave before a barrier": lambda: changed(softmax(3000), r"(float s\d+ = __int_as_float)", r"if (threadIdx.x > 200) return; \1"),
}


def whole(make: Callable[[], Case]) -> Case:
    """The same case as it was before it was broken."""
    c = make()
    return Case(c.program, c.domain, c.outs, c.ins, c.numbers, c.rtol, c.atol, dict(enumerate(c.strides)))


@pytest.fixture(scope="module")
def built() -> tuple[dict[str, Case], host.Batch]:
    cases = {name: make() for name, make in MUTANTS.items()}
    for at, c in enumerate(cases.values()):  # mutants of one kernel must not share its name
        k = c.kernel
        (tag,) = set(re.findall(r"__global__ void __launch_bounds__\(\d+\) [a-z_]+_([0-9a-f]{12})\(", k.source))
        new = f"{tag[:9]}{at:03x}"
        c.kernel = Kernel(k.source.replace(tag, new), tuple((n.replace(tag, new), *rest) for n, *rest in k.launches), k.arguments, k.block,
                          k.workspace, k.nbytes, k.flops, k.program)
    return cases, host.Batch([c.kernel for c in cases.values()])


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_caught(name: str, built: tuple[dict[str, Case], host.Batch]) -> None:
    cases, batch = built
    with pytest.raises(AssertionError) as caught:  # a LaunchError, a wrong result, or one that depends on the order
        cases[name].check(batch)
    assert "g++" not in str(caught.value)


def test_not_caught_unbroken() -> None:
    cases = [whole(make) for make in MUTANTS.values()]
    batch = host.Batch([c.kernel for c in cases])
    for c in cases:
        c.check(batch)
